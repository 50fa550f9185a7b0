"""From what an import has collected to the arrays of a Vocabulary. Over millions of names all of it is NumPy's work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from unicodedata import normalize

import numpy as np

from xmtc.core.numba_support import kernel
from xmtc.errors import XmtcError
from xmtc.text.term_index import Vocabulary as Words
from xmtc.text.term_index import numbered
from xmtc.vocabulary.collector import CONCEPT, FALLBACK, GROUP, Collector, Pairs
from xmtc.vocabulary.vocabulary import (
    ABSENT,
    PREFERRED,
    Links,
    Names,
    Vocabulary,
    hash_each,
    links_of,
    local_id,
    reached,
)

AT_ONCE = 100_000  # names that are brought into one form together
SPACES, EDGES = re.compile(r"[^\S\n]+"), re.compile(r"(?m)^ | $")


def arranged(found: Collector) -> Vocabulary:
    """The vocabulary of all concepts that were found."""
    roles = np.frombuffer(bytes(found.roles), np.uint8)
    concepts, groups = np.flatnonzero(roles == CONCEPT), np.flatnonzero(roles == GROUP)
    if not len(concepts):
        raise XmtcError("The vocabulary has no concepts; expected skos:Concept, or rows with an id and a name.")
    uris = list(found.numbers)
    places, group_places = numbering(concepts, len(roles)), numbering(groups, len(roles))
    languages, codes = languages_by_use(found)
    names = names_of(found, places, len(concepts), codes)
    own = [uris[i] for i in concepts.tolist()]
    hashes, hashed = index(own, names)
    return Vocabulary(
        uris=Words.of(own),
        languages=languages,
        terms=names,
        hashes=hashes,
        hashed=hashed,
        broader=between(found.broader, places, places, len(concepts)),
        groups=Words.of(uris[i] for i in groups.tolist()),
        group_kinds=np.array([found.kinds_of_group[i] for i in groups.tolist()], np.uint8),
        group_terms=names_of(found, group_places, len(groups), codes),
        groups_of=memberships(found.members, places, group_places, len(concepts), len(groups)),
        deprecated=np.isin(concepts, np.array(sorted(found.deprecated), np.int64)),
        replacements=between(found.replacements, places, places, len(concepts)),
    )


def numbering(chosen: np.ndarray, n: int) -> np.ndarray:
    """The place of each of n things among the chosen; ABSENT for the others."""
    places = np.full(n, ABSENT, np.int32)
    places[chosen] = np.arange(len(chosen), dtype=np.int32)
    return places


def languages_by_use(found: Collector) -> tuple[tuple[str, ...], np.ndarray]:
    """Codes, the one with most preferred names first, and the place of each language among them."""
    preferred = kinds_of_names(found) == PREFERRED
    counts = np.bincount(np.array(found.codes, np.int64)[preferred], minlength=len(found.languages))
    codes = list(found.languages)
    order = sorted(range(len(codes)), key=lambda i: (-counts[i], codes[i]))
    return tuple(codes[i] for i in order), np.argsort(np.array(order, np.int64)).astype(np.int16)


def kinds_of_names(found: Collector) -> np.ndarray:
    """With fallbacks as preferred names of things without any."""
    owners, kinds = np.array(found.owners, np.int64), np.frombuffer(bytearray(found.kinds), np.uint8)
    is_named = np.zeros(len(found.roles), bool)
    is_named[owners[kinds == PREFERRED]] = True
    kinds[(kinds == FALLBACK) & ~is_named[owners]] = PREFERRED
    return kinds


def names_of(found: Collector, places: np.ndarray, n: int, codes: np.ndarray) -> Names:
    """The names of some things, each thing's together: preferred ones first, then by language, each once."""
    owners, kinds = places[np.array(found.owners, np.int64)], kinds_of_names(found)
    languages = codes[np.array(found.codes, np.int64)]
    kept = np.flatnonzero((owners != ABSENT) & (kinds != FALLBACK))
    kept = kept[np.lexsort((languages[kept], kinds[kept], owners[kept]))]
    text, ends = np.frombuffer(found.text, np.uint8), np.array(found.ends, np.int64)
    strings = numbered(text, ends[kept], ends[kept + 1]).numbers
    kept = kept[first_of_each(strings, languages[kept], kinds[kept], owners[kept])]
    of = ends_of(np.bincount(owners[kept], minlength=n))
    own_ends = ends_of(ends[kept + 1] - ends[kept])
    own_text = np.empty(own_ends[-1], np.uint8)
    copy_parts(text, ends[kept], ends[kept + 1], own_text, own_ends)
    return Names(own_text, own_ends, kinds[kept], languages[kept], of)


def ends_of(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def first_of_each(*columns: np.ndarray) -> np.ndarray:
    """(n,) bool: whether no row before is the same in all columns."""
    order = np.lexsort(columns)
    is_first = np.ones(len(order), bool)
    if len(order):
        is_first[order[1:]] = np.any([column[order[1:]] != column[order[:-1]] for column in columns], axis=0)
    return is_first


def between(pairs: Pairs, places: np.ndarray, to_places: np.ndarray, n: int) -> Links:
    """Links between renumbered things, each once, and none to itself of what is renumbered alike."""
    origins, to = pairs.arrays()
    origins, to = places[origins], to_places[to]
    kept = (origins != ABSENT) & (to != ABSENT)
    if places is to_places:
        kept &= origins != to
    origins, to = origins[kept], to[kept]
    is_first = first_of_each(to, origins)
    return links_of(origins[is_first], to[is_first], n)


def memberships(members: Pairs, places: np.ndarray, group_places: np.ndarray, n: int, n_groups: int) -> Links:
    """The groups of each concept; whoever belongs to a part of a collection belongs to it."""
    direct = between(members, group_places, places, n_groups)
    parts = between(members, group_places, group_places, n_groups)
    whole = [reached(parts, [group]) for group in range(n_groups)]
    of_groups = [np.unique(np.concatenate([direct.row(part) for part in every])) for every in whole]
    groups = np.repeat(np.arange(n_groups, dtype=np.int32), [len(each) for each in of_groups])
    return links_of(np.concatenate([np.zeros(0, np.int32), *of_groups]), groups, n)


def index(uris: list[str], names: Names) -> tuple[np.ndarray, np.ndarray]:
    """Hashes of everything that a concept is found by, ascending, and whose they are."""
    numbers = np.arange(len(uris), dtype=np.int32)
    owners = np.concatenate([numbers, np.repeat(numbers, np.diff(names.of))])
    local = [local_id(uri).replace("\n", " ") for uri in uris]
    ids = ("\n".join(local[i : i + AT_ONCE]) for i in range(0, len(uris), AT_ONCE))
    hashes = np.concatenate([np.zeros(0, np.uint64), *map(line_hashes, ids), *map(line_hashes, in_lines(names))])
    order = np.lexsort((owners, hashes))
    order = order[first_of_each(owners[order], hashes[order])]
    return hashes[order], owners[order]


def in_lines(names: Names) -> Iterator[str]:
    """All names, many at a time, each in a line."""
    for begin in range(0, len(names.kinds), AT_ONCE):
        ends = np.array(names.ends[begin : begin + AT_ONCE + 1])
        places = ends_of(np.diff(ends) + 1)
        lines = np.full(places[-1], ord("\n"), np.uint8)
        copy_parts(names.text, ends[:-1], ends[1:], lines, places)
        yield lines[:-1].tobytes().decode(errors="replace")


def line_hashes(lines: str) -> np.ndarray:
    """Of the `key` of each line: for many at once."""
    text = EDGES.sub("", SPACES.sub(" ", normalize("NFKC", lines).casefold())).encode("utf-8", "replace") + b"\n"
    flat = np.frombuffer(bytearray(text), np.uint8)
    line_ends = np.flatnonzero(flat == ord("\n"))
    hashes = np.empty(len(line_ends), np.uint64)
    hash_each(flat, np.concatenate([[0], line_ends[:-1] + 1]), line_ends, hashes)
    return hashes


@kernel
def copy_parts(text, begins, ends, out, places):
    """Write the parts text[begins[i]:ends[i]] to their places."""
    for i in range(len(begins)):
        for j in range(ends[i] - begins[i]):
            out[places[i] + j] = text[begins[i] + j]
