"""What an import has seen so far, in flat arrays: strings of Python would take ten times the room.

Statements may come in any order, so that anything named by a URI gets a number when it first turns up, and only at the
end is it known which of them are concepts and which are schemes and collections."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import numpy as np

from xmtc.errors import XmtcError
from xmtc.text.vocabulary import Vocabulary as Words
from xmtc.text.vocabulary import end_to_end
from xmtc.vocab.vocabulary import (
    ABSENT,
    MANY,
    NOTATION,
    PREFERRED,
    Links,
    Names,
    Vocabulary,
    hash_each,
    key,
    links_of,
    local_id,
    reached,
)

NOTHING, CONCEPT, GROUP = 0, 1, 2  # what a thing is known to be
FALLBACK = NOTATION + 1  # kind of a name that counts as preferred where a thing, as a deprecated one, has no other


@dataclass
class Pairs:
    """Links between things by number."""

    origins: array = field(default_factory=lambda: array("i"))
    to: array = field(default_factory=lambda: array("i"))

    def add(self, origin: int, to: int) -> None:
        self.origins.append(origin)
        self.to.append(to)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array(self.origins, np.int32), np.array(self.to, np.int32)


class Collector:
    """Takes statements about things; `vocabulary` makes one of those that are concepts."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}  # of every URI
        self.roles = bytearray()  # of things
        self.kinds_of_group: dict[int, int] = {}
        self.deprecated: set[int] = set()
        self.broader, self.members, self.replacements = Pairs(), Pairs(), Pairs()
        self.languages: dict[str, int] = {}
        self.text, self.ends = bytearray(), array("q", [0])
        self.owners, self.kinds, self.codes = array("i"), bytearray(), array("h")  # of names

    def thing(self, uri: str) -> int:
        """The number of a URI."""
        number = self.numbers.setdefault(uri, len(self.numbers))
        if number == len(self.roles):
            self.roles.append(NOTHING)
        return number

    def concept(self, uri: str) -> int:
        number = self.thing(uri)
        if self.roles[number] == NOTHING:
            self.roles[number] = CONCEPT
        return number

    def group(self, uri: str, kind: int) -> int:
        number = self.thing(uri)
        self.roles[number] = GROUP
        self.kinds_of_group[number] = kind
        return number

    def name(self, thing: int, text: str, language: str, kind: int) -> None:
        if not text.strip():
            return
        self.text += text.strip().encode("utf-8", "replace")
        self.ends.append(len(self.text))
        self.owners.append(thing)
        self.kinds.append(kind)
        self.codes.append(self.language(language))

    def language(self, code: str) -> int:
        if len(self.languages) == MANY and code not in self.languages:
            raise XmtcError(f"The vocabulary has more than {MANY:,} languages; check its language column.")
        return self.languages.setdefault(code, len(self.languages))

    def vocabulary(self) -> Vocabulary:
        roles = np.frombuffer(bytes(self.roles), np.uint8)
        concepts, groups = np.flatnonzero(roles == CONCEPT), np.flatnonzero(roles == GROUP)
        if not len(concepts):
            raise XmtcError("The vocabulary has no concepts; expected skos:Concept, or rows with an id and a name.")
        uris = list(self.numbers)
        languages, codes = self.languages_by_use()
        places, group_places = numbering(concepts, len(roles)), numbering(groups, len(roles))
        names = self.names(places, len(concepts), codes)
        own = [uris[i] for i in concepts.tolist()]
        hashes, hashed = index(own, names)
        return Vocabulary(
            uris=Words.of(own),
            languages=languages,
            terms=names,
            hashes=hashes,
            hashed=hashed,
            broader=between(self.broader, places, places, len(concepts)),
            groups=Words.of(uris[i] for i in groups.tolist()),
            group_kinds=np.array([self.kinds_of_group[i] for i in groups.tolist()], np.uint8),
            group_terms=self.names(group_places, len(groups), codes),
            groups_of=self.memberships(places, group_places, len(concepts), groups),
            deprecated=np.isin(concepts, np.array(sorted(self.deprecated), np.int64)),
            replacements=between(self.replacements, places, places, len(concepts)),
        )

    def languages_by_use(self) -> tuple[tuple[str, ...], np.ndarray]:
        """Codes, the one with most preferred names first, and the place of each language among them."""
        preferred = self.kinds_of_names() == PREFERRED
        counts = np.bincount(np.array(self.codes, np.int64)[preferred], minlength=len(self.languages))
        codes = list(self.languages)
        order = sorted(range(len(codes)), key=lambda i: (-counts[i], codes[i]))
        return tuple(codes[i] for i in order), np.argsort(np.array(order, np.int64)).astype(np.int16)

    def kinds_of_names(self) -> np.ndarray:
        """With fallbacks as preferred names of things without any."""
        owners, kinds = np.array(self.owners, np.int64), np.frombuffer(bytearray(self.kinds), np.uint8)
        is_named = np.zeros(len(self.roles), bool)
        is_named[owners[kinds == PREFERRED]] = True
        kinds[(kinds == FALLBACK) & ~is_named[owners]] = PREFERRED
        return kinds

    def names(self, places: np.ndarray, n: int, codes: np.ndarray) -> Names:
        """The names of some things, each thing's together: preferred ones first, then by language, each once."""
        owners, kinds = places[np.array(self.owners, np.int64)], self.kinds_of_names()
        languages = codes[np.array(self.codes, np.int64)] if len(codes) else np.zeros(0, np.int16)
        order = np.lexsort((languages, kinds, owners))
        order = order[(owners[order] != ABSENT) & (kinds[order] != FALLBACK)]
        text, ends = memoryview(self.text), self.ends
        kept, parts, last = [], [], ABSENT
        seen: set[tuple[bytes, int, int]] = set()
        for i, owner in zip(order.tolist(), owners[order].tolist(), strict=True):
            part = bytes(text[ends[i] : ends[i + 1]])
            if owner != last:
                seen, last = set(), owner
            if (part, kinds[i], languages[i]) not in seen:
                seen.add((part, kinds[i], languages[i]))
                kept.append(i)
                parts.append(part)
        text.release()
        joined, joined_ends = end_to_end(parts)
        of = np.concatenate([[0], np.cumsum(np.bincount(owners[kept], minlength=n))]).astype(np.int64)
        return Names(joined, joined_ends, kinds[kept], languages[kept], of)

    def memberships(self, places: np.ndarray, group_places: np.ndarray, n: int, groups: np.ndarray) -> Links:
        """The groups of each concept; whoever belongs to a part of a collection belongs to it."""
        direct = between(self.members, group_places, places, len(groups))
        parts = between(self.members, group_places, group_places, len(groups))
        pairs = {(c, g) for g in range(len(groups)) for part in reached(parts, [g]) for c in direct[part]}
        found = np.array(sorted(pairs), np.int32).reshape(-1, 2)
        return links_of(found[:, 0], found[:, 1], n)


def numbering(chosen: np.ndarray, n: int) -> np.ndarray:
    """The place of each of n things among the chosen; ABSENT for the others."""
    places = np.full(n, ABSENT, np.int32)
    places[chosen] = np.arange(len(chosen), dtype=np.int32)
    return places


def between(pairs: Pairs, places: np.ndarray, to_places: np.ndarray, n: int) -> Links:
    """Links between renumbered things, each once, and none to itself of what is renumbered alike."""
    origins, to = pairs.arrays()
    origins, to = places[origins], to_places[to]
    kept = (origins != ABSENT) & (to != ABSENT)
    if places is to_places:
        kept &= origins != to
    both = np.unique(np.stack([origins[kept], to[kept]], axis=1), axis=0) if kept.any() else np.zeros((0, 2), np.int32)
    return links_of(both[:, 0], both[:, 1], n)


def index(uris: list[str], names: Names) -> tuple[np.ndarray, np.ndarray]:
    """Hashes of everything that a concept is found by, ascending, and whose they are."""
    owners = np.repeat(np.arange(len(uris), dtype=np.int32), np.diff(names.of))
    keys = [key(local_id(uri)) for uri in uris] + [key(names[i]) for i in range(len(names.kinds))]
    text, ends = end_to_end(keys)
    hashes = np.empty(len(keys), np.uint64)
    hash_each(text, ends, hashes)
    both = np.stack([hashes, np.concatenate([np.arange(len(uris), dtype=np.int32), owners]).astype(np.uint64)], axis=1)
    both = np.unique(both, axis=0)
    return np.ascontiguousarray(both[:, 0]), both[:, 1].astype(np.int32)
