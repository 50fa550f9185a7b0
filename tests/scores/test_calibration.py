"""Calibration of scores: which documents are held out, and that the ranking does not change."""

from __future__ import annotations

import filecmp
import json
from dataclasses import replace

import numpy as np
import pytest
from planted import make_planted_corpus
from scipy.sparse import csr_array
from sklearn.base import clone
from typer.testing import CliRunner

from xmtc import Classifier, testing
from xmtc.analysis.combine import combine
from xmtc.cli import app
from xmtc.core.dataset import Dataset
from xmtc.core.predictions import Predictions
from xmtc.core.run import Run
from xmtc.data.in_memory import to_documents
from xmtc.data.splits import sample_labelled_rows, sample_rows_keeping_labels
from xmtc.errors import XmtcError
from xmtc.methods import method_class
from xmtc.methods.ensemble.calibrated_model import (
    MAX_PROBABILITY,
    RAW_SCORE_WEIGHT,
    TOP_PSEUDO_LABELS,
    CalibratedModel,
    apply_isotonic_curve,
    fit_isotonic_curve,
)
from xmtc.methods.ensemble.consensus import Consensus
from xmtc.methods.label_tree.parabel import Parabel
from xmtc.methods.one_vs_all.dismec import DiSMEC
from xmtc.methods.one_vs_all.pd_sparse import PDSparse
from xmtc.pipeline import Pipeline
from xmtc.scores import calibration
from xmtc.scores.calibration import Calibration, choose_folds, count_trainings, describe_calibration, plan_folds
from xmtc.storage.form import is_equal
from xmtc.tagger import Tagger

ONE = Run(threads=1, device="cpu")
QUICK = {"n_trees": 1, "max_leaf": 8}
ENOUGH = make_planted_corpus(1000, seed=1)  # a tenth of the documents is enough for calibration
FEW = make_planted_corpus(990, seed=1)
MANY = make_planted_corpus(2000, seed=1)  # a twentieth is enough
TEST = make_planted_corpus(300, seed=2)


def noisy(texts, tags, seed=5):
    """Remove half of the labels but not their words, so that scores are not all 0 or 1."""
    rng = np.random.default_rng(seed)
    return texts, [[tag for tag in result if rng.random() < 0.5] or result[:1] for result in tags]


@pytest.fixture(scope="module")
def train_calibrated():
    return Classifier("parabel", **QUICK).fit(*noisy(*ENOUGH), run=ONE)


@pytest.fixture(scope="module")
def train_uncalibrated():
    return Classifier("parabel", **QUICK, calibrate=False).fit(*noisy(*ENOUGH), run=ONE)


# The curve


def answers(scores):
    scores = np.array(scores, np.float32)
    return Predictions(np.tile(np.arange(scores.shape[1], dtype=np.int32), (len(scores), 1)), scores)


def test_curve_matches_a_worked_example():
    """Two documents with two predictions each: 0.4 is correct, 0.1 is not; 0.2 and 0.3 are in the wrong order and are
    pooled."""
    result, Y = answers([[0.4, 0.2], [0.3, 0.1]]), csr_array(np.array([[1, 1], [0, 0]], np.float32))
    scores, probabilities = fit_isotonic_curve(result, Y)
    np.testing.assert_allclose(scores, [0.1, 0.2, 0.3, 0.4], rtol=1e-6)
    top = (1 + TOP_PSEUDO_LABELS * 0.5) / (1 + TOP_PSEUDO_LABELS)  # one hit, and the value below
    np.testing.assert_allclose(probabilities, [0, 0.5, 0.5, top])
    level = apply_isotonic_curve(answers([[0.4, 0.25, 0.15, 0.0]]), scores, probabilities).scores[0]
    np.testing.assert_allclose(
        level,
        (1 - RAW_SCORE_WEIGHT) * np.array([top, 0.5, 0.25, 0]) + RAW_SCORE_WEIGHT * np.array([0.4, 0.25, 0.15, 0]),
        rtol=1e-5,
    )


def test_top_of_the_curve_is_lower_with_fewer_labels():
    def fit_top(n_hits, weights=None):
        scores = np.concatenate([np.full(100, 0.5), np.full(n_hits, 0.9)])[:, None]
        hits = np.concatenate([np.arange(100) % 2, np.ones(n_hits)])[:, None]
        return fit_isotonic_curve(answers(scores), csr_array(hits.astype(np.float32)), weights)[1][-1]

    assert fit_top(5) == pytest.approx((5 + TOP_PSEUDO_LABELS / 2) / (5 + TOP_PSEUDO_LABELS))
    assert fit_top(5) < fit_top(50) < 0.96 < fit_top(1000)
    assert fit_top(10**6) == MAX_PROBABILITY
    assert fit_top(5, np.full(105, 7.0)) == pytest.approx(fit_top(5))  # the scale of weights does not matter
    one_heavy = np.concatenate([np.ones(101), np.full(4, 1e-6)])
    assert fit_top(5, one_heavy) == pytest.approx(fit_top(1), abs=1e-4)


def test_document_weights_are_used():
    result, Y = answers([[0.2], [0.3]]), csr_array(np.array([[1], [0]], np.float32))
    for weights, height in ((None, 1 / 2), (np.array([3.0, 1.0]), 3 / 4), (np.array([0.0, 1.0]), 0)):
        np.testing.assert_allclose(fit_isotonic_curve(result, Y, weights)[1], height)


def test_curve_below_its_top_equals_that_of_scikit_learn():
    from sklearn.isotonic import IsotonicRegression

    rng = np.random.default_rng(0)
    scores = np.sort(rng.integers(1, 200, (500, 4)) / 200, axis=1)[:, ::-1]  # with ties
    hits, weights = rng.random(scores.shape) < scores, rng.integers(0, 4, 500)
    knots, values = fit_isotonic_curve(answers(scores), csr_array(hits.astype(np.float32)), weights)
    expected = IsotonicRegression(out_of_bounds="clip").fit(
        scores.astype(np.float32).ravel(), hits.ravel(), np.repeat(weights, 4)
    )
    below = np.linspace(0, knots[values < values[-1]][-1], 1000)
    np.testing.assert_allclose(np.interp(below, knots, values), expected.predict(below.astype(np.float32)), atol=1e-4)


# Held-out documents


def test_enough_documents_are_calibrated(train_calibrated, train_uncalibrated):
    model = train_calibrated.tagger_.model
    assert isinstance(model, CalibratedModel)
    assert train_calibrated.tagger_.about["calibrate"] is True
    entry = train_calibrated.tagger_.about["scores"]
    assert (entry["are"], entry["documents"]) == ("probabilities", 1000)
    before, after = (
        each.evaluate(*noisy(*TEST), ["ECE@5"])["ECE@5"] for each in (train_uncalibrated, train_calibrated)
    )
    assert after < 0.05 < before


def test_model_is_trained_on_all_documents_and_ranking_is_kept(train_calibrated, train_uncalibrated):
    assert is_equal(train_calibrated.tagger_.model.model, train_uncalibrated.tagger_.model)
    one, other = (each.rank(TEST[0], 40, ONE) for each in (train_calibrated, train_uncalibrated))
    np.testing.assert_array_equal(one.labels, other.labels)
    assert (np.diff(one.scores, axis=1) <= 0).all()
    assert train_uncalibrated.tagger_.about["scores"] == {"are": "raw", "because": "calibrate=false"}


def test_training_says_how_many_further_trainings_calibrate(train_calibrated):
    reason = train_calibrated.tagger_.about["scores"]["because"]
    assert reason == "calibrated on 1,000 held-out documents with 10 further trainings"
    assert describe_calibration(300, "held-out ", 1) == (
        "calibrated on 300 held-out documents with 1 further training; with fewer than 1,000, probabilities are rough "
        "estimates"
    )


def test_model_with_too_few_documents_is_not_calibrated():
    one, other = (Classifier("parabel", **QUICK, calibrate=on).fit(*FEW, run=ONE).tagger_ for on in (True, False))
    assert is_equal(one.model, other.model)
    entry = one.about["scores"]
    assert (entry["are"], entry["because"]) == (
        "raw",
        "calibration needs 100 held-out documents, and 99 are available",
    )


def test_random_documents_with_labels_and_weights_are_held_out(train_calibrated):
    data = Pipeline.from_parameters(Parabel()).prepare(to_documents(*ENOUGH), ONE).data
    folds, is_single_training = choose_folds(Parabel(seed=3), data)
    assert not is_single_training
    assert [len(rows) for rows in folds] == [100] * 10
    np.testing.assert_array_equal(folds[0], sample_labelled_rows(data, 3, 0.1))
    assert len(np.unique(np.concatenate(folds))) == 1000
    without = np.random.default_rng(0).random(data.n_docs) < 0.5
    labels = csr_array(data.Y.toarray() * ~without[:, None])
    weights = np.where(np.arange(data.n_docs) % 2, 1.0, 0.0)
    result = sample_labelled_rows(Dataset(data.views, labels, weights), 0, 0.9)
    assert not without[result].any()
    assert (result % 2 == 1).all()


def test_small_fraction_is_held_out_of_a_single_training_and_no_label_is_lost(monkeypatch):
    monkeypatch.setattr(calibration, "MAX_SINGLE_TRAINING_FRACTION", 0.1)
    texts, tags = ENOUGH
    once = [[*labels, f"once-{i}"] if i % 3 == 0 else labels for i, labels in enumerate(tags)]
    data = Pipeline.from_parameters(Parabel()).prepare(to_documents(texts, once), ONE).data
    (rows,), is_single_training = choose_folds(Parabel(), data)
    assert is_single_training
    np.testing.assert_array_equal(rows, sample_rows_keeping_labels(data, 0, 100))
    assert (rows % 3 != 0).all()
    stages = []
    classifier = Classifier("parabel", **QUICK).fit(texts, once, run=Run(threads=1, callbacks=stages.append))
    assert "calibration/training" not in {event.as_json().get("title") for event in stages}
    assert isinstance(classifier.tagger_.model, CalibratedModel)
    assert len(classifier.classes_) == data.n_labels == 40 + 334
    assert "once-0" in classifier.predict(texts[:1], k=40)[0]


def test_names_of_labels_are_no_documents_in_the_fraction_of_a_single_training():
    is_name = np.arange(10_000) >= 1000
    data = Dataset.from_matrix(csr_array((10_000, 3)), csr_array(np.ones((10_000, 1), np.float32)))
    folds, is_single_training = choose_folds(Parabel(), replace(data, is_name=is_name))
    assert not is_single_training
    assert [len(rows) for rows in folds] == [100] * 10
    assert max(rows.max() for rows in folds) < 1000


def test_count_trainings():
    sizes = (999, 1_000, 2_000, 3_000, 10_000, 20_000, 99_999, 100_000)
    assert [count_trainings(Parabel(), n_docs) for n_docs in sizes] == [1, 11, 11, 8, 2, 2, 2, 1]
    members = ("parabel", "plt")
    assert count_trainings(Consensus(members=members), 1_000) == 11
    assert count_trainings(Consensus(members=("parabel", "pd_sparse")), 1_000) == 2
    assert count_trainings(Consensus(members=members, calibrated=True), 1_000) == 1


def test_fold_sizes_grow_with_the_corpus():
    sizes = (1_000, 3_000, 6_000, 10_000, 40_000, 99_999)
    folds = [plan_folds(Parabel(), n_docs, n_docs) for n_docs in sizes]
    assert [tuple(plan[:2]) for plan in folds] == [(10, 100), (7, 300), (2, 1200), (1, 2000), (1, 4000), (1, 9999)]
    assert plan_folds(PDSparse(), 40_000, 40_000) == (1, 2000, False)  # early stopping


def test_held_out_models_of_fast_methods_are_cheaper():
    assert [Parabel(n_trees=n).for_holdout().n_trees for n in (1, 2, 3, 10)] == [1, 2, 2, 6]
    assert Parabel(max_leaf=8).for_holdout() == Parabel(max_leaf=8, n_trees=2)
    assert [DiSMEC(max_passes=n).for_holdout().max_passes for n in (2, 20)] == [2, 4]


def test_label_of_one_held_out_document_is_trained():
    texts, tags = ENOUGH
    data = Pipeline.from_parameters(Parabel()).prepare(to_documents(*ENOUGH), ONE).data
    row = int(choose_folds(Parabel(), data)[0][0][0])
    tags = [["alone"] if i == row else labels for i, labels in enumerate(tags)]
    classifier = Classifier("parabel", **QUICK).fit(texts, tags, run=ONE)
    assert isinstance(classifier.tagger_.model, CalibratedModel)
    assert "alone" in classifier.predict(texts[row : row + 1], k=5)[0]


def test_validation_documents_are_used(train_uncalibrated):
    texts, tags = noisy(*ENOUGH)
    classifier = Classifier("parabel", **QUICK).fit(texts, tags, valid=noisy(*TEST), run=ONE)
    assert is_equal(classifier.tagger_.model.model, train_uncalibrated.tagger_.model)
    assert classifier.tagger_.about["scores"] == {
        "are": "probabilities",
        "documents": 300,
        "because": "calibrated on 300 validation documents; with fewer than 1,000, probabilities are rough estimates",
    }
    few = Classifier("parabel", **QUICK).fit(texts, tags, valid=(TEST[0][:50], TEST[1][:50]), run=ONE)
    assert is_equal(few.tagger_.model, train_uncalibrated.tagger_.model)
    assert "needs 100 validation documents with a label, and 50 are available" in few.tagger_.about["scores"]["because"]


def test_documents_without_labels_are_ignored():
    """As in `xmtc calibrate`; predictions for documents with only unseen labels count as incorrect."""
    texts, tags = noisy(*ENOUGH)
    valid, unlabelled = noisy(*TEST), [[] for _ in TEST[0]]
    reference = Classifier("parabel", **QUICK).fit(texts, tags, valid=valid, run=ONE)
    with_others = (valid[0] + TEST[0], valid[1] + unlabelled)
    same = Classifier("parabel", **QUICK).fit(texts, tags, valid=with_others, run=ONE)
    assert is_equal(same.tagger_.model, reference.tagger_.model)
    assert same.tagger_.about["scores"] == reference.tagger_.about["scores"]
    nothing = Classifier("parabel", **QUICK).fit(texts, tags, valid=(TEST[0], unlabelled), run=ONE)
    assert "and 0 are available" in nothing.tagger_.about["scores"]["because"]
    unseen = (valid[0] + TEST[0], valid[1] + [["unseen"] for _ in TEST[0]])
    lower = Classifier("parabel", **QUICK).fit(texts, tags, valid=unseen, run=ONE)
    assert lower.tagger_.model.probabilities.max() < reference.tagger_.model.probabilities.max()


def test_documents_held_out_by_the_method_are_used_and_it_is_trained_once(monkeypatch):
    counted, fit = [], PDSparse.fit
    monkeypatch.setattr(
        PDSparse, "fit", lambda self, data, *more: counted.append(data.n_docs) or fit(self, data, *more)
    )
    one, other = (Classifier("pd_sparse", calibrate=on).fit(*MANY, run=ONE).tagger_ for on in (True, False))
    assert counted == [2000, 2000]
    assert one.about["scores"]["documents"] == 100
    assert is_equal(one.model.model, other.model)


def test_members_that_hold_documents_out_are_trained_once_and_others_twice(monkeypatch):
    counted = {PDSparse: [], Parabel: []}
    for kind, sizes in counted.items():
        fit = kind.fit
        monkeypatch.setattr(
            kind,
            "fit",
            lambda self, data, *more, fit=fit, sizes=sizes, **options: (
                sizes.append(data.n_docs) or fit(self, data, *more, **options)
            ),
        )
    settings = {"members": ("pd_sparse", "parabel"), "parabel.n_trees": 1, "parabel.max_leaf": 8, "analyzer": "words"}
    one = Classifier("consensus", **settings).fit(*MANY, run=ONE).tagger_
    assert counted == {PDSparse: [2000], Parabel: [1900, 2000]}
    assert [count_trainings(kind(), 2000) for kind in counted] == [1, 11]
    other = Classifier("consensus", **settings, calibrate=False).fit(*MANY, run=ONE).tagger_
    assert is_equal(one.model.model, other.model)


def test_network_is_calibrated_on_its_early_stopping_documents():
    pytest.importorskip("torch")
    settings = method_class("bow_cnn").quick_parameters | {"epochs": 2}
    one, other = (Classifier("bow_cnn", **settings, calibrate=on).fit(*MANY, run=ONE).tagger_ for on in (True, False))
    assert one.about["scores"]["documents"] == 100
    tests = one.transform(to_documents(TEST[0]), ONE)
    np.testing.assert_array_equal(
        one.model.model.predict(tests, 5, ONE).scores, other.model.predict(tests, 5, ONE).scores
    )


@pytest.mark.parametrize("method", ["ensemble", "consensus"])
def test_calibrated_combination_has_one_curve(method):
    settings = method_class(method).quick_parameters | {"calibrated": True}
    model = Classifier(method, **settings).fit(*ENOUGH, run=ONE).tagger_.model
    assert isinstance(model, CalibratedModel)
    assert not isinstance(model.model, CalibratedModel)


# Checks of every method, on calibrated models


@pytest.mark.integration
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", ["parabel", "dismec", "pd_sparse", "annexml", "consensus"])
def test_calibrated_models_pass_the_method_checks(name, check, monkeypatch):
    monkeypatch.setattr(calibration, "MIN_CALIBRATION_DOCUMENTS", 30)
    if name not in CASES:
        CASES[name] = testing.MethodCase(name, method_class(name).quick_parameters, 0.98)
        assert isinstance(CASES[name].classifier.tagger_.model, CalibratedModel)
    check(CASES[name])


CASES: dict[str, testing.MethodCase] = {}


def test_labels_without_documents(tmp_path):
    texts, tags = ENOUGH
    names = sorted({tag for result in tags for tag in result})
    Y = np.array([[name in result for name in [*names, "never"]] for result in tags], np.int64)
    classifier = Classifier("dismec").fit(texts, Y, run=ONE)
    assert isinstance(classifier.tagger_.model, CalibratedModel)
    assert classifier.predict_proba(texts[:2]).shape == (2, 41)
    classifier.save(tmp_path / "model")
    assert Classifier.load(tmp_path / "model", verify=True).predict_proba(texts[:2]).shape == (2, 41)


# Checkpoints


class Stop(Exception):
    pass


@pytest.mark.parametrize("after", [1, 3, 5, 7])
def test_resumed_training_gives_the_same_bytes(after, train_calibrated, tmp_path):
    ended = []

    def stop(event):
        ended.append(event.as_json()["event"] == "stage")
        if sum(ended) > after:
            raise Stop

    folder = tmp_path / "kept"
    with pytest.raises(Stop):
        Classifier("parabel", **QUICK).fit(*noisy(*ENOUGH), run=Run(threads=1, checkpoint=folder, callbacks=stop))
    run = Run(threads=1, checkpoint=folder)
    Classifier("parabel", **QUICK).fit(*noisy(*ENOUGH), run=run).save(tmp_path / "resumed")
    train_calibrated.save(tmp_path / "whole")
    files = ["about.json", "arrays.safetensors"]
    assert filecmp.cmpfiles(tmp_path / "resumed", tmp_path / "whole", files, shallow=False) == (files, [], [])
    run.checkpoint.remove()
    assert not folder.exists()


def test_checkpoint_of_a_training_without_calibration_is_not_used(tmp_path):
    run = Run(threads=1, checkpoint=tmp_path / "kept")
    Classifier("parabel", **QUICK, calibrate=False).fit(*ENOUGH, run=run)
    with pytest.raises(XmtcError, match="holds pieces of a training with other data or parameters"):
        Classifier("parabel", **QUICK).fit(*ENOUGH, run=run)


def test_history_contains_both_trainings(train_calibrated):
    titles = [entry["title"] for entry in train_calibrated.history_]
    first = [title for title in titles if title.startswith("calibration/")]
    assert first
    assert {title.removeprefix("calibration/") for title in first} - {"predicting"} <= set(titles)
    assert {"calibration/training", "training"} <= set(titles)


# The parameter


def test_calibrate_is_a_parameter(train_calibrated, train_uncalibrated, tmp_path):
    assert train_calibrated.get_params()["calibrate"] is True
    assert clone(train_uncalibrated).get_params()["calibrate"] is False
    train_uncalibrated.save(tmp_path / "raw")
    assert Classifier.load(tmp_path / "raw").get_params(deep=False)["calibrate"] is False
    with pytest.raises(XmtcError, match="did you mean calibrate"):
        Classifier("parabel", calibrte=False)
    with pytest.raises(XmtcError, match="calibrate='maybe' is invalid; expected true or false"):
        Classifier("parabel", calibrate="maybe")
    pipeline = Pipeline.from_parameters("parabel").with_parameters({"calibrate": False})
    assert pipeline.calibration == Calibration(calibrate=False)


def test_trials_of_tuning_are_not_calibrated(monkeypatch):
    pytest.importorskip("optuna")
    from xmtc.analysis.tune.search import TuningGoal, tune
    from xmtc.analysis.tune.space import Range

    asked, fit = [], calibration.fit_calibrated
    monkeypatch.setattr(calibration, "fit_calibrated", lambda *given: asked.append(given[-1]) or fit(*given))
    parts = (list(to_documents(*each)) for each in (ENOUGH, TEST))
    tune(
        *parts, Pipeline.from_parameters("parabel", parameters=QUICK), {"C": Range(0.1, 1.0)}, TuningGoal(trials=2), ONE
    )
    assert asked == [False, False]


def test_models_are_combined_by_their_raw_scores(train_calibrated, train_uncalibrated):
    other = Classifier("dismec").fit(*FEW, run=ONE).tagger_
    one, two = (combine([each.tagger_, other]) for each in (train_calibrated, train_uncalibrated))
    assert is_equal(one.model, two.model)
    assert one.about["scores"]["are"] == "raw"


def test_older_folder_without_calibration_entry(train_uncalibrated, tmp_path):
    train_uncalibrated.save(tmp_path / "model")
    path = tmp_path / "model" / "about.json"
    about = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in about.items() if key not in ("calibrate", "scores")}))
    old = Classifier.load(tmp_path / "model")
    assert old.get_params()["calibrate"] is True  # the default
    assert old.predict(TEST[0][:3]) == train_uncalibrated.predict(TEST[0][:3])


# The commands


def invoke(*words):
    return CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpora")
    for name, (texts, tags) in {
        "train": noisy(*ENOUGH),
        "valid": noisy(*TEST),
        "few": (TEST[0][:9], TEST[1][:9]),
    }.items():
        lines = (json.dumps({"text": text, "labels": result}) for text, result in zip(texts, tags, strict=True))
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    return folder


def test_command_calibrates_an_existing_model(corpora, tmp_path):
    raw, level = tmp_path / "raw", tmp_path / "level"
    words = ("train", corpora / "train.jsonl", "-m", "dismec", "-o", raw, "-p", "calibrate=false", "--threads", 1)
    assert "Scores are raw: calibrate=false." in invoke(*words).stderr
    printed = invoke("calibrate", raw, corpora / "valid.jsonl", "-o", level).stderr
    assert "calibrated on 300 documents; with fewer than 1,000, probabilities are rough estimates. Next" in printed
    one, other = Tagger.load(raw), Tagger.load(level)
    assert isinstance(other.model, CalibratedModel)
    assert is_equal(other.model.model, one.model)
    assert other.about["scores"]["are"] == "probabilities"
    errors = [tagger.evaluate(to_documents(*noisy(*TEST)), ["ECE@5"])["ECE@5"] for tagger in (one, other)]
    assert errors[1] < 0.02 < errors[0]
    invoke("calibrate", level, corpora / "valid.jsonl")  # in place: the curve is replaced
    assert is_equal(Tagger.load(level).model, other.model)
    assert json.loads(invoke("info", level).stdout)["scores"]["documents"] == 300


def test_calibration_drops_thresholds_tuned_on_other_scores(train_uncalibrated, corpora, tmp_path):
    model, valid = tmp_path / "model", corpora / "valid.jsonl"
    train_uncalibrated.save(model)
    invoke("thresholds", model, valid)
    assert Tagger.load(model).decision is not None
    assert f"are removed; tune them again with `xmtc thresholds {model}" in invoke("calibrate", model, valid).stderr
    assert Tagger.load(model).decision is None
    assert "decision" not in Tagger.load(model).about


def test_too_few_documents_are_rejected(corpora, tmp_path):
    Classifier("parabel", **QUICK).fit(*FEW, run=ONE).save(tmp_path / "model")
    before = (tmp_path / "model" / "about.json").read_bytes()
    with pytest.raises(XmtcError, match="Calibration needs at least 100 documents with labels; got 9"):
        invoke("calibrate", tmp_path / "model", corpora / "few.jsonl")
    assert (tmp_path / "model" / "about.json").read_bytes() == before


def test_methods_command_lists_the_parameter():
    assert "calibrate  True" in invoke("methods", "parabel").stdout


def test_combine_says_on_how_many_documents_it_calibrated(corpora, tmp_path):
    model = tmp_path / "model"
    invoke("train", corpora / "train.jsonl", "-m", "plt", "-o", model, "-p", "calibrate=false", "--threads", 1)
    models = (model, model, "-o", tmp_path / "both")
    assert "Scores are raw: not calibrated" in invoke("combine", *models).stderr
    printed = invoke("combine", *models, "--valid", corpora / "valid.jsonl").stderr
    assert "calibrated on 300 validation documents; with fewer than 1,000, probabilities are rough" in printed
