"""What trials on samples tell of more documents: how long a training will take, and how good it will be.

Time is a start, which every command has, and a power of the number of documents. A metric grows with the logarithm of
that number, each step a little less than the one before: learning curves are concave."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

STEP = 4.0  # a sample has so many times the documents of the one before
LESS = 0.7  # what a step gains, of the one before; measured in docs/results/recommend.md
POWER, LOWEST, HIGHEST = 1.15, 0.7, 1.6  # of documents, in a training's time: where one sample was tried, and bounds


def seconds_at(n_docs: int, tried: Sequence[tuple[int, float]], start: float = 0.0) -> float:
    """The time of a training on so many documents, of (documents, seconds) of smaller ones, the smallest first."""
    (n, seconds) = tried[-1]
    work = max(seconds - start, 0.0)
    power = POWER
    if len(tried) > 1:
        before, less = tried[-2][0], max(tried[-2][1] - start, 0.0)
        if less > 0 and work > 0:
            power = min(max(log(work / less) / log(n / before), LOWEST), HIGHEST)
    return min(start, seconds) + work * (n_docs / n) ** power


def value_at(n_docs: int, tried: Sequence[tuple[int, float]]) -> float:
    """A metric after training on so many documents, of (documents, value) of smaller ones, the smallest first."""
    (n, value) = tried[-1]
    if len(tried) < 2 or n_docs <= n:
        return value
    before, less = tried[-2]
    gain = (value - less) / steps(before, n)  # of the last step
    left = steps(n, n_docs)
    more = gain * LESS * (1 - LESS**left) / (1 - LESS)
    return min(max(value + more, 0.0), 1.0)


def steps(few: int, many: int) -> float:
    return log(many / few) / log(STEP)
