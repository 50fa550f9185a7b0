"""Stacked combinations: trees as arrays, folds, selection of the ranker, and views of single members."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from planted import make_planted_corpus
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier

from xmtc import Classifier, Tagger, XmtcError
from xmtc.analyzer_selection import AnalyzerChoice
from xmtc.core.dataset import Dataset
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.data.in_memory import to_documents
from xmtc.evaluation import evaluate
from xmtc.maintenance.update import find_calibrated, update_tagger
from xmtc.methods import Consensus, DiSMEC, Parabel, Stacked
from xmtc.methods.ensemble.boosted_trees import LEAF, BoostedTrees
from xmtc.methods.ensemble.calibrated_model import CalibratedModel
from xmtc.methods.ensemble.candidates import (
    CANDIDATE_LABELS,
    build_features,
    collect_candidates,
    mark_correct,
    rank_candidates,
    round_frequencies,
)
from xmtc.methods.ensemble.model import RemappedModel
from xmtc.methods.ensemble.stacked import NO_FOLD, RankerExamples, assign_folds, choose_fold_number, select_ranker
from xmtc.methods.ensemble.stacked_model import StackedModel
from xmtc.name_documents import fit_view_with_names
from xmtc.parameters import method_from_json, parameters_from_about
from xmtc.pipeline import Pipeline

ONE = Run(threads=1, device="cpu")
TRAIN, TEST = make_planted_corpus(300, seed=1), make_planted_corpus(80, seed=2)
VIEWS = {"members": ("parabel", "parabel", "dismec"), "parabel.n_trees": 1, "parabel-2.n_trees": 1, "min_df": 1}
OWN_VIEWS = {"parabel-2.analyzer": "chars", "dismec.analyzer": "chars", "folds": 2}


def make_trees(seed: int = 0) -> tuple[HistGradientBoostingClassifier, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(600, 4)).round(1)
    y = X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=600) > 0
    classifier = HistGradientBoostingClassifier(max_iter=20, max_leaf_nodes=6, early_stopping=False)
    return classifier.fit(X, y), rng.normal(size=(5000, 4)).round(1)


def evaluate_slowly(trees: BoostedTrees, row: np.ndarray) -> float:
    """NumPy twin of `add_tree_values` for one row."""
    total = trees.baseline
    for root in trees.roots:
        node = int(root)
        while trees.features[node] != LEAF:
            side = trees.left if row[trees.features[node]] <= trees.thresholds[node] else trees.right
            node = int(side[node])
        total += trees.values[node]
    return total


@pytest.mark.parametrize("method", ["stacked", "auto"])
def test_labels_without_documents_are_predicted_by_their_names(method, tmp_path):
    texts, labels = TRAIN
    (tmp_path / "names.tsv").write_text("".join(f"{label}\tlabel {label}\n" for label in {*chain(*labels), "zebra"}))
    options = {"members": ("parabel", "dismec"), "folds": 2, "parabel.n_trees": 1} if method == "stacked" else {}
    options |= {"vocabulary": str(tmp_path / "names.tsv"), "name_documents": "always", "name_weight": 3.0}
    classifier = Classifier(method, min_df=1, name_length=1.0, **options).fit(texts, labels, run=ONE)
    assert classifier.predict(["a zebra"], k=1) == [["zebra"]]
    tagger = classifier.tagger_
    assert tagger.frequencies.sum() == sum(map(len, labels))
    assert tagger.about["n_docs"] == len(texts)


def test_names_are_documents_of_some_members_and_matched_by_others(tmp_path):
    texts, labels = TRAIN
    (tmp_path / "names.tsv").write_text("".join(f"{label}\tlabel {label}\n" for label in {*chain(*labels), "zebra"}))
    vocabulary = str(tmp_path / "names.tsv")
    options = {"members": ("dismec", "lexical", "fastxml"), "folds": 2, "fastxml.n_trees": 2, "min_df": 1}
    names = {"vocabulary": vocabulary, "lexical.vocabulary": vocabulary, "name_documents": "always"}
    tagger = Classifier("stacked", **options, **names).fit(texts, labels, run=ONE).tagger_
    documents = tagger.transform(["label zebra"])
    linear, lexical, forest = tagger.model.model.models
    for model, finds_zebra in ((linear, True), (lexical, True), (forest, False)):
        found = model.predict(documents.keep_views(model.views), 3, ONE).labels[0]
        assert (tagger.labels.find("zebra") in found) == finds_zebra
    again = tagger.predict(["label zebra"], 1, run=ONE)
    tagger.save(tmp_path / "model")
    np.testing.assert_array_equal(
        Tagger.load(tmp_path / "model").predict(["label zebra"], 1, run=ONE).scores, again.scores
    )


def test_each_view_keeps_its_selected_analyzer_beside_names(monkeypatch):
    def choose(view, *_):
        return AnalyzerChoice("words" if view.ngrams > 1 else "chars", "for the test")

    def fit(view, *rest):
        fitted.append(view.analyzer)
        return fit_view_with_names(view, *rest)

    fitted: list[str] = []
    monkeypatch.setattr("xmtc.pipeline.select_analyzer", choose)
    monkeypatch.setattr("xmtc.pipeline.fit_view_with_names", fit)
    names = {"name_documents": "always", "name_weight": 3.0, "name_length": 0.3}
    members = {"members": ("dismec", "dismec"), "dismec-2.ngrams": 2, "min_df": 1}
    pipeline = Pipeline.from_parameters("stacked", parameters=names | members)
    prepared = pipeline.prepare(list(to_documents(*TRAIN)), ONE)
    assert fitted == ["chars", "words"]
    assert prepared.describe_training(pipeline.method)["chosen"]["analyzer"] == "chars"


def test_weights_of_documents_are_refused_also_beside_names():
    texts, labels = TRAIN
    options = {"name_documents": "always", "name_weight": 3.0, "name_length": 1.0, "folds": 2}
    classifier = Classifier("stacked", members=("parabel", "dismec"), min_df=1, **options)
    weights = np.ones(len(texts))
    classifier.fit(texts, labels, sample_weight=weights, run=ONE)
    weights[0] = 2
    with pytest.raises(XmtcError, match="does not support document weights"):
        classifier.fit(texts, labels, sample_weight=weights, run=ONE)


@pytest.mark.parametrize("threads", [1, 2])
def test_trees_equal_scikit_learn_and_the_reference(threads):
    classifier, X = make_trees()
    trees = BoostedTrees.from_classifier(classifier)
    trees.check()
    found = trees.predict_proba(X, Run(threads=threads))
    np.testing.assert_allclose(found, classifier.predict_proba(X)[:, 1], rtol=1e-12)
    slow = np.array([evaluate_slowly(trees, row) for row in X[:200]])
    np.testing.assert_allclose(found[:200], 1 / (1 + np.exp(-slow)), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("left", lambda values: np.zeros_like(values)),  # a cycle
        ("right", lambda values: values + 10_000),
        ("features", lambda values: values + 4),
        ("roots", lambda values: values - 1),
        ("values", lambda values: values[:-1]),
    ],
)
def test_damaged_trees_are_refused(name, spoil):
    trees = BoostedTrees.from_classifier(make_trees()[0])
    with pytest.raises(ValueError, match=r"left or right|features|roots|lengths"):
        replace(trees, **{name: spoil(getattr(trees, name))}).check()


def test_candidates_by_hand():
    one = Predictions([[4, 2], [1, NO_LABEL]], [[0.5, 0.25], [0.5, 0.0]])
    other = Predictions([[2, 3], [1, 0]], [[0.75, 0.5], [0.5, 0.25]])
    found = collect_candidates([one, other], 5)
    assert found.documents.tolist() == [0, 0, 0, 1, 1]
    assert found.labels.tolist() == [2, 3, 4, 0, 1]
    assert found.scores.tolist() == [[0.25, 0.75], [0, 0.5], [0.5, 0], [0, 0.25], [0.5, 0.5]]
    missing = CANDIDATE_LABELS
    assert found.ranks.tolist() == [[1, 0], [missing, 1], [0, missing], [missing, 1], [0, 0]]
    assert mark_correct(found, csr_array([[0, 0, 1, 0, 1], [1, 0, 0, 0, 0]])).tolist() == [
        True,
        False,
        True,
        True,
        False,
    ]
    X = build_features(found, np.array([3.0, 2, 1, 0, 5]))
    np.testing.assert_allclose(X[4], [0, 0, 0, 0, 0, 2, 5], atol=1e-12)
    ranked = rank_candidates(found, np.array([0.1, 0.3, 0.3, 0.9, 0.2]), 3, 2)
    assert ranked.labels.tolist() == [[3, 4], [0, 1], [NO_LABEL, NO_LABEL]]
    np.testing.assert_allclose(ranked.scores, [[0.3, 0.3], [0.9, 0.2], [0, 0]], rtol=1e-6)
    assert round_frequencies(np.array([0, 1, 3, 3])).tolist() == [0, 2, 4, 4]


def test_equal_documents_are_in_one_fold():
    X = np.repeat(np.eye(30), 3, axis=0)
    folds = assign_folds(Dataset.from_matrix(X, np.ones((90, 1))), 3, seed=0)
    assert (folds.reshape(30, 3) == folds.reshape(30, 3)[:, :1]).all()
    assert np.bincount(folds).tolist() == [30, 30, 30]
    is_name = np.arange(90) >= 80
    with_names = Dataset.from_matrix(X, np.ones((90, 1)))
    folds = assign_folds(replace(with_names, is_name=is_name), 3, seed=0)
    assert (folds[is_name] == NO_FOLD).all()
    assert folds[~is_name].min() == 0
    assert [choose_fold_number(n) for n in (500, 10_000, 30_000)] == [5, 3, 2]


def test_folds_of_dense_features():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(250, 10))
    assert set(np.bincount(assign_folds(Dataset.from_matrix(X, np.ones((250, 1))), 5, seed=0))) == {50}
    Y = (X @ rng.normal(size=(10, 4)) > 1).astype(int)
    classifier = Classifier("stacked", members=("parabel", "dismec"), folds=2).fit(X, Y, run=ONE)
    assert classifier.evaluate(X, Y, ["P@1"])["P@1"] > 0.5


def test_too_few_different_documents_are_divided_by_row():
    folds = assign_folds(Dataset.from_matrix(np.ones((90, 3)), np.ones((90, 1))), 3, seed=0)
    assert np.bincount(folds).tolist() == [30, 30, 30]


def make_examples(is_complementary: bool) -> RankerExamples:
    """Return predictions of two members; each knows half of the labels, or both know the same."""
    rng, n_docs, n_labels = np.random.default_rng(0), 600, 40
    truth = rng.integers(n_labels, size=n_docs)
    Y = csr_array((np.ones(n_docs, np.float32), (np.arange(n_docs), truth)), shape=(n_docs, n_labels))
    held_out = []
    for member in range(2):
        scores = rng.random((n_docs, n_labels))
        is_known = truth % 2 == member if is_complementary else np.ones(n_docs, bool)
        scores[np.flatnonzero(is_known), truth[is_known]] += 0.3
        labels = np.argsort(-scores, axis=1)[:, :CANDIDATE_LABELS]
        best = np.take_along_axis(scores, labels, axis=1) / 1.4
        held_out.append(Predictions(labels, best) if is_complementary or not held_out else held_out[0])
    return RankerExamples.sample(Dataset.from_matrix(np.eye(n_docs), Y), held_out, np.arange(n_docs) % 2, seed=0)


def test_ranker_is_selected_if_it_is_better():
    selection = select_ranker(make_examples(is_complementary=True), 0, ONE)
    assert selection.is_better
    assert selection.ranker_score > selection.member_score + 0.02
    assert selection.describe(["a", "b"]).startswith("ranker of the scores of a, b: nDCG@5 of 600 held-out documents")


def test_best_member_is_selected_if_the_ranker_is_not_better():
    examples = make_examples(is_complementary=False)
    selection = select_ranker(examples, 0, ONE)
    assert not selection.is_better
    assert selection.predictions is examples.members[selection.best_member]
    assert selection.describe(["a", "b"]).startswith("a alone, because the ranker is not significantly better")


def force_ranker(monkeypatch, is_better: bool) -> None:
    monkeypatch.setattr("xmtc.methods.ensemble.stacked.MIN_GAIN_STANDARD_ERRORS", -1e9 if is_better else 1e9)


@pytest.fixture(params=[True, False], ids=["ranker", "member"])
def trained(request, monkeypatch):
    force_ranker(monkeypatch, request.param)
    return request.param, Classifier("stacked", **VIEWS, **OWN_VIEWS).fit(*TRAIN, run=ONE)


def test_members_have_views_of_their_own(trained, tmp_path):
    has_ranker, classifier = trained
    about = classifier.tagger_.about
    assert {name: view["analyzer"] for name, view in about["views"].items()} == {"tfidf": "auto", "tfidf-2": "chars"}
    assert about["scores"]["are"] == "probabilities"
    assert ("ranker of the scores of" in about["scores"]["because"]) == has_ranker
    model = classifier.tagger_.model
    assert isinstance(model, CalibratedModel)
    assert isinstance(model.model, StackedModel) == has_ranker
    if has_ranker:
        assert [set(member.views) for member in model.model.models] == [{"tfidf"}, {"tfidf-2"}, {"tfidf-2"}]
        assert isinstance(model.model.models[2], RemappedModel)
    assert set(classifier.tagger_.views) == set(model.views) == set(about["sizes"])
    assert classifier.evaluate(*TEST, ["P@1"], run=ONE)["P@1"] > 0.9
    classifier.save(tmp_path / "model")
    loaded = Tagger.load(tmp_path / "model", verify=True)
    found = loaded.predict(TEST[0], 7, ONE)
    expected = classifier.rank(TEST[0], 7, ONE)
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_array_equal(found.scores, expected.scores)
    explanation = classifier.explain(TEST[0][0], classifier.predict(TEST[0][:1])[0][0])
    assert explanation


def test_parameters_of_views_are_saved_and_repeated(trained):
    classifier = trained[1]
    about = classifier.tagger_.about
    stored = parameters_from_about(about)
    assert stored["member_views"] == ("dismec.analyzer=chars", "parabel-2.analyzer=chars")
    assert "analyzer" not in stored
    again = Pipeline.from_parameters("stacked", "texts", stored)
    assert again == Pipeline.from_parameters("stacked", "texts", VIEWS | OWN_VIEWS)
    assert method_from_json(about) == again.method
    copy = clone(classifier)
    assert copy.get_params()["dismec.analyzer"] == "chars"
    assert copy.get_params()["parabel.analyzer"] == "auto"


def test_own_views_of_features_are_saved_and_repeated(tmp_path):
    X = np.random.default_rng(0).random((60, 8))
    labels = [[str(number)] for number in X.argmax(axis=1)]
    parameters = {"members": ("parabel", "dismec"), "dismec.unit_length": False, "parabel.n_trees": 1}
    classifier = Classifier("stacked", **parameters).fit(X, labels, run=ONE)
    about = classifier.tagger_.about
    assert {name: view["unit_length"] for name, view in about["views"].items()} == {"columns": True, "columns-2": False}
    assert "unit_length" not in parameters_from_about(about)
    classifier.save(tmp_path / "model")
    again = clone(Classifier.load(tmp_path / "model")).fit(X, labels, run=ONE)
    assert again.tagger_.about["views"] == about["views"]


def test_views_of_a_consensus():
    parameters = {"members": ("parabel", "dismec"), "dismec.ngrams": 2, "parabel.n_trees": 1, "min_df": 1}
    pipeline = Pipeline.from_parameters("consensus", "texts", parameters)
    assert {name: view.ngrams for name, view in pipeline.views.items()} == {"tfidf": 1, "tfidf-2": 2}
    assert all(view.min_df == 1 for view in pipeline.views.values())
    changed = pipeline.with_parameters({"dismec.ngrams": 3, "sublinear_tf": False})
    assert {name: (view.ngrams, view.sublinear_tf) for name, view in changed.views.items()} == {
        "tfidf": (1, False),
        "tfidf-2": (3, False),
    }
    classifier = Classifier("consensus", **parameters).fit(*TRAIN, run=ONE)
    assert len(classifier.tagger_.views) == 2
    assert classifier.evaluate(*TEST, ["P@1"], run=ONE)["P@1"] > 0.9


def test_equal_views_are_shared():
    method = Stacked((DiSMEC(), Parabel(), DiSMEC()), member_views=("dismec.min_df=1", "dismec-2.min_df=1"))
    assert method.required_views == ("tfidf", "tfidf-2")
    assert method.view_names == [{"tfidf": "tfidf"}, {"tfidf": "tfidf-2"}, {"tfidf": "tfidf"}]
    assert Consensus((DiSMEC(), Parabel())).required_views == ("tfidf",)


@pytest.mark.parametrize(
    ("views", "message"),
    [
        (("bonsai.analyzer=chars",), "expected MEMBER.NAME=VALUE with one of the members dismec, parabel"),
        (("dismec.analyser=chars",), "The member dismec has no view parameter 'analyser'"),
        (("dismec.analyzer",), "is invalid"),
    ],
)
def test_wrong_views_of_members_are_refused(views, message):
    with pytest.raises(XmtcError, match=message):
        Stacked((DiSMEC(), Parabel()), member_views=views)


def test_wrong_parameters_of_members_are_refused():
    with pytest.raises(XmtcError, match="dismec has no parameter 'analyser'"):
        Classifier("stacked", members=("dismec", "parabel"), **{"dismec.analyser": "chars"})
    with pytest.raises(XmtcError, match="at least two"):
        Stacked((DiSMEC(),))
    with pytest.raises(XmtcError, match="folds=1"):
        Stacked(folds=1)


def test_few_documents_train_the_first_member_alone():
    texts, tags = make_planted_corpus(60, seed=1)
    classifier = Classifier("stacked", **VIEWS, **OWN_VIEWS).fit(texts, tags, run=ONE)
    scores = classifier.tagger_.about["scores"]
    assert scores["are"] == "raw"
    assert "too few to compare the members" in scores["because"]
    assert set(classifier.tagger_.views) == {"tfidf"}
    alone = Classifier("parabel", n_trees=1, min_df=1, calibrate=False).fit(texts, tags, run=ONE)
    np.testing.assert_array_equal(classifier.rank(TEST[0], 5, ONE).labels, alone.rank(TEST[0], 5, ONE).labels)


def test_corpora_of_features_and_validation_documents():
    rng = np.random.default_rng(0)
    X = (rng.random((400, 60)) < 0.1) * rng.random((400, 60))
    y = [[str(column) for column in np.argsort(-row)[:2]] for row in X]
    classifier = Classifier("stacked", members=("parabel", "dismec"), **{"parabel.n_trees": 1, "folds": 2})
    classifier.fit(X[:300], y[:300], valid=(X[300:], y[300:]), run=ONE)
    assert set(classifier.tagger_.views) == {"columns"}
    found = classifier.rank(X[300:], 5, ONE)
    truth = csr_array(np.array([[label in row for label in classifier.classes_] for row in y[300:]], np.float32))
    assert evaluate(found, truth, ["P@1"])["P@1"] > 0.7


def test_training_resumes_from_a_checkpoint(tmp_path):
    pipeline = Pipeline.from_parameters("stacked", "texts", VIEWS | {"folds": 2})
    documents = list(to_documents(*TRAIN))
    whole = pipeline.fit(documents, run=ONE)
    saved = pipeline.fit(documents, run=replace(ONE, checkpoint=tmp_path / "parts"))
    assert list((tmp_path / "parts").rglob("*.npz"))
    again = pipeline.fit(documents, run=replace(ONE, checkpoint=tmp_path / "parts"))
    for tagger in (saved, again):
        np.testing.assert_array_equal(tagger.predict(TEST[0], 5).scores, whole.predict(TEST[0], 5).scores)


@pytest.mark.parametrize("n_docs", [60, 300])
def test_models_of_one_member_keep_all_views_for_updates(n_docs, monkeypatch, tmp_path):
    """Updates train all members again; the ranker may be better then, and read all views."""
    force_ranker(monkeypatch, False)
    documents = list(to_documents(*make_planted_corpus(n_docs, seed=1)))
    pipeline = Pipeline.from_parameters("stacked", "texts", VIEWS | OWN_VIEWS)
    small, kept = (pipeline.fit(documents, run=ONE, keep_training=keep) for keep in (False, True))
    assert len(small.views) == 1
    assert set(kept.views) == set(kept.model.views) == set(kept.about["sizes"]) == {"tfidf", "tfidf-2"}
    np.testing.assert_array_equal(kept.predict(TEST[0], 7, ONE).scores, small.predict(TEST[0], 7, ONE).scores)
    assert kept.explain(TEST[0][0], kept.labels[0]) == small.explain(TEST[0][0], kept.labels[0])
    new = list(to_documents(TEST[0][:3], TEST[1][:3]))
    for is_better in (True, False):
        force_ranker(monkeypatch, is_better)
        kept = update_tagger(kept, new, run=ONE).tagger
        kept.save(tmp_path / "model")
        kept = Tagger.load(tmp_path / "model", verify=True)
        assert kept.predict_labels(TEST[0][:1], 1, run=ONE)[0]
    final = update_tagger(kept, rebuild=True, keep_training=False, run=ONE).tagger
    assert set(final.views) == set(final.model.views) == set(final.about["sizes"]) == set(small.views)
    final.save(tmp_path / "final")
    assert Tagger.load(tmp_path / "final", verify=True).predict_labels(TEST[0][:1], 1, run=ONE)[0]


def test_updates_calibrate_once_and_describe_it(monkeypatch):
    """Columns without documents are renumbered around the calibrated model, which must not get a second curve."""
    force_ranker(monkeypatch, True)
    rng = np.random.default_rng(0)
    X = rng.random((300, 20)) * (rng.random((300, 20)) < 0.3)
    Y = np.zeros((300, 8), int)
    Y[np.arange(300), X[:, :6].argmax(axis=1)] = 1
    options = {"members": ("parabel", "dismec"), "parabel.n_trees": 1, "folds": 2}
    classifier = Classifier("stacked", **options).fit(X, Y, run=ONE, keep_training=True)
    force_ranker(monkeypatch, False)
    assert "ranker of the scores of" in classifier.tagger_.about["scores"]["because"]
    classifier.partial_fit(X[:3] * 2, Y[:3], run=ONE)
    assert classifier.tagger_.labels.words()[6:] == ["6", "7"]
    curve = find_calibrated(classifier.tagger_.model)
    assert find_calibrated(curve.model) is None
    assert "alone, because the ranker is not significantly better" in classifier.tagger_.about["scores"]["because"]
    assert classifier.tagger_.about["scores"]["because"] == curve.description
