"""A text cut into pieces, each with its weight for a label.

A model that reads sequences says what each token weighs: a word weighs what its tokens do, and words beyond what was
read weigh nothing. Of any other model, every occurrence of a term weighs what the term does in all, and a word that is
part of several terms (with ngrams > 1) weighs what the strongest of them does. What stems and character n-grams weigh
is shared out among the characters that they come from, so that all pieces together weigh what all terms do."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from xmtc.base.method import Explanation
from xmtc.features import FittedView
from xmtc.text.spans import Span


class Piece(NamedTuple):
    """A word, or what stands between two."""

    text: str
    weight: float  # for the label, or against it where negative; 0 between words


@dataclass(frozen=True)
class Highlight:
    """Why a text gets a label, word by word."""

    label: str
    score: float | None  # None where the label is not among those that the model finds
    pieces: list[Piece]  # joined, they are the text
    words: list[tuple[str, float]]  # what each word of the text weighs in all, the strongest first
    pages: tuple[int, ...] = ()  # where in the text each page begins, of a document that has pages
    name: str | None = None  # of the label, where a vocabulary tells

    @property
    def title(self) -> str:
        """The label, and its name where it has one."""
        return self.label if self.name is None else f"{self.name} ({self.label})"

    def page_numbers(self) -> list[int]:
        """The page, from 1 on, that each piece begins on."""
        begins = accumulate((len(piece.text) for piece in self.pieces[:-1]), initial=0)
        return [bisect_right(self.pages, begin) for begin in begins]

    def by_page(self, n: int = 3) -> dict[int, list[Piece]]:
        """The n strongest words of each page that has some, by its number."""
        found: dict[int, dict[str, Piece]] = {}
        for page, piece in zip(self.page_numbers() if self.pages else (), self.pieces, strict=False):
            if piece.weight:
                known = found.setdefault(page, {}).setdefault(piece.text, piece)
                found[page][piece.text] = max(known, piece, key=lambda each: abs(each.weight))
        return {page: sorted(pieces.values(), key=lambda p: -abs(p.weight))[:n] for page, pieces in found.items()}

    def strengths(self) -> list[float]:
        """The weight of each piece as a share of the strongest one's: between -1 and 1."""
        strongest = max((abs(piece.weight) for piece in self.pieces), default=0.0) or 1.0
        return [piece.weight / strongest for piece in self.pieces]

    def __repr__(self) -> str:
        score = "" if self.score is None else f" {self.score:.3f}"
        strongest = ", ".join(f"{word} {weight:+.3g}" for word, weight in self.words[:3])
        return f"Highlight({self.label!r}{score}: {strongest})"

    def _repr_html_(self) -> str:
        """In a notebook, the coloured text."""
        from xmtc.explain.page import fragment  # which is made of these

        return fragment(self)


def highlight(
    text: str, label: str, score: float | None, view: FittedView, explanation: Explanation, n: int = 20
) -> Highlight:
    """A model's explanation of a label, laid over the text; `words` are the n strongest."""
    words = sorted(word_weights(text, view, explanation), key=lambda pair: -abs(pair[1]))[:n]
    return Highlight(label, score, cut(text, weighted_spans(text, view, explanation)), words)


def word_weights(text: str, view: FittedView, explanation: Explanation) -> list[tuple[str, float]]:
    """What each word weighs in all, the largest first. Parts of words are added up to the words that they are of."""
    if view.names_words:
        weights = explanation.weights.tolist()
        return [(view.term(number), weight) for number, weight in zip(explanation.ids, weights, strict=True)]

    total: dict[str, float] = {}
    for span, weight in weighted_spans(text, view, explanation):
        total[span.word] = total.get(span.word, 0.0) + weight
    return sorted(total.items(), key=lambda pair: -pair[1])


def weighted_spans(text: str, view: FittedView, explanation: Explanation) -> list[tuple[Span, float]]:
    """The words of the text that the model read, and what each weighs."""
    spans = view.spans(text)
    if explanation.per_token is not None:
        tokens = explanation.per_token.tolist()
        return [(span, sum((tokens[number] for number in span.numbers), 0.0)) for span in spans]

    terms = dict(zip(explanation.ids.tolist(), explanation.weights.tolist(), strict=True))
    return [(span, weight_of(span, terms)) for span in spans]


def weight_of(span: Span, terms: dict[int, float]) -> float:
    weights = [terms.get(number, 0.0) for number in span.numbers]
    if span.shares:
        return sum(weight * share for weight, share in zip(weights, span.shares, strict=True))
    return max(weights, key=abs, default=0.0)


def cut(text: str, words: Iterable[tuple[Span, float]]) -> list[Piece]:
    """The whole text, cut before and after each word."""
    pieces, done = [], 0
    for span, weight in words:
        pieces += [Piece(text[done : span.begin], 0.0), Piece(text[span.begin : span.end], weight)]
        done = span.end
    return [piece for piece in [*pieces, Piece(text[done:], 0.0)] if piece.text]
