"""Labels that are probably not what was meant, so that a person is told before a model is trained on them.

A separator between labels that was not named makes one label of several: of such labels, most occur once, and their
parts occur again and again. Semicolons, bars and line breaks hardly ever belong to a name; commas and slashes do, so
they count only where the parts are fewer than the wholes, and blanks only between codes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

SURE, COMMON = (";", "|", "\n", "\t"), (",", "/")
SHARE_SURE, SHARE_COMMON = 0.1, 0.5  # of the labels, those that must hold the separator
LEAST = 2  # labels that hold it, at least
CODE = re.compile(r"\d+|\S*\d\S*|<?\w+://\S+")
LISTED = re.compile(r"^[\[({]|[\])}]$|^['\"].*['\"]$", re.DOTALL)
MOST_DOCS = 100_000  # that are looked at
MANY = 20  # labels, from which on it means something that each occurs once
NAMES = {"\n": "a line break", "\t": "a tab", " ": "blanks"}
OPTIONS = {"\n": "$'\\n'", "\t": "$'\\t'"}  # as a shell takes them


class LabelWatch:
    """Counts the labels of the first documents as they pass: enough to tell, whatever the size of a corpus."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.n_docs = 0

    def look_at(self, labels: list[str]) -> None:
        self.n_docs += 1
        if self.n_docs <= MOST_DOCS:
            self.counts.update(labels)

    def suspicions(self) -> Iterator[str]:
        """What to say about them, in sentences."""
        where = f"in the first {MOST_DOCS:,} documents, " if self.n_docs > MOST_DOCS else ""
        for sentence in self._sentences():
            yield where + sentence

    def _sentences(self) -> Iterator[str]:
        found = self._separator()
        if found is not None:
            yield self._of_separator(*found)
        listed = [label for label in self.counts if LISTED.search(label)]
        if len(listed) >= max(LEAST, SHARE_SURE * len(self.counts)):
            share = f"{len(listed):,} of {len(self.counts):,} labels"
            yield (
                f"{share} look like parts of a list, such as {listed[0][:40]!r}; "
                f"expected a whole list in a cell, ['a', 'b'], or names and a --separator."
            )
        if found is None and len(self.counts) >= MANY and max(self.counts.values()) == 1:
            yield (
                f"each of the {len(self.counts):,} labels occurs in one document only, so that nothing can be learnt "
                f"about them: is another field meant by --labels, or is a --separator missing?"
            )

    def _separator(self) -> tuple[str, list[str]] | None:
        """What probably stands between labels, and the labels that hold it."""
        for mark in (*SURE, *COMMON, " "):
            holding = [label for label in self.counts if mark in label]
            share = SHARE_SURE if mark in SURE else SHARE_COMMON
            if len(holding) >= max(LEAST, share * len(self.counts)) and (mark in SURE or self._recur(mark, holding)):
                return mark, holding
        return None

    def _recur(self, mark: str, holding: list[str]) -> bool:
        """Whether the parts of labels are fewer than the labels, and, between blanks, are codes."""
        parts = {part.strip() for label in holding for part in label.split(mark)}
        return len(parts) < len(holding) and (mark != " " or all(map(CODE.fullmatch, parts)))

    def _of_separator(self, mark: str, holding: list[str]) -> str:
        n_labels, n_once = len(self.counts), sum(self.counts[label] == 1 for label in holding)
        parts = {part.strip() for label in self.counts for part in label.split(mark)} - {""}
        shown, option = NAMES.get(mark, repr(mark)), OPTIONS.get(mark, f"'{mark}'")
        once = " occur once and contain" if n_once == len(holding) else " contain"
        rest = f" ({n_once:,} of them occur once)" if 0 < n_once < len(holding) else ""
        return (
            f"{len(holding):,} of {n_labels:,} labels{once} {shown}{rest}, such as {holding[0][:60]!r}: "
            f"did you mean --separator {option}? That would make {len(parts):,} labels."
        )
