"""Vocabulary of concepts in flat arrays, so that a vocabulary of a million concepts opens by memory-mapping.

A concept is a number, the index of its URI or id, names, notations, broader concepts, schemes, collections and
replacements. Concepts are looked up by name through a sorted array of hashes; the names confirm each match."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xmtc.core.array_validation import is_offset_array
from xmtc.core.numba_support import kernel
from xmtc.errors import XmtcError
from xmtc.storage.folder import STRUCTURE_ERRORS, FolderKind
from xmtc.storage.form import Form, array
from xmtc.text.normalisation import normalize_unicode
from xmtc.text.string_index import NOT_FOUND, StringIndex, hash_bytes

FOLDER_FORMATS = (1, 2)  # readable versions; the last one is written
VOCABULARY_FOLDER = FolderKind("vocabulary", FOLDER_FORMATS, "xmtc vocab import VOCAB", "import")
NO_CONCEPT = -1  # result of a search without a match
PREFERRED, ALTERNATIVE, HIDDEN, NOTATION = range(4)  # kinds of names
SCHEME, COLLECTION = range(2)  # kinds of groups
LOCAL_ID_PATTERN = re.compile(r"[^/#:]+(?=[/#]?$)")  # last part of a URI
MAX_LANGUAGES = 2**15  # limit of the int16 language numbers


class ConceptName(NamedTuple):
    """Name or notation of a concept."""

    text: str
    language: str  # code such as "fi"; empty for names without a language and for notations
    kind: int  # PREFERRED, ALTERNATIVE, HIDDEN or NOTATION


@dataclass(frozen=True)
class ConceptLinks(Form):
    """Links from each item to any number of others, in compressed sparse row form."""

    ends: np.ndarray = array(np.int64)  # (n + 1,); item i has the links to[ends[i]:ends[i + 1]]
    to: np.ndarray = array(np.int32)

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, number: int) -> list[int]:
        return self.row(number).tolist()

    def row(self, number: int) -> np.ndarray:
        return self.to[self.ends[number] : self.ends[number + 1]]

    def check_within(self, n_from: int, n_to: int) -> None:
        check_offsets(self.ends, n_from, len(self.to))
        if len(self.to) and (self.to.min() < 0 or self.to.max() >= n_to):
            raise ValueError("its links point beyond the concepts or groups")

    def invert(self, n_to: int) -> ConceptLinks:
        """Return the links in the opposite direction."""
        origins = np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.ends))
        return build_links(self.to, origins, n_to)


def build_links(origins: np.ndarray, to: np.ndarray, n: int) -> ConceptLinks:
    """Build links from pairs; the links of an origin keep the order of the pairs."""
    order = np.argsort(origins, kind="stable")
    ends = np.concatenate([[0], np.cumsum(np.bincount(origins, minlength=n))]).astype(np.int64)
    return ConceptLinks(ends, np.ascontiguousarray(to[order], np.int32))


@dataclass(frozen=True)
class ConceptNames(Form):
    """Names of concepts or groups in several languages; preferred names come first."""

    text: np.ndarray = array(np.uint8)  # concatenated bytes of all names
    ends: np.ndarray = array(np.int64)  # (n_names + 1,); name j is text[ends[j]:ends[j + 1]]
    kinds: np.ndarray = array(np.uint8)
    languages: np.ndarray = array(np.int16)
    of: np.ndarray = array(np.int64)  # (n + 1,); item i has the names of[i]:of[i + 1]

    def __getitem__(self, name: int) -> str:
        return self.text[self.ends[name] : self.ends[name + 1]].tobytes().decode(errors="replace")

    def name_range(self, number: int) -> range:
        return range(int(self.of[number]), int(self.of[number + 1]))

    def check_within(self, n: int, n_languages: int) -> None:
        n_names = len(self.kinds)
        check_offsets(self.of, n, n_names)
        check_offsets(self.ends, n_names, len(self.text))
        if len(self.languages) != n_names or self.kinds.max(initial=0) > NOTATION:
            raise ValueError("its names have an unknown kind")
        if self.languages.min(initial=0) < 0 or self.languages.max(initial=-1) >= n_languages:
            raise ValueError("its names have languages outside its list of languages")


def check_offsets(ends: np.ndarray, n: int, size: int) -> None:
    if not is_offset_array(ends, n, size):
        raise ValueError("its offsets are not ascending or do not match its data")


@dataclass(frozen=True)
class ConceptAliases(Form):
    """URIs that stand for concepts: `skos:exactMatch`, and concepts of other versions that these replace."""

    uris: StringIndex
    concepts: ConceptLinks  # concepts of each URI

    def find(self, uri: str) -> list[int]:
        """Return the concepts that a URI stands for."""
        number = self.uris.find(uri)
        return [] if number == NOT_FOUND else self.concepts[number]

    def check_within(self, n_concepts: int) -> None:
        self.uris.check()
        self.concepts.check_within(len(self.uris), n_concepts)


NO_ALIASES = ConceptAliases(
    StringIndex(np.zeros(0, np.uint8), np.zeros(1, np.int64), np.full(16, NOT_FOUND, np.int32)),
    ConceptLinks(np.zeros(1, np.int64), np.zeros(0, np.int32)),
)


@dataclass(frozen=True)
class Vocabulary(Form):
    """Concepts with names, notations, hierarchy, groups and replacements.

    `Vocabulary.load(folder)` opens a vocabulary folder; `xmtc.vocabulary.import_files` imports files.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from xmtc.vocabulary import import_files
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = Path(folder, "animals-en.tsv")
    ...     _ = table.write_text("c1\\tcats\\nc2\\tdogs\\n")
    ...     vocabulary = import_files([str(table)])
    >>> vocabulary.uri(vocabulary.find("cats"))
    'c1'
    """

    uris: StringIndex  # URIs or ids of the concepts, as in their source
    languages: tuple[str, ...]  # codes, by descending number of names; "" for names without a language
    terms: ConceptNames  # names and notations
    broader: ConceptLinks
    replacements: ConceptLinks
    groups: StringIndex  # URIs of schemes and collections
    group_terms: ConceptNames
    groups_of: ConceptLinks
    group_kinds: np.ndarray = array(np.uint8)
    deprecated: np.ndarray = array(np.bool_)
    hashes: np.ndarray = array(
        np.uint64
    )  # (n_entries,); hashes of normalised names, notations and local ids, ascending
    hashed: np.ndarray = array(np.int32)  # (n_entries,); the concept of each hash
    aliases: ConceptAliases = NO_ALIASES  # folders of older versions have none

    def __len__(self) -> int:
        return len(self.uris)

    def uri(self, concept: int) -> str:
        return self.uris[concept]

    def names(self, concept: int, language: str | None = None) -> list[ConceptName]:
        """Return the preferred names, then the alternative and hidden names, in one language or in all."""
        code = None if language is None else self.languages[self._language_index(language)]
        names = (name for name in self._concept_terms(concept) if name.kind != NOTATION)
        return [name for name in names if code is None or name.language == code]

    def notations(self, concept: int) -> list[str]:
        return [name.text for name in self._concept_terms(concept) if name.kind == NOTATION]

    def _concept_terms(self, concept: int) -> Iterator[ConceptName]:
        """Yield all names and notations of a concept."""
        for i in self.terms.name_range(concept):
            yield ConceptName(self.terms[i], self.languages[self.terms.languages[i]], int(self.terms.kinds[i]))

    def name(self, concept: int, language: str | None = None) -> str | None:
        """Return the preferred name in a language, else in the first language with a name, else None."""
        return self._preferred_name(self.terms, concept, language)

    def group_name(self, group: int, language: str | None = None) -> str | None:
        return self._preferred_name(self.group_terms, group, language)

    def _preferred_name(self, names: ConceptNames, number: int, language: str | None) -> str | None:
        wanted = self._language_index(language)
        preferred = [i for i in names.name_range(number) if names.kinds[i] == PREFERRED]
        preferred.sort(key=lambda i: (names.languages[i] != wanted, names.languages[i]))
        return names[preferred[0]] if preferred else None

    def check_language(self, language: str | None) -> None:
        """Raise an XmtcError if the vocabulary has no names in a language."""
        self._language_index(language or None)

    def has_language(self, language: str) -> bool:
        """Return True if the vocabulary has names in a language."""
        try:
            self.check_language(language)
        except XmtcError:
            return False
        return True

    def _language_index(self, language: str | None) -> int:
        """Return the number of a language; `en` also matches `en-GB`, and the other way round, if only one exists."""
        if language is None:
            return 0
        codes = [code.lower() for code in self.languages]
        wanted = language.lower()
        if wanted in codes:
            return codes.index(wanted)
        for number, code in enumerate(codes):
            if code.partition("-")[0] == wanted.partition("-")[0]:
                return number
        available = ", ".join(filter(None, self.languages)) or "names without a language"
        raise XmtcError(f"The vocabulary has no names in {language!r}; it has {available}.")

    def ancestors(self, concept: int) -> list[int]:
        """Return all broader concepts, transitively, the nearest first."""
        return walk_links(self.broader, [concept])[1:]

    def descendants(self, concept: int) -> list[int]:
        """Return all narrower concepts, transitively, the nearest first."""
        return walk_links(self.narrower, [concept])[1:]

    @property
    def is_flat(self) -> bool:
        """True if no concept has a broader one."""
        return len(self.broader.to) == 0

    @cached_property
    def narrower(self) -> ConceptLinks:
        return self.broader.invert(len(self))

    @cached_property
    def members(self) -> ConceptLinks:
        """Concepts of each group."""
        return self.groups_of.invert(len(self.groups))

    def find_uri(self, uri: str) -> int:
        """Return the concept with a URI or id, ignoring `http` or `https` and a final slash, or NO_CONCEPT."""
        number = self.uris.find(uri)
        if number == NOT_FOUND and "://" in uri:
            number = next(iter(self._find_by_uri_variant(uri)), NO_CONCEPT)
        return number

    @cached_property
    def alias_uris(self) -> dict[int, list[str]]:
        """URIs that stand for each concept, by concept."""
        uris_by_concept: dict[int, list[str]] = {}
        for number, uri in enumerate(self.aliases.uris.words()):
            for concept in self.aliases.concepts[number]:
                uris_by_concept.setdefault(concept, []).append(uri)
        return uris_by_concept

    def find(self, label: str) -> int:
        """Return the first result of `find_all`, or NO_CONCEPT."""
        return next(iter(self.find_all(label)), NO_CONCEPT)

    def find_all(self, label: str) -> list[int]:
        """Return the concepts with a URI (also in angle brackets), id, notation or name.

        The order is: URI or id, notation, preferred, alternative and hidden names; deprecated concepts come after
        others of the same rank."""
        label = strip_brackets(label)
        exact = self.uris.find(label)
        if exact != NOT_FOUND:
            return [exact]
        ranks = {concept: self._match_rank(concept, label) for concept in self._hash_candidates(normalize_name(label))}
        ranks = {concept: rank for concept, rank in ranks.items() if rank is not None}
        order = sorted(ranks, key=lambda concept: (ranks[concept], bool(self.deprecated[concept]), concept))
        return order or self._find_by_uri_variant(label)

    def find_containing(self, part: str) -> Iterator[int]:
        """Yield the concepts with a name or notation that contains a string."""
        normalized = normalize_name(part)
        for concept in range(len(self)):
            if any(normalized in normalize_name(name.text) for name in self._concept_terms(concept)):
                yield concept

    def _hash_candidates(self, normalized: bytes) -> set[int]:
        text = np.frombuffer(bytearray(normalized), np.uint8)
        hashes = np.empty(1, np.uint64)
        hash_spans(text, np.array([0]), np.array([len(text)]), hashes)
        begin, end = (int(np.searchsorted(self.hashes, hashes[0], side)) for side in ("left", "right"))
        return set(self.hashed[begin:end].tolist())

    def _match_rank(self, concept: int, label: str) -> tuple[int, bool] | None:
        """Return the sort key of a match, or None if the concept does not match the label."""
        if local_id(self.uri(concept)) == label:
            return -2, False
        kind_ranks = {NOTATION: -1, PREFERRED: 0, ALTERNATIVE: 1, HIDDEN: 2}
        ranks = [
            (kind_ranks[name.kind], name.text != label)
            for name in self._concept_terms(concept)
            if normalize_name(name.text) == normalize_name(label)
        ]
        return min(ranks, default=None)

    def _find_by_uri_variant(self, label: str) -> list[int]:
        """Find a concept by a variant of its URI (https for http, a final slash, a prefix such as `gnd:4001480-0`), or
        by the last part of the URI in a vocabulary of ids."""
        if "://" in label:
            scheme, _, rest = label.partition("://")
            other = {"http": "https", "https": "http"}.get(scheme, scheme)
            variants = [f"{scheme}://{rest}/", f"{other}://{rest}", f"{other}://{rest}/"]
            variants += [variant.removesuffix("/") for variant in (label, variants[1])]
            numbers = map(self.uris.find, [*variants, local_id(label)])
            return [number for number in numbers if number != NOT_FOUND][:1]
        prefix, colon, local = label.partition(":")
        if colon and prefix.isalnum() and local and " " not in label:
            return [i for i in sorted(self._hash_candidates(normalize_name(local))) if local_id(self.uri(i)) == local]
        return []

    def find_group(self, name: str) -> int:
        """Return the scheme or collection with a URI, id or name, or NO_CONCEPT."""
        exact = self.groups.find(strip_brackets(name))
        if exact != NOT_FOUND:
            return exact
        for group, uri in enumerate(self.groups.words()):
            names = (self.group_terms[i] for i in self.group_terms.name_range(group))
            if local_id(uri) == name or any(normalize_name(other) == normalize_name(name) for other in names):
                return group
        return NO_CONCEPT

    def match(self, labels: Iterable[str]) -> np.ndarray:
        """Return the concept of each label, or NO_CONCEPT, shape (n,)."""
        return np.array([self.find(label) for label in labels], np.int32)

    def check(self) -> None:
        n = len(self)
        self.uris.check()
        self.groups.check()
        self.terms.check_within(n, len(self.languages))
        self.group_terms.check_within(len(self.groups), len(self.languages))
        self.broader.check_within(n, n)
        self.replacements.check_within(n, n)
        self.groups_of.check_within(n, len(self.groups))
        self.aliases.check_within(n)
        if len(self.deprecated) != n or len(self.group_kinds) != len(self.groups):
            raise ValueError("its numbers of concepts or groups differ between arrays")
        if len(self.hashes) != len(self.hashed) or (self.hashes[1:] < self.hashes[:-1]).any():
            raise ValueError("its hashes are not ascending")
        if self.hashed.min(initial=0) < 0 or self.hashed.max(initial=-1) >= n:
            raise ValueError("its hashes point beyond its concepts")

    def save(self, folder: str | Path) -> None:
        """Write a vocabulary folder.

        Parameters
        ----------
        folder
            Folder to write. A vocabulary in it is replaced; a folder with anything else is refused.
        """
        VOCABULARY_FOLDER.save(folder, self.about(), {"vocabulary": self})

    def about(self) -> dict[str, Any]:
        return {"n_concepts": len(self), "languages": [code for code in self.languages if code]}

    @classmethod
    def load(cls, folder: str | Path, verify: bool = False) -> Vocabulary:
        """Open a vocabulary folder with memory-mapped arrays.

        Parameters
        ----------
        folder
            Vocabulary folder.
        verify
            Read every byte and compare checksums.

        Returns
        -------
        Vocabulary
            The vocabulary.
        """
        _, parts = VOCABULARY_FOLDER.load(folder, verify)
        vocabulary = parts.get("vocabulary")
        if not isinstance(vocabulary, cls):
            raise VOCABULARY_FOLDER.make_damage_error(Path(folder), "it holds no vocabulary")
        try:
            vocabulary.check()
        except STRUCTURE_ERRORS as error:
            raise VOCABULARY_FOLDER.make_damage_error(Path(folder), str(error)) from None
        return vocabulary


def walk_links(links: ConceptLinks, begin: list[int]) -> list[int]:
    """Return the concepts reachable from some concepts, including these, the nearest first. Cycles are allowed."""
    visited = dict.fromkeys(begin)
    frontier = list(visited)
    while frontier:
        neighbours = dict.fromkeys(to for concept in frontier for to in links[concept])
        frontier = [concept for concept in neighbours if concept not in visited]
        visited.update(dict.fromkeys(frontier))
    return list(visited)


def local_id(uri: str) -> str:
    """Return the last part of a URI: p10 of http://www.yso.fi/onto/yso/p10, 78 of http://urn.fi/URN:NBN:fi:au:ykl:78."""
    if "://" not in uri and not uri.startswith("urn:"):
        return uri
    match = LOCAL_ID_PATTERN.search(uri)
    return match[0] if match else uri


def strip_brackets(uri: str) -> str:
    """Remove surrounding spaces and angle brackets."""
    uri = uri.strip()
    return uri[1:-1].strip() if uri[:1] == "<" and uri[-1:] == ">" else uri


def normalize_name(name: str) -> bytes:
    """Return the form in which names are compared: NFKC, case-folded, with single spaces."""
    return " ".join(normalize_unicode("NFKC", name).casefold().split()).encode("utf-8", "replace")


@kernel
def hash_spans(text, begins, ends, hashes):
    for i in range(len(hashes)):
        hashes[i] = hash_bytes(text, begins[i], ends[i])
