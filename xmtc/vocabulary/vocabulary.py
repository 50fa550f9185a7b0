"""A vocabulary in flat arrays, so that one of a million concepts opens by memory-mapping.

A concept is a number; its URI or id, its names and notations, the concepts above it, the schemes and collections that
it belongs to and what replaces it are found by that number. A person finds a concept by any of its names: all of them
are hashed, and a hash is only a hint, which the names themselves confirm."""

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
from xmtc.text.string_index import StringIndex as Words
from xmtc.text.string_index import hash_bytes

FOLDER_FORMATS = (1, 2)  # that are read; the last one is written
VOCABULARY_FOLDER = FolderKind("vocabulary", FOLDER_FORMATS, "xmtc vocab import VOCAB", "import")
NO_CONCEPT = -1  # the number of a concept that there is none of
PREFERRED, ALTERNATIVE, HIDDEN, NOTATION = range(4)  # kinds of names
SCHEME, COLLECTION = range(2)  # kinds of groups
LOCAL_ID_PATTERN = re.compile(r"[^/#:]+(?=[/#]?$)")  # what a URI ends with
MAX_LANGUAGES = 2**15  # languages that a vocabulary can have


class ConceptName(NamedTuple):
    text: str
    language: str  # a code such as "fi"; empty where none is given, and for notations
    kind: int  # PREFERRED, ALTERNATIVE, HIDDEN or NOTATION


@dataclass(frozen=True)
class ConceptLinks(Form):
    """From each of several things to any number of others."""

    ends: np.ndarray = array(np.int64)  # (n + 1,) those of i are to[ends[i]:ends[i + 1]]
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
            raise ValueError("its links lead nowhere")

    def invert(self, n_to: int) -> ConceptLinks:
        """From the others back."""
        origins = np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.ends))
        return build_links(self.to, origins, n_to)


def build_links(origins: np.ndarray, to: np.ndarray, n: int) -> ConceptLinks:
    """Links from pairs, those of each origin in the order given."""
    order = np.argsort(origins, kind="stable")
    ends = np.concatenate([[0], np.cumsum(np.bincount(origins, minlength=n))]).astype(np.int64)
    return ConceptLinks(ends, np.ascontiguousarray(to[order], np.int32))


@dataclass(frozen=True)
class ConceptNames(Form):
    """The names of several things in languages; of each, preferred ones come first."""

    text: np.ndarray = array(np.uint8)  # all names end to end
    ends: np.ndarray = array(np.int64)  # (n_names + 1,) name j is text[ends[j]:ends[j + 1]]
    kinds: np.ndarray = array(np.uint8)
    languages: np.ndarray = array(np.int16)
    of: np.ndarray = array(np.int64)  # (n + 1,) the names of i are those from of[i] to of[i + 1]

    def __getitem__(self, name: int) -> str:
        return self.text[self.ends[name] : self.ends[name + 1]].tobytes().decode(errors="replace")

    def name_range(self, number: int) -> range:
        return range(int(self.of[number]), int(self.of[number + 1]))

    def check_within(self, n: int, n_languages: int) -> None:
        n_names = len(self.kinds)
        check_offsets(self.of, n, n_names)
        check_offsets(self.ends, n_names, len(self.text))
        if len(self.languages) != n_names or self.kinds.max(initial=0) > NOTATION:
            raise ValueError("its names are of no known kind")
        if self.languages.min(initial=0) < 0 or self.languages.max(initial=-1) >= n_languages:
            raise ValueError("its names are in languages that it does not have")


def check_offsets(ends: np.ndarray, n: int, size: int) -> None:
    if not is_offset_array(ends, n, size):
        raise ValueError("its parts do not lie end to end")


@dataclass(frozen=True)
class Vocabulary(Form):
    """Concepts. `Vocabulary.load(folder)` opens one, `xmtc.vocabulary.import_files` makes one of files."""

    uris: Words  # of the concepts, or ids, as their source has them
    languages: tuple[str, ...]  # codes, the one with most names first; empty for names without one
    terms: ConceptNames  # names and notations
    broader: ConceptLinks
    replacements: ConceptLinks
    groups: Words  # URIs of schemes and collections
    group_terms: ConceptNames
    groups_of: ConceptLinks
    group_kinds: np.ndarray = array(np.uint8)
    deprecated: np.ndarray = array(np.bool_)
    hashes: np.ndarray = array(np.uint64)  # (n_entries,) of everything that a concept is found by, ascending
    hashed: np.ndarray = array(np.int32)  # (n_entries,) the concept that has it

    def __len__(self) -> int:
        return len(self.uris)

    def uri(self, concept: int) -> str:
        return self.uris[concept]

    def names(self, concept: int, language: str | None = None) -> list[ConceptName]:
        """Preferred names first, then alternative and hidden ones; in one language, or in all."""
        wanted = None if language is None else self.languages[self._language_index(language)]
        named = (name for name in self._concept_terms(concept) if name.kind != NOTATION)
        return [name for name in named if wanted is None or name.language == wanted]

    def notations(self, concept: int) -> list[str]:
        return [name.text for name in self._concept_terms(concept) if name.kind == NOTATION]

    def _concept_terms(self, concept: int) -> Iterator[ConceptName]:
        """Everything that a concept is called."""
        for i in self.terms.name_range(concept):
            yield ConceptName(self.terms[i], self.languages[self.terms.languages[i]], int(self.terms.kinds[i]))

    def name(self, concept: int, language: str | None = None) -> str | None:
        """The preferred name in a language; where there is none in it, or none is asked for, in the first language
        that the vocabulary has a name in. None where a concept has no name."""
        return self._preferred_name(self.terms, concept, language)

    def group_name(self, group: int, language: str | None = None) -> str | None:
        return self._preferred_name(self.group_terms, group, language)

    def _preferred_name(self, names: ConceptNames, number: int, language: str | None) -> str | None:
        wanted = self._language_index(language)
        preferred = [i for i in names.name_range(number) if names.kinds[i] == PREFERRED]
        preferred.sort(key=lambda i: (names.languages[i] != wanted, names.languages[i]))
        return names[preferred[0]] if preferred else None

    def check_language(self, language: str | None) -> None:
        """Refuse a language that there are no names in."""
        self._language_index(language or None)

    def _language_index(self, language: str | None) -> int:
        """The number of a language; `en` stands for `en-GB` and the other way round where only one is there."""
        if language is None:
            return 0
        codes = [code.lower() for code in self.languages]
        asked = language.lower()
        near = [i for i, code in enumerate(codes) if code.partition("-")[0] == asked.partition("-")[0]]
        if asked in codes:
            return codes.index(asked)
        if near:
            return near[0]
        there = ", ".join(filter(None, self.languages)) or "names without a language"
        raise XmtcError(f"The vocabulary has no names in {language!r}; it has {there}.")

    def ancestors(self, concept: int) -> list[int]:
        """All concepts above, the nearest first."""
        return walk_links(self.broader, [concept])[1:]

    def descendants(self, concept: int) -> list[int]:
        """All concepts below, the nearest first."""
        return walk_links(self.narrower, [concept])[1:]

    @cached_property
    def narrower(self) -> ConceptLinks:
        return self.broader.invert(len(self))

    @cached_property
    def members(self) -> ConceptLinks:
        """The concepts of each group."""
        return self.groups_of.invert(len(self.groups))

    def find(self, label: str) -> int:
        """The concept that a person or a corpus means: by URI (also in angle brackets), id, notation or name; ABSENT
        where there is none. Of several, the first: see `find_all`."""
        return next(iter(self.find_all(label)), NO_CONCEPT)

    def find_all(self, label: str) -> list[int]:
        """All concepts that are called so: by URI or id before notations, preferred before alternative names, and of
        equals those that are not deprecated."""
        label = label.strip()
        label = label[1:-1].strip() if label[:1] == "<" and label[-1:] == ">" else label
        exact = self.uris.find(label)
        if exact != NO_CONCEPT:
            return [exact]
        found = {concept: self._match_rank(concept, label) for concept in self._hash_candidates(normalize_name(label))}
        found = {concept: likeness for concept, likeness in found.items() if likeness is not None}
        order = sorted(found, key=lambda concept: (found[concept], bool(self.deprecated[concept]), concept))
        return order or self._find_by_uri_variant(label)

    def find_containing(self, part: str) -> Iterator[int]:
        """The concepts with a name or a notation that contains this, in their order."""
        sought = normalize_name(part)
        for concept in range(len(self)):
            if any(sought in normalize_name(name.text) for name in self._concept_terms(concept)):
                yield concept

    def _hash_candidates(self, sought: bytes) -> set[int]:
        text = np.frombuffer(bytearray(sought), np.uint8)
        wanted = np.empty(1, np.uint64)
        hash_spans(text, np.array([0]), np.array([len(text)]), wanted)
        begin, end = (int(np.searchsorted(self.hashes, wanted[0], side)) for side in ("left", "right"))
        return set(self.hashed[begin:end].tolist())

    def _match_rank(self, concept: int, label: str) -> tuple[int, bool] | None:
        """How well a concept answers to a label: the smaller, the better; None where it does not."""
        if local_id(self.uri(concept)) == label:
            return -2, False
        places = {NOTATION: -1, PREFERRED: 0, ALTERNATIVE: 1, HIDDEN: 2}
        found = [
            (places[name.kind], name.text != label)
            for name in self._concept_terms(concept)
            if normalize_name(name.text) == normalize_name(label)
        ]
        return min(found, default=None)

    def _find_by_uri_variant(self, label: str) -> list[int]:
        """By what a URI says beside its own letters: https for http, a slash at the end, `gnd:4001480-0`; and by its
        last part alone where the vocabulary has no URIs but ids."""
        if "://" in label:
            scheme, _, rest = label.partition("://")
            other = {"http": "https", "https": "http"}.get(scheme, scheme)
            variants = [f"{scheme}://{rest}/", f"{other}://{rest}", f"{other}://{rest}/"]
            variants += [variant.removesuffix("/") for variant in (label, variants[1])]
            found = [number for number in map(self.uris.find, variants) if number != NO_CONCEPT]
            number = self.uris.find(local_id(label)) if not found else found[0]
            return [number] if number != NO_CONCEPT else []
        prefix, colon, local = label.partition(":")
        if colon and prefix.isalnum() and local and " " not in label:
            return [i for i in sorted(self._hash_candidates(normalize_name(local))) if local_id(self.uri(i)) == local]
        return []

    def find_group(self, name: str) -> int:
        """The scheme or collection of a URI, an id or a name; ABSENT where there is none."""
        exact = self.groups.find(name.strip().strip("<>"))
        if exact != NO_CONCEPT:
            return exact
        for group, uri in enumerate(self.groups.words()):
            names = (self.group_terms[i] for i in self.group_terms.name_range(group))
            if local_id(uri) == name or any(normalize_name(each) == normalize_name(name) for each in names):
                return group
        return NO_CONCEPT

    def match(self, labels: Iterable[str]) -> np.ndarray:
        """(n,) int32, the concepts of labels, ABSENT where there is none."""
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
        if len(self.deprecated) != n or len(self.group_kinds) != len(self.groups):
            raise ValueError("it does not say of all concepts whether they are deprecated")
        if len(self.hashes) != len(self.hashed) or (self.hashes[1:] < self.hashes[:-1]).any():
            raise ValueError("its index is out of order")
        if self.hashed.min(initial=0) < 0 or self.hashed.max(initial=-1) >= n:
            raise ValueError("its index points beyond its concepts")

    def save(self, folder: str | Path) -> None:
        """Write the folder; a vocabulary that stands there is replaced, anything else is left alone."""
        VOCABULARY_FOLDER.save(folder, self.about(), {"vocabulary": self})

    def about(self) -> dict[str, Any]:
        return {"n_concepts": len(self), "languages": [code for code in self.languages if code]}

    @classmethod
    def load(cls, folder: str | Path, verify: bool = False) -> Vocabulary:
        """Open a vocabulary folder; arrays stay on disk until they are used."""
        _, parts = VOCABULARY_FOLDER.load(folder, verify)
        found = parts.get("vocabulary")
        if not isinstance(found, cls):
            raise VOCABULARY_FOLDER.make_damage_error(Path(folder), "it holds no vocabulary")
        try:
            found.check()
        except STRUCTURE_ERRORS as error:
            raise VOCABULARY_FOLDER.make_damage_error(Path(folder), str(error)) from None
        return found


def walk_links(links: ConceptLinks, begin: list[int]) -> list[int]:
    """Where links lead from some concepts, these included, the nearest first; also where they lead in a circle."""
    found = dict.fromkeys(begin)
    at = list(found)
    while at:
        at = [to for to in dict.fromkeys(to for each in at for to in links[each]) if to not in found]
        found.update(dict.fromkeys(at))
    return list(found)


def local_id(uri: str) -> str:
    """The last part of a URI: p10 of http://www.yso.fi/onto/yso/p10, 78 of http://urn.fi/URN:NBN:fi:au:ykl:78."""
    if "://" not in uri and not uri.startswith("urn:"):
        return uri
    found = LOCAL_ID_PATTERN.search(uri)
    return found[0] if found else uri


def normalize_name(name: str) -> bytes:
    """What names are compared by: without regard to case, spaces and how letters are composed."""
    return " ".join(normalize_unicode("NFKC", name).casefold().split()).encode("utf-8", "replace")


@kernel
def hash_spans(text, begins, ends, hashes):
    for i in range(len(hashes)):
        hashes[i] = hash_bytes(text, begins[i], ends[i])
