"""Extreme numbers: rows that cancel out, tiny and huge values, very many columns, layers beyond memory. Predictions are
finite, or there is a one-line error."""

from __future__ import annotations

import json
import os
import tracemalloc
from contextlib import nullcontext

import numpy as np
import pytest
from commands import invoke
from planted import make_planted_corpus
from scipy.sparse import csc_array, csr_array, save_npz

from xmtc import Classifier, Run, XmtcError, open_corpus
from xmtc.core import memory
from xmtc.core.dataset import Bag, Dataset
from xmtc.core.memory import check_fits
from xmtc.core.predictions import Predictions
from xmtc.features.columns import Columns, FittedColumns, OccurringColumns
from xmtc.labels.vectors import sum_label_rows
from xmtc.linear.solver import Solver

ONE = Run(threads=1, device="cpu")
LINEAR = {"parabel": {"max_leaf": 1}, "bonsai": {"max_leaf": 1, "space": "joint"}, "plt": {"max_leaf": 1}, "dismec": {}}
LINEAR |= {"ppd_sparse": {}, "proxml": {}}
LABELS = [["a"], ["a"], ["b"], ["b"], ["c"], ["a", "d"]]
WIDEST = 2**31 - 1
RNG = np.random.default_rng(0)
MATRICES = {
    "a label without features": [[1, 1, 0], [1, 0, 1], [0, 1, 2], [0, 1, 0], [0, 0, 0], [0, 0, 0]],
    "rows that cancel": [[1, -1, 0], [-1, 1, 0], [0, 1, 2], [0, -1, -2], [0, 0, 0], [0, 0, 0]],
    "nothing": np.zeros((6, 3)),
    "tiny": 1e-45 * RNG.integers(0, 3, (6, 3)),
    "small": 1e-38 * RNG.random((6, 3)),
    "large": 1e14 * RNG.standard_normal((6, 3)),
    "mixed": 10.0 ** RNG.integers(-44, 14, (6, 3)) * RNG.choice([-1, 1], (6, 3)),
}


def check_finite(classifier: Classifier, X: np.ndarray) -> None:
    answer = classifier.rank(X, 4, ONE)
    assert np.isfinite(answer.scores).all()
    assert ((answer.scores >= 0) & (answer.scores <= 1)).all()
    assert sorted(answer.labels[0]) == [0, 1, 2, 3]
    for tree in classifier.tagger_.model.trees:
        assert np.isfinite(tree.bias).all()
        assert np.isfinite(tree.scale).all()


@pytest.mark.filterwarnings("ignore:.*classifiers did not converge")
@pytest.mark.parametrize("C", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("kind", MATRICES)
@pytest.mark.parametrize("method", LINEAR)
def test_scores_are_finite_at_any_scale(method, kind, C):
    X = np.asarray(MATRICES[kind], np.float64)
    for unit_length in (True, False):
        classifier = Classifier(method, C=C, unit_length=unit_length, **LINEAR[method])
        check_finite(classifier.fit(X, LABELS, run=ONE), X)


@pytest.mark.parametrize("method", LINEAR)
def test_document_weights_of_any_scale_give_finite_scores(method):
    X = np.asarray(MATRICES["rows that cancel"], np.float64)
    for weights in ([1e-12, 1e12, 1, 1, 1, 1], [1e12] * 6, [1e-12] * 6):
        check_finite(Classifier(method, **LINEAR[method]).fit(X, LABELS, sample_weight=weights, run=ONE), X)


@pytest.mark.parametrize("method", ["parabel", "bonsai", "plt"])
def test_label_without_features_is_trained(tmp_path, method):
    (tmp_path / "a.svm").write_text("0 1:1 2:1\n0 1:1 3:1\n1 2:1 3:2\n1 2:1\n2 4:0\n")
    corpus = open_corpus(tmp_path / "a.svm")
    answer = Classifier(method, max_leaf=1).fit(corpus, run=ONE).rank(corpus, 3, ONE)
    assert np.isfinite(answer.scores).all()
    assert answer.labels[0, 0] == 0


def test_zero_sums_are_empty_and_others_have_length_1():
    X = csr_array(np.array([[1, -1], [-1, 1], [1e15, 0], [1e15, 1e15], [1e-45, 0]], np.float32))
    members = csc_array(np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]], np.float32))
    result = sum_label_rows(X, members, ONE)
    assert np.diff(result.indptr).tolist() == [0, 2, 1]
    np.testing.assert_allclose(result.toarray(), [[0, 0], [2 / 5**0.5, 1 / 5**0.5], [1, 0]], rtol=1e-6)


@pytest.mark.parametrize("method", LINEAR)
def test_overflow_is_rejected_with_one_error_message(method):
    X = np.full((6, 3), 3e38)
    check_finite(Classifier(method, unit_length=True, **LINEAR[method]).fit(X, LABELS, run=ONE), X)
    refused = {
        "X has 3e\\+38 in row 0, column 0; expected finite numbers of at most 1e\\+15": {"unit_length": False},
        "C=1e\\+300 is invalid; expected a number from 1e-06 to 1000000000.0": {"C": 1e300},
    }
    for message, parameters in refused.items():
        with pytest.raises(XmtcError, match=message):
            Classifier(method, **parameters, **LINEAR[method]).fit(X, LABELS, run=ONE)
    with pytest.raises(XmtcError, match="X has values of up to 1e\\+15, which is too large for C=1e\\+09; scale X"):
        Classifier(method, C=1e9, unit_length=False).fit(np.full((6, 3), 1e15), LABELS, run=ONE)
    with pytest.raises(XmtcError, match="infinity or a value too large"):
        Classifier(method).fit(np.full((6, 3), 1e300), LABELS, run=ONE)


def test_solver_limits_features_times_weights():
    X = csr_array(np.full((2, 1), 1e6, np.float32))
    Solver(C=1e9).check_feature_scale(X)
    with pytest.raises(XmtcError, match="too large for C=1e\\+09 and weights of up to 1e\\+16"):
        Solver(C=1e9).check_feature_scale(X, np.array([1, 1e16], np.float32))


# Very many columns


def widened(X: csr_array, columns: np.ndarray) -> csr_array:
    return csr_array((X.data, columns[X.indices], X.indptr), shape=(X.shape[0], WIDEST))


COLUMNS = np.array([0, 5, 70_000, 2**30, WIDEST - 2, WIDEST - 1])
NARROW = csr_array(RNG.random((40, 6)) * (RNG.random((40, 6)) < 0.5), dtype=np.float32)
NAMES = [[f"l{number}" for number in RNG.choice(8, 2, replace=False)] for _ in range(40)]


@pytest.mark.parametrize("method", LINEAR)
def test_memory_depends_only_on_columns_that_occur(method, tmp_path):
    tracemalloc.start()
    wide = Classifier(method, **LINEAR[method]).fit(widened(NARROW, COLUMNS), NAMES, run=ONE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6

    narrow = Classifier(method, **LINEAR[method]).fit(NARROW, NAMES, run=ONE)
    expected = narrow.rank(NARROW, 5, ONE)
    wide.save(tmp_path / "model")
    for classifier in (wide, Classifier.load(tmp_path / "model")):
        assert classifier.n_features_in_ == WIDEST
        result = classifier.rank(widened(NARROW, COLUMNS), 5, ONE)
        np.testing.assert_array_equal(result.labels, expected.labels)
        np.testing.assert_array_equal(result.scores, expected.scores)


def test_files_with_a_large_column_number(tmp_path):
    lines = "0 1:1 2147483646:1\n0 1:1 3:1\n1 2:1 2147483646:2\n1 2:1\n2 4:1\n"
    (tmp_path / "a.svm").write_text(lines)
    (tmp_path / "a.txt").write_text("5 2147483647 3\n" + lines)
    X = csr_array((np.ones(4, np.float32), ([0, 1, 1, 2], [7, 7, WIDEST - 1, 9])), shape=(3, WIDEST))
    save_npz(tmp_path / "X.npz", X.tocsr())
    save_npz(tmp_path / "Y.npz", csr_array(np.eye(3, dtype=np.float32)).tocsr())
    for name in ("a.svm", "a.txt", f"{tmp_path}/X.npz,{tmp_path}/Y.npz"):
        corpus = open_corpus(name if "," in name else tmp_path / name)
        classifier = Classifier("parabel", max_leaf=1).fit(corpus, run=ONE)
        assert isinstance(classifier.tagger_.views["columns"], OccurringColumns)
        assert classifier.tagger_.views["columns"].size < 10
        assert classifier.rank(corpus, 1, ONE).labels[0, 0] == 0


def test_unknown_columns_only_change_the_norm():
    rows = [(np.array([1, 2**22], np.int32), np.array([3, 4], np.float32))]
    fitted, bag = Columns(unit_length=True).fit(rows)
    assert isinstance(fitted, OccurringColumns)
    assert fitted.columns.tolist() == [0, 1, 2**22]
    assert [fitted.term(number) for number in range(3)] == ["column 0", "column 1", f"column {2**22}"]
    np.testing.assert_allclose(bag.matrix.toarray(), [[0, 0.6, 0.8]])

    unseen = [(np.array([1, 5, 2**22 + 9], np.int32), np.array([3, 4, 5], np.float32))]
    plain = FittedColumns(n_columns=fitted.n_columns, unit_length=True).transform(unseen).matrix
    result = fitted.transform(unseen).matrix
    assert (plain.data.tolist(), plain.indices.tolist()) == ([np.float32(0.6), np.float32(0.8)], [1, 5])
    assert (result.data.tolist(), result.indices.tolist()) == ([np.float32(0.6)], [1])
    assert isinstance(Columns().fit([(np.arange(9, dtype=np.int32), np.ones(9, np.float32))])[0], FittedColumns)


@pytest.mark.parametrize("columns", [[], [3, 3], [4, 1], [-1, 2], [0, 9]])
def test_damaged_columns_are_rejected(columns):
    view = OccurringColumns(n_columns=9, unit_length=True, columns=np.array(columns, np.int32))
    with pytest.raises(ValueError, match="its columns are not ascending numbers below 9"):
        view.check()


# Memory


def test_check_fits_raises_before_memory_is_used():
    check_fits(10, "It", "take less", available=10)
    with pytest.raises(XmtcError, match=r"It would need 2.0 GiB of memory, but only 1.0 GiB are available; take"):
        check_fits(2**31, "It", "take less", available=2**30)


@pytest.mark.parametrize(("left", "is_refused"), [(100 * memory.MIB, True), (1000 * memory.MIB, False)])
def test_too_little_memory_at_the_start_is_reported(monkeypatch, tmp_path, left, is_refused):
    """Libraries would terminate the process without a message, or retry forever."""
    statm = tmp_path / "statm"
    statm.write_text("1000 500 300 1 0 400 0\n")
    monkeypatch.setattr(memory, "STATM", statm)
    monkeypatch.setattr(memory, "get_address_space_limits", lambda: [left + 1000 * os.sysconf("SC_PAGE_SIZE")])
    refused = pytest.raises(XmtcError, match=r"leaves 100 MiB; expected at least 192 MiB") if is_refused else None
    with refused or nullcontext():
        memory.check_address_space()


@pytest.mark.parametrize(
    ("method", "parameters", "what"),
    [
        ("xml_rnn", {"hidden": 10**9}, "A network of [0-9,]+ weights"),
        ("xml_rnn", {"layers": (10**9, 10**9)}, "A network of [0-9,]+ weights"),
        ("xml_rnn", {"dimension": 10**9}, "[0-9,]+ word vectors of 1,000,000,000 components"),
        ("attention_xml", {"hidden": 2**62}, "A network of [0-9,]+ weights"),
        ("rank_ae", {"channels": 10**9}, "A network of [0-9,]+ weights"),
        ("rank_ae", {"hidden": 10**12}, "A network of [0-9,]+ weights"),
        ("c2ae", {"layer": 10**6}, "A network of [0-9,]+ weights"),
    ],
)
def test_networks_beyond_memory_are_rejected(method, parameters, what):
    pytest.importorskip("torch")
    texts, labels = make_planted_corpus(60, seed=0)
    sentence = rf"{what} would need [0-9,.]+ GiB of memory, but only [0-9,.]+ GiB are available; (give|reduce) "
    with pytest.raises(XmtcError, match=sentence):
        Classifier(method, **parameters).fit(texts, labels, run=ONE)


def test_diverged_network_is_rejected_unless_an_earlier_epoch_was_finite():
    pytest.importorskip("torch")
    X = csr_array(RNG.random((60, 20)) < 0.3, dtype=np.float32)
    labels = [[f"l{number % 7}"] for number in range(60)]
    settings = {"epochs": 5, "average_from": 9, "weight_decay": 1e8, "hidden": 8, "layer": 8, "channels": 8}
    with pytest.raises(
        XmtcError, match="The training diverged in its first epoch: weights are too large or not finite"
    ):
        Classifier("rank_ae", batch=8, **settings).fit(X, labels, run=ONE)

    # one step per epoch: the second diverges
    stopped = Classifier("rank_ae", batch=60, **settings).fit(X, labels, run=ONE)
    assert np.isfinite(stopped.predict_proba(X)).all()
    assert [entry["pass"] for entry in stopped.history_ if entry["event"] == "pass"] == [1]


# Invalid arguments


@pytest.fixture(scope="module")
def trained() -> Classifier:
    return Classifier("parabel").fit(*make_planted_corpus(60, seed=0), run=ONE)


@pytest.mark.parametrize("k", [0, -1, 2.5, float("nan"), float("inf"), "3", None, True])
def test_invalid_numbers_of_labels_are_rejected(trained, k):
    with pytest.raises(XmtcError, match=r"k=.* (is not positive|is not an integer); expected"):
        trained.rank(["word"], k)
    with pytest.raises(XmtcError, match="expected"):
        trained.tagger_.model.predict(trained.tagger_.transform([]), k)


def test_k_above_the_number_of_labels_is_accepted(trained):
    assert trained.rank(["word"], 10**30).k == len(trained.classes_)


@pytest.mark.parametrize("threshold", [float("nan"), np.float32("nan"), "0.5", None, 1j])
def test_invalid_thresholds_are_rejected(threshold):
    answer = Predictions(np.array([[0]]), np.array([[0.5]]))
    with pytest.raises(XmtcError, match=r"threshold=.* is not a number"):
        answer.apply_threshold(threshold)


def test_any_finite_or_infinite_threshold_is_accepted():
    answer = Predictions(np.array([[0]]), np.array([[0.5]]))
    assert answer.apply_threshold(float("inf")).labels.tolist() == [[-1]]
    assert (
        answer.apply_threshold(-1).labels.tolist() == answer.apply_threshold(np.float64(0.5)).labels.tolist() == [[0]]
    )


@pytest.mark.parametrize("threads", [-1, 10**9, 1.5, float("nan"), "2", None, True])
def test_invalid_numbers_of_threads_are_rejected(threads):
    with pytest.raises(XmtcError, match=r"threads=.* is invalid; expected 0 \(all CPUs\) to 4096"):
        Run(threads=threads)


@pytest.mark.parametrize("device", ["nonsense", "", "meta", "cuda:-1", "cuda:x", "CPU ", None, 0])
def test_invalid_devices_are_rejected(device):
    with pytest.raises(XmtcError, match=r"device=.* is invalid; expected auto, cpu, cuda"):
        Run(device=device)


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:1", "mps"])
def test_valid_devices_are_accepted(device):
    assert Run(device=device).device == device


def test_long_values_are_shortened_in_errors():
    for value in ("x" * 10**6, 10**5000, [0] * 10**5):
        with pytest.raises(XmtcError, match="is invalid; expected a whole number") as caught:
            Classifier("parabel", n_trees=value)
        assert len(str(caught.value)) < 400


def test_command_reports_one_error_message(tmp_path):
    texts, labels = make_planted_corpus(30, seed=0)
    lines = (json.dumps({"text": text, "labels": tags}) for text, tags in zip(texts, labels, strict=True))
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    assert invoke("train", "train.jsonl", "-o", "model", "-q", cwd=tmp_path).returncode == 0
    cases = {
        "threshold=nan is not a number": ("--threshold", "nan"),
        "device='nonsense' is invalid": ("--device", "nonsense"),
        "threads=100000 is invalid": ("--threads", "100000"),
    }
    for sentence, words in cases.items():
        done = invoke("predict", "model", "train.jsonl", "-q", *words, cwd=tmp_path)
        assert done.returncode == 2
        assert sentence in done.stderr.decode()
        assert "Traceback" not in done.stderr.decode()


def test_dataset_has_the_same_limits():
    with pytest.raises(XmtcError, match="expected finite numbers of at most 1e\\+15"):
        Bag(np.array([[1e16]]))
    assert Dataset.from_matrix(np.array([[1e15]])).X.data.tolist() == [np.float32(1e15)]
