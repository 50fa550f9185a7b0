"""What an import has seen so far, in flat arrays: strings of Python would take ten times the room.

Statements may come in any order, so that anything named by a URI gets a number when it first turns up, and only at the
end is it known which of them are concepts and which are schemes and collections."""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field

import numpy as np

from xmtc.errors import XmtcError
from xmtc.vocabulary.vocabulary import MAX_LANGUAGES, NOTATION

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
    """Takes statements about things; xmtc/vocabulary/build.py makes a vocabulary of those that are concepts."""

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
