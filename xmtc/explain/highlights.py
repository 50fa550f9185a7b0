"""Highlights: a text split into pieces, each with its weight for a label. `html.py` renders them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from xmtc.core.method import Explanation
from xmtc.explain.word_weights import WordWeight, format_weight, sum_by_word, weigh_words
from xmtc.features import FittedView


class WeightedText(NamedTuple):
    """Word, or text between two words, with its weight."""

    text: str
    weight: float  # negative if it is evidence against the label; 0 between words


class Member(NamedTuple):
    """Member of a combination with its share of the score."""

    name: str
    share: float


@dataclass(frozen=True)
class Highlight:
    """Text with the weight of each word for a label."""

    label: str
    score: float | None  # None if the label is not among the predicted ones
    pieces: list[WeightedText]  # joined, they are the text
    words: list[tuple[str, float]]  # total weight of each word, the strongest first
    pages: tuple[int, ...] = ()  # start of each page in the text, if the document has pages
    name: str | None = None  # name of the label in the vocabulary
    parts: dict[int, tuple[int, int]] = field(default_factory=dict)  # strongest part of a piece, by number of the piece
    bias: float | None = None  # the weights and the bias sum to the explained margin, log probability or logit
    members: tuple[Member, ...] = ()  # members of a combination that found the label

    @property
    def title(self) -> str:
        """The label, with its name if it has one."""
        return self.label if self.name is None else f"{self.name} ({self.label})"

    def list_page_numbers(self) -> list[int]:
        """Return the page on which each piece begins, from 1."""
        begins = accumulate((len(piece.text) for piece in self.pieces[:-1]), initial=0)
        return [bisect_right(self.pages, begin) for begin in begins]

    def top_words_by_page(self, n: int = 3) -> dict[int, list[WeightedText]]:
        """Return the n strongest words of each page with any, by page number."""
        words_by_page: dict[int, dict[str, WeightedText]] = {}
        for page, piece in zip(self.list_page_numbers() if self.pages else (), self.pieces, strict=False):
            if piece.weight:
                words = words_by_page.setdefault(page, {})
                words[piece.text] = max(words.get(piece.text, piece), piece, key=lambda word: abs(word.weight))
        return {
            page: sorted(words.values(), key=lambda word: -abs(word.weight))[:n]
            for page, words in words_by_page.items()
        }

    def relative_weights(self) -> list[float]:
        """Return the weight of each piece divided by the largest absolute weight, between −1 and 1."""
        strongest = max((abs(piece.weight) for piece in self.pieces), default=0.0) or 1.0
        return [piece.weight / strongest for piece in self.pieces]

    def describe_score(self) -> str:
        return "not among the predicted labels" if self.score is None else f"score {self.score:.3f}"

    def list_notes(self) -> list[str]:
        """Return sentences about the members and the bias of the explanation."""
        notes = []
        if self.members:
            shares = ", ".join(f"{member.name} {100 * member.share:.0f}%" for member in self.members)
            reason = "Members that found the label" if self.score is not None else "Members"
            notes.append(f"{reason}, with their shares of the score: {shares}.")
        if self.bias is not None:
            notes.append(f"Base, without any word: {format_weight(self.bias)}.")
        return notes

    def __repr__(self) -> str:
        score = "" if self.score is None else f" {self.score:.3f}"
        strongest = ", ".join(f"{word} {weight:+.3g}" for word, weight in self.words[:3])
        return f"Highlight({self.label!r}{score}: {strongest})"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        from xmtc.explain.html import render_fragment  # imported here, because only notebooks need templates

        return render_fragment(self)


def highlight(
    text: str,
    label: str,
    score: float | None,
    views: Mapping[str, FittedView],
    explanation: Explanation,
    n: int = 20,
    member_names: Sequence[str] = (),
) -> Highlight:
    """Return the explanation of a label as a highlighted text; `words` are the n strongest."""
    weighted = weigh_words(text, views, explanation)
    pieces, parts = split_text(text, weighted)
    words = sorted(sum_by_word(weighted), key=lambda pair: -abs(pair[1]))[:n]
    members = tuple(
        Member(member_names[number] if number < len(member_names) else f"member {number + 1}", share)
        for number, share, _ in explanation.members
    )
    return Highlight(label, score, pieces, words, parts=parts, bias=explanation.bias, members=members)


def split_text(text: str, words: Iterable[WordWeight]) -> tuple[list[WeightedText], dict[int, tuple[int, int]]]:
    """Split the text before and after each word. Return the pieces and the strongest part of some of them."""
    pieces: list[WeightedText] = []
    parts, position = {}, 0
    for word in words:
        if word.begin > position:
            pieces.append(WeightedText(text[position : word.begin], 0.0))
        if word.end > word.begin:
            if word.part is not None:
                parts[len(pieces)] = word.part[0] - word.begin, word.part[1] - word.begin
            pieces.append(WeightedText(text[word.begin : word.end], word.weight))
        position = word.end
    if position < len(text):
        pieces.append(WeightedText(text[position:], 0.0))
    return pieces, parts
