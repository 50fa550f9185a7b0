"""Collection of the statements of an import, and the construction of a Vocabulary from them.

Names are collected in flat arrays, because Python strings would take ten times the memory. Statements may come in any
order: every URI gets a number at its first occurrence, and only at the end it is known which URIs are concepts, schemes
or collections."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from xmtc.core.numba_support import kernel
from xmtc.errors import XmtcError
from xmtc.text.normalisation import normalize_unicode
from xmtc.text.string_index import StringIndex, index_distinct_words
from xmtc.vocabulary.vocabulary import (
    MAX_LANGUAGES,
    NO_CONCEPT,
    NOTATION,
    PREFERRED,
    ConceptAliases,
    ConceptLinks,
    ConceptNames,
    Vocabulary,
    build_links,
    hash_spans,
    local_id,
    walk_links,
)

UNKNOWN_ROLE, CONCEPT_ROLE, GROUP_ROLE = 0, 1, 2  # roles of a resource
SURROGATE = re.compile("[\ud800-\udfff]")
FALLBACK_NAME = NOTATION + 1  # kind of a name that is preferred if the resource has no preferred name


@dataclass
class LinkPairs:
    """Links between resource numbers."""

    origins: array = field(default_factory=lambda: array("i"))
    to: array = field(default_factory=lambda: array("i"))

    def add(self, origin: int, to: int) -> None:
        self.origins.append(origin)
        self.to.append(to)

    def to_arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array(self.origins, np.int32), np.array(self.to, np.int32)


class ConceptCollector:
    """Collector of statements about resources, from which `build_vocabulary` makes a Vocabulary."""

    def __init__(self) -> None:
        self.resource_numbers: dict[str, int] = {}  # by URI
        self.roles = bytearray()  # role of each resource
        self.group_kinds: dict[int, int] = {}
        self.deprecated: set[int] = set()
        self.broader, self.members, self.replacements = LinkPairs(), LinkPairs(), LinkPairs()
        self.matches = LinkPairs()  # skos:exactMatch
        self.languages: dict[str, int] = {}
        self.text, self.ends = bytearray(), array("q", [0])
        self.owners, self.name_kinds, self.name_languages = array("i"), bytearray(), array("h")  # one entry per name

    def add_resource(self, uri: str) -> int:
        """Return the number of a URI, which is added if it is new."""
        number = self.resource_numbers.get(uri)
        if number is None:
            if SURROGATE.search(uri):
                raise XmtcError(f"The address {uri[:100]!r} holds half of a surrogate pair; expected valid Unicode.")
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

    def add_name(self, resource: int, text: str, language: str, kind: int) -> None:
        text = text.strip()
        if not text:
            return
        if "\n" in text:  # a name is one line
            text = text.replace("\n", " ")
        self.text += text.encode("utf-8", "replace")
        self.ends.append(len(self.text))
        self.owners.append(resource)
        self.name_kinds.append(kind)
        self.name_languages.append(self.add_language(language))

    def add_language(self, code: str) -> int:
        number = self.languages.setdefault(code, len(self.languages))
        if number == MAX_LANGUAGES:
            raise XmtcError(f"The vocabulary has more than {MAX_LANGUAGES:,} languages; check its language column.")
        return number


CHUNK_NAMES = 100_000  # names that are normalised at a time
SPACES_PATTERN, EDGES = re.compile(r"[^\S\n]+"), re.compile(r"(?m)^ | $")


def build_vocabulary(collector: ConceptCollector) -> Vocabulary:
    """Build a Vocabulary of all collected concepts."""
    roles = np.frombuffer(bytes(collector.roles), np.uint8)
    concepts, groups = np.flatnonzero(roles == CONCEPT_ROLE), np.flatnonzero(roles == GROUP_ROLE)
    if not len(concepts):
        raise XmtcError("The vocabulary has no concepts; expected skos:Concept, or rows with an id and a name.")
    uris = list(collector.resource_numbers)
    places, group_places = renumber(concepts, len(roles)), renumber(groups, len(roles))
    languages, codes = rank_languages(collector)
    names = build_names(collector, places, len(concepts), codes)
    concept_uris = [uris[i] for i in concepts.tolist()]
    hashes, hashed = build_hash_index(concept_uris, names)
    return Vocabulary(
        uris=StringIndex.from_strings(concept_uris),
        languages=languages,
        terms=names,
        hashes=hashes,
        hashed=hashed,
        broader=renumber_links(collector.broader, places, places, len(concepts)),
        groups=StringIndex.from_strings(uris[i] for i in groups.tolist()),
        group_kinds=np.array([collector.group_kinds[i] for i in groups.tolist()], np.uint8),
        group_terms=build_names(collector, group_places, len(groups), codes),
        groups_of=build_memberships(collector.members, places, group_places, len(concepts), len(groups)),
        deprecated=np.isin(concepts, np.array(sorted(collector.deprecated), np.int64)),
        replacements=renumber_links(collector.replacements, places, places, len(concepts)),
        aliases=build_aliases(collector, uris, places),
    )


def build_aliases(collector: ConceptCollector, uris: list[str], places: np.ndarray) -> ConceptAliases:
    """Return the URIs of exact matches, and of other resources that a concept replaces or that replace a concept."""
    concepts: dict[str, set[int]] = {}
    for pairs, is_match in ((collector.matches, True), (collector.replacements, False)):
        for origin, to in zip(*map(np.ndarray.tolist, pairs.to_arrays()), strict=True):
            is_known = places[origin] != NO_CONCEPT, places[to] != NO_CONCEPT
            if is_known[0] and (is_match or not is_known[1]):
                concepts.setdefault(uris[to], set()).add(int(places[origin]))
            elif is_known[1] and not is_known[0]:
                concepts.setdefault(uris[origin], set()).add(int(places[to]))
    counts = [len(numbers) for numbers in concepts.values()]
    to_concepts = np.array([number for numbers in concepts.values() for number in sorted(numbers)], np.int32)
    links = build_links(np.repeat(np.arange(len(concepts)), counts), to_concepts, len(concepts))
    return ConceptAliases(StringIndex.from_strings(concepts), links)


def renumber(chosen: np.ndarray, n: int) -> np.ndarray:
    """Return the index of each of n resources among the chosen; NO_CONCEPT for the others."""
    places = np.full(n, NO_CONCEPT, np.int32)
    places[chosen] = np.arange(len(chosen), dtype=np.int32)
    return places


def rank_languages(collector: ConceptCollector) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the language codes by descending number of preferred names, and the rank of each language number."""
    preferred = resolve_name_kinds(collector) == PREFERRED
    counts = np.bincount(np.array(collector.name_languages, np.int64)[preferred], minlength=len(collector.languages))
    codes = list(collector.languages)
    order = sorted(range(len(codes)), key=lambda i: (-counts[i], codes[i]))
    return tuple(codes[i] for i in order), np.argsort(np.array(order, np.int64)).astype(np.int16)


def resolve_name_kinds(collector: ConceptCollector) -> np.ndarray:
    """Return the kinds of all names, with fallback names as preferred names of resources without any."""
    owners, kinds = np.array(collector.owners, np.int64), np.frombuffer(bytearray(collector.name_kinds), np.uint8)
    is_named = np.zeros(len(collector.roles), bool)
    is_named[owners[kinds == PREFERRED]] = True
    kinds[(kinds == FALLBACK_NAME) & ~is_named[owners]] = PREFERRED
    return kinds


def build_names(collector: ConceptCollector, places: np.ndarray, n: int, codes: np.ndarray) -> ConceptNames:
    """Return the distinct names of some resources, sorted by resource, kind and language."""
    owners, kinds = places[np.array(collector.owners, np.int64)], resolve_name_kinds(collector)
    languages = codes[np.array(collector.name_languages, np.int64)]
    kept = np.flatnonzero((owners != NO_CONCEPT) & (kinds != FALLBACK_NAME))
    kept = kept[np.lexsort((languages[kept], kinds[kept], owners[kept]))]
    text, ends = np.frombuffer(collector.text, np.uint8), np.array(collector.ends, np.int64)
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
    """Return which rows differ from all previous rows, shape (n,)."""
    order = np.lexsort(columns)
    is_first = np.ones(len(order), bool)
    if len(order):
        is_first[order[1:]] = np.any([column[order[1:]] != column[order[:-1]] for column in columns], axis=0)
    return is_first


def renumber_links(pairs: LinkPairs, places: np.ndarray, to_places: np.ndarray, n: int) -> ConceptLinks:
    """Return distinct links between renumbered resources, without links from a concept to itself."""
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
    """Return the groups of each concept; the members of a nested collection belong to the outer one, too."""
    direct = renumber_links(members, group_places, places, n_groups)
    nested = renumber_links(members, group_places, group_places, n_groups)
    concepts = [
        np.unique(np.concatenate([direct.row(inner) for inner in walk_links(nested, [group])]))
        for group in range(n_groups)
    ]
    groups = np.repeat(np.arange(n_groups, dtype=np.int32), [len(of_group) for of_group in concepts])
    return build_links(np.concatenate([np.zeros(0, np.int32), *concepts]), groups, n)


def build_hash_index(uris: list[str], names: ConceptNames) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted hashes of local ids, names and notations, and the concept of each."""
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


def iterate_name_lines(names: ConceptNames, chunk_names: int = CHUNK_NAMES) -> Iterator[str]:
    """Yield all names in chunks, one name per line."""
    for begin in range(0, len(names.kinds), chunk_names):
        ends = np.array(names.ends[begin : begin + chunk_names + 1])
        places = to_offsets(np.diff(ends) + 1)
        lines = np.full(places[-1], ord("\n"), np.uint8)
        copy_spans(names.text, ends[:-1], ends[1:], lines, places)
        yield lines[:-1].tobytes().decode(errors="replace")


def hash_lines(lines: str) -> np.ndarray:
    """Return the hash of `normalize_name` of each line; all lines are normalised together, which is faster."""
    normalized = EDGES.sub("", SPACES_PATTERN.sub(" ", normalize_unicode("NFKC", lines).casefold()))
    text = normalized.encode("utf-8", "replace") + b"\n"
    flat = np.frombuffer(bytearray(text), np.uint8)
    line_ends = np.flatnonzero(flat == ord("\n"))
    hashes = np.empty(len(line_ends), np.uint64)
    hash_spans(flat, np.concatenate([[0], line_ends[:-1] + 1]), line_ends, hashes)
    return hashes


@kernel
def copy_spans(text, begins, ends, out, places):
    """Copy each span text[begins[i]:ends[i]] to out[places[i]:]."""
    for i in range(len(begins)):
        for j in range(ends[i] - begins[i]):
            out[places[i] + j] = text[begins[i] + j]
