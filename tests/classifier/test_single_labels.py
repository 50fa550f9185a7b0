"""One label per document: scikit-learn's contract of single-label classifiers, and its meta-estimators."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.metrics import accuracy_score
from sklearn.model_selection import StratifiedKFold, TunedThresholdClassifierCV, cross_val_score
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier

from xmtc import Classifier, Tagger

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(150, 6))
Y = (X[:, :3] > 0).astype(int)
TEXTS = ["apples and pears", "pears on trees", "a trip to the moon", "the moon and stars"] * 5
SUBJECTS = ["fruit", "fruit", "space", "space"] * 5
DISMEC = Classifier("dismec")


def test_vector_of_names_predicts_a_vector(tmp_path):
    classifier = Classifier().fit(TEXTS, SUBJECTS)
    assert classifier.predict(["pears", "moon"]).tolist() == ["fruit", "space"]
    assert classifier.predict(["nothing known"]).shape == (1,)
    assert classifier.classes_.tolist() == ["fruit", "space"]
    assert is_classifier(classifier)
    classifier.save(tmp_path / "model")
    loaded = Classifier.load(tmp_path / "model")
    assert loaded.predict(np.array(TEXTS)).tolist() == SUBJECTS
    assert Tagger.load(tmp_path / "model").predict_labels(["pears"], 1)[0][0].label == "fruit"


def test_scores_are_a_distribution_over_the_sorted_classes():
    y = np.array([10, 2, 7])[RANDOM.integers(0, 3, len(X))]
    classifier = clone(DISMEC).fit(X, y)
    scores = classifier.predict_proba(X)
    assert classifier.classes_.tolist() == [2, 7, 10]
    assert scores.shape == (len(X), 3)
    np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-5)
    assert (classifier.classes_[scores.argmax(axis=1)] == classifier.predict(X)).mean() > 0.99
    assert classifier.decision_function(X).shape == (len(X), 3)


def test_score_of_a_vector_is_the_accuracy():
    classifier = clone(DISMEC).fit(X[:100], Y[:100, 0])
    expected = accuracy_score(Y[100:, 0], classifier.predict(X[100:]))
    assert classifier.score(X[100:], Y[100:, 0]) == pytest.approx(expected)
    assert expected > 0.8
    assert classifier.decision_function(X).shape == (len(X),)
    assert ((classifier.decision_function(X) > 0) == classifier.predict(X)).all()


def test_booleans_are_the_classes_0_and_1():
    assert clone(DISMEC).fit(X, Y[:, 0].astype(bool)).classes_.tolist() == [0, 1]


def test_single_class_has_probability_1():
    classifier = clone(DISMEC).fit(X[:20], np.ones(20, int))
    assert classifier.predict_proba(X[:3]).tolist() == [[1.0]] * 3


def test_multi_output_trains_a_classifier_per_column():
    classifier = MultiOutputClassifier(DISMEC).fit(X[:100], Y[:100])
    assert (classifier.predict(X[100:]) == Y[100:]).mean() > 0.8
    assert [scores.shape for scores in classifier.predict_proba(X)] == [(len(X), 2)] * 3


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
def test_classifier_chain_trains_on_earlier_predictions(method):
    classifier = ClassifierChain(DISMEC, chain_method=method).fit(X[:100], Y[:100])
    assert (classifier.predict(X[100:]) == Y[100:]).mean() > 0.8
    assert classifier.predict_proba(X).shape == (len(X), 3)


def test_scikit_learn_tunes_the_threshold():
    tuned = TunedThresholdClassifierCV(DISMEC, scoring="f1", cv=3).fit(X, Y[:, 0])
    assert 0 < tuned.best_threshold_ < 1
    assert tuned.score(X, Y[:, 0]) > 0.8


@pytest.mark.parametrize("scoring", [None, "accuracy", "roc_auc"])
def test_cross_validation(scoring):
    scores = cross_val_score(DISMEC, X, Y[:, 0], scoring=scoring, cv=StratifiedKFold(3))
    assert scores.min() > 0.8


def test_cross_validation_of_texts_with_names():
    assert cross_val_score(Classifier(min_df=1), TEXTS, SUBJECTS, cv=2).tolist() == [1.0, 1.0]


def test_labels_of_documents_with_weight_0_are_removed():
    weights = np.ones(6)
    weights[4:] = 0
    lists = [["a"], ["b"], ["a"], ["b"], ["c"], ["c"]]
    classifier = Classifier("dismec").fit(X[:6], lists, weights)
    assert classifier.classes_.tolist() == ["a", "b"]
    alone = Classifier("dismec").fit(X[:4], lists[:4], weights[:4])
    np.testing.assert_array_equal(classifier.predict_proba(X), alone.predict_proba(X))
    assert classifier.tagger_.about["data"] == alone.tagger_.about["data"]


def test_classes_and_indicator_columns_of_documents_with_weight_0_are_kept():
    weights = np.ones(6)
    weights[4:] = 0
    single = Classifier("dismec").fit(X[:6], np.array([5, 6, 5, 6, 7, 7]), weights)
    assert single.classes_.tolist() == [5, 6, 7]
    assert (single.predict_proba(X)[:, 2] == 0).all()
    indicator = Classifier("dismec").fit(X[:6], np.eye(3, dtype=int)[[0, 1, 0, 1, 2, 2]], weights)
    assert indicator.predict(X).shape == (len(X), 3)


def test_column_names_are_saved_and_checked(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    classifier = clone(DISMEC).fit(frame, Y)
    classifier.save(tmp_path / "model")
    loaded = Classifier.load(tmp_path / "model")
    assert loaded.feature_names_in_.tolist() == list("abcdef")
    np.testing.assert_array_equal(loaded.predict_proba(frame), classifier.predict_proba(frame))
    for trained in (classifier, loaded):
        with pytest.raises(
            ValueError, match="column 1 is 'c', expected 'b'; give the columns in the order of training"
        ):
            trained.predict(frame[list("acbdef")])
        with pytest.raises(ValueError, match="seen at fit time, yet now missing"):
            trained.predict(frame[list("abcde")])
    loaded.fit(X, Y)
    assert not hasattr(loaded, "feature_names_in_")
    assert "feature_names" not in loaded.tagger_.about


def test_number_of_column_names_is_checked(tmp_path):
    pandas = pytest.importorskip("pandas")
    classifier = clone(DISMEC).fit(pandas.DataFrame(X, columns=list("abcdef")), Y)
    classifier.tagger_.about["feature_names"].pop()
    classifier.save(tmp_path / "model")
    with pytest.raises(ValueError, match="is damaged: it has 6 columns and 5 names of columns"):
        Classifier.load(tmp_path / "model")
