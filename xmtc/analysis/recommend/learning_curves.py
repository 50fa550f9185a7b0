"""What trials on samples tell of more documents: how long a training will take, and how good it will be.

Both depend on labels as much as on documents, and the labels of a corpus are soon all seen: from then on only documents
are added. So time is a start, which every command has, and a power of the documents times one of the labels. A metric
grows with the logarithm of the documents that a label has, each step a little less than the one before: learning curves
are concave."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import NamedTuple

SAMPLE_GROWTH = 4.0  # a sample has so many times the documents of the one before
GAIN_DECAY = 0.7  # what a step gains, of the one before; measured in docs/results/recommend.md
DEFAULT_DOCUMENT_EXPONENT, MIN_DOCUMENT_EXPONENT, MAX_DOCUMENT_EXPONENT = (
    1.0,
    0.7,
    1.3,
)  # of documents, in a training's time: as a rule, and bounds
DEFAULT_LABEL_EXPONENT = (
    0.5  # power of labels where one sample was tried: a tree hardly feels them, one classifier for each label does
)
MIN_STEP_SHARE = 0.2  # of the logarithm of documents, where labels grow nearly as fast: some progress is always made


class CorpusSize(NamedTuple):
    """Of a sample, or of a corpus."""

    n_docs: int
    n_labels: int


def extrapolate_seconds(
    size: CorpusSize, tried: Sequence[tuple[CorpusSize, float]], startup_seconds: float = 0.0
) -> float:
    """The time of a training on so many documents, of (size, seconds) of smaller ones, the smallest first."""
    last, seconds = tried[-1]
    work = max(seconds - startup_seconds, 0.0)
    of_docs, of_labels = estimate_exponents(tried, startup_seconds)
    grown = (size.n_docs / last.n_docs) ** of_docs * (size.n_labels / last.n_labels) ** of_labels
    return min(startup_seconds, seconds) + work * grown


def estimate_exponents(tried: Sequence[tuple[CorpusSize, float]], startup_seconds: float) -> tuple[float, float]:
    """Of documents and of labels, by the last two trials. What grows faster than documents do is put down to labels, as
    far as it is not faster than both."""
    work = [max(seconds - startup_seconds, 0.0) for _, seconds in tried[-2:]]
    if len(work) < 2 or min(work) <= 0:
        return DEFAULT_DOCUMENT_EXPONENT, DEFAULT_LABEL_EXPONENT
    few, many = tried[-2][0], tried[-1][0]
    grown, docs = log(work[1] / work[0]), log(many.n_docs / few.n_docs)
    labels = max(log(many.n_labels / few.n_labels), 0.0)
    excess = grown - DEFAULT_DOCUMENT_EXPONENT * docs
    if 0 <= excess <= labels:
        return DEFAULT_DOCUMENT_EXPONENT, excess / labels if labels else 0.0
    of_labels = 1.0 if excess > 0 else 0.0
    return min(max((grown - of_labels * labels) / docs, MIN_DOCUMENT_EXPONENT), MAX_DOCUMENT_EXPONENT), of_labels


def extrapolate_metric(size: CorpusSize, tried: Sequence[tuple[CorpusSize, float]]) -> float:
    """A metric after training on so many documents, of (size, value) of smaller ones, the smallest first."""
    last, value = tried[-1]
    if len(tried) < 2 or size.n_docs <= last.n_docs:
        return value
    before, less = tried[-2]
    gain = (value - less) / count_growth_steps(before, last)  # of the last step
    more = gain * GAIN_DECAY * (1 - GAIN_DECAY ** count_growth_steps(last, size)) / (1 - GAIN_DECAY)
    return min(max(value + more, 0.0), 1.0)


def count_growth_steps(few: CorpusSize, many: CorpusSize) -> float:
    """How often the documents of a label become four times as many."""
    docs, labels = log(many.n_docs / few.n_docs), log(many.n_labels / few.n_labels)
    return max(docs - labels, MIN_STEP_SHARE * docs) / log(SAMPLE_GROWTH)
