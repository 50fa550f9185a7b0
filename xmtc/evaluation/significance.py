"""Statistical significance: bootstrap confidence intervals, ranks of methods over several results, and rank tests.

Demšar: Statistical Comparisons of Classifiers over Multiple Data Sets (JMLR 2006); Efron, Tibshirani: An Introduction
to the Bootstrap (1993). The first version of AttentionXML compares methods in this way (Tables 2 and 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xmtc.errors import XmtcError

BOOTSTRAP_RESAMPLES = 2_000
MAX_DRAWN_NUMBERS = 2**24  # document numbers drawn at a time, to bound the memory
MAX_EXACT_RESULTS = 50  # maximum results for the exact signed-rank test


@dataclass(frozen=True)
class ConfidenceInterval:
    """Mean with the bounds of its confidence interval."""

    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def resample_means(values: np.ndarray, n: int = BOOTSTRAP_RESAMPLES, seed: int = 0) -> np.ndarray:
    """Return the means of n bootstrap samples, shape (n, …), of values with shape (n_docs, …). All columns of a sample
    are of the same documents, so that comparisons stay paired."""
    values = np.asarray(values, np.float64)
    n_docs, rng = len(values), np.random.default_rng(seed)
    if not n_docs:
        raise XmtcError("Bootstrap intervals need the values of at least one document; got no documents.")
    size = max(1, MAX_DRAWN_NUMBERS // n_docs)
    counts = (
        np.bincount(drawn, minlength=n_docs) / n_docs
        for begin in range(0, n, size)
        for drawn in rng.integers(0, n_docs, (min(size, n - begin), n_docs))
    )
    return np.array([weights @ values for weights in counts])


def bootstrap_interval(
    values: np.ndarray, confidence: float = 0.95, n: int = BOOTSTRAP_RESAMPLES, seed: int = 0
) -> ConfidenceInterval:
    """Return the percentile bootstrap interval of the mean of (n_docs,) values."""
    means = resample_means(values, n, seed)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return ConfidenceInterval(float(np.mean(values)), float(low), float(high))


def bootstrap_ratio_interval(
    values: np.ndarray, denominators: np.ndarray, confidence: float = 0.95, n: int = BOOTSTRAP_RESAMPLES, seed: int = 0
) -> ConfidenceInterval:
    """Return the interval of sum(values) / sum(denominators) over the same documents, for metrics such as PSP."""
    numerators, divisors = resample_means(np.column_stack([values, denominators]), n, seed).T
    tail = (1 - confidence) / 2
    low, high = np.quantile(numerators / np.maximum(divisors, 1e-300), [tail, 1 - tail])
    return ConfidenceInterval(float(np.sum(values) / max(float(np.sum(denominators)), 1e-300)), float(low), float(high))


def bootstrap_difference_interval(
    one: np.ndarray, other: np.ndarray, confidence: float = 0.95, n: int = BOOTSTRAP_RESAMPLES, seed: int = 0
) -> ConfidenceInterval:
    """Return the interval of the mean difference of two methods on the same documents (paired bootstrap)."""
    if len(one) != len(other):
        raise XmtcError(
            f"A paired comparison needs values of the same documents; got values of {len(one)} and of {len(other)} "
            "documents."
        )
    return bootstrap_interval(np.subtract(one, other, dtype=np.float64), confidence, n, seed)


def rank_methods(results: np.ndarray) -> np.ndarray:
    """Return the rank of each method in each result, shape (n_results, n_methods); 1 is the highest value, and ties
    share their mean rank."""
    from scipy.stats import rankdata

    return rankdata(-np.asarray(results, np.float64), axis=1)


def compute_average_ranks(results: np.ndarray) -> np.ndarray:
    return rank_methods(results).mean(axis=0)


def compute_signed_rank_p_value(
    one: Sequence[float] | np.ndarray, other: Sequence[float] | np.ndarray, *, ignore_ties: bool = False
) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test.

    Equal results are dropped. The test is exact for up to MAX_EXACT_RESULTS results, with ties as well; for more it
    uses scipy's normal approximation. With `ignore_ties` the exact values are those of the usual tables, which assume
    no ties; papers print them.
    """
    from scipy.stats import wilcoxon

    # 86.5 - 83.1 and 73.4 - 70.0 are equal except for rounding
    differences = np.round(np.subtract(one, other, dtype=np.float64), 9)
    differences = differences[differences != 0]
    if not len(differences):
        return 1.0
    if len(differences) > MAX_EXACT_RESULTS:
        return float(wilcoxon(differences, method="asymptotic").pvalue)
    if not ignore_ties and len(np.unique(np.abs(differences))) < len(differences):
        return compute_exact_p_value_with_ties(differences)
    return float(wilcoxon(differences, method="exact").pvalue)


def compute_exact_p_value_with_ties(differences: np.ndarray) -> float:
    """Return the fraction of all sign assignments whose rank sum is as far from its mean. Twice the ranks are integers,
    so the assignments with each sum are counted by dynamic programming."""
    from scipy.stats import rankdata

    doubled_ranks = np.rint(2 * rankdata(np.abs(differences))).astype(np.int64)
    counts = np.zeros(doubled_ranks.sum() + 1)
    counts[0] = 1
    for rank in doubled_ranks:
        counts[rank:] += counts[:-rank].copy()
    distances = np.abs(2 * np.arange(len(counts)) - doubled_ranks.sum())
    observed = distances[doubled_ranks[differences > 0].sum()]
    return float(counts[distances >= observed].sum() / counts.sum())


def adjust_p_values(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return the p-values of several comparisons, adjusted for the family-wise error rate by Holm's method (1979)."""
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    p_adjusted = np.empty_like(p)
    p_adjusted[order] = np.minimum(adjusted, 1.0)
    return p_adjusted


def compute_friedman_p_value(results: np.ndarray) -> float:
    """Return the p-value of Friedman's test; nan for fewer than three methods or two results."""
    from scipy.stats import friedmanchisquare

    results = np.asarray(results, np.float64)
    if results.shape[1] < 3 or len(results) < 2:
        return float("nan")
    if (rank_methods(results) == rank_methods(results)[:, :1]).all():
        return 1.0
    return float(friedmanchisquare(*results.T).pvalue)


def compute_critical_difference(n_methods: int, n_results: int, level: float = 0.05) -> float:
    """Return the difference of two average ranks that is significant at this level (Nemenyi; Demšar, section
    3.2.2)."""
    from scipy.stats import studentized_range

    q = studentized_range.ppf(1 - level, n_methods, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(n_methods * (n_methods + 1) / (6 * n_results)))


def group_similar_methods(average: np.ndarray, distance: float) -> list[tuple[int, ...]]:
    """Return the largest groups of methods whose average ranks differ by at most the distance, best first: the bars of
    a critical difference plot."""
    order = np.argsort(average, kind="stable")
    groups: list[tuple[int, ...]] = []
    for begin, first in enumerate(order):
        group = tuple(int(method) for method in order[begin:] if average[method] - average[first] <= distance)
        if len(group) > 1 and not any(set(group) <= set(larger) for larger in groups):
            groups.append(group)
    return groups
