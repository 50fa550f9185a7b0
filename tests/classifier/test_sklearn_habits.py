"""Habits of scikit-learn users: n_jobs, random_state, class_weight, coef_, metadata routing and the HTML display."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from planted import make_planted_corpus
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import KFold, cross_validate

from xmtc import Classifier, Run, XmtcError

TEXTS, TAGS = make_planted_corpus(150, seed=0)


def trained_seed(classifier: Classifier) -> int:
    return classifier.tagger_.about["parameters"]["seed"]


def test_random_state_is_the_seed():
    classifier = clone(Classifier("plt", random_state=7, n_jobs=2))
    assert classifier.get_params(deep=False) == {"method": "plt", "random_state": 7, "n_jobs": 2}
    assert repr(classifier) == "Classifier('plt', n_jobs=2, random_state=7)"
    assert trained_seed(classifier.fit(TEXTS, TAGS)) == 7
    assert trained_seed(Classifier("plt", random_state=None).fit(TEXTS, TAGS)) == 0
    assert trained_seed(Classifier("plt", random_state=7, seed=3).fit(TEXTS, TAGS)) == 3
    Classifier("dismec", random_state=np.int64(7)).fit(TEXTS, TAGS)  # a method without seed


@pytest.mark.parametrize(("n_jobs", "threads"), [(None, 0), (1, 1), (3, 3), (-1, Run().n_threads)])
def test_n_jobs_are_the_threads(n_jobs, threads):
    assert Classifier(n_jobs=n_jobs)._apply_jobs(Run()).threads == threads
    assert Classifier(n_jobs=n_jobs)._apply_jobs(Run(threads=5)).threads == 5


@pytest.mark.parametrize("parameters", [{"n_jobs": 0}, {"n_jobs": "all"}, {"random_state": -1}, {"random_state": 0.5}])
def test_values_without_meaning_are_refused(parameters):
    with pytest.raises(XmtcError, match=next(iter(parameters))):
        Classifier(**parameters)


def test_class_weight_has_a_hint():
    with pytest.raises(XmtcError, match="sample_weight"):
        Classifier("dismec", class_weight="balanced")


def test_coefficients_give_the_scores():
    X = TfidfVectorizer().fit_transform(TEXTS)
    classifier = Classifier("dismec", calibrate=False).fit(X, TAGS)
    margins = X @ classifier.coef_.T.toarray() + classifier.intercept_
    assert classifier.coef_.shape == (len(classifier.classes_), X.shape[1])
    np.testing.assert_allclose(classifier.predict_proba(X), 1 / (1 + np.exp(-margins)), atol=1e-5)
    for other in (Classifier("parabel"), Classifier("fastxml", n_trees=2)):
        assert not hasattr(other.fit(TEXTS, TAGS), "coef_")


def test_sample_weight_is_routed():
    weights = np.tile([1.0, 0.0], len(TEXTS) // 2)
    with sklearn.config_context(enable_metadata_routing=True):
        classifier = Classifier("dismec", calibrate=False)
        classifier.set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        routed = cross_validate(
            classifier, TEXTS, TAGS, cv=KFold(2), params={"sample_weight": weights}, return_estimator=True
        )
    half = len(TEXTS) // 2
    second = TEXTS[half:], TAGS[half:]
    direct = Classifier("dismec", calibrate=False).fit(*second, sample_weight=weights[half:])
    equal = Classifier("dismec", calibrate=False).fit(*second)
    first = routed["estimator"][0]
    assert (first.predict_proba(TEXTS) == direct.predict_proba(TEXTS)).all()
    assert (
        first.classes_.tolist() != equal.classes_.tolist()
        or (first.predict_proba(TEXTS) != equal.predict_proba(TEXTS)).any()
    )


def test_html_shows_the_estimator():
    html = Classifier("plt", arity=4)._repr_html_()
    assert "Classifier" in html
    assert "arity" in html
