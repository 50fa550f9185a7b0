"""What trials on samples tell of more documents: how long a training will take, and how good it will be.

Both depend on labels as much as on documents, and the labels of a corpus are soon all seen: from then on only documents
are added. So time is a start, which every command has, and a power of the documents times one of the labels. A metric
grows with the logarithm of the documents that a label has, each step a little less than the one before: learning curves
are concave."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import NamedTuple

STEP = 4.0  # a sample has so many times the documents of the one before
LESS = 0.7  # what a step gains, of the one before; measured in docs/results/recommend.md
POWER, LOWEST, HIGHEST = 1.0, 0.7, 1.3  # of documents, in a training's time: as a rule, and bounds
LABELS = 0.5  # power of labels where one sample was tried: a tree hardly feels them, one classifier for each label does
LEAST = 0.2  # of the logarithm of documents, where labels grow nearly as fast: some progress is always made


class Size(NamedTuple):
    """Of a sample, or of a corpus."""

    n_docs: int
    n_labels: int


def seconds_at(size: Size, tried: Sequence[tuple[Size, float]], start: float = 0.0) -> float:
    """The time of a training on so many documents, of (size, seconds) of smaller ones, the smallest first."""
    last, seconds = tried[-1]
    work = max(seconds - start, 0.0)
    of_docs, of_labels = powers(tried, start)
    grown = (size.n_docs / last.n_docs) ** of_docs * (size.n_labels / last.n_labels) ** of_labels
    return min(start, seconds) + work * grown


def powers(tried: Sequence[tuple[Size, float]], start: float) -> tuple[float, float]:
    """Of documents and of labels, by the last two trials. What grows faster than documents do is put down to labels, as
    far as it is not faster than both."""
    work = [max(seconds - start, 0.0) for _, seconds in tried[-2:]]
    if len(work) < 2 or min(work) <= 0:
        return POWER, LABELS
    few, many = tried[-2][0], tried[-1][0]
    grown, docs = log(work[1] / work[0]), log(many.n_docs / few.n_docs)
    labels = max(log(many.n_labels / few.n_labels), 0.0)
    excess = grown - POWER * docs
    if 0 <= excess <= labels:
        return POWER, excess / labels if labels else 0.0
    of_labels = 1.0 if excess > 0 else 0.0
    return min(max((grown - of_labels * labels) / docs, LOWEST), HIGHEST), of_labels


def value_at(size: Size, tried: Sequence[tuple[Size, float]]) -> float:
    """A metric after training on so many documents, of (size, value) of smaller ones, the smallest first."""
    last, value = tried[-1]
    if len(tried) < 2 or size.n_docs <= last.n_docs:
        return value
    before, less = tried[-2]
    gain = (value - less) / steps(before, last)  # of the last step
    more = gain * LESS * (1 - LESS ** steps(last, size)) / (1 - LESS)
    return min(max(value + more, 0.0), 1.0)


def steps(few: Size, many: Size) -> float:
    """How often the documents of a label become four times as many."""
    docs, labels = log(many.n_docs / few.n_docs), log(many.n_labels / few.n_labels)
    return max(docs - labels, LEAST * docs) / log(STEP)
