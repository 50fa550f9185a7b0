"""Whether a difference is real: intervals of a metric and of a difference on the same documents, ranks of methods over
several results, and tests of them.

Demšar: Statistical Comparisons of Classifiers over Multiple Data Sets (JMLR 2006); Efron, Tibshirani: An Introduction
to the Bootstrap (1993). AttentionXML's first version ranks methods and tests pairs of them so (Tables 2 and 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xmtc.errors import XmtcError

BOOTSTRAP_RESAMPLES = 2_000
MAX_DRAWN_NUMBERS = 2**24  # document numbers drawn at a time
MAX_EXACT_RESULTS = 50  # results, of which all choices of signs can be counted


@dataclass(frozen=True)
class ConfidenceInterval:
    """A mean, and between which values it lies in `confidence` of the samples like this one."""

    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def resample_means(values: np.ndarray, n: int = BOOTSTRAP_RESAMPLES, seed: int = 0) -> np.ndarray:
    """(n, …) means over documents drawn anew, with replacement, of (n_docs, …) values. All columns of a sample are of
    the same documents, so that what is compared stays paired."""
    values = np.asarray(values, np.float64)
    n_docs, rng = len(values), np.random.default_rng(seed)
    if not n_docs:
        raise XmtcError("There are no documents to draw from; give the values of at least one.")
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
    """Of the mean of (n_docs,) values, by the percentiles of the bootstrap."""
    means = resample_means(values, n, seed)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return ConfidenceInterval(float(np.mean(values)), float(low), float(high))


def bootstrap_ratio_interval(
    values: np.ndarray, denominators: np.ndarray, confidence: float = 0.95, n: int = BOOTSTRAP_RESAMPLES, seed: int = 0
) -> ConfidenceInterval:
    """Of the sum of values over the sum of others, both of the same documents: measures such as PSP divide at last."""
    above, below = resample_means(np.column_stack([values, denominators]), n, seed).T
    tail = (1 - confidence) / 2
    low, high = np.quantile(above / np.maximum(below, 1e-300), [tail, 1 - tail])
    return ConfidenceInterval(float(np.sum(values) / max(float(np.sum(denominators)), 1e-300)), float(low), float(high))


def bootstrap_difference_interval(
    one: np.ndarray, other: np.ndarray, confidence: float = 0.95, n: int = BOOTSTRAP_RESAMPLES, seed: int = 0
) -> ConfidenceInterval:
    """Of the mean difference of two methods' values on the same documents: the paired bootstrap."""
    if len(one) != len(other):
        raise XmtcError(f"Found values of {len(one)} and of {len(other)} documents; give both for the same ones.")
    return bootstrap_interval(np.subtract(one, other, dtype=np.float64), confidence, n, seed)


def rank_methods(results: np.ndarray) -> np.ndarray:
    """(n_results, n_methods) the rank of each method in each result, 1 for the highest; equal ones share the mean."""
    from scipy.stats import rankdata

    return rankdata(-np.asarray(results, np.float64), axis=1)


def compute_average_ranks(results: np.ndarray) -> np.ndarray:
    return rank_methods(results).mean(axis=0)


def compute_signed_rank_p_value(
    one: Sequence[float] | np.ndarray, other: Sequence[float] | np.ndarray, *, ignore_ties: bool = False
) -> float:
    """The p-value of Wilcoxon's signed-rank test, two-sided: how probable results that differ so much are if neither
    method is better. Equal results are left out, as Wilcoxon does. Exact where at most 50 are left, also if some
    differences are equally large; of more, by the normal distribution with scipy's correction for such ties. With
    `by_table`, the exact ones are those of the usual tables, which know no ties; papers print them."""
    from scipy.stats import wilcoxon

    # 86.5 - 83.1 and 73.4 - 70.0 are the same difference, though not to the last bit
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
    """The share of all choices of signs that give a rank sum as far from the middle. Twice the ranks are whole numbers,
    so how many choices give each sum is counted one rank after the other."""
    from scipy.stats import rankdata

    twice = np.rint(2 * rankdata(np.abs(differences))).astype(np.int64)
    ways = np.zeros(twice.sum() + 1)
    ways[0] = 1
    for rank in twice:
        ways[rank:] += ways[:-rank].copy()
    far = np.abs(2 * np.arange(len(ways)) - twice.sum())
    return float(ways[far >= far[twice[differences > 0].sum()]].sum() / ways.sum())


def adjust_p_values(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """p-values of several comparisons, adjusted so that any false alarm among them is as rare as each alone says (Holm,
    1979): the smallest times their number, the next times one fewer, and none below the one before."""
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    found = np.empty_like(p)
    found[order] = np.minimum(adjusted, 1.0)
    return found


def compute_friedman_p_value(results: np.ndarray) -> float:
    """The p-value of Friedman's test: how probable such ranks are if no method is better than another. nan of fewer
    than three methods, or of one result: the test is for more."""
    from scipy.stats import friedmanchisquare

    results = np.asarray(results, np.float64)
    if results.shape[1] < 3 or len(results) < 2:
        return float("nan")
    if (rank_methods(results) == rank_methods(results)[:, :1]).all():
        return 1.0
    return float(friedmanchisquare(*results.T).pvalue)


def compute_critical_difference(n_methods: int, n_results: int, level: float = 0.05) -> float:
    """How far apart two average ranks must be to differ at this level (Nemenyi; Demšar, section 3.2.2)."""
    from scipy.stats import studentized_range

    q = studentized_range.ppf(1 - level, n_methods, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(n_methods * (n_methods + 1) / (6 * n_results)))


def group_similar_methods(average: np.ndarray, distance: float) -> list[tuple[int, ...]]:
    """The largest groups of methods whose average ranks lie within the distance, best first: the bars of a critical
    difference plot."""
    order = np.argsort(average, kind="stable")
    groups: list[tuple[int, ...]] = []
    for begin, first in enumerate(order):
        group = tuple(int(each) for each in order[begin:] if average[each] - average[first] <= distance)
        if len(group) > 1 and not any(set(group) <= set(larger) for larger in groups):
            groups.append(group)
    return groups
