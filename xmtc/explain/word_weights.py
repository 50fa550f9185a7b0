"""Weights of the words of a text, from an explanation of terms, tokens or parts of words.

The weight of a word is the sum over its terms or tokens. A term that occurs several times, or in several words, divides
its weight among its occurrences, so that the weights of all words have the same sum as the weights of the terms. In a
combination of models, the words of each member have weights whose absolute values sum to the member's share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from xmtc.core.dataset import Tokens
from xmtc.core.method import Explanation
from xmtc.features import FittedView
from xmtc.text.word_spans import Span

MIN_PART_WEIGHT = 0.5  # weight of a character, relative to the strongest, in the strongest part of a word


class WordWeight(NamedTuple):
    """Occurrence text[begin:end] of a word with its weight."""

    begin: int
    end: int
    word: str  # normalised
    weight: float  # negative if it is evidence against the label
    part: tuple[int, int] | None = None  # strongest part text[begin:end] of the word; None: the whole word


def weigh_words(text: str, views: Mapping[str, FittedView], explanation: Explanation) -> list[WordWeight]:
    """Return the words of the text that the model reads, with their weights, in reading order."""
    if explanation.members:
        members = [(weigh_words(text, views, member.explanation), member.share) for member in explanation.members]
        return merge_words(list(chain.from_iterable(scale_words(words, share) for words, share in members)))

    view = views[explanation.view]
    per_token = find_token_weights(text, view, explanation)
    terms = dict(zip(explanation.ids.tolist(), explanation.weights.tolist(), strict=True))
    words = []
    for span in view.spans(text):
        if per_token is not None:
            weights = [float(per_token[number]) for number in span.numbers]
        else:
            shares = span.shares or (1.0,) * len(span.numbers)
            weights = [terms.get(number, 0.0) * share for number, share in zip(span.numbers, shares, strict=True)]
        words.append(WordWeight(span.begin, span.end, span.word, sum(weights, 0.0), find_strongest_part(span, weights)))
    return words


def find_token_weights(text: str, view: FittedView, explanation: Explanation) -> np.ndarray | None:
    """Return the weight of each token; None if the view is a bag of terms. The weight of an id that has no weights by
    token is divided equally among its tokens."""
    if explanation.per_token is not None:
        return explanation.per_token
    features = view.transform([text])
    if not isinstance(features, Tokens):
        return None
    weights = np.zeros(view.size)
    weights[explanation.ids] = explanation.weights
    return weights[features.ids] / np.bincount(features.ids, minlength=view.size)[features.ids]


def find_strongest_part(span: Span, weights: Sequence[float]) -> tuple[int, int] | None:
    """Return the characters around the strongest one with at least MIN_PART_WEIGHT of its weight, or None if these are
    the whole word. The weight of a term is divided equally among its characters."""
    if all(part == (span.begin, span.end) for part in span.parts):
        return None
    characters = np.zeros(span.end - span.begin)
    for (begin, end), weight in zip(span.parts, weights, strict=True):
        if begin < end:
            characters[begin - span.begin : end - span.begin] += weight / (end - begin)
    characters *= -1 if sum(weights) < 0 else 1
    strongest = int(characters.argmax())
    if characters[strongest] <= 0:
        return None
    (weak,) = np.nonzero(characters < MIN_PART_WEIGHT * characters[strongest])
    first = int(weak[weak < strongest].max(initial=-1)) + 1
    last = int(weak[weak > strongest].min(initial=len(characters)))
    return None if last - first == len(characters) else (span.begin + first, span.begin + last)


def scale_words(words: list[WordWeight], share: float) -> list[WordWeight]:
    """Return the words with weights whose absolute values sum to a share."""
    total = sum(abs(word.weight) for word in words)
    return [word._replace(weight=word.weight * share / total) for word in words] if total else []


def merge_words(words: Iterable[WordWeight]) -> list[WordWeight]:
    """Return the words of several members in reading order; words that overlap become one with the sum of the weights,
    and with the part that is the strongest in the member with the largest weight."""
    merged: list[list[WordWeight]] = []
    end = -1
    for word in sorted(words, key=lambda word: (word.begin, -word.end)):
        if word.begin >= end:
            merged.append([])
        merged[-1].append(word)
        end = max(end, word.end)
    return [
        group[0]._replace(
            end=max(word.end for word in group),
            weight=sum(word.weight for word in group),
            part=max(group, key=lambda word: abs(word.weight)).part,
        )
        for group in merged
    ]


def sum_by_word(words: Iterable[WordWeight]) -> list[tuple[str, float]]:
    """Return the total weight of each distinct word with a weight, the largest first."""
    total: dict[str, float] = {}
    for word in words:
        total[word.word] = total.get(word.word, 0.0) + word.weight
    return sorted(((word, weight) for word, weight in total.items() if weight), key=lambda pair: -pair[1])


def format_weight(weight: float) -> str:
    """Return the weight with a minus sign, which screen readers read, unlike a hyphen."""
    return f"{weight:.3g}".replace("-", "−")
