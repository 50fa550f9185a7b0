"""Labels that are probably not what was meant, so that a person is told before a model is trained on them.

A separator between labels that was not named makes one label of several: of such labels, most occur once, and their
parts occur again and again. Semicolons, bars and line breaks hardly ever belong to a name; commas and slashes do, so
they count only where the parts are fewer than the wholes, and blanks only between codes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

CERTAIN_SEPARATORS, AMBIGUOUS_SEPARATORS = (";", "|", "\n", "\t"), (",", "/")
MIN_CERTAIN_SHARE, MIN_AMBIGUOUS_SHARE = 0.1, 0.5  # of the labels, those that must hold the separator
MIN_SUSPICIOUS_LABELS = 2  # labels that hold it, at least
CODE = re.compile(r"\d+|\S*\d\S*|<?\w+://\S+")
LIST_FRAGMENT_PATTERN = re.compile(r"^[\[({]|[\])}]$|^['\"].*['\"]$", re.DOTALL)
MAX_CHECKED_DOCUMENTS = 100_000  # that are looked at
MIN_SINGLETON_LABELS = 20  # labels, from which on it means something that each occurs once
SEPARATOR_NAMES = {"\n": "a line break", "\t": "a tab", " ": "blanks"}
SEPARATOR_SHELL_ARGUMENTS = {"\n": "$'\\n'", "\t": "$'\\t'"}  # as a shell takes them


class LabelChecker:
    """Counts the labels of the first documents as they pass: enough to tell, whatever the size of a corpus."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.n_docs = 0

    def add_document_labels(self, labels: list[str]) -> None:
        self.n_docs += 1
        if self.n_docs <= MAX_CHECKED_DOCUMENTS:
            self.counts.update(labels)

    def find_problems(self) -> Iterator[str]:
        """What to say about them, in sentences."""
        where = f"in the first {MAX_CHECKED_DOCUMENTS:,} documents, " if self.n_docs > MAX_CHECKED_DOCUMENTS else ""
        for sentence in self._describe_problems():
            yield where + sentence

    def _describe_problems(self) -> Iterator[str]:
        found = self._find_separator()
        if found is not None:
            yield self._describe_separator(*found)
        listed = [label for label in self.counts if LIST_FRAGMENT_PATTERN.search(label)]
        if len(listed) >= max(MIN_SUSPICIOUS_LABELS, MIN_CERTAIN_SHARE * len(self.counts)):
            share = f"{len(listed):,} of {len(self.counts):,} labels"
            yield (
                f"{share} look like parts of a list, such as {listed[0][:40]!r}; "
                f"expected a whole list in a cell, ['a', 'b'], or names and a --separator."
            )
        if found is None and len(self.counts) >= MIN_SINGLETON_LABELS and max(self.counts.values()) == 1:
            yield (
                f"each of the {len(self.counts):,} labels occurs in one document only, so that nothing can be learnt "
                f"about them: is another field meant by --labels, or is a --separator missing?"
            )

    def _find_separator(self) -> tuple[str, list[str]] | None:
        """What probably stands between labels, and the labels that hold it."""
        for mark in (*CERTAIN_SEPARATORS, *AMBIGUOUS_SEPARATORS, " "):
            holding = [label for label in self.counts if mark in label]
            share = MIN_CERTAIN_SHARE if mark in CERTAIN_SEPARATORS else MIN_AMBIGUOUS_SHARE
            if len(holding) >= max(MIN_SUSPICIOUS_LABELS, share * len(self.counts)) and (
                mark in CERTAIN_SEPARATORS or self._has_recurring_parts(mark, holding)
            ):
                return mark, holding
        return None

    def _has_recurring_parts(self, mark: str, holding: list[str]) -> bool:
        """Whether the parts of labels are fewer than the labels, and, between blanks, are codes."""
        parts = {part.strip() for label in holding for part in label.split(mark)}
        return len(parts) < len(holding) and (mark != " " or all(map(CODE.fullmatch, parts)))

    def _describe_separator(self, mark: str, holding: list[str]) -> str:
        n_labels, n_once = len(self.counts), sum(self.counts[label] == 1 for label in holding)
        parts = {part.strip() for label in self.counts for part in label.split(mark)} - {""}
        shown, option = SEPARATOR_NAMES.get(mark, repr(mark)), SEPARATOR_SHELL_ARGUMENTS.get(mark, f"'{mark}'")
        once = " occur once and contain" if n_once == len(holding) else " contain"
        rest = f" ({n_once:,} of them occur once)" if 0 < n_once < len(holding) else ""
        return (
            f"{len(holding):,} of {n_labels:,} labels{once} {shown}{rest}, such as {holding[0][:60]!r}: "
            f"did you mean --separator {option}? That would make {len(parts):,} labels."
        )
