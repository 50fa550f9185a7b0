"""Tests of the Classifier as a scikit-learn estimator and in common use."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from planted import make_planted_corpus
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from xmtc import Classifier, Tagger, XmtcError
from xmtc.data.document import Document

TEXTS, TAGS = make_planted_corpus(200, seed=0)


def frame(columns: dict):
    return pytest.importorskip("pandas").DataFrame(columns)


CLOSE = "the solver ends when it is close enough (eps), the check compares to 1e-7; see test_document_weights.py"
CANNOT_APPLY = {
    "check_fit_score_takes_y": "partial_fit after fit needs the documents that fit keeps with keep_training=True",
    "check_do_not_raise_errors_in_init_or_set_params": "a wrong parameter is refused when it is set, not at fit",
    "check_sample_weight_equivalence_on_dense_data": CLOSE,
    "check_sample_weight_equivalence_on_sparse_data": CLOSE,
}


@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_estimator_checks():
    results = check_estimator(Classifier(), expected_failed_checks=CANNOT_APPLY, on_fail=None, on_skip=None)
    assert {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"} == {}
    assert sum(result["status"] == "passed" for result in results) >= 44  # one more in newer versions


def test_predictions_of_names_survive_pickling_refitting_and_reordering():
    classifier = Classifier(max_leaf=10).fit(TEXTS, TAGS)
    answer = classifier.predict(TEXTS[:30])
    assert pickle.loads(pickle.dumps(classifier)).predict(TEXTS[:30]) == answer
    assert classifier.fit(TEXTS, TAGS).predict(TEXTS[:30]) == answer
    assert classifier.predict(TEXTS[29::-1]) == answer[::-1]
    assert [classifier.predict([text])[0] for text in TEXTS[:30]] == answer


def test_parameters_travel_through_clone():
    classifier = Classifier("parabel", n_trees=2, ngrams=2)
    copy = clone(classifier)
    assert copy.get_params() == classifier.get_params()
    assert copy.get_params()["n_trees"] == 2
    assert copy.get_params()["beam"] == 10  # default values are not set explicitly


def test_grid_search_and_cross_validation():
    search = GridSearchCV(Classifier(n_trees=1, max_leaf=10), {"C": [1e-6, 1.0], "min_df": [1, 2]}, cv=KFold(3))
    search.fit(TEXTS, TAGS)
    assert search.best_params_["C"] == 1.0
    assert search.best_score_ > 0.8
    assert search.predict(TEXTS[:1]) == search.best_estimator_.predict(TEXTS[:1])
    assert cross_val_score(Classifier(n_trees=1), TEXTS, TAGS, cv=KFold(2)).shape == (2,)


def test_classifier_is_the_last_step_of_a_pipeline():
    pipeline = Pipeline(
        [("strip", FunctionTransformer(lambda texts: [t.strip() for t in texts])), ("tag", Classifier())]
    )
    assert len(pipeline.fit(TEXTS, TAGS).predict(TEXTS[:2])) == 2


def test_arrays_and_series_of_texts_are_texts():
    from_list = Classifier().fit(TEXTS, TAGS).predict(TEXTS[:3])
    assert Classifier().fit(np.array(TEXTS, object), TAGS).predict(np.array(TEXTS[:3])) == from_list


def test_features_are_accepted_instead_of_texts():
    X = csr_array(np.eye(6, dtype=np.float64).repeat(3, axis=0) * 7)
    tags = [[f"l{i // 3}"] for i in range(18)]
    classifier = Classifier().fit(X, tags)
    assert classifier.predict(X, k=1) == tags
    assert classifier.predict(X.toarray(), k=1) == tags
    indicator = np.eye(6, dtype=int).repeat(3, axis=0)
    assert (Classifier().fit(X, indicator).predict(X, k=1) == indicator).all()
    assert (Classifier().fit(X, csr_array(indicator)).predict(X, k=1) != csr_array(indicator)).nnz == 0
    with pytest.raises(ValueError, match="X has 5 features, but Classifier is expecting 6 features as input"):
        classifier.predict(X[:, :5])
    with pytest.raises(XmtcError, match="holds texts, but this model reads features"):
        classifier.predict(["text"])
    with pytest.raises(XmtcError, match="features without words"):
        classifier.explain("text", "l1")


def test_columns_without_labels_in_training_are_kept(tmp_path):
    X = csr_array(np.eye(4, 9, dtype=np.float32))
    classifier = Classifier().fit(X, [["a"], ["b"]] * 2)
    assert classifier.n_features_in_ == 9
    classifier.save(tmp_path / "model")
    for each in (classifier, Classifier.load(tmp_path / "model")):
        assert len(each.predict(X)) == 4
        assert each.evaluate(X, [["a"], ["b"]] * 2, ["P@1"]) == {"P@1": 1.0}
    wider = [Document("0", "", [], (np.array([0, 20], np.int32), np.ones(2, np.float32)))]
    assert classifier.tagger_.transform(wider).X.shape == (1, 9)
    empty = Classifier().fit(csr_array((4, 9), dtype=np.float32), [["a"], ["b"]] * 2)
    assert empty.n_features_in_ == 9


def test_stored_zeros_are_not_labels():
    indicator = csr_array((np.array([1, 0, 1, 0]), np.array([0, 1, 1, 0]), np.array([0, 2, 4])), shape=(2, 2))
    classifier = Classifier(min_df=1).fit(["red apple", "green pear"], indicator)
    assert classifier.tagger_.frequencies.tolist() == [1, 1]
    assert indicator.nnz == 4  # the matrix of the caller is not changed


def test_matrices_use_32_bit_types():
    classifier = Classifier().fit(csr_array(np.eye(4, dtype=np.float32)), TAGS[:4])
    X = classifier.tagger_.transform([Document("0", "", [], (np.array([1], np.int32), np.ones(1, np.float32)))]).X
    _, Y, _ = classifier.tagger_.transform_labelled(
        [Document("0", "", ["x"], (np.zeros(0, np.int32), np.zeros(0, np.float32)))]
    )
    assert {part.dtype for part in (X.indices, X.indptr, Y.indices, Y.indptr)} == {np.dtype(np.int32)}


def test_threshold_and_scores():
    classifier = Classifier().fit(TEXTS, TAGS)
    tags = classifier.predict_labels(TEXTS[:20], k=10, threshold=0.3)
    assert all(tag.score >= 0.3 for row in tags for tag in row)
    assert any(len(row) < 10 for row in tags)
    assert classifier.predict(TEXTS[:20], k=10, threshold=0.3) == [[tag.label for tag in row] for row in tags]


def test_model_folder_loads_as_classifier_and_as_tagger(tmp_path):
    Classifier(n_trees=2, min_df=1).fit(TEXTS, TAGS).save(tmp_path / "model")
    assert Classifier.load(tmp_path / "model").get_params()["n_trees"] == 2
    assert len(Tagger.load(tmp_path / "model").predict_labels(["noise1"], k=3)[0]) == 3


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        (lambda: Classifier("parable"), "There is no method 'parable'. Did you mean parabel?"),
        (lambda: Classifier(n_tree=3), "parabel has no parameter 'n_tree'; did you mean n_trees?"),
        (lambda: Classifier().set_params(quux=1), "parabel has no parameter 'quux'; it has n_trees, max_leaf"),
        (
            lambda: Classifier(n_trees=0),
            "n_trees=0 is invalid; expected a whole number from 1 to 1000",
        ),
        (lambda: Classifier(C="much"), "C='much' is invalid; expected a number from 1e-06 to 1000000000.0"),
        (lambda: Classifier().fit("text", [["a"]]), "Found one text where a list of texts was expected"),
        (lambda: Classifier().fit(["a", "b"], [["x"]]), "Found 2 documents and 1 lists of labels"),
        (lambda: Classifier().fit([1, 2], [["x"], ["y"]]), "Document 0 is a int; expected a text"),
        (lambda: Classifier().fit(["a b", "a b"], ["x", ["y"]]), "The labels of document 0 are 'x'; expected a list"),
        (lambda: Classifier().fit(["a b", None], [["x"], ["y"]]), "Document 1 is missing (None); expected a text"),
        (lambda: Classifier().fit(np.array([[None], ["a"]]), [["x"], ["y"]]), "Document 0 is missing (None)"),
        (
            lambda: Classifier().fit(frame({"text": ["a b", float("nan")]}), [["x"], ["y"]]),
            "Document 1 is missing (nan); expected a text",
        ),
        (
            lambda: Classifier().fit([[1.0, 2.0], [3.0, float("nan")]], [["x"], ["y"]]),
            "X has NaN in row 1, column 1; expected finite numbers",
        ),
        (
            lambda: Classifier().fit(csr_array([[1.0, 0.0], [0.0, -np.inf]]), [["x"], ["y"]]),
            "X has -inf (infinity) in row 1, column 1; expected finite numbers",
        ),
        (
            lambda: Classifier().fit(frame({"a": [1, 2], "b": [None, 3.0]}), [["x"], ["y"]]),
            "X has NaN in row 0, column 'b'; expected finite numbers",
        ),
        (lambda: Classifier().fit(["a b"], [["x", None]]), "A label of document 0 is None; expected a string"),
        (lambda: Classifier().fit(["a b"], [[float("nan")]]), "A label of document 0 is nan; expected a string"),
        (
            lambda: Classifier().fit(["a b"], [[np.float32("nan")]]),
            "A label of document 0 is nan; expected",
        ),
        (lambda: Classifier().fit(["a b"], [[b"x"]]), "A label of document 0 is b'x'; expected a string"),
        (lambda: Classifier().fit(["a b"], [["\ud83d"]]), "A label of document 0 is '\\ud83d'; expected a string"),
        (lambda: Classifier().fit([], []), "The training corpus holds no documents"),
        (lambda: Classifier().fit(["a text", "a text"], [[], []]), "None of the 2 training documents has a label"),
        (lambda: Classifier().fit(TEXTS, TAGS).rank(TEXTS, k=0), "k=0 is not positive"),
        (lambda: Classifier().fit(TEXTS, TAGS).rank(TEXTS, k=2.5), "k=2.5 is not an integer"),
        (lambda: Classifier().fit(TEXTS, TAGS).predict(TEXTS, k="5"), "k='5' is not an integer"),
        (lambda: Classifier().fit(TEXTS, TAGS).explain("text", "nope"), "The model has no label 'nope'"),
        (
            lambda: Classifier().fit(TEXTS, TAGS).explain(["text"], "label-01"),
            "Found a list to explain, expected one text",
        ),
        (
            lambda: Classifier().fit(TEXTS, TAGS).tagger_.predict_labels("text"),
            "Found one text where a list of texts was expected",
        ),
        (
            lambda: Classifier().fit(TEXTS, TAGS).tagger_.predict_labels(["text", None]),
            "Text 1 is missing (None); expected a string",
        ),
        (lambda: Classifier().fit(TEXTS, TAGS).evaluate(TEXTS, TAGS, ["P@x"]), "P@x"),
    ],
)
def test_errors_name_the_mistake(action, sentence):
    with pytest.raises(XmtcError) as raised:
        action()
    assert sentence in str(raised.value)


def test_untrained_classifier_raises():
    with pytest.raises(NotFittedError, match="not trained yet"):
        Classifier().predict(["text"])
