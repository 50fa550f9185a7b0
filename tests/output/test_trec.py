"""TREC run and qrels: other programs compute the metrics of xmtc from them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.sparse import csr_array

from xmtc import Predictions, XmtcError
from xmtc.evaluation import evaluate
from xmtc.output.trec import check_trec_files, write_trec_files

METRICS = ["P@1", "P@3", "P@5", "R@5", "R@10", "nDCG@3", "nDCG@5", "nDCG@10"]


@pytest.fixture
def example(tmp_path):
    """Predictions with many equal scores, labels with spaces, and documents without a prediction."""
    random = np.random.default_rng(0)
    n_docs, n_labels = 200, 40
    Y = csr_array((random.random((n_docs, n_labels)) < 0.08).astype(np.float32))
    Y = csr_array(Y[np.diff(Y.indptr) > 0])
    scores = np.round(random.random((Y.shape[0], n_labels)), 1).astype(np.float32)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :20]
    labels, top = order.astype(np.int32), np.take_along_axis(scores, order, axis=1)
    labels[:3], top[:3] = -1, 0
    predictions = Predictions(labels, top)
    names = [f"a label {number} ä%" for number in range(n_labels)]
    return predictions, Y, write_trec_files(str(tmp_path / "x"), predictions, Y, names)


def test_files_have_the_columns_of_trec(example):
    predictions, Y, (run, qrels) = example
    with open(run) as lines:
        rows = [line.split() for line in lines]
    assert {len(row) for row in rows} == {6}
    assert len(rows) == np.count_nonzero(predictions.labels >= 0)
    with open(qrels) as lines:
        assert len(lines.readlines()) == Y.nnz
    scores = [float(row[4]) for row in rows if row[0] == "4"]
    assert all(second < first for first, second in itertools.pairwise(scores))


def test_ir_measures_computes_the_same_values(example):
    measures = pytest.importorskip("ir_measures")
    predictions, Y, (run, qrels) = example
    expected = evaluate(predictions, Y, METRICS)
    found = measures.calc_aggregate(
        [measures.parse_measure(name) for name in METRICS], measures.read_trec_qrels(qrels), measures.read_trec_run(run)
    )
    for measure, value in found.items():
        assert value == pytest.approx(expected[str(measure)], abs=1e-6), measure


@pytest.mark.parametrize("prefix", ["", "results/", "nowhere/x"])
def test_files_that_cannot_be_written_are_refused_before_the_prediction(tmp_path, monkeypatch, prefix):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    check_trec_files("results/x")
    with pytest.raises(XmtcError):
        check_trec_files(prefix)
