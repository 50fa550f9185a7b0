"""Checks for suspicious labels and for HTML in texts, so that the user is warned before training.

If the separator between labels is wrong, several labels become one: most of these occur once, while their parts recur.
Semicolons, bars and line breaks hardly ever belong to a name. Commas and slashes do, so they are reported only if there
are fewer distinct parts than labels, and blanks only between codes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

CERTAIN_SEPARATORS, AMBIGUOUS_SEPARATORS = (";", "|", "\n", "\t"), (",", "/")
MIN_CERTAIN_SHARE, MIN_AMBIGUOUS_SHARE = 0.1, 0.5  # minimum share of labels that contain the separator
MIN_SUSPICIOUS_LABELS = 2  # minimum number of them
CODE = re.compile(r"\d+|\S*\d\S*|<?\w+://\S+")
LIST_FRAGMENT_PATTERN = re.compile(r"^[\[({]|[\])}]$|^['\"].*['\"]$", re.DOTALL)
MAX_CHECKED_DOCUMENTS = 100_000
MAX_CHECKED_TEXTS = 10_000
MIN_MARKUP_SHARE = 0.05  # of texts with HTML
TAG_PATTERN = re.compile(
    r"</?(?:p|br|div|span|b|i|em|strong|a|ul|ol|li|h[1-6]|table|tr|td)(?:\s[^<>]{0,200})?/?>", re.IGNORECASE
)
MIN_SINGLETON_LABELS = 20  # with fewer labels it is normal that each occurs once
SEPARATOR_NAMES = {"\n": "a line break", "\t": "a tab", " ": "blanks"}
SEPARATOR_SHELL_ARGUMENTS = {"\n": "'\\n'", "\t": "'\\t'"}


class LabelChecker:
    """Counter of the labels of the first documents of a corpus, which reports suspicious labels."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.n_docs = 0

    def add_document_labels(self, labels: list[str]) -> None:
        self.n_docs += 1
        if self.n_docs <= MAX_CHECKED_DOCUMENTS:
            self.counts.update(labels)

    def find_problems(self) -> Iterator[str]:
        """Yield a message for each problem."""
        prefix = f"in the first {MAX_CHECKED_DOCUMENTS:,} documents, " if self.n_docs > MAX_CHECKED_DOCUMENTS else ""
        for problem in self._describe_problems():
            yield prefix + problem

    def _describe_problems(self) -> Iterator[str]:
        separator = self._find_separator()
        if separator is not None:
            yield self._describe_separator(*separator)
        fragments = [label for label in self.counts if LIST_FRAGMENT_PATTERN.search(label)]
        if len(fragments) >= max(MIN_SUSPICIOUS_LABELS, MIN_CERTAIN_SHARE * len(self.counts)):
            yield (
                f"{len(fragments):,} of {len(self.counts):,} labels look like parts of a list, such as "
                f"{fragments[0][:40]!r}; expected a complete list in a cell, ['a', 'b'], or names and a --separator."
            )
        if separator is None and len(self.counts) >= MIN_SINGLETON_LABELS and max(self.counts.values()) == 1:
            yield (
                f"each of the {len(self.counts):,} labels occurs in one document only, so nothing can be learnt about "
                f"them; check --labels, or set a --separator."
            )

    def _find_separator(self) -> tuple[str, list[str]] | None:
        """Return the probable separator and the labels that contain it."""
        for separator in (*CERTAIN_SEPARATORS, *AMBIGUOUS_SEPARATORS, " "):
            labels = [label for label in self.counts if separator in label]
            is_certain = separator in CERTAIN_SEPARATORS
            share = MIN_CERTAIN_SHARE if is_certain else MIN_AMBIGUOUS_SHARE
            is_frequent = len(labels) >= max(MIN_SUSPICIOUS_LABELS, share * len(self.counts))
            if is_frequent and (is_certain or self._has_recurring_parts(separator, labels)):
                return separator, labels
        return None

    def _has_recurring_parts(self, separator: str, labels: list[str]) -> bool:
        """Return True if there are fewer distinct parts than labels; parts between blanks must be codes."""
        parts = {part.strip() for label in labels for part in label.split(separator)}
        return len(parts) < len(labels) and (separator != " " or all(map(CODE.fullmatch, parts)))

    def _describe_separator(self, separator: str, labels: list[str]) -> str:
        n_once = sum(self.counts[label] == 1 for label in labels)
        parts = {part.strip() for label in self.counts for part in label.split(separator)} - {""}
        name = SEPARATOR_NAMES.get(separator, repr(separator))
        option = SEPARATOR_SHELL_ARGUMENTS.get(separator, f"'{separator}'")
        verb = "occur once and contain" if n_once == len(labels) else "contain"
        detail = f" ({n_once:,} of them occur once)" if 0 < n_once < len(labels) else ""
        return (
            f"{len(labels):,} of {len(self.counts):,} labels {verb} {name}{detail}, such as {labels[0][:60]!r}: "
            f"did you mean --separator {option}? That would make {len(parts):,} labels."
        )


class MarkupChecker:
    """Counter of HTML in the first texts of a table, whose tags would be read as words."""

    def __init__(self) -> None:
        self.n_docs = self.n_marked = 0
        self.example = ""

    def add_text(self, text: str) -> None:
        if self.n_docs == MAX_CHECKED_TEXTS:
            return
        self.n_docs += 1
        if "<" in text and (tag := TAG_PATTERN.search(text)):
            self.n_marked += 1
            self.example = self.example or tag[0]

    def find_problems(self) -> Iterator[str]:
        """Yield a message if many texts contain HTML."""
        if self.n_marked > MIN_MARKUP_SHARE * self.n_docs:
            yield (
                f"{self.n_marked:,} of the first {self.n_docs:,} texts contain HTML, such as {self.example[:40]!r}, "
                "and tags are read as words; remove them, or write each text to an .html file, which is read without "
                "tags."
            )
