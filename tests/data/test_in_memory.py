"""Documents and labels in memory: every type is read correctly, or rejected with a one-line error."""

from __future__ import annotations

import json
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix

from xmtc import Classifier, XmtcError, open_corpus
from xmtc.data.in_memory import (
    ARRAY,
    COLUMN,
    FRAME,
    LISTS,
    SPARSE,
    VECTOR,
    as_label_target,
    as_texts_or_matrix,
    to_documents,
)

BITS = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0], [1, 1, 1]])
BIT = st.integers(0, 1)
NAMED = [["0", "2"], ["1"], [], ["0", "1", "2"]]


def tensor(values):
    return pytest.importorskip("torch").tensor(np.asarray(values))


def frame(values, columns=("a", "b", "c")):
    return pytest.importorskip("pandas").DataFrame(values, columns=list(columns))


def polars_frame(values):
    return pytest.importorskip("polars").DataFrame(np.asarray(values), schema=["a", "b", "c"])


class TestIndicators:
    @pytest.mark.parametrize(
        ("make", "kind"),
        [
            (np.asarray, ARRAY),
            (lambda Y: Y.astype(bool), ARRAY),
            (lambda Y: Y.astype(np.float32), ARRAY),
            (lambda Y: Y.tolist(), ARRAY),
            (lambda Y: Y.astype(bool).tolist(), ARRAY),
            (lambda Y: Y.astype(float).tolist(), ARRAY),
            (lambda Y: tuple(map(tuple, Y)), ARRAY),
            (list, ARRAY),  # of arrays
            (tensor, ARRAY),
            (lambda Y: list(tensor(Y)), ARRAY),
            (lambda Y: [list(row) for row in tensor(Y)], ARRAY),
            (csr_array, SPARSE),
            (csr_matrix, SPARSE),
            (csc_array, SPARSE),
            (coo_array, SPARSE),
            (lambda Y: csr_array(Y.astype(bool)), SPARSE),
        ],
    )
    def test_all_types_give_the_same_result(self, make, kind):
        found = as_label_target(make(BITS))
        assert (found.kind, found.labels, found.columns) == (kind, NAMED, ["0", "1", "2"])
        assert found.has_integer_labels

    @pytest.mark.parametrize("make", [frame, polars_frame, lambda Y: frame(Y.astype(bool))])
    def test_frame_columns_are_label_names(self, make):
        found = as_label_target(make(BITS))
        assert found.kind == (ARRAY if make is polars_frame else FRAME)
        assert found.columns == ["a", "b", "c"]
        assert not found.has_integer_labels
        assert found.labels == [["a", "c"], ["b"], [], ["a", "b", "c"]]

    def test_numbered_frame_columns_are_label_names(self):
        found = as_label_target(frame(BITS, (7, 5, 3)))
        assert (found.columns, found.has_integer_labels) == (["7", "5", "3"], True)

    def test_trained_model_has_names_of_columns(self):
        assert as_label_target(BITS, ["x", "y", "z"]).labels == [["x", "z"], ["y"], [], ["x", "y", "z"]]

    @given(
        st.integers(2, 5).flatmap(lambda n: st.lists(st.lists(st.integers(0, 1), min_size=n, max_size=n), min_size=1))
    )
    def test_lists_of_bits_equal_their_array(self, rows):
        assert (
            as_label_target(rows)
            == as_label_target(np.array(rows))
            == as_label_target([tuple(map(bool, row)) for row in rows])
        )


class TestLists:
    @pytest.mark.parametrize(
        "y",
        [
            [["a", "b"], ["c"], []],
            (("a", "b"), ("c",), ()),
            [np.array(["a", "b"]), np.array(["c"]), np.array([], str)],
            np.array([["a", "b"], ["c"], []], object),
            iter([["a", "b"], ["c"], []]),
        ],
    )
    def test_lists_of_names_are_read(self, y):
        found = as_label_target(y)
        assert (found.kind, found.labels, found.has_integer_labels) == (LISTS, [["a", "b"], ["c"], []], False)

    def test_sets_of_names_are_sorted_because_their_order_depends_on_the_process(self):
        names = {f"label-{number}" for number in range(30)}
        assert as_label_target([names, frozenset(names)]).labels == [sorted(names)] * 2

    def test_frame_columns_of_lists_are_read(self):
        pandas = pytest.importorskip("pandas")
        column = pandas.Series([["a", "b"], ["c"], []])
        for y in (column, column.to_frame("labels")):
            assert as_label_target(y).labels == [["a", "b"], ["c"], []]

    @pytest.mark.parametrize("row", [[1, 7], [np.int64(1), np.int32(7)], [1.0, 7.0], (1, 7, 1), np.array([1, 7])])
    def test_lists_of_numbers_are_read(self, row):
        found = as_label_target([row, [3]])
        assert (found.labels, found.has_integer_labels) == ([["1", "7"], ["3"]], True)

    def test_lists_of_tensors_are_read(self):
        assert as_label_target([tensor([1, 7]), tensor([3])]).labels == [["1", "7"], ["3"]]

    def test_mixed_names_and_numbers_are_names(self):
        assert not as_label_target([["a", 1]]).has_integer_labels

    def test_label_numbers_0_and_1_in_lists_of_different_lengths(self):
        assert as_label_target([[0], [0, 1], []]).labels == [["0"], ["0", "1"], []]

    def test_one_number_per_document_in_a_column(self):
        for column in (np.array([[3], [1]]), frame([[3], [1]], ("subject",))):
            assert (as_label_target(column).kind, as_label_target(column).labels) == (COLUMN, [["3"], ["1"]])
        classifier = Classifier().fit(np.eye(6), np.array([[3], [1], [7]] * 2))
        assert classifier.predict(np.eye(6)).tolist() == [[3], [1], [7]] * 2

    @pytest.mark.parametrize("make", [np.array, lambda n: np.array(n, object), lambda n: frame(n, ("subject",))])
    def test_one_name_per_document_in_a_column(self, make):
        y = make([["fruit"], ["car"], ["tree"]] * 2)
        assert (as_label_target(y).kind, as_label_target(y).labels[:2]) == (COLUMN, [["fruit"], ["car"]])
        assert Classifier().fit(np.eye(6), y).predict(np.eye(6)).tolist() == np.asarray(y).tolist()

    @pytest.mark.parametrize(
        ("y", "columns", "has_integers"),
        [
            ([10, 2, 2], ["2", "10"], True),
            (np.array([10.0, 2.0, 2.0]), ["2", "10"], True),
            ([True, False, False], ["0", "1"], True),
            (np.array([1, 0, 0]), ["0", "1"], True),
            (["b", "a", "a"], ["a", "b"], False),
            (np.array(["b", "a", "a"]), ["a", "b"], False),
        ],
    )
    def test_one_label_per_document_in_a_vector(self, y, columns, has_integers):
        found = as_label_target(y)
        assert (found.kind, found.columns, found.has_integer_labels) == (VECTOR, columns, has_integers)
        assert found.labels == [[columns[1]], [columns[0]], [columns[0]]]


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        ([[0.5, 0.2], [0.1, 1.0]], "A label of document 0 is 0.5; expected a string, such as 'a', or a whole number"),
        (np.array([[0.5, 0.2]]), "Found 0.5 in a matrix of labels; expected only 0 and 1"),
        (np.array([[0, 2, 1]]), "Found 2 in a matrix of labels; expected only 0 and 1"),
        (np.array([[0, np.nan]]), "Found nan in a matrix of labels"),
        (
            csr_array(np.array([[0, 0.5]])),
            "Found 0.5 in a matrix of labels; expected only 0 and 1. Binarise weights, as in Y >= 0.5",
        ),
        (csr_array(np.array([[0, -1]])), "Found -1 in a matrix of labels"),
        (["a", ["b"]], "The labels of document 0 are 'a'; expected a list of labels, such as ['a', 'b']"),
        (["a", 1], "y has numbers and names; expected one label per document, either all numbers or all names"),
        (np.array([1, 2.5]), "A label of document 1 is 2.5; expected a string, such as 'a', or a whole number"),
        (np.array(["a", np.nan], object), "A label of document 1 is nan; expected a string"),
        ([{"a": 0.9}], "The labels of document 0 are {'a': 0.9}; expected a list of labels"),
        ([["a"], None], "The labels of document 1 are None; expected a list of labels"),
        ([[True, "a"]], "A label of document 0 is True; expected a string"),
        ([[["a"]]], "A label of document 0 is ['a']; expected a string"),
        ([[("a", 0.5)]], "A label of document 0 is ('a', 0.5); expected a string"),
        ([["a"], ["b", ""]], "The labels of document 1 contain an empty name, expected a list of names; remove it"),
        ([[np.str_("")]], "The labels of document 0 contain an empty name, expected a list of names"),
        (7, "Found 7 as labels; expected a list of labels for each document"),
        (np.zeros((2, 2, 2)), "A label of document 0 is"),
    ],
)
def test_ambiguous_labels_are_rejected(y, sentence):
    with pytest.raises(XmtcError) as raised:
        as_label_target(y)
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: tensor([[0.5, 0.0]]), "Found 0.5 in a matrix of labels"),
        (lambda: frame([[0.5, 0, 1]]), "Found 0.5 in a matrix of labels"),
        (lambda: frame([[1, 0, 1]], ("a", "b", "a")), "have the same name; expected a name for each label"),
        (lambda: frame([[1, 0, 1]], ("a", "", "b")), "A column of the labels' data frame has an empty name; expected"),
        (lambda: frame([["x", "y", "z"]]), "has values other than numbers; expected columns of 0 and 1"),
        (lambda: frame([[1, None, 1]]), "Found nan in a matrix of labels"),
    ],
)
def test_ambiguous_tensors_and_frames_are_rejected(make, sentence):
    y = make()
    with pytest.raises(XmtcError) as raised:
        as_label_target(y)
    assert sentence in str(raised.value)


@pytest.mark.parametrize(("labels", "is_right"), [(["a", ""], False), ([""], False), (["a", " "], True), ([], True)])
def test_empty_names_are_rejected_and_spaces_are_names(tmp_path, labels, is_right):
    (tmp_path / "c.jsonl").write_text(json.dumps({"text": "red apple", "labels": labels}) + "\n")
    for read in (lambda: open_corpus(tmp_path / "c.jsonl"), lambda: to_documents(["red apple"], [labels])):
        with nullcontext() if is_right else pytest.raises(XmtcError, match="an empty name, expected a list of names"):
            assert [document.labels for document in read()] == [labels]


def test_classifier_rejects_empty_names():
    with pytest.raises(XmtcError, match="The labels of document 0 contain an empty name"):
        Classifier(min_df=1).fit(["red apple", "green pear"], [[""], ["b"]])


class TestTexts:
    TEXTS = ("red apple", "green pear")

    @pytest.mark.parametrize(
        "make",
        [
            list,
            tuple,
            iter,
            np.array,
            lambda texts: np.array(texts, object),
            lambda texts: np.array(texts).reshape(-1, 1),
            lambda texts: pytest.importorskip("pandas").Series(texts),
            lambda texts: pytest.importorskip("pandas").Series(texts, index=["x", "y"], dtype="string"),
            lambda texts: pytest.importorskip("pandas").DataFrame({"text": texts}),
            lambda texts: pytest.importorskip("polars").Series(texts),
            lambda texts: pytest.importorskip("polars").DataFrame({"text": texts}),
        ],
    )
    def test_all_types_give_the_same_result(self, make):
        assert [document.text for document in to_documents(make(self.TEXTS))] == list(self.TEXTS)

    @pytest.mark.parametrize(
        ("make", "sentence"),
        [
            (lambda: "text", "Found one text where a list of texts was expected"),
            (lambda: ["a", None], "Document 1 is missing (None); expected a text"),
            (lambda: ["a", float("nan")], "Document 1 is missing (nan); expected a text"),
            (lambda: [b"a"], "Document 0 is a bytes; expected a text"),
            (lambda: [["red", "apple"]], "Document 0 is a list; expected a text"),
            (lambda: {"a": 1}, "Found a dict as X; expected a list of texts or a matrix of features"),
            (lambda: 5, "Found a int as X; expected a list of texts"),
            (
                lambda: frame([["t", "u", 1]], ("title", "abstract", "year")),
                "of 3 columns, of which 'title', 'abstract' hold texts; expected one column of texts, such as",
            ),
            (
                lambda: frame(np.array([["2020-01-01"]], "datetime64[s]"), ("day",)),
                "Column 'day' of X holds times; expected numbers",
            ),
            (lambda: [[1.0, 2.0], [3.0]], "The rows of X have from 1 to 2 numbers; expected equal lengths"),
        ],
    )
    def test_other_types_than_text_are_rejected(self, make, sentence):
        X = make()
        with pytest.raises(XmtcError) as raised:
            list(to_documents(X))
        assert sentence in str(raised.value)


class TestFeatures:
    X = np.eye(4, dtype=np.float64) * 3
    TAGS = (["a"], ["b"], ["a"], ["b"])

    @pytest.mark.parametrize(
        "make",
        [
            np.asarray,
            csr_array,
            csr_matrix,
            csc_array,
            coo_array,
            lambda X: X.tolist(),
            lambda X: X.astype(int),
            list,
            tensor,
            lambda X: frame(X, "wxyz"),
        ],
    )
    def test_all_types_give_the_same_result(self, make):
        assert not isinstance(as_texts_or_matrix(make(self.X)), list)
        classifier = Classifier().fit(make(self.X), self.TAGS)
        assert classifier.predict(make(self.X), k=1) == list(self.TAGS)
        assert classifier.score(make(self.X), self.TAGS) == 1.0

    def test_feature_columns_keep_their_names(self):
        classifier = Classifier().fit(frame(self.X, "wxyz"), self.TAGS)
        assert classifier.feature_names_in_.tolist() == list("wxyz")
        with pytest.raises(ValueError, match="feature names should match those that were passed during fit"):
            classifier.predict(frame(self.X, "abcd"))

    def test_training_on_texts_removes_feature_names(self):
        classifier = Classifier(min_df=1).fit(self.X, self.TAGS)
        assert classifier.n_features_in_ == 4
        classifier.fit(["red apple", "green pear"], [["a"], ["b"]])
        assert not hasattr(classifier, "n_features_in_")

    @pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e300])
    def test_missing_feature_values_are_rejected(self, wrong):
        X = self.X.copy()
        X[1, 2] = wrong
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            Classifier().fit(X, self.TAGS)


class TestMisreadInputs:
    """Inputs that could be silently misread."""

    TEXTS = tuple(f"{word} and more" for word in ("apple", "pear", "car", "bus") * 5)
    NUMBERS = tuple(i % 4 for i in range(20))

    def fit_numbers(self, y):
        return Classifier(n_trees=1).fit(self.TEXTS, y)

    @pytest.mark.parametrize("X", [np.eye(3), np.array(["red apple", "green pear", "blue plum"], object)])
    def test_masked_values_are_rejected(self, X):
        hidden = np.ma.masked_array(X, np.arange(X.size).reshape(X.shape) == 0)
        with pytest.raises(XmtcError, match="masked values"):
            as_texts_or_matrix(hidden)
        assert len(as_texts_or_matrix(np.ma.masked_array(X))) == 3
        with pytest.raises(XmtcError, match="masked values"):
            as_label_target(np.ma.masked_array(BITS, BITS == 1))

    def test_sets_are_rejected(self):
        with pytest.raises(XmtcError, match="Found a set as X"):
            as_texts_or_matrix({"red apple", "green pear"})
        with pytest.raises(XmtcError, match="as labels; expected a list of labels for each document"):
            as_label_target({("a",), ("b",)})

    def test_columns_beyond_the_last_are_rejected(self):
        X = csr_array(np.eye(4))
        X.indices[2] = 99
        with pytest.raises(XmtcError, match="with inconsistent arrays"):
            Classifier().fit(X, [["a"], ["b"]] * 2)

    def test_missing_first_text_is_an_error(self):
        with pytest.raises(XmtcError, match="Document 0 is missing"):
            Classifier().fit(frame([[None], ["a text"]], ("text",)), [["a"], ["b"]])

    def test_too_many_label_columns_are_rejected(self):
        with pytest.raises(XmtcError, match="y has 3,000,000,000 columns; expected at most"):
            as_label_target(csr_array((2, 3_000_000_000)))

    def test_zeros_and_ones_are_labels_of_a_model_trained_on_a_column(self):
        column = np.array(self.NUMBERS)[:, None]
        assert self.fit_numbers(column).score(self.TEXTS[:2], column[:2]) == 1

    def test_zeros_and_ones_are_labels_of_a_model_trained_on_lists_of_numbers(self):
        classifier = self.fit_numbers([[0, 1] if i % 2 else [1] for i in self.NUMBERS])
        assert classifier.evaluate(self.TEXTS[1:2], [[0, 1]], "P@2") == {"P@2": 1.0}

    def test_names_are_rejected_by_a_model_trained_on_an_array(self):
        Y = np.eye(4, dtype=int)[list(self.NUMBERS)]
        classifier = self.fit_numbers(Y)
        with pytest.raises(XmtcError, match="Found label names, such as 'a', but the model was trained on"):
            classifier.score(self.TEXTS, frame(Y, "abcd"))
        assert classifier.score(self.TEXTS, frame(Y, "0123")) == classifier.score(self.TEXTS, Y) == 1

    def test_training_on_texts_sets_no_n_features_in(self):
        classifier = Classifier(n_trees=1).fit(np.eye(20), [["a"], ["b"]] * 10)
        classifier.fit(list(to_documents(self.TEXTS, [["a"], ["b"]] * 10)))
        assert not hasattr(classifier, "n_features_in_")

    @pytest.mark.parametrize("weights", [[1] * 19, [-1] + [1] * 19, [np.nan] * 20, [0] * 20, 1.0])
    def test_score_validates_weights_like_training(self, weights):
        labels = [["a"], ["b"]] * 10
        with pytest.raises(XmtcError, match="weight"):
            self.fit_numbers(labels).score(self.TEXTS, labels, weights)
