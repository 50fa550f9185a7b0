"""Metrics against values computed by hand, napkinxc, scikit-learn and a plain double loop."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from math import log, log2
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from planted import make_planted_corpus
from scipy.sparse import csr_array
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from typer.testing import CliRunner

from xmtc import Classifier
from xmtc.cli import app
from xmtc.core.predictions import Predictions
from xmtc.errors import XmtcError
from xmtc.evaluation import (
    DECISION_METRICS,
    DEFAULT_METRICS,
    K_PARAMETER,
    METRIC_FAMILIES,
    SCORE_PARAMETER,
    RankedResults,
    evaluate,
    evaluate_per_document,
    max_k,
    parse_metric,
    register_metric,
    to_ranked_results,
)
from xmtc.evaluation.metrics.curves import FREQUENCY_GROUPS, assign_frequency_groups
from xmtc.labels.propensity import PROPENSITIES, Propensity

L = 1 / log2(3)  # the discount of rank 2


@pytest.fixture
def napkin() -> Any:
    return import_module("napkinxc.metrics")


def predictions(rows: list[list[int]], scores: list[list[float]] | None = None) -> Predictions:
    labels = np.array(rows, dtype=np.int32)
    return Predictions(labels, np.array(scores if scores else np.where(labels < 0, 0, 1), dtype=np.float32))


def truth(rows: list[list[int]], n_labels: int) -> csr_array:
    Y = np.zeros((len(rows), n_labels), dtype=np.float32)
    for row, labels in enumerate(rows):
        Y[row, labels] = 1
    return csr_array(Y)


class Steps(Propensity):
    """Inverse propensities 1, 2, 3, … by label id: sums that can be done by hand."""

    def inverse(self, frequencies: np.ndarray, n_train: int) -> np.ndarray:
        return np.arange(1.0, len(frequencies) + 1)


# Four documents; the third has no label; label 4 is unseen in training; two documents have fewer than 3 predictions.
PREDICTED = predictions(
    [[0, 1, 2], [3, 1, -1], [0, 1, 2], [2, -1, -1]],
    [[0.9, 0.6, 0.4], [0.8, 0.5, 0], [0.7, 0.3, 0.2], [0.6, 0, 0]],
)
Y = truth([[0, 2], [1], [], [2, 4]], 5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("P@1", 2 / 4),
        ("P@3", (2 / 3 + 1 / 3 + 0 + 1 / 3) / 4),
        ("P@10", (2 / 10 + 1 / 10 + 0 + 1 / 10) / 4),
        ("R@3", (1 + 1 + 0 + 1 / 2) / 4),
        ("nDCG@3", ((1 + 1 / 2) / (1 + L) + L + 0 + 1 / (1 + L)) / 4),
        ("nDCG@10", ((1 + 1 / 2) / (1 + L) + L + 0 + 1 / (1 + L)) / 4),
        ("PSP@1", (1 + 0 + 0 + 3) / (3 + 2 + 0 + 5)),
        ("PSP@2", (1 + 2 + 0 + 3) / (4 + 2 + 0 + 8)),
        ("rawPSP@1", (1 + 0 + 0 + 3) / 4),
        ("rawPSP@2", ((1 + 0) / 2 + (0 + 2) / 2 + 0 + 3 / 2) / 4),
        ("rawPSP@3", ((1 + 3) / 3 + 2 / 3 + 0 + 3 / 3) / 4),
        ("PSnDCG@2", ((1 + 3) / (1 + L) + 2 * L) / ((3 + L) / (1 + L) + 2 + (5 + 3 * L) / (1 + L))),
        ("rare@1", (1 / 2 + 0 + 1) / 3),
        ("rare@3", 1.0),
        ("unseen@3", 0.0),
        ("coverage@1", 2 / 4),
        ("coverage@3", 3 / 4),
        ("micro-P@0.5", 3 / 6),
        ("micro-R@0.5", 3 / 5),
        ("macro-P@0.5", (1 / 2 + 1 / 2 + 1 + 0 + 0) / 5),
        ("macro-R@0.5", (1 + 1 + 1 / 2 + 0 + 0) / 5),
        ("example-P@0.5", (1 / 2 + 1 / 2 + 0 + 1) / 4),
        ("example-R@0.5", (1 / 2 + 1 + 0 + 1 / 2) / 4),
        ("example-F1@0.5", (2 / 4 + 2 / 3 + 0 + 2 / 3) / 4),
        ("micro-F1@0.5", 2 * 3 / (6 + 5)),
        ("micro-F1@-1", 2 * 4 / (9 + 5)),
        ("macro-F1@0.5", (2 / 3 + 2 / 3 + 2 / 3 + 0 + 0) / 5),
    ],
)
def test_by_hand(name: str, expected: float) -> None:
    result = evaluate(PREDICTED, Y, [name], train_frequencies=np.ones(4), propensity=Steps(), n_train=9)
    assert result == {name: pytest.approx(expected, abs=1e-12)}


def test_recall_of_unseen_and_rare_labels_by_hand() -> None:
    """Training documents by label: 0, 5, 6, 0, 1. Only the first three documents have unseen or rare labels."""
    Y = truth([[0, 1, 3], [2, 4], [0, 2], [2]], 5)
    found = predictions([[0, 1, 2], [3, 4, 1], [2, 3, 1], [0, 3, 4]])
    frequencies = np.array([0, 5, 6, 0, 1])
    values = evaluate(found, Y, ["unseen@1", "unseen@5", "rare@1", "rare@5"], frequencies)
    assert list(values.values()) == pytest.approx([(1 / 2 + 0) / 2, (1 / 2 + 0) / 2, 0, 1])
    per_document = evaluate_per_document(found, Y, "unseen@5", frequencies)["unseen@5"]
    assert per_document == pytest.approx([1, 0, 0, 0])  # 1/2, divided by the half of the documents that count
    assert np.isnan(evaluate(found, Y, "unseen@5", np.ones(5))["unseen@5"])  # no document counts
    with pytest.raises(XmtcError, match="unseen and rare need train_frequencies"):
        evaluate(found, Y, "rare@5")


def test_tuned_thresholds_by_hand() -> None:
    """Label 2 for the first document and 1 for the second: two assigned, both correct, of five true labels."""
    assigned = predictions([[2, -1], [1, -1], [-1, -1], [-1, -1]])
    result = evaluate(PREDICTED, Y, [*DECISION_METRICS, "micro-F1@0.5"], assigned=assigned)
    expected = [1, 2 / 5, 4 / 7, 2 / 4, (1 + 1 / 2) / 4, (1 + 2 / 3) / 4, 2 / 4, (1 / 2 + 1) / 4, (2 / 3 + 1) / 4]
    assert [result[name] for name in DECISION_METRICS] == pytest.approx(expected)
    assert result["micro-F1@0.5"] == pytest.approx(6 / 11)
    with pytest.raises(XmtcError, match="need tuned thresholds, and the model has none; tune them with"):
        evaluate(PREDICTED, Y, "micro-F1@decision")


def test_calibration_error_by_hand() -> None:
    """Rank 1 scores 0.9, 0.8, 0.7 and 0.6, the first and the last correct; rank 2 adds an incorrect 0.6 to the bin of
    the correct one, a correct 0.5 and an incorrect 0.3."""
    result = evaluate(PREDICTED, Y, ["ECE@1", "ECE@2"])
    assert result["ECE@1"] == pytest.approx((abs(0.9 - 1) + 0.8 + 0.7 + abs(0.6 - 1)) / 4, abs=1e-6)
    assert result["ECE@2"] == pytest.approx((0.1 + 0.8 + 0.7 + abs(1.2 - 1) + abs(0.5 - 1) + 0.3) / 7, abs=1e-6)
    sure = predictions([[0], [0]], [[1.0], [1.0]])
    assert evaluate(sure, truth([[0], [0]], 1), ["ECE@1"]) == {"ECE@1": 0}
    assert evaluate(predictions([[-1]]), truth([[0]], 1), ["ECE@1"]) == {"ECE@1": 0}


def test_curves_by_hand() -> None:
    """Five documents have the label and three do not; it is predicted for three, two of them with the same score."""
    predicted = predictions(
        [[0], [0], [-1], [-1], [-1], [0], [-1], [-1]], [[0.9], [0.5], [0], [0], [0], [0.5], [0], [0]]
    )
    values = evaluate(predicted, truth([[0]] * 5 + [[]] * 3, 1), ["AUC@frequent", "AUPR@frequent", "AUC@medium"])
    assert values["AUC@frequent"] == pytest.approx((1.5 + 3.5 + 3.5) / 15)
    assert values["AUPR@frequent"] == pytest.approx(1 / 5 * 1 + 1 / 5 * 2 / 3 + 3 / 5 * 5 / 8)
    assert np.isnan(values["AUC@medium"])


def test_labels_without_a_curve_are_excluded() -> None:
    """Label 0 has too few documents (four); label 1 has all nine, so that no document can be ranked below them."""
    predicted, rows = predictions([[0, 1]] * 9), [[0, 1]] * 4 + [[1]] * 5
    result = evaluate(
        predicted, truth(rows, 2), [f"{kind}@{group}" for kind in ("AUC", "AUPR") for group in FREQUENCY_GROUPS]
    )
    assert len(result) == 6
    assert np.isnan(list(result.values())).all()


def random_case(seed: int, tied: bool = False) -> tuple[Predictions, csr_array, np.ndarray]:
    """Return rankings of 0 to 8 of 60 labels, true labels and frequencies; 5 labels are unseen in training, and some
    documents have no label."""
    rng = np.random.default_rng(seed)
    n_docs, n_labels, n_seen = 150, 60, 55
    popularity = 0.3 / np.arange(1, n_labels + 1) ** 0.7
    dense = rng.random((n_docs, n_labels)) < popularity
    dense[rng.random(n_docs) < 0.1] = False
    scores = rng.random((n_docs, n_seen)) + dense[:, :n_seen]
    scores = np.round(scores, 1) if tied else scores
    labels, gone = np.argsort(-scores, kind="stable")[:, :8], np.arange(8) >= rng.integers(0, 9, n_docs)[:, None]
    best = np.take_along_axis(scores, labels, axis=1).astype(np.float32)
    ranked = Predictions(np.where(gone, -1, labels).astype(np.int32), np.where(gone, 0, best))
    return ranked, csr_array(dense.astype(np.float32)), rng.integers(0, 40, n_seen)


def lists(ranked: Predictions, Y: csr_array) -> tuple[list[list[int]], list[list[int]]]:
    return [np.flatnonzero(row).tolist() for row in Y.toarray()], [row[row >= 0].tolist() for row in ranked.labels]


@pytest.mark.parametrize("seed", range(3))
def test_against_napkinxc(seed: int, napkin: Any) -> None:
    ranked, Y, frequencies = random_case(seed)
    true, guessed = lists(ranked, Y)
    inverse = Propensity().inverse(np.append(frequencies, np.zeros(5)), 1000)
    expected = {
        "P": napkin.precision_at_k(true, guessed, k=10),
        "R": napkin.recall_at_k(true, guessed, k=10),
        "nDCG": napkin.ndcg_at_k(true, guessed, k=10),
        "PSP": napkin.psprecision_at_k(true, guessed, inverse, k=10),
        "PSnDCG": napkin.psndcg_at_k(true, guessed, inverse, k=10),
        "coverage": napkin.coverage_at_k(true, guessed, k=10),
    }
    names = [f"{kind}@{k}" for kind in expected for k in range(1, 11)]
    result = evaluate(ranked, Y, names, frequencies, n_train=1000)
    assert list(result.values()) == pytest.approx(np.concatenate(list(expected.values())), abs=1e-12)


def evaluate_by_loop(true: list[list[int]], guessed: list[list[int]], inverse: np.ndarray, k: int) -> dict[str, float]:
    """Compute the metrics from their definitions, one document and rank at a time."""
    sums = dict.fromkeys(["P", "R", "nDCG", "gain", "best"], 0.0)
    for labels, ranking in zip(true, guessed, strict=True):
        dcg = ideal = 0.0
        for rank, label in enumerate(ranking[:k]):
            if label in labels:
                sums["P"] += 1 / k
                sums["R"] += 1 / len(labels)
                sums["gain"] += inverse[label]
                dcg += 1 / log2(rank + 2)
        for rank, weight in enumerate(sorted((inverse[label] for label in labels), reverse=True)[:k]):
            ideal += 1 / log2(rank + 2)
            sums["best"] += weight
        sums["nDCG"] += dcg / ideal if labels else 0
    means = {f"{kind}@{k}": sums[kind] / len(true) for kind in ("P", "R", "nDCG")}
    return {**means, f"PSP@{k}": sums["gain"] / sums["best"], f"rawPSP@{k}": sums["gain"] / k / len(true)}


@pytest.mark.parametrize("seed", range(3, 6))
@pytest.mark.parametrize("k", [1, 3, 8, 12])
def test_against_a_double_loop(seed: int, k: int) -> None:
    ranked, Y, frequencies = random_case(seed)
    propensity = PROPENSITIES["amazon"]
    expected = evaluate_by_loop(*lists(ranked, Y), propensity.inverse(np.append(frequencies, np.zeros(5)), 500), k)
    result = evaluate(ranked, Y, list(expected), frequencies, propensity, 500)
    assert result == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("threshold", [0.5, 1.2, 1.7])
def test_f1_against_scikit_learn(threshold: float) -> None:
    ranked, Y, _ = random_case(6)
    answer = np.zeros(Y.shape, dtype=bool)
    rows, ranks = np.nonzero((ranked.labels >= 0) & (ranked.scores >= np.float32(threshold)))
    answer[rows, ranked.labels[rows, ranks]] = True
    expected = Y.toarray() > 0
    present = (answer | expected).any(axis=0)
    assert answer.any()
    assert evaluate(ranked, Y, [f"micro-F1@{threshold}", f"macro-F1@{threshold}"]) == {
        f"{average}-F1@{threshold}": pytest.approx(
            f1_score(expected[:, present], answer[:, present], average=average, zero_division=0)
        )
        for average in ("micro", "macro")
    }


@pytest.mark.parametrize("tied", [False, True])
def test_curves_against_scikit_learn(tied: bool) -> None:
    ranked, Y, _ = random_case(7, tied)
    dense, scores = Y.toarray(), np.full(Y.shape, -1.0)
    rows, ranks = np.nonzero(ranked.labels >= 0)
    scores[rows, ranked.labels[rows, ranks]] = ranked.scores[rows, ranks]
    labels = np.flatnonzero(dense.sum(axis=0) >= 5)
    group = assign_frequency_groups(dense.sum(axis=0)[labels].astype(np.int64))
    assert set(group) == {0, 1, 2}
    for kind, peer in (("AUC", roc_auc_score), ("AUPR", average_precision_score)):
        result = evaluate(ranked, Y, [f"{kind}@{name}" for name in FREQUENCY_GROUPS])
        for i, name in enumerate(FREQUENCY_GROUPS):
            expected = np.mean([peer(dense[:, label], scores[:, label]) for label in labels[group == i]])
            assert result[f"{kind}@{name}"] == pytest.approx(expected, abs=1e-9)


def test_groups_by_hand() -> None:
    assert assign_frequency_groups(np.array([20, 60, 30, 20, 30, 20])).tolist() == [2, 0, 1, 2, 1, 2]
    assert assign_frequency_groups(np.array([7, 7, 7])).tolist() == [0, 0, 0]


@pytest.mark.parametrize("seed", range(20))
def test_frequency_groups_are_as_equal_as_possible(seed: int) -> None:
    frequencies = np.random.default_rng(seed).zipf(1.6, 40).clip(max=900)
    steps = np.unique(frequencies)
    group = assign_frequency_groups(frequencies)

    def unevenness(low: int, high: int) -> int:
        masks = (frequencies >= high, (frequencies < high) & (frequencies >= low), frequencies < low)
        return sum(int(frequencies[mask].sum()) ** 2 for mask in masks)

    best = min(unevenness(low, high) for low in steps for high in steps if low < high)
    assert unevenness(frequencies[group <= 1].min(), frequencies[group == 0].min()) == best
    assert frequencies[group == 0].min() > frequencies[group == 1].max()
    assert frequencies[group == 1].min() > frequencies[group == 2].max()


def test_propensity_by_hand() -> None:
    C = (log(1000) - 1) * 2.5**0.55
    assert Propensity().inverse(np.array([0, 10]), 1000) == pytest.approx([1 + C / 1.5**0.55, 1 + C / 11.5**0.55])
    assert Propensity().inverse(np.array([0, 1]), 2).tolist() == [1, 1]


@pytest.mark.parametrize("name", PROPENSITIES)
def test_propensity_against_napkinxc(name: str, napkin: Any) -> None:
    _, Y, _ = random_case(8)
    true, preset = [np.flatnonzero(row).tolist() for row in Y.toarray()], PROPENSITIES[name]
    expected = napkin.Jain_et_al_inverse_propensity(true, A=preset.A, B=preset.B)  # ends at the last label that occurs
    assert len(expected) > 40
    assert preset.inverse(Y.sum(axis=0), Y.shape[0])[: len(expected)] == pytest.approx(expected)


def test_per_document_values_average_to_the_metric() -> None:
    ranked, Y, frequencies = random_case(9)
    names = ["P@5", "R@5", "nDCG@5", "PSP@5", "PSnDCG@5", "rawPSP@5"]
    values = evaluate_per_document(ranked, Y, names, frequencies, n_train=300)
    assert all(value.shape == (150,) and value.std() > 0 for value in values.values())
    means = {name: value.mean() for name, value in values.items()}
    assert means == pytest.approx(evaluate(ranked, Y, names, frequencies, n_train=300))


def test_raw_psp_is_at_least_precision() -> None:
    """1/p is at least 1. In AttentionXML's Table 1 PSP@1 (44.97) is below P@1 (87.12), so it is the normalised one."""
    ranked, Y, frequencies = random_case(10)
    result = evaluate(ranked, Y, ["P@3", "rawPSP@3", "PSP@3"], frequencies, n_train=1000)
    assert result["rawPSP@3"] > result["P@3"] > 0
    perfect = Predictions(np.array([[2, 0]], np.int32), np.array([[1, 1]], np.float32))
    best = evaluate(perfect, truth([[0, 2]], 3), ["PSP@2", "rawPSP@2"], np.ones(3), Steps(), n_train=9)
    assert best == {"PSP@2": 1.0, "rawPSP@2": (3 + 1) / 2}


def test_documents_without_labels_count_zero() -> None:
    names = ["rawPSP@1", "P@1", "R@1", "nDCG@1", "PSP@1", "PSnDCG@1", "coverage@1", "micro-F1@2", "macro-F1@2"]
    result = evaluate(predictions([[0], [1]]), truth([[], []], 2), names, np.ones(2), n_train=2)
    assert result == dict.fromkeys(names, 0.0)


def test_truth_may_be_unsorted_repeated_or_hold_zeros() -> None:
    data, columns = np.array([1, 1, 0, 1, 1], dtype=np.float32), np.array([2, 0, 1, 2, 1])
    messy = csr_array((data, columns, np.array([0, 4, 5])), shape=(2, 3))
    assert evaluate(predictions([[1, 2, 0], [1, 0, 2]]), messy, ["P@1", "R@3", "nDCG@2"]) == {
        "P@1": 1 / 2,
        "R@3": 1.0,
        "nDCG@2": pytest.approx((L / (1 + L) + 1) / 2),
    }
    assert messy.nnz == 5


def test_predicted_label_without_column_in_truth_raises() -> None:
    """Label 3 of document 0 must not be taken for a label of the next document."""
    result, true = predictions([[3], [0]]), truth([[0], [1]], 2)
    assert not RankedResults(result, true).hits.any()
    with pytest.raises(XmtcError, match="predictions contain label 3, but Y has 2 columns; pass a Y with"):
        evaluate(result, true, ["P@1"])


def test_label_predicted_twice_raises() -> None:
    with pytest.raises(XmtcError, match="Label 0 is predicted twice for document 1; expected each label once"):
        predictions([[0, 1, 2], [0, 0, 0]])  # R@3 would be 3


def test_truth_may_be_dense_and_is_not_changed() -> None:
    true = truth([[0], [1]], 2)
    dense = true.toarray().astype(int)
    for Y in (true, dense, dense.astype(bool), dense.tolist(), true.tocsc(), true.tocoo()):
        assert evaluate(predictions([[0], [0]]), Y, ["P@1"]) == {"P@1": 0.5}
    with pytest.raises(XmtcError, match="Y has 2 among its values"):
        evaluate(predictions([[0], [0]]), 2 * dense, ["P@1"])


def test_names_are_parsed_in_any_case_and_returned_as_published() -> None:
    names = ["p@1", "NDCG@05", "psndcg@3", "Micro-f1@0.50", "auc@RARE"]
    assert [parse_metric(name).name for name in names] == ["P@1", "nDCG@5", "PSnDCG@3", "micro-F1@0.5", "AUC@rare"]
    assert list(evaluate(PREDICTED, Y, ["p@1"])) == ["P@1"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ndgc@5", "nDCG@5"),
        ("P", "P@5"),
        ("P@0", "P@5"),
        ("P@-1", "P@5"),
        ("cover@3", "coverage@3"),
        ("micro-F1", "micro-F1@0.5"),
        ("macro-F1@nan", "macro-F1@0.5"),
        ("AUC@tail", "AUC@rare"),
    ],
)
def test_error_for_unknown_name_suggests_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(XmtcError) as error:
        parse_metric(name)
    assert f"{name!r} is not a metric (did you mean {meant}?); the metrics are P@k" in str(error.value)


def test_error_without_similar_name_lists_the_metrics() -> None:
    with pytest.raises(XmtcError, match=r"'xyz' is not a metric; the metrics are P@k, .*AUPR@frequent\|medium\|rare\."):
        parse_metric("xyz")


def test_max_k() -> None:
    assert max_k(DEFAULT_METRICS) == 5
    assert max_k(["P@1", "coverage@20", "nDCG@7"]) == 20
    assert max_k(["P@1", "micro-F1@0.5"]) == max_k(["AUC@rare"]) == 100


def test_invalid_input_raises() -> None:
    with pytest.raises(XmtcError, match="predictions for every document; got 4 for 2"):
        evaluate(PREDICTED, truth([[0], [1]], 5), ["P@1"])
    with pytest.raises(XmtcError, match="got 0 for 0"):
        evaluate(Predictions(np.zeros((0, 3), np.int32), np.zeros((0, 3))), csr_array((0, 5)), ["P@1"])
    with pytest.raises(XmtcError, match="PSP, PSnDCG and rawPSP need train_frequencies and n_train"):
        evaluate(PREDICTED, Y, ["PSP@1"], train_frequencies=np.ones(5))
    with pytest.raises(XmtcError, match="coverage@5 has no value for a single document"):
        evaluate_per_document(PREDICTED, Y, ["P@1", "coverage@5"])


@pytest.fixture
def reciprocal_rank():
    """Register a custom metric for one test."""
    with patch.dict(METRIC_FAMILIES):

        @register_metric("RR", parameter=K_PARAMETER, is_per_document=True)
        def reciprocal_rank(results: RankedResults, k: int) -> np.ndarray:
            """One over the rank of the first right prediction, 0 if none of the first k is right."""
            hits = results.hits[:, :k]
            return hits.any(axis=1) / (1 + hits.argmax(axis=1))

        yield


@pytest.mark.usefixtures("reciprocal_rank")
def test_custom_metric_is_one_declaration() -> None:
    assert parse_metric("rr@010").name == "RR@10"
    assert max_k(["P@5", "RR@10"]) == 10
    assert METRIC_FAMILIES["RR"].usage == "RR@k"
    assert METRIC_FAMILIES["RR"].description.startswith("One over the rank")

    assert evaluate(PREDICTED, Y, ["RR@1", "RR@10"]) == {"RR@1": 2 / 4, "RR@10": (1 + 1 / 2 + 0 + 1) / 4}
    assert evaluate_per_document(PREDICTED, Y, ["RR@10"])["RR@10"].tolist() == [1, 1 / 2, 0, 1]

    with pytest.raises(
        XmtcError,
        match=r"did you mean RR@5\?.* rawPSP@k, unseen@k, rare@k, ECE@k, hP@k, hR@k, hF1@k, RR@k with k from 1;",
    ):
        parse_metric("RR")
    with pytest.raises(
        XmtcError, match=r"only P, R, nDCG, .*PSP, PSnDCG, rawPSP, unseen, rare, example-P, .* RR have one"
    ):
        evaluate_per_document(PREDICTED, Y, ["coverage@1"])


@pytest.mark.usefixtures("reciprocal_rank")
def test_evaluate_command_accepts_custom_metric(tmp_path) -> None:
    texts, tags = make_planted_corpus(100, seed=0)
    Classifier("parabel", n_trees=1).fit(texts[:50], tags[:50]).save(tmp_path / "model")
    rows = [{"text": text, "labels": labels} for text, labels in zip(texts, tags, strict=True)]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["evaluate", str(tmp_path / "model"), str(tmp_path / "test.jsonl"), "--json"]

    result = json.loads(CliRunner().invoke(app, [*command, "P@1", "RR@1", "rr@10"]).stdout)
    assert list(result) == ["P@1", "RR@1", "RR@10"]
    assert result["P@1"] == result["RR@1"] < result["RR@10"]

    error = CliRunner().invoke(app, [*command, "RR@0"]).exception
    assert "did you mean RR@5?" in str(error)


def test_metric_name_is_unique() -> None:
    with pytest.raises(XmtcError, match="The metric macro-F1 is already registered; choose another name"):
        register_metric("Macro-f1", parameter=SCORE_PARAMETER)(lambda results, threshold: 0.0)


def test_ranked_results_are_shared_by_metrics() -> None:
    results = to_ranked_results(PREDICTED, Y)
    assert results.hits.tolist() == [[True, False, True], [False, True, False], [False] * 3, [True, False, False]]
    assert results.n_true.tolist() == [2, 1, 0, 2]
    assert parse_metric("P@1").compute(results) == parse_metric("P@1").compute_per_document(results).mean() == 2 / 4


def test_compute_once_caches() -> None:
    calls: list[RankedResults] = []

    def count(results: RankedResults) -> int:
        calls.append(results)
        return len(calls)

    results = to_ranked_results(PREDICTED, Y)
    assert [results.compute_once(count), results.compute_once(count)] == [1, 1]
    assert to_ranked_results(PREDICTED, Y).compute_once(count) == 2


def test_every_metric_has_a_description() -> None:
    assert all(family.description.endswith(".") for family in METRIC_FAMILIES.values())


def test_import_of_evaluation_is_light() -> None:
    code = "import sys, xmtc.evaluation; print(*{'torch', 'sklearn', 'numba', 'pyarrow'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("name", ["micro-F1@0.5", "example-R@0.5", "AUC@frequent"])
def test_a_metric_without_k_reads_the_same_depth_beside_metrics_that_need_more(name):
    rng = np.random.default_rng(0)
    labels, scores = np.argsort(rng.random((20, 300)), axis=1), -np.sort(-rng.random((20, 300)), axis=1)
    Y = (rng.random((20, 300)) < 0.2).astype(float)
    short, long = (Predictions(labels[:, :k], scores[:, :k]) for k in (100, 300))
    assert evaluate(short, Y, [name])[name] == evaluate(long, Y, [name, "R@300"])[name]
