"""A text cut into pieces, each with its weight for a label.

A model that reads words in their order may say what each place weighs; words beyond max_tokens weigh nothing. Of any
other model, every occurrence of a term weighs what the term does in all, and a word that is part of several terms (with
ngrams > 1) weighs what the strongest of them does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from xmtc.base.method import Explanation
from xmtc.features.both import BagAndSequences
from xmtc.features.subwords import SubwordReader
from xmtc.features.tfidf import Vectorizer
from xmtc.features.with_subwords import WithSubwords
from xmtc.features.words import Sequencer
from xmtc.text.spans import Place, find_places

TextFeatures = Vectorizer | Sequencer | BagAndSequences | SubwordReader | WithSubwords


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

    def strengths(self) -> list[float]:
        """The weight of each piece as a share of the strongest one's: between -1 and 1."""
        strongest = max((abs(piece.weight) for piece in self.pieces), default=0.0) or 1.0
        return [piece.weight / strongest for piece in self.pieces]


def highlight(
    text: str, label: str, score: float | None, features: TextFeatures, explanation: Explanation, n: int = 20
) -> Highlight:
    """A model's explanation of a label, laid over the text; `words` are the n strongest."""
    words = sorted(weights_of_words(text, features, explanation), key=lambda pair: -abs(pair[1]))[:n]
    return Highlight(label, score, cut(text, weighed(text, features, explanation)), words)


def weights_of_words(text: str, features: TextFeatures, explanation: Explanation) -> list[tuple[str, float]]:
    """What each word weighs in all, the largest first. Subwords are added up to the words that they are of."""
    if not isinstance(features, SubwordReader):
        weights = explanation.weights.tolist()
        return [(features.word(number), weight) for number, weight in zip(explanation.features, weights, strict=True)]
    total: dict[str, float] = {}
    for place, weight in weighed(text, features, explanation):
        total[place.word] = total.get(place.word, 0.0) + weight
    return sorted(total.items(), key=lambda pair: -pair[1])


def weighed(text: str, features: TextFeatures, explanation: Explanation) -> list[tuple[Place, float]]:
    """The words of the text that the model read, and what each weighs."""
    if isinstance(features, SubwordReader):
        assert explanation.places is not None
        words, which = features.places(text)
        return list(zip(words, np.bincount(which + 1, explanation.places, len(words) + 1)[1:].tolist(), strict=True))
    features = features.rest if isinstance(features, WithSubwords) else features  # by which such models explain
    reader = reader_of(features, in_order=explanation.places is not None)
    places = find_places(reader.tokenizer, text)
    weights = explanation.weights.tolist()
    if isinstance(reader, Sequencer):
        if explanation.places is not None:
            weights = explanation.places.tolist()
        else:
            numbers = dict(zip(explanation.features.tolist(), weights, strict=True))
            weights = [numbers.get(number, 0.0) for number in reader.transform([text]).ids.tolist()]
        # shorter than the text where it goes beyond max_tokens; longer where it has no words, which reads as one
        return list(zip(places, weights, strict=False))
    terms = dict(zip((reader.word(feature) for feature in explanation.features), weights, strict=True))
    return list(zip(places, weights_of_terms([p.word for p in places], terms, reader.tokenizer.ngrams), strict=True))


def reader_of(features: Vectorizer | Sequencer | BagAndSequences, in_order: bool) -> Vectorizer | Sequencer:
    """What found the words that an explanation speaks of."""
    if isinstance(features, BagAndSequences):
        return features.words if in_order else features.bag
    return features


def weights_of_terms(words: list[str], terms: dict[str, float], ngrams: int) -> list[float]:
    """For each word, the weight of the strongest term that it is part of."""
    weights = [0.0] * len(words)
    for first in range(len(words)):
        for after in range(first + 1, min(first + ngrams, len(words)) + 1):
            weight = terms.get(" ".join(words[first:after]), 0.0)
            for i in range(first, after):
                weights[i] = max(weights[i], weight, key=abs)
    return weights


def cut(text: str, words: Iterable[tuple[Place, float]]) -> list[Piece]:
    """The whole text, cut before and after each word."""
    pieces, done = [], 0
    for place, weight in words:
        pieces += [Piece(text[done : place.begin], 0.0), Piece(text[place.begin : place.end], weight)]
        done = place.end
    return [piece for piece in [*pieces, Piece(text[done:], 0.0)] if piece.text]
