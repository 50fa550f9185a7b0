"""What an import has seen so far, in flat arrays: strings of Python would take ten times the room.

Statements may come in any order, so that anything named by a URI gets a number when it first turns up, and only at the
end is it known which of them are concepts and which are schemes and collections."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from unicodedata import normalize

import numpy as np

from xmtc.core.numba_support import kernel
from xmtc.errors import XmtcError
from xmtc.text.string_index import StringIndex as Words
from xmtc.text.string_index import index_distinct_words
from xmtc.vocabulary.vocabulary import (
    MAX_LANGUAGES,
    NO_CONCEPT,
    NOTATION,
    PREFERRED,
    ConceptLinks,
    ConceptNames,
    Vocabulary,
    build_links,
    hash_spans,
    local_id,
    walk_links,
)

UNKNOWN_ROLE, CONCEPT_ROLE, GROUP_ROLE = 0, 1, 2  # what a thing is known to be
SURROGATE = re.compile("[\ud800-\udfff]")
FALLBACK_NAME = NOTATION + 1  # kind of a name that counts as preferred where a thing, as a deprecated one, has no other


@dataclass
class LinkPairs:
    """Links between things by number."""

    origins: array = field(default_factory=lambda: array("i"))
    to: array = field(default_factory=lambda: array("i"))

    def add(self, origin: int, to: int) -> None:
        self.origins.append(origin)
        self.to.append(to)

    def to_arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array(self.origins, np.int32), np.array(self.to, np.int32)


class ConceptCollector:
    """Takes statements about things; xmtc/vocabulary/builder.py makes a vocabulary of those that are concepts."""

    def __init__(self) -> None:
        self.resource_numbers: dict[str, int] = {}  # of every URI
        self.roles = bytearray()  # of things
        self.group_kinds: dict[int, int] = {}
        self.deprecated: set[int] = set()
        self.broader, self.members, self.replacements = LinkPairs(), LinkPairs(), LinkPairs()
        self.languages: dict[str, int] = {}
        self.text, self.ends = bytearray(), array("q", [0])
        self.owners, self.name_kinds, self.name_languages = array("i"), bytearray(), array("h")  # of names

    def add_resource(self, uri: str) -> int:
        """Return the number of a URI."""
        number = self.resource_numbers.get(uri)
        if number is None:
            if SURROGATE.search(uri):
                raise XmtcError(f"The address {uri[:100]!r} holds half of a surrogate pair; expected whole characters.")
            number = self.resource_numbers[uri] = len(self.roles)
            self.roles.append(UNKNOWN_ROLE)
        return number

    def add_concept(self, uri: str) -> int:
        number = self.add_resource(uri)
        if self.roles[number] == UNKNOWN_ROLE:
            self.roles[number] = CONCEPT_ROLE
        return number

    def add_group(self, uri: str, kind: int) -> int:
        number = self.add_resource(uri)
        self.roles[number] = GROUP_ROLE
        self.group_kinds[number] = kind
        return number

    def add_name(self, thing: int, text: str, language: str, kind: int) -> None:
        text = text.strip()
        if not text:
            return
        if "\n" in text:  # a name is one line
            text = text.replace("\n", " ")
        self.text += text.encode("utf-8", "replace")
        self.ends.append(len(self.text))
        self.owners.append(thing)
        self.name_kinds.append(kind)
        self.name_languages.append(self.add_language(language))

    def add_language(self, code: str) -> int:
        number = self.languages.setdefault(code, len(self.languages))
        if number == MAX_LANGUAGES:
            raise XmtcError(f"The vocabulary has more than {MAX_LANGUAGES:,} languages; check its language column.")
        return number


CHUNK_NAMES = 100_000  # names that are brought into one form together
SPACES_PATTERN, EDGES = re.compile(r"[^\S\n]+"), re.compile(r"(?m)^ | $")


def build_vocabulary(found: ConceptCollector) -> Vocabulary:
    """The vocabulary of all concepts that were found."""
    roles = np.frombuffer(bytes(found.roles), np.uint8)
    concepts, groups = np.flatnonzero(roles == CONCEPT_ROLE), np.flatnonzero(roles == GROUP_ROLE)
    if not len(concepts):
        raise XmtcError("The vocabulary has no concepts; expected skos:Concept, or rows with an id and a name.")
    uris = list(found.resource_numbers)
    places, group_places = renumber(concepts, len(roles)), renumber(groups, len(roles))
    languages, codes = rank_languages(found)
    names = build_names(found, places, len(concepts), codes)
    own = [uris[i] for i in concepts.tolist()]
    hashes, hashed = build_hash_index(own, names)
    return Vocabulary(
        uris=Words.from_strings(own),
        languages=languages,
        terms=names,
        hashes=hashes,
        hashed=hashed,
        broader=renumber_links(found.broader, places, places, len(concepts)),
        groups=Words.from_strings(uris[i] for i in groups.tolist()),
        group_kinds=np.array([found.group_kinds[i] for i in groups.tolist()], np.uint8),
        group_terms=build_names(found, group_places, len(groups), codes),
        groups_of=build_memberships(found.members, places, group_places, len(concepts), len(groups)),
        deprecated=np.isin(concepts, np.array(sorted(found.deprecated), np.int64)),
        replacements=renumber_links(found.replacements, places, places, len(concepts)),
    )


def renumber(chosen: np.ndarray, n: int) -> np.ndarray:
    """The place of each of n things among the chosen; ABSENT for the others."""
    places = np.full(n, NO_CONCEPT, np.int32)
    places[chosen] = np.arange(len(chosen), dtype=np.int32)
    return places


def rank_languages(found: ConceptCollector) -> tuple[tuple[str, ...], np.ndarray]:
    """Codes, the one with most preferred names first, and the place of each language among them."""
    preferred = resolve_name_kinds(found) == PREFERRED
    counts = np.bincount(np.array(found.name_languages, np.int64)[preferred], minlength=len(found.languages))
    codes = list(found.languages)
    order = sorted(range(len(codes)), key=lambda i: (-counts[i], codes[i]))
    return tuple(codes[i] for i in order), np.argsort(np.array(order, np.int64)).astype(np.int16)


def resolve_name_kinds(found: ConceptCollector) -> np.ndarray:
    """With fallbacks as preferred names of things without any."""
    owners, kinds = np.array(found.owners, np.int64), np.frombuffer(bytearray(found.name_kinds), np.uint8)
    is_named = np.zeros(len(found.roles), bool)
    is_named[owners[kinds == PREFERRED]] = True
    kinds[(kinds == FALLBACK_NAME) & ~is_named[owners]] = PREFERRED
    return kinds


def build_names(found: ConceptCollector, places: np.ndarray, n: int, codes: np.ndarray) -> ConceptNames:
    """The names of some things, each thing's together: preferred ones first, then by language, each once."""
    owners, kinds = places[np.array(found.owners, np.int64)], resolve_name_kinds(found)
    languages = codes[np.array(found.name_languages, np.int64)]
    kept = np.flatnonzero((owners != NO_CONCEPT) & (kinds != FALLBACK_NAME))
    kept = kept[np.lexsort((languages[kept], kinds[kept], owners[kept]))]
    text, ends = np.frombuffer(found.text, np.uint8), np.array(found.ends, np.int64)
    strings = index_distinct_words(text, ends[kept], ends[kept + 1]).numbers
    kept = kept[mark_first_rows(strings, languages[kept], kinds[kept], owners[kept])]
    of = to_offsets(np.bincount(owners[kept], minlength=n))
    own_ends = to_offsets(ends[kept + 1] - ends[kept])
    own_text = np.empty(own_ends[-1], np.uint8)
    copy_spans(text, ends[kept], ends[kept + 1], own_text, own_ends)
    return ConceptNames(own_text, own_ends, kinds[kept], languages[kept], of)


def to_offsets(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def mark_first_rows(*columns: np.ndarray) -> np.ndarray:
    """(n,) bool: whether no row before is the same in all columns."""
    order = np.lexsort(columns)
    is_first = np.ones(len(order), bool)
    if len(order):
        is_first[order[1:]] = np.any([column[order[1:]] != column[order[:-1]] for column in columns], axis=0)
    return is_first


def renumber_links(pairs: LinkPairs, places: np.ndarray, to_places: np.ndarray, n: int) -> ConceptLinks:
    """Links between renumbered things, each once, and none to itself of what is renumbered alike."""
    origins, to = pairs.to_arrays()
    origins, to = places[origins], to_places[to]
    kept = (origins != NO_CONCEPT) & (to != NO_CONCEPT)
    if places is to_places:
        kept &= origins != to
    origins, to = origins[kept], to[kept]
    is_first = mark_first_rows(to, origins)
    return build_links(origins[is_first], to[is_first], n)


def build_memberships(
    members: LinkPairs, places: np.ndarray, group_places: np.ndarray, n: int, n_groups: int
) -> ConceptLinks:
    """The groups of each concept; whoever belongs to a part of a collection belongs to it."""
    direct = renumber_links(members, group_places, places, n_groups)
    parts = renumber_links(members, group_places, group_places, n_groups)
    whole = [walk_links(parts, [group]) for group in range(n_groups)]
    of_groups = [np.unique(np.concatenate([direct.row(part) for part in every])) for every in whole]
    groups = np.repeat(np.arange(n_groups, dtype=np.int32), [len(each) for each in of_groups])
    return build_links(np.concatenate([np.zeros(0, np.int32), *of_groups]), groups, n)


def build_hash_index(uris: list[str], names: ConceptNames) -> tuple[np.ndarray, np.ndarray]:
    """Hashes of everything that a concept is found by, ascending, and whose they are."""
    numbers = np.arange(len(uris), dtype=np.int32)
    owners = np.concatenate([numbers, np.repeat(numbers, np.diff(names.of))])
    local = [local_id(uri).replace("\n", " ") for uri in uris]
    ids = ("\n".join(local[i : i + CHUNK_NAMES]) for i in range(0, len(uris), CHUNK_NAMES))
    hashes = np.concatenate(
        [np.zeros(0, np.uint64), *map(hash_lines, ids), *map(hash_lines, iterate_name_lines(names))]
    )
    order = np.lexsort((owners, hashes))
    order = order[mark_first_rows(owners[order], hashes[order])]
    return hashes[order], owners[order]


def iterate_name_lines(names: ConceptNames) -> Iterator[str]:
    """All names, many at a time, each in a line."""
    for begin in range(0, len(names.kinds), CHUNK_NAMES):
        ends = np.array(names.ends[begin : begin + CHUNK_NAMES + 1])
        places = to_offsets(np.diff(ends) + 1)
        lines = np.full(places[-1], ord("\n"), np.uint8)
        copy_spans(names.text, ends[:-1], ends[1:], lines, places)
        yield lines[:-1].tobytes().decode(errors="replace")


def hash_lines(lines: str) -> np.ndarray:
    """Of the `key` of each line: for many at once."""
    text = (
        EDGES.sub("", SPACES_PATTERN.sub(" ", normalize("NFKC", lines).casefold())).encode("utf-8", "replace") + b"\n"
    )
    flat = np.frombuffer(bytearray(text), np.uint8)
    line_ends = np.flatnonzero(flat == ord("\n"))
    hashes = np.empty(len(line_ends), np.uint64)
    hash_spans(flat, np.concatenate([[0], line_ends[:-1] + 1]), line_ends, hashes)
    return hashes


@kernel
def copy_spans(text, begins, ends, out, places):
    """Write the parts text[begins[i]:ends[i]] to their places."""
    for i in range(len(begins)):
        for j in range(ends[i] - begins[i]):
            out[places[i] + j] = text[begins[i] + j]
