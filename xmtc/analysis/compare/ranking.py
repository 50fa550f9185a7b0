"""Comparisons on several corpora as one: average ranks over corpora and metrics, and tests of whether they differ.

Demšar: Statistical Comparisons of Classifiers over Multiple Data Sets (JMLR 2006). As in AttentionXML's first version
(Tables 2 and 3), a result is a metric on a corpus. Metrics of one corpus go together, so that the tests are surer than
results of as many corpora would be. Where a method failed it shares the last rank, as one that names nothing right."""

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
    """Two methods, the better ranked first, and how probable such results are if neither is better."""

    one: str
    other: str
    wins: int  # results in which the first is better
    losses: int
    p: float
    adjusted: float  # for all pairs together (Holm)


@dataclass(frozen=True)
class MethodRanking:
    methods: list[str]  # the best first
    average: list[float]
    by_metric: dict[str, list[float]]
    n_results: int
    n_corpora: int
    friedman: float
    critical: float  # how far average ranks must be apart to differ at 5 % (Nemenyi)
    groups: list[list[str]]  # methods that are not that far apart
    pairs: list[MethodPair]
    failed: dict[str, list[str]]  # the corpora on which a method failed
    left_out: list[str]  # methods that were not run on every corpus


def build_ranking(comparisons: Sequence[Comparison]) -> MethodRanking | None:
    """None where fewer than two methods were run on every corpus, or no metric is known of all."""
    everywhere, left_out = find_common_methods(comparisons)
    if len(everywhere) < 2:
        return None
    measured = [
        name
        for name in METHOD_RANKING_METRICS
        if all(name in entry.metrics for each in comparisons for entry in each.successful_entries)
    ]
    if not measured:
        return None
    results = build_result_matrix(comparisons, everywhere, measured)
    average = compute_average_ranks(results)
    order = np.argsort(average, kind="stable").tolist()
    methods = [everywhere[number] for number in order]
    results, average = results[:, order], average[order]
    critical = compute_critical_difference(len(methods), len(results))
    return MethodRanking(
        methods=methods,
        average=average.tolist(),
        by_metric={
            name: compute_average_ranks(results[row :: len(measured)]).tolist() for row, name in enumerate(measured)
        },
        n_results=len(results),
        n_corpora=len(comparisons),
        friedman=compute_friedman_p_value(results),
        critical=critical,
        groups=[[methods[number] for number in group] for group in group_similar_methods(average, critical)],
        pairs=compare_method_pairs(results, methods),
        failed=collect_failures(comparisons, methods),
        left_out=left_out,
    )


def find_common_methods(comparisons: Sequence[Comparison]) -> tuple[list[str], list[str]]:
    """The methods that every comparison has tried, and the others."""
    tried = [{entry.name for entry in each.entries} for each in comparisons]
    names = list(dict.fromkeys(entry.name for each in comparisons for entry in each.entries))
    works = {entry.name for each in comparisons for entry in each.successful_entries}
    everywhere = [name for name in names if name in works and all(name in each for each in tried)]
    return everywhere, [name for name in names if name not in everywhere]


def build_result_matrix(
    comparisons: Sequence[Comparison], methods: Sequence[str], metrics: Sequence[str]
) -> np.ndarray:
    """(n_corpora × n_metrics, n_methods) values, in percent to two places as tables print them; 0 where it failed."""
    rows = []
    for each in comparisons:
        found = {entry.name: entry.metrics for entry in each.successful_entries}
        rows += [
            [round(100 * found[name][metric].mean, 2) if name in found else 0.0 for name in methods]
            for metric in metrics
        ]
    return np.array(rows)


def compare_method_pairs(results: np.ndarray, methods: Sequence[str]) -> list[MethodPair]:
    numbers = list(combinations(range(len(methods)), 2))
    p = [compute_signed_rank_p_value(results[:, one], results[:, other]) for one, other in numbers]
    found = []
    for (one, other), raw, adjusted in zip(numbers, p, adjust_p_values(p).tolist(), strict=True):
        less = results[:, one] - results[:, other]
        found.append(
            MethodPair(methods[one], methods[other], int((less > 0).sum()), int((less < 0).sum()), raw, adjusted)
        )
    return found


def collect_failures(comparisons: Sequence[Comparison], methods: Sequence[str]) -> dict[str, list[str]]:
    found = {
        name: [each.data for each in comparisons if any(e.name == name and e.failed for e in each.entries)]
        for name in methods
    }
    return {name: corpora for name, corpora in found.items() if corpora}
