"""Extrapolation of training time and metrics from trials on samples to more documents.

Both depend on labels as much as on documents, and soon a sample has all labels of the corpus: from then on only the
documents grow. Time is a constant start plus n_docs^a · n_labels^b. A metric grows with the logarithm of the documents
per label, each step less than the one before, because learning curves are concave.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import NamedTuple

SAMPLE_GROWTH = 4.0  # documents of a sample, relative to the sample before
GAIN_DECAY = 0.7  # gain of a step, relative to the step before; measured on corpora of docs/results/accuracy.md
DEFAULT_DOCUMENT_EXPONENT, MIN_DOCUMENT_EXPONENT, MAX_DOCUMENT_EXPONENT = 1.0, 0.7, 1.3
DEFAULT_LABEL_EXPONENT = 0.5  # after one trial; between a tree (0) and one classifier per label (1)
MIN_STEP_SHARE = 0.2  # of the logarithm of documents, where labels grow nearly as fast


class CorpusSize(NamedTuple):
    """Numbers of documents and labels."""

    n_docs: int
    n_labels: int


def extrapolate_seconds(
    size: CorpusSize, trials: Sequence[tuple[CorpusSize, float]], startup_seconds: float = 0.0
) -> float:
    """Return the expected training time, from (size, seconds) of trials, the smallest first."""
    last, seconds = trials[-1]
    work = max(seconds - startup_seconds, 0.0)
    document_exponent, label_exponent = estimate_exponents(trials, startup_seconds)
    growth = (size.n_docs / last.n_docs) ** document_exponent * (size.n_labels / last.n_labels) ** label_exponent
    return min(startup_seconds, seconds) + work * growth


def estimate_exponents(trials: Sequence[tuple[CorpusSize, float]], startup_seconds: float) -> tuple[float, float]:
    """Estimate the exponents of documents and labels from the last two trials.

    Growth beyond that of the documents is attributed to the labels, as long as it is not faster than both.
    """
    work = [max(seconds - startup_seconds, 0.0) for _, seconds in trials[-2:]]
    if len(work) < 2 or min(work) <= 0:
        return DEFAULT_DOCUMENT_EXPONENT, DEFAULT_LABEL_EXPONENT
    smaller, larger = trials[-2][0], trials[-1][0]
    growth, documents = log(work[1] / work[0]), log(larger.n_docs / smaller.n_docs)
    labels = max(log(larger.n_labels / smaller.n_labels), 0.0)
    excess = growth - DEFAULT_DOCUMENT_EXPONENT * documents
    if 0 <= excess <= labels:
        return DEFAULT_DOCUMENT_EXPONENT, excess / labels if labels else 0.0
    label_exponent = 1.0 if excess > 0 else 0.0
    document_exponent = (growth - label_exponent * labels) / documents
    return min(max(document_exponent, MIN_DOCUMENT_EXPONENT), MAX_DOCUMENT_EXPONENT), label_exponent


def extrapolate_metric(size: CorpusSize, trials: Sequence[tuple[CorpusSize, float]]) -> float:
    """Return the expected metric, from (size, value) of trials, the smallest first."""
    last, value = trials[-1]
    if len(trials) < 2 or size.n_docs <= last.n_docs:
        return value
    before, value_before = trials[-2]
    gain = (value - value_before) / count_growth_steps(before, last)
    further_gain = gain * GAIN_DECAY * (1 - GAIN_DECAY ** count_growth_steps(last, size)) / (1 - GAIN_DECAY)
    return min(max(value + further_gain, 0.0), 1.0)


def count_growth_steps(smaller: CorpusSize, larger: CorpusSize) -> float:
    """Return how often the documents per label grow by SAMPLE_GROWTH."""
    documents, labels = log(larger.n_docs / smaller.n_docs), log(larger.n_labels / smaller.n_labels)
    return max(documents - labels, MIN_STEP_SHARE * documents) / log(SAMPLE_GROWTH)
