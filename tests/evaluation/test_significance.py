"""Confidence intervals, ranks and significance tests. The tables are from the first version of AttentionXML."""

from itertools import product

import numpy as np
import pytest

from xmtc.errors import XmtcError
from xmtc.evaluation.significance import (
    adjust_p_values,
    bootstrap_difference_interval,
    bootstrap_interval,
    compute_average_ranks,
    compute_critical_difference,
    compute_friedman_p_value,
    compute_signed_rank_p_value,
    group_similar_methods,
    rank_methods,
    resample_means,
)

METHODS = ("SLEEC", "AnnexML", "PfastreXML", "PD-Sparse", "Parabel", "XML-CNN", "XML-RNN", "AttentionXML")
TABLE_2 = """
94.69 95.26 94.11 93.72 95.85 94.79 95.30 95.76
78.90 79.30 79.59 78.74 80.05 78.93 80.42 81.22
54.24 55.25 55.80 54.82 55.88 54.59 55.99 56.75
79.09 79.56 73.14 74.00 82.12 75.32 74.77 82.87
64.14 64.92 60.16 60.24 68.91 60.14 61.04 70.35
52.51 53.53 50.54 49.64 57.89 49.21 50.11 58.39
85.88 86.50 83.57 75.63 84.19 81.41 82.94 83.03
72.98 74.29 68.61 62.95 72.46 66.23 69.77 74.58
62.70 64.20 59.10 52.90 63.37 56.11 59.38 65.28
48.57 57.78 50.85 53.26 58.79 55.17 57.02 62.89
27.25 33.09 29.62 30.72 34.47 31.09 31.82 36.05
18.46 22.54 20.17 20.91 23.33 21.13 21.46 24.32
90.53 93.54 91.75 88.85 93.02 93.26 94.08 94.83
76.33 78.38 77.97 73.20 79.14 77.06 78.41 80.45
61.52 63.32 63.68 59.24 64.51 61.40 62.34 65.24
"""
TABLE_3 = """
94.69 95.26 94.11 93.72 95.85 94.79 95.30 95.76
90.05 90.26 90.16 89.73 91.01 90.13 91.60 92.33
90.32 91.12 91.31 90.65 91.86 90.73 92.44 93.29
79.09 79.56 73.14 74.00 82.12 75.32 74.77 82.87
67.96 68.65 63.51 63.77 72.33 63.95 64.55 73.65
61.76 62.68 58.71 58.38 66.95 58.11 58.78 67.67
85.88 86.50 83.57 75.63 84.19 81.41 82.94 83.03
76.02 77.16 72.00 65.92 75.22 69.78 72.92 76.62
68.13 69.44 64.54 58.19 68.22 61.83 64.91 69.68
48.57 57.78 50.85 53.26 58.79 55.17 57.02 62.89
47.52 57.64 50.77 53.85 59.26 54.28 55.78 62.48
49.06 59.65 52.57 55.92 61.12 56.21 57.51 64.38
90.53 93.54 91.75 88.85 93.02 93.26 94.08 94.83
84.96 87.30 86.48 81.82 87.70 86.20 87.55 89.33
82.77 85.12 84.96 79.92 85.98 83.43 84.61 87.31
"""
PUBLISHED = [
    (
        TABLE_2,
        [5.73, 3.20, 5.73, 7.20, 2.53, 6.13, 4.13, 1.33],
        [8.55e-4, 4.27e-3, 1.22e-4, 6.10e-5, 1.53e-3, 6.10e-5, 6.10e-5],
    ),
    (
        TABLE_3,
        [5.80, 3.00, 6.00, 7.33, 2.53, 5.87, 4.07, 1.40],
        [6.10e-4, 5.37e-3, 1.22e-4, 6.10e-5, 6.10e-4, 6.10e-5, 6.10e-5],
    ),
]


def results(table: str) -> np.ndarray:
    return np.array([[float(number) for number in line.split()] for line in table.split("\n") if line])


@pytest.mark.parametrize(("table", "published_ranks", "p_values"), PUBLISHED, ids=["P@k", "nDCG@k"])
def test_ranks_and_p_values_equal_the_published_ones(table, published_ranks, p_values):
    result = results(table)
    assert result.shape == (15, len(METHODS))
    assert compute_average_ranks(result) == pytest.approx(published_ranks, abs=0.005)
    measured = [compute_signed_rank_p_value(result[:, -1], result[:, other], ignore_ties=True) for other in range(7)]
    assert measured == pytest.approx(p_values, rel=5e-3)  # three digits are printed
    exact = [compute_signed_rank_p_value(result[:, -1], result[:, other]) for other in range(7)]
    assert exact == [
        expected if has_no_ties(result[:, -1] - result[:, other]) else pytest.approx(expected, rel=0.11)
        for other, expected in enumerate(measured)
    ]
    assert sum(exact[other] != measured[other] for other in range(7)) == 1  # AnnexML in one table, Parabel in the other


def has_no_ties(differences: np.ndarray) -> bool:
    return len(np.unique(np.round(np.abs(differences), 9))) == len(differences)


def test_signed_ranks_with_ties_are_exact_up_to_fifty_results():
    from scipy.stats import PermutationMethod, rankdata, wilcoxon

    differences = np.array([1, 1, 1, -1, 2, 2, -2, 3, 3, 4, 5, 5, -5, 6, 7, 7.0])  # 16 results; tables assume no ties
    signs = (np.arange(2**16)[:, None] >> np.arange(16)) & 1
    by_size = rankdata(np.abs(differences))
    far = np.abs(signs @ by_size - by_size.sum() / 2)
    seen = abs(by_size[differences > 0].sum() - by_size.sum() / 2)
    expected = np.mean(far >= seen - 1e-9)
    assert compute_signed_rank_p_value(differences, np.zeros(16)) == pytest.approx(expected)
    assert compute_signed_rank_p_value(differences, np.zeros(16), ignore_ties=True) != pytest.approx(expected, rel=1e-3)

    many = np.repeat(np.array([1.0, 2, -3, 4, 5]), 9)  # 45 results, of five sizes
    simulated = wilcoxon(many, method=PermutationMethod(n_resamples=20_000, rng=np.random.default_rng(0))).pvalue
    assert compute_signed_rank_p_value(many, np.zeros(45)) == pytest.approx(simulated, abs=0.01)
    assert compute_signed_rank_p_value(np.ones(60), np.zeros(60)) == pytest.approx(
        wilcoxon(np.ones(60), method="asymptotic").pvalue
    )


def test_ranks_of_equal_results_are_shared():
    assert rank_methods([[3.0, 5.0, 3.0]]).tolist() == [[2.5, 1.0, 2.5]]


@pytest.mark.parametrize("differences", [[1.0, 2.0, -3.0, 4.0, 5.0], [1.0, 1.0, -1.0, 2.0, 3.0, 3.0], [0.0, 2.0, 1.0]])
def test_signed_rank_test_equals_enumeration_of_signs(differences):
    from scipy.stats import rankdata

    nonzero = np.array([each for each in differences if each])
    by_size = rankdata(np.abs(nonzero))
    sums = [
        sum(rank for rank, sign in zip(by_size, signs, strict=True) if sign)
        for signs in product([0, 1], repeat=len(nonzero))
    ]
    seen, middle = by_size[nonzero > 0].sum(), by_size.sum() / 2
    expected = np.mean([abs(each - middle) >= abs(seen - middle) - 1e-9 for each in sums])
    assert compute_signed_rank_p_value(differences, np.zeros(len(differences))) == pytest.approx(expected)


def test_signed_ranks_of_equal_and_of_many_results():
    assert compute_signed_rank_p_value([1.0, 2.0], [1.0, 2.0]) == 1.0
    rng = np.random.default_rng(0)
    one = rng.normal(size=80)
    assert compute_signed_rank_p_value(one + 1, one) < 1e-10
    assert compute_signed_rank_p_value(rng.normal(size=80), rng.normal(size=80)) > 0.01


def test_holm_by_hand():
    assert adjust_p_values([0.01, 0.04, 0.03]).tolist() == pytest.approx([0.03, 0.06, 0.06])
    assert adjust_p_values([0.9, 0.8]).tolist() == [1.0, 1.0]


def test_interval_covers_the_true_mean():
    rng = np.random.default_rng(0)
    intervals = [bootstrap_interval(rng.random(200) < 0.3, n=400, seed=seed) for seed in range(200)]
    coverage = np.mean([interval.low <= 0.3 <= interval.high for interval in intervals])
    assert 0.9 < coverage < 0.99


def test_paired_difference_has_more_power_than_two_intervals():
    rng = np.random.default_rng(0)
    hard = rng.random(500)  # documents differ more than methods
    one, other = hard + 0.02 * rng.random(500), hard
    difference = bootstrap_difference_interval(one, other)
    assert difference.excludes_zero
    assert difference.mean == pytest.approx((one - other).mean())
    assert bootstrap_interval(other).high > bootstrap_interval(one).low  # the intervals overlap
    assert not bootstrap_difference_interval(hard, hard[::-1]).excludes_zero


def test_bootstrap_samples_are_reproducible_and_paired():
    values = np.random.default_rng(0).random((50, 2))
    means = resample_means(np.column_stack([values, values[:, 0] + 1]), n=20, seed=3)
    assert means.shape == (20, 3)
    assert means[:, 2] == pytest.approx(means[:, 0] + 1)
    assert resample_means(values[:, 0], n=20, seed=3) == pytest.approx(means[:, 0])
    assert means.std() > 0


def test_invalid_input_raises():
    with pytest.raises(XmtcError, match="values of 2 and of 3 documents"):
        bootstrap_difference_interval(np.zeros(2), np.zeros(3))
    with pytest.raises(XmtcError, match="got no documents"):
        bootstrap_interval(np.zeros(0))


def test_critical_differences_equal_the_published_ones():
    # Demšar, Table 5: q of 2, 5 and 10 methods at 0.05 is 1.960, 2.728 and 3.164
    for n_methods, q in [(2, 1.960), (5, 2.728), (10, 3.164)]:
        expected = q * np.sqrt(n_methods * (n_methods + 1) / (6 * 14))
        assert compute_critical_difference(n_methods, 14) == pytest.approx(expected, rel=1e-3)


def test_similar_methods_are_grouped():
    assert group_similar_methods(np.array([3.0, 1.0, 1.8, 5.0]), 1.5) == [(1, 2), (2, 0)]
    assert group_similar_methods(np.array([1.0, 1.5, 2.0]), 5) == [(0, 1, 2)]
    assert group_similar_methods(np.array([1.0, 3.0]), 1) == []


def test_friedman():
    assert compute_friedman_p_value(results(TABLE_2)) < 1e-10
    assert compute_friedman_p_value(np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [2.0, 2.0, 2.0]])) > 0.5
    assert compute_friedman_p_value(np.ones((4, 3))) == 1.0
    for few in ([[1.0, 2.0], [1.0, 3.0]], [[1.0, 2.0, 3.0]]):  # two methods; one result
        assert np.isnan(compute_friedman_p_value(np.array(few)))
