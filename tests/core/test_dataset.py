"""Validation of arrays in Dataset and Predictions: conversions, errors, and no change of the caller's arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np
import pytest
from centroid import Centroid
from scipy import sparse
from scipy.sparse import csc_array, csr_array, random_array
from test_ensemble import fixed
from test_metrics import truth
from voting import AllVotes, WordVotes

from xmtc import Dataset, Method, Predictions, Run, XmtcError
from xmtc.core import array_validation, dataset
from xmtc.core.dataset import Bag, Tokens
from xmtc.evaluation import evaluate
from xmtc.methods.ensemble.calibrated_model import calibrate_model
from xmtc.methods.ensemble.consensus import Consensus
from xmtc.methods.ensemble.model import RemappedModel
from xmtc.methods.label_tree.bonsai import Bonsai
from xmtc.methods.label_tree.parabel import Parabel
from xmtc.methods.label_tree.plt import PLT
from xmtc.methods.one_vs_all.dismec import DiSMEC
from xmtc.storage.form import is_equal
from xmtc.testing import ONE_THREAD, widen_view

RNG = np.random.default_rng(0)
X = random_array((50, 30), density=0.2, format="csr", dtype=np.float32, rng=RNG)
Y = csr_array((RNG.random((50, 6)) < 0.3).astype(np.float32))
DATA = Dataset.from_matrix(X, Y)
FORMATS = ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"]


def with_duplicate_unsorted_entries(matrix: csr_array) -> csr_array:
    """Return the same matrix with each value split into two entries and unsorted columns."""
    coo = matrix.tocoo()
    order = np.random.default_rng(1).permutation(2 * coo.nnz) % coo.nnz
    order = order[np.argsort(coo.row[order], kind="stable")]
    ends = np.concatenate([[0], np.cumsum(2 * np.diff(matrix.indptr))])
    return csr_array((coo.data[order] / 2, coo.col[order], ends), shape=matrix.shape)


MATRICES = {
    **{f"{name}_array": X.asformat(name) for name in FORMATS},
    **{f"{name}_matrix": getattr(sparse, f"{name}_matrix")(X) for name in FORMATS},
    "dense": X.toarray(),
    "dense, by columns": np.asfortranarray(X.toarray()),
    "lists": X.toarray().tolist(),
    "float64": X.astype(np.float64),
    "every second number": csr_array((np.repeat(X.data, 2)[::2], X.indices, X.indptr), shape=X.shape),
    "64-bit columns": csr_array((X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)), shape=X.shape),
    "twice and unsorted": with_duplicate_unsorted_entries(X),
    "room at the end": csr_array((np.append(X.data, [7, 7]), np.append(X.indices, [99, 99]), X.indptr), shape=X.shape),
}


@pytest.mark.parametrize("value", MATRICES.values(), ids=MATRICES)
def test_features_are_converted(value):
    result = Bag(value).matrix
    assert isinstance(result, csr_array)
    assert (result.data.dtype, result.indices.dtype, result.indptr.dtype) == (np.float32, np.int32, np.int32)
    np.testing.assert_array_equal(result.indptr, X.indptr)
    np.testing.assert_array_equal(result.indices, X.indices)
    np.testing.assert_array_equal(result.data, X.data)
    assert result.data.flags.c_contiguous


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float16, np.longdouble])
def test_other_number_types_are_converted(dtype):
    ones = (X.toarray() > 0.5).astype(dtype)
    for value in (ones,) if dtype == np.float16 else (ones, csr_array(ones)):  # scipy has no matrices of float16
        np.testing.assert_array_equal(Bag(value).matrix.toarray(), ones.astype(np.float32))
    np.testing.assert_array_equal(Dataset.from_matrix(X, ones).Y.toarray(), ones.astype(np.float32))


@pytest.mark.parametrize("value", [MATRICES["csr_array"], MATRICES["csr_matrix"], MATRICES["twice and unsorted"]])
def test_training_does_not_change_the_callers_arrays(value):
    copy = value.copy()
    copy.data, copy.indices, copy.indptr = (part.copy() for part in (value.data, value.indices, value.indptr))
    parts = copy.data, copy.indices, copy.indptr
    for part in parts:
        part.flags.writeable = False
    DiSMEC().fit(Dataset.from_matrix(copy, Y), run=ONE_THREAD)
    assert all(now is then for now, then in zip((copy.data, copy.indices, copy.indptr), parts, strict=True))
    np.testing.assert_array_equal(copy.indices, value.indices)


def test_valid_arrays_are_not_copied():
    assert np.shares_memory(Bag(X).matrix.data, X.data)
    assert np.shares_memory(DATA.Y.indices, Y.indices)


@pytest.mark.parametrize("method", [Parabel(max_leaf=2), Bonsai(max_leaf=2), PLT(max_leaf=2), DiSMEC()])
def test_every_format_trains_the_same_model(method):
    expected = method.fit(DATA, run=ONE_THREAD)
    for value, labels in ((csc_array(X), csc_array(Y)), (MATRICES["twice and unsorted"], Y.toarray() > 0)):
        assert is_equal(method.fit(Dataset.from_matrix(value, labels), run=ONE_THREAD), expected)


def with_part(name: str, change, kind=csr_array) -> csr_array:
    bad = kind(X)
    part = getattr(bad, name).copy()
    change(part)
    setattr(bad, name, part)
    return bad


def put(at, value):
    def change(part) -> None:
        part[at] = value

    return change


LARGE = X.astype(np.float64)
LARGE.data[5] = -1e300
REFUSED = {
    "nan": (
        with_part("data", put(5, np.nan)),
        "X has nan in row 0, column 26; expected finite numbers of at most 1e+15",
    ),
    "inf": (with_part("data", put(-1, np.inf)), "X has inf in row 49, column"),
    "too large": (LARGE, "X has -inf in row 0, column 26; expected finite numbers of at most 1e+15"),
    "too large in sum": (csr_array(([3e38, 3e38], [1, 1], [0, 2]), shape=(1, 3)), "X has inf in row 0, column 1"),
    "a column too far": (
        with_part("indices", put(3, 30)),
        "X is a csr matrix with inconsistent arrays (indices",
    ),
    "a negative column": (with_part("indices", put(3, -1)), "inconsistent arrays"),
    "a row too far": (
        with_part("indices", put(3, 50), csc_array),
        "X is a csc matrix with inconsistent arrays",
    ),
    "rows that fall": (with_part("indptr", put(3, 0)), "inconsistent arrays"),
    "rows that end beyond": (with_part("indptr", put(-1, 9999)), "inconsistent arrays"),
    "rows that begin late": (with_part("indptr", put(0, 1)), "inconsistent arrays"),
    "one dimension": (np.arange(3.0), "X is a ndarray of 1 dimensions and type float64; expected a matrix of numbers"),
    "words": (np.array([["a", "b"]]), "expected a matrix of numbers with a row for each document"),
    "objects": (np.array([[1, None]]), "type object"),
    "complex numbers": (np.ones((2, 2)) * 1j, "type complex128"),
    "nothing": (None, "X is a NoneType of 0 dimensions"),
    "too wide": (
        csr_array((2, 2**31), dtype=np.float32),
        "X has 2,147,483,648 columns; expected at most 2,147,483,647",
    ),
}


@pytest.mark.parametrize(("value", "message"), REFUSED.values(), ids=REFUSED)
def test_invalid_features_are_rejected(value, message):
    with pytest.raises(XmtcError) as error:
        Dataset.from_matrix(value)
    assert message in str(error.value)


def test_labels_are_converted():
    pairs = sparse.coo_array((np.ones(4), ([0, 0, 2, 2], [1, 1, 0, 3])), shape=(3, 4))  # a duplicate entry counts once
    expected = [[0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 1]]
    with_zeros = csr_array((np.array([0, 1, 1, 1, 0.0]), [3, 1, 3, 0, 2], [0, 2, 2, 5]), shape=(3, 4))
    for value in (pairs, with_zeros, expected, np.array(expected, bool)):
        result = Dataset.from_matrix(X[:3], value).Y
        assert result.dtype == np.float32
        assert (result.data == 1).all()
        np.testing.assert_array_equal(result.toarray(), expected)
    assert with_zeros.nnz == 5


def test_invalid_labels_are_rejected():
    for value in (2 * Y, -Y, Y * np.nan, Y * 0.5):
        with pytest.raises(XmtcError, match=r"Y has \S+ among its values; expected ones at the labels of a document"):
            Dataset.from_matrix(X, value)
        Dataset.from_matrix(X, value != 0)
    with pytest.raises(XmtcError, match="different numbers of rows: columns has 50, Y has 49"):
        Dataset.from_matrix(X, Y[:49])
    with pytest.raises(XmtcError, match="Y is a list of 1 dimensions and type <U1; expected a matrix of numbers"):
        Dataset.from_matrix(X[:2], ["a", "b"])
    with pytest.raises(XmtcError, match="different numbers of rows: columns has 50, words has 1"):
        Dataset({"columns": Bag(X), "words": Tokens([0], [0, 1], 1)})
    with pytest.raises(XmtcError, match="has no views"):
        Dataset({})
    with pytest.raises(XmtcError, match=r"The view columns is a csr_array; expected a Bag\(matrix\) or Tokens"):
        Dataset({"columns": X})


def test_tokens_are_converted():
    result = Tokens([3, 1, 2], np.array([0, 2, 3], np.uint8), np.int64(4))
    assert (result.ids.dtype, result.offsets.dtype, type(result.size)) == (np.int32, np.int64, int)
    assert Tokens([], [0], 0).n_docs == 0
    assert result.select_rows(np.array([1])).ids.tolist() == [2]


@pytest.mark.parametrize(
    ("ids", "offsets", "size", "message"),
    [
        ([0, 4], [0, 2], 4, "The ids range from 0 to 4; expected 0 to 3, since size=4"),
        ([-1, 2], [0, 2], 4, "The ids range from -1 to 2"),
        (np.array([2**40]), [0, 1], 2**41, "expected 0 to 2147483646"),
        ([0.5], [0, 1], 4, "ids has 1 dimensions and type float64; expected one array of integers"),
        ([[0], [1]], [0, 2], 4, "ids has 2 dimensions"),
        ([0, 1], [0, 1], 4, "The offsets range from 0 to 1; expected one more than there are documents"),
        ([0, 1], [1, 2], 4, "The offsets range from 1 to 2"),
        ([0, 1], [0, 2, 1, 2], 4, "ascending from 0 to 2"),
        ([0, 1], [], 4, "The offsets are empty"),
        ([0, 1], [0.0, 2.0], 4, "offsets has 1 dimensions and type float64"),
    ],
)
def test_invalid_tokens_are_rejected(ids, offsets, size, message):
    with pytest.raises(XmtcError) as error:
        Tokens(ids, offsets, size)
    assert message in str(error.value)


def test_derived_datasets_are_not_validated_again():
    tokens = Tokens([3, 1, 2], [0, 2, 3], 4)
    both = Dataset({"columns": Bag(X[:2]), "words": tokens}, Y[:2], [1, 2])
    names = ("as_feature_matrix", "as_label_matrix", "as_token_ids", "as_token_offsets", "as_document_weights")
    looks = [patch.object(dataset, name, side_effect=AssertionError(name)) for name in names]
    for look in looks:
        look.start()
    try:
        for result in (
            both.select_rows(slice(0, 1)),
            both.select_rows(np.array([True, False])),
            both.keep_views(["columns", "words"]),
        ):
            assert result.views["columns"].vocabulary is None
            assert (result.tokens("words").size, result.tokens("words").encoder) == (4, "")
            assert result.weights[0] == 1
            assert result.Y.shape[1] == 6
        with pytest.raises(AssertionError, match="as_label_matrix"):
            replace(both, Y=Y)
    finally:
        for look in looks:
            look.stop()


# --- models ---


def views_of(*documents: list[int]) -> Tokens:
    return Tokens(np.concatenate(documents), np.cumsum([0, *map(len, documents)]), 9)


BOTH = Dataset({"tfidf": Bag(X[:12]), "words": views_of(*([i % 8 + 1, 3] for i in range(12)))}, Y[:12])
LINEAR = DiSMEC().fit(DATA, run=ONE_THREAD)
MODELS = {
    "parabel": (Parabel(max_leaf=2).fit(DATA, run=ONE_THREAD), DATA),
    "dismec": (LINEAR, DATA),
    "consensus": (Consensus((Parabel(), DiSMEC())).fit(DATA, run=ONE_THREAD), DATA),
    "calibrated": (calibrate_model(LINEAR, DATA, 5), DATA),
    "adapted": (
        RemappedModel(
            n_labels=6,
            views={"tfidf": 30},
            model=LINEAR,
            names={"columns": "tfidf"},
            numbers=np.arange(6, dtype=np.int32),
        ),
        Dataset({"tfidf": Bag(X)}),
    ),
    "of others": (Centroid().fit(DATA), DATA),
    "words": (WordVotes().fit(BOTH.keep_views(["words"])), BOTH.keep_views(["words"])),
    "both": (AllVotes().fit(BOTH), BOTH),
}


@pytest.mark.parametrize(("model", "data"), MODELS.values(), ids=MODELS)
def test_every_model_rejects_other_views_before_predicting(model, data):
    model.predict(data, 3, ONE_THREAD)
    assert model.predict(data.select_rows(slice(0, 0)), 3, ONE_THREAD).labels.shape == (0, 3)
    wider = Dataset({name: widen_view(view) for name, view in data.views.items()})
    others = {
        "wider": wider,
        "another name": Dataset({f"{name}-2": view for name, view in data.views.items()}),
        "one more": Dataset({**data.views, "more": Bag(csr_array((data.n_docs, 3), dtype=np.float32))}),
        "no Dataset": X,
    }
    for other in others.values():
        for ask in (lambda: model.predict(other, 3, ONE_THREAD), lambda: model.explain(document=other, label=0)):  # noqa: B023
            with pytest.raises(XmtcError, match=r"but the model was trained on|expected a Dataset"):
                ask()
    with pytest.raises(XmtcError, match="k=0 is not positive"):
        model.predict(data=data, k=0)
    with pytest.raises(XmtcError, match="documents to explain, expected one"):
        model.explain(data, 0)


def test_error_names_expected_and_actual_columns():
    with pytest.raises(XmtcError) as error:
        LINEAR.predict(Dataset.from_matrix(X[:, :7]))
    assert str(error.value) == (
        "The documents have 7 columns, but the model was trained on 30 columns; pass the views and columns of the "
        "training data."
    )


def test_predict_needs_data():
    with pytest.raises(TypeError):
        LINEAR.predict()
    assert fixed([1], [0.5]).predict(Dataset.from_matrix(np.zeros((1, 0)))).labels.tolist() == [[1]]


@dataclass(frozen=True)
class UntrainedMethod(Method):
    def _fit(self, data: Dataset, valid: Dataset | None, run: Run):
        return "trained"


def test_fit_rejects_data_without_documents_or_labels():
    assert UntrainedMethod().fit(DATA) == "trained"
    assert UntrainedMethod().fit(DATA, DATA.select_rows(slice(0, 3))) == "trained"
    nothing = {
        "Found 50 documents and 0 labels to train on; expected at least one of each": [DATA.X, None],
        "Found 0 documents and 6 labels": [X[:0], Y[:0]],
        "Found 50 documents and 0 labels": [X, Y[:, :0]],
    }
    for message, value in nothing.items():
        with pytest.raises(XmtcError, match=message):
            UntrainedMethod().fit(Dataset.from_matrix(*value))
    with pytest.raises(XmtcError, match=r"validation documents have 7 columns and 6 labels; expected 30 columns and 6"):
        UntrainedMethod().fit(DATA, valid=Dataset.from_matrix(X[:, :7], Y))
    with pytest.raises(XmtcError, match="Found a csr_array, expected a Dataset"):
        UntrainedMethod().fit(X)


def test_predict_accepts_empty_matrices():
    empty = Dataset.from_matrix(csr_array((4, 30), dtype=np.float32))
    for model, data in (MODELS["parabel"], MODELS["dismec"]):
        assert model.predict(empty, 2, ONE_THREAD).labels.shape == (4, 2)
        assert model.predict(data, 99, ONE_THREAD).k == 6
    without_columns = Dataset.from_matrix(X[:, :0], Y)
    assert DiSMEC().fit(without_columns).predict(without_columns, 2).labels.shape == (50, 2)


# --- predictions ---


def test_predictions_are_converted():
    result = Predictions([[4, 2, -1, -1]], np.array([[1, 0, 0, 0]], np.float64))
    assert (result.labels.dtype, result.scores.dtype) == (np.int32, np.float32)
    assert Predictions(np.zeros((0, 3)), np.zeros((0, 3))).labels.dtype == np.int32
    assert Predictions(np.zeros((2, 0)), np.zeros((2, 0))).k == 0


@pytest.mark.parametrize(
    ("labels", "scores", "message"),
    [
        ([[1, 2], [3, 3]], [[1, 1], [1, 1]], "Label 3 is predicted twice for document 1"),
        ([[1, 2, 1]], [[3, 2, 1]], "Label 1 is predicted twice for document 0"),
        ([[-2, 2]], [[1, 1]], "The labels range from -2 to 2"),
        ([[2**40, 2]], [[1, 1]], "The labels range from 2 to 1099511627776"),
        ([[0.5]], [[1]], "The labels are of type float64"),
        ([[1]], [[np.nan]], "A score of document 0 is nan"),
        ([[1]], [["high"]], "The scores are of type <U4"),
        ([[1, 2]], [[1]], "Found labels of shape (1, 2) and scores of shape (1, 1)"),
        ([1, 2], [1, 2], "Found labels of shape (2,)"),
    ],
)
def test_invalid_predictions_are_rejected(labels, scores, message):
    with pytest.raises(XmtcError) as error:
        Predictions(np.array(labels), np.array(scores))
    assert message in str(error.value)


def test_derived_predictions_are_not_validated_again():
    result = Predictions([[4, 2]], [[0.7, 0.2]])
    with patch("xmtc.core.predictions.validate_label_array", side_effect=AssertionError):
        assert result.apply_threshold(0.5).labels.tolist() == [[4, -1]]
        assert Predictions.stack([result, result]).n_docs == 2
        LINEAR.predict(DATA, run=ONE_THREAD)
        with pytest.raises(AssertionError):
            Predictions([[1]], [[1]])


def test_evaluation_rejects_unknown_labels():
    with pytest.raises(XmtcError, match="predictions contain label 2, but Y has 2 columns"):
        evaluate(Predictions([[2]], [[1]]), truth([[0]], 2), ["P@1"])


def test_indices_are_64_bit_above_the_32_bit_limit():
    """Lower the limit instead of building a matrix of 16 GB."""
    with patch.object(array_validation, "MAX_INDEX", 100):
        assert array_validation.as_csr(csr_array(X)).indices.dtype == np.int64
