"""Ranking of methods over several corpora: average ranks over corpora and metrics, and significance tests.

Demšar: Statistical Comparisons of Classifiers over Multiple Data Sets (JMLR 2006). As in the first version of
AttentionXML (Tables 2 and 3), a result is a metric on a corpus. Metrics of one corpus are correlated, so that the tests
are more confident than with as many corpora. A method that failed on a corpus has the value 0 there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from xmtc.analysis.compare.comparison import Comparison
from xmtc.evaluation.significance import (
    adjust_p_values,
    compute_average_ranks,
    compute_critical_difference,
    compute_friedman_p_value,
    compute_signed_rank_p_value,
    group_similar_methods,
)

METHOD_RANKING_METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5")


@dataclass(frozen=True)
class MethodPair:
    """Two methods, the better ranked one first, and the p-value of their differences."""

    one: str
    other: str
    wins: int  # results in which the first is better
    losses: int
    p: float
    adjusted: float  # for multiple comparisons (Holm)


@dataclass(frozen=True)
class MethodRanking:
    """Ranks of methods over corpora, and significance tests."""

    methods: list[str]  # the best first
    average: list[float]
    by_metric: dict[str, list[float]]
    n_results: int
    n_corpora: int
    friedman: float  # p-value of the Friedman test
    critical: float  # critical difference of average ranks at the 5 % level (Nemenyi)
    groups: list[list[str]]  # of methods within the critical difference
    pairs: list[MethodPair]
    failed: dict[str, list[str]]  # corpora by method
    left_out: list[str]  # methods that lack a corpus, or failed on all


def build_ranking(comparisons: Sequence[Comparison]) -> MethodRanking | None:
    """Rank the methods; return None if fewer than two were run on every corpus, or they share no metric."""
    common, left_out = find_common_methods(comparisons)
    if len(common) < 2:
        return None
    metrics = [
        name
        for name in METHOD_RANKING_METRICS
        if all(name in entry.metrics for comparison in comparisons for entry in comparison.successful_entries)
    ]
    if not metrics:
        return None
    results = build_result_matrix(comparisons, common, metrics)
    average = compute_average_ranks(results)
    order = np.argsort(average, kind="stable").tolist()
    methods = [common[index] for index in order]
    results, average = results[:, order], average[order]
    critical = compute_critical_difference(len(methods), len(results))
    return MethodRanking(
        methods=methods,
        average=average.tolist(),
        by_metric={
            name: compute_average_ranks(results[row :: len(metrics)]).tolist() for row, name in enumerate(metrics)
        },
        n_results=len(results),
        n_corpora=len(comparisons),
        friedman=compute_friedman_p_value(results),
        critical=critical,
        groups=[[methods[index] for index in group] for group in group_similar_methods(average, critical)],
        pairs=compare_method_pairs(results, methods),
        failed=collect_failures(comparisons, methods),
        left_out=left_out,
    )


def find_common_methods(comparisons: Sequence[Comparison]) -> tuple[list[str], list[str]]:
    """Return the methods that are in every comparison and succeeded at least once, and the others."""
    by_corpus = [{entry.name for entry in comparison.entries} for comparison in comparisons]
    names = list(dict.fromkeys(entry.name for comparison in comparisons for entry in comparison.entries))
    successful = {entry.name for comparison in comparisons for entry in comparison.successful_entries}
    common = [name for name in names if name in successful and all(name in corpus for corpus in by_corpus)]
    return common, [name for name in names if name not in common]


def build_result_matrix(
    comparisons: Sequence[Comparison], methods: Sequence[str], metrics: Sequence[str]
) -> np.ndarray:
    """Return values in percent, rounded as in tables, shape (n_corpora × n_metrics, n_methods); 0 after a failure."""
    rows = []
    for comparison in comparisons:
        values = {entry.name: entry.metrics for entry in comparison.successful_entries}
        rows += [
            [round(100 * values[name][metric].mean, 2) if name in values else 0.0 for name in methods]
            for metric in metrics
        ]
    return np.array(rows)


def compare_method_pairs(results: np.ndarray, methods: Sequence[str]) -> list[MethodPair]:
    indices = list(combinations(range(len(methods)), 2))
    p_values = [compute_signed_rank_p_value(results[:, one], results[:, other]) for one, other in indices]
    pairs = []
    for (one, other), p, adjusted in zip(indices, p_values, adjust_p_values(p_values).tolist(), strict=True):
        difference = results[:, one] - results[:, other]
        wins, losses = int((difference > 0).sum()), int((difference < 0).sum())
        pairs.append(MethodPair(methods[one], methods[other], wins, losses, p, adjusted))
    return pairs


def collect_failures(comparisons: Sequence[Comparison], methods: Sequence[str]) -> dict[str, list[str]]:
    failures: dict[str, list[str]] = {}
    for name in methods:
        for comparison in comparisons:
            if any(entry.name == name and entry.failed for entry in comparison.entries):
                failures.setdefault(name, []).append(comparison.data)
    return failures
