"""Ensembles and consensuses: worked examples, parameters of members, views, resuming, and overlap of predictions."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from commands import lines_of
from planted import make_planted_corpus, planted_words
from scipy.sparse import csr_array
from scipy.special import logit
from sklearn.base import clone
from test_damaged_models import set_about_value
from test_features import run as xmtc
from voting import enter

from xmtc import Classifier, Tagger, XmtcError
from xmtc.core.checkpoint import Checkpoint
from xmtc.core.dataset import Bag, Dataset, Tokens
from xmtc.core.hyperparameters import UnparsedValue
from xmtc.core.method import Explanation, Model
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.data.document import Document
from xmtc.errors import MissingExtra
from xmtc.evaluation import evaluate
from xmtc.evaluation.metric_values import compute_overlap
from xmtc.linear.search import rank_by_mean
from xmtc.linear.solver import Solver
from xmtc.methods.ensemble.calibrated_model import (
    CalibratedModel,
    apply_isotonic_curve,
    calibrate_combination,
    calibrate_model,
    fit_isotonic_curve,
)
from xmtc.methods.ensemble.combination_rules import FLOAT32_EPSNEG, MEAN, NOISY_OR, combine_predictions
from xmtc.methods.ensemble.consensus import Consensus
from xmtc.methods.ensemble.ensemble import Ensemble
from xmtc.methods.ensemble.model import MIN_MEMBER_LABELS, CombinedModel
from xmtc.methods.label_tree.parabel import Parabel
from xmtc.methods.label_tree.plt import PLT
from xmtc.methods.one_vs_all.dismec import DiSMEC
from xmtc.pipeline import Pipeline

TRAIN, TEST = make_planted_corpus(300, seed=1), make_planted_corpus(80, seed=2)
LINEAR = {"members": ("parabel", "dismec"), "parabel.n_trees": 1, "parabel.max_leaf": 8}
MEMBERS = (Parabel(n_trees=1, max_leaf=8), DiSMEC())
TINY = {"parabel.n_trees": 1, "attention_xml.hidden": 8, "attention_xml.layers": (8,), "attention_xml.epochs": 1}
NOTHING_READ = Dataset.from_matrix(csr_array((1, 0), dtype=np.float32))


@dataclass(frozen=True, kw_only=True)
class FixedModel(Model):
    """Model with the same prediction for one document."""

    labels: list[int]
    scores: list[float]
    n_labels: int = 200
    views: dict[str, int] = field(default_factory=lambda: {"columns": 0})
    per_token: tuple[float, ...] | None = None
    limits: dict[str, int] = field(default_factory=dict)

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        return answer([self.labels[:k]], [self.scores[:k]])

    def _explain(self, document: Dataset, label: int) -> Explanation:
        per_token = None if self.per_token is None else np.array(self.per_token, np.float32)
        view = next(iter(self.views), "tfidf")
        return Explanation(view, np.array(self.labels, np.int32), np.array(self.scores, np.float32), per_token)

    def max_lengths(self) -> dict[str, int]:
        return self.limits


def fixed(labels: list[int], scores: list[float], **more) -> FixedModel:
    return FixedModel(labels=labels, scores=scores, **more)


def answer(labels: list[list[int]], scores: list[list[float]] | None = None) -> Predictions:
    return Predictions(np.array(labels, np.int32), np.array(labels if scores is None else scores, np.float32))


def combined(rule: str, *models: Model, **views: int) -> CombinedModel:
    return CombinedModel(n_labels=200, views=views or {"columns": 0}, rule=rule, models=models)


ONE, OTHER = fixed([4, 7, 9], [0.8, 0.5, 0.2]), fixed([7, 1, NO_LABEL], [0.6, 0.3, 0.0])


@pytest.mark.parametrize(
    ("rule", "labels", "scores"),
    [
        (MEAN, [7, 4, 1, 9], [(0.5 + 0.6) / 2, 0.8 / 2, 0.3 / 2, 0.2 / 2]),
        (NOISY_OR, [7, 4, 1, 9], [1 - 0.5 * 0.4, 0.8, 0.3, 0.2]),  # a tie: both contain 7
    ],
)
def test_two_models_are_combined(rule, labels, scores):
    result = combined(rule, ONE, OTHER).predict(NOTHING_READ, k=5)
    assert result.labels.tolist() == [[*labels, NO_LABEL]]
    np.testing.assert_allclose(result.scores, [[*scores, 0]], rtol=1e-6)
    assert result.labels.dtype == np.int32
    assert result.scores.dtype == np.float32


@pytest.mark.parametrize("rule", [MEAN, NOISY_OR])
def test_scores_0_and_1_are_ranked(rule):
    result = combined(rule, fixed([3, 5, 6], [1, 1, 0]), fixed([5, 3, 6], [1, 0.5, 0])).predict(NOTHING_READ, k=3)
    assert result.labels.tolist() == [[5, 3, 6]]
    np.testing.assert_allclose(result.scores, [[1, 0.75, 0] if rule == MEAN else [1, 1, 0]], atol=1e-6)


@pytest.mark.parametrize("rule", [MEAN, NOISY_OR])
def test_merging_equals_the_reference(rule):
    rng = np.random.default_rng(3)
    parts = [(np.argsort(rng.random((50, 30)))[:, :8], rng.random((50, 8))) for _ in range(3)]
    dense = np.zeros((3, 50, 30))
    for P, (labels, scores) in zip(dense, parts, strict=True):
        np.put_along_axis(P, labels, scores, axis=1)
    P = dense.mean(axis=0) if rule == MEAN else 1 - (1 - dense).prod(axis=0)
    expected = np.argsort(-P, axis=1)[:, :6]
    result = combine_predictions([answer(*part) for part in parts], rule, 30, 6)
    np.testing.assert_array_equal(result.labels, expected)
    np.testing.assert_allclose(result.scores, np.take_along_axis(P, expected, axis=1), rtol=1e-5)


def test_labels_with_score_1_rank_by_log_odds():
    """By hand: eq. 9 gives 2, 3, 4 and 8 exactly 1; the other model's log-odds are log 3/7, log 9, log 1 and none."""
    certain, other = fixed([2, 3, 4, 8, 9], [1, 1, 1, 1, 0.9]), fixed([3, 4, 2, 9], [0.9, 0.5, 0.3, 0.2])
    result = combined(NOISY_OR, certain, other).predict(NOTHING_READ, k=5)
    assert result.labels.tolist() == [[3, 4, 2, 8, 9]]
    np.testing.assert_allclose(result.scores, [[1, 1, 1, 1, 1 - 0.1 * 0.8]], rtol=1e-6)
    assert combined(NOISY_OR, certain, other).predict(NOTHING_READ, k=1).labels.tolist() == [[3]]
    many = combined(NOISY_OR, fixed(list(range(90)), [1] * 90), fixed([85, 60], [0.9, 0.2]))
    assert many.predict(NOTHING_READ, k=4).labels.tolist() == [[85, 60, 0, 1]]  # although the difference is large
    both = combined(NOISY_OR, certain, fixed([8, 3], [1, 0.9999]))
    assert both.predict(NOTHING_READ, k=4).labels.tolist() == [[8, 3, 2, 4]]  # of both models; then by label number
    three = combined(NOISY_OR, fixed([1, 2], [1, 1]), fixed([1, 2], [0.5, 0.9]), fixed([1, 2], [0.8, 0.4]))
    assert three.predict(NOTHING_READ, k=2).labels.tolist() == [[2, 1]]  # 1 · 4 < 9 · 2/3


def test_tie_breaking_changes_only_ties():
    """Compare with the reference in documents with and without ties; without ties, the bytes are the same."""
    rng = np.random.default_rng(5)
    parts = [answer(np.argsort(rng.random((200, 12)))[:, :8], rng.random((200, 8)).round(1)) for _ in range(3)]
    dense = np.full((3, 200, 12), 0.0)
    for P, part in zip(dense, parts, strict=True):
        np.put_along_axis(P, part.labels, part.scores.astype(np.float64), axis=1)
    together = (1 - (1 - dense).prod(axis=0)).astype(np.float32)
    odds = logit(np.clip(dense, FLOAT32_EPSNEG, 1 - FLOAT32_EPSNEG)).mean(axis=0)
    result = combine_predictions(parts, NOISY_OR, 12, 5)
    certain = np.flatnonzero((together == 1).sum(axis=1) > 1)
    assert 20 < len(certain) < 180
    for doc in certain:
        ones = sorted(np.flatnonzero(together[doc] == 1), key=lambda label: (-odds[doc, label].round(9), label))
        assert result.labels[doc, : len(ones)].tolist() == ones[:5]
    np.testing.assert_allclose(result.scores, -np.sort(-together)[:, :5], rtol=1e-5)

    labels, scores = np.stack([part.labels for part in parts], 1), np.stack([part.scores for part in parts], 1)
    with np.errstate(divide="ignore"):
        best, mean = rank_by_mean(labels, np.log(-np.log1p(-scores)), 12, 6)
    total = len(parts) * mean
    untied = (total[:, 1:] != total[:, :-1]).all(axis=1)
    assert 20 < untied.sum() < 180
    np.testing.assert_array_equal(result.labels[untied], best[untied, :5])
    np.testing.assert_allclose(result.scores[untied], -np.expm1(-total[untied, :5]), rtol=1e-6)


def test_first_hundred_labels_use_a_hundred_labels_of_each_model():
    many, last = fixed(list(range(150)), [0.1] * 150), fixed([MIN_MEMBER_LABELS - 1, MIN_MEMBER_LABELS], [0.8, 0.8])
    both = combined(MEAN, many, last)
    result = both.predict(NOTHING_READ, k=2)  # label DEPTH is beyond the labels of the first model
    assert result.labels.tolist() == [[MIN_MEMBER_LABELS - 1, MIN_MEMBER_LABELS]]
    np.testing.assert_allclose(result.scores, [[0.45, 0.4]], rtol=1e-6)
    deeper = both.predict(NOTHING_READ, k=MIN_MEMBER_LABELS + 1)
    np.testing.assert_array_equal(deeper.labels[:, :2], result.labels)
    np.testing.assert_array_equal(deeper.scores[:, :2], result.scores)
    np.testing.assert_allclose(deeper.scores[0, 2:], 0.05, rtol=1e-6)
    assert both.predict(NOTHING_READ, k=1000).k == both.n_labels


@pytest.mark.parametrize("rule", [MEAN, NOISY_OR])
def test_explanation_weighs_members_by_their_share_of_the_score(rule):
    # the last model does not predict 7
    models = [fixed([7, 4], [0.2, 0.1]), fixed([9, 7], [0.9, 0.6]), fixed([3], [0.9])]
    explained = combined(rule, *models).explain(NOTHING_READ, 7)
    assert [member.number for member in explained.members] == [0, 1]
    expected = [0.25, 0.75] if rule == MEAN else np.log1p([-0.2, -0.6]) / np.log1p([-0.2, -0.6]).sum()
    np.testing.assert_allclose([member.share for member in explained.members], expected, rtol=1e-5)
    assert np.abs(explained.weights).sum() == pytest.approx(1)


def test_view_with_the_largest_share_is_first():
    models = [replace(fixed([7], [0.2]), views={"tfidf": 9}), replace(fixed([7], [0.6]), views={"words": 9})]
    mixed = combined(MEAN, *models, tfidf=9, words=9)
    tokens = Tokens(np.zeros(1, np.int32), np.array([0, 1]), 9)
    document = Dataset({"tfidf": Bag(csr_array((1, 9), dtype=np.float32)), "words": tokens})
    explained = mixed.explain(document, 7)
    assert (explained.view, len(explained.members)) == ("words", 2)


@pytest.mark.parametrize(
    "model",
    [
        combined("max", ONE),
        combined(MEAN),
        combined(MEAN, ONE, replace(OTHER, n_labels=3)),
        combined(MEAN, replace(ONE, views={"tfidf": 7}), tfidf=8),
        combined(MEAN, replace(ONE, views={"words": 7}), tfidf=7),
        combined(MEAN, combined("max", ONE)),
    ],
)
def test_incompatible_models_are_rejected(model):
    combined(MEAN, ONE, combined(NOISY_OR, OTHER)).check()
    with pytest.raises(ValueError, match=r"of the combination|rule is|models is empty"):
        model.check()


@dataclass(frozen=True, kw_only=True)
class ScoredModel(Model):
    """Model with a separate prediction for each document."""

    labels: np.ndarray
    scores: np.ndarray
    n_labels: int = 40
    views: dict[str, int] = field(default_factory=lambda: {"columns": 0})

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        return Predictions(self.labels[:, :k], self.scores[:, :k])

    def _explain(self, document: Dataset, label: int) -> Explanation:
        raise NotImplementedError


def make_overconfident_model(n_docs: int = 4000, seed: int = 0) -> tuple[ScoredModel, Dataset]:
    """Return a model that predicts √p for labels that are correct with probability p, and its data."""
    rng = np.random.default_rng(seed)
    labels = np.argsort(rng.random((n_docs, 40)))[:, :5].astype(np.int32)
    p = -np.sort(-rng.random((n_docs, 5)))
    Y = np.zeros((n_docs, 40), np.float32)
    np.put_along_axis(Y, labels, rng.random((n_docs, 5)) < p, axis=1)
    data = Dataset.from_matrix(csr_array((n_docs, 0), dtype=np.float32), csr_array(Y))
    return ScoredModel(labels=labels, scores=np.sqrt(p).astype(np.float32)), data


def test_calibrated_scores_equal_observed_precision():
    model, data = make_overconfident_model()
    result = calibrate_model(model, data, 5)
    result.check()
    answers = result.predict(data, 5)
    np.testing.assert_array_equal(answers.labels, model.labels)
    assert (np.diff(answers.scores) <= 0).all()
    assert (np.diff(answers.scores) < 0).mean() > 0.999  # also where the curve is constant
    assert np.abs(answers.scores - model.scores**2).mean() < 0.02
    assert answers.scores.max() < 1


def pair_of(one: ScoredModel, other: ScoredModel, rule: str = NOISY_OR) -> CombinedModel:
    return CombinedModel(n_labels=40, views={"columns": 0}, rule=rule, models=(one, other))


@pytest.mark.parametrize("rule", [NOISY_OR, MEAN])
def test_combined_scores_are_calibrated(rule):
    """Both models err in the same documents, so eq. 9 is overconfident, with or without calibrated members."""
    model, data = make_overconfident_model()
    truly = replace(model, scores=model.scores**2)
    for members in ((model, model), (truly, truly)):
        together = pair_of(*members, rule)
        result = calibrate_combination(together, data)
        result.check()
        new, its_data = make_overconfident_model(seed=1)
        new = replace(new, scores=new.scores**2) if members[0] is truly else new
        plain, level = (combine_answers(model, new, its_data) for model in (together, result))
        np.testing.assert_array_equal(plain.labels, level.labels)  # the ranking is the same
        errors = [evaluate(answers, its_data.Y, "ECE@5")["ECE@5"] for answers in (plain, level)]
        assert errors[1] < 0.02
        assert errors[0] > 0.15 or (rule == MEAN and members[0] is truly)


def combine_answers(model: Model, answers: ScoredModel, data: Dataset) -> Predictions:
    """Return predictions of a combination, calibrated or not, for given predictions of its members."""
    if isinstance(model, CombinedModel):
        model = replace(model, models=tuple(answers_within(part, answers) for part in model.models))
    elif isinstance(model, CalibratedModel):
        inner = model.model
        model = replace(model, model=replace(inner, models=tuple(answers_within(p, answers) for p in inner.models)))
    return model.predict(data, 5)


def answers_within(part: Model, answers: ScoredModel) -> Model:
    return replace(part, model=answers) if isinstance(part, CalibratedModel) else answers


def test_members_are_calibrated_only_if_it_improves_the_ranking():
    """One model predicts √p, the other p⁴ for labels that the first does not predict: calibration improves their
    combined ranking. Two equal models gain nothing."""
    (model, data), rng = make_overconfident_model(), np.random.default_rng(7)
    named = rng.random(model.labels.shape) < 0.5  # each label is predicted by one of the two
    one = replace(model, labels=np.where(named, model.labels, NO_LABEL), scores=np.where(named, model.scores, 0))
    meek = (model.scores**8).astype(np.float32)
    other = replace(model, labels=np.where(named, NO_LABEL, model.labels), scores=np.where(named, 0, meek))
    result = calibrate_combination(pair_of(one, other), data)
    assert all(isinstance(part, CalibratedModel) for part in result.model.models)
    plain, level = pair_of(one, other).predict(data, 3), result.predict(data, 3)
    assert evaluate(level, data.Y, "P@1")["P@1"] > evaluate(plain, data.Y, "P@1")["P@1"] + 0.02
    same = calibrate_combination(pair_of(model, model), data)
    assert same.model.models == (model, model)


def test_ensemble_can_be_calibrated():
    settings = {"member": "parabel", "n_members": 2, "parabel.n_trees": 1, "parabel.max_leaf": 8}
    plain, level = (Classifier("ensemble", **settings, calibrated=on).fit(*TRAIN, valid=TEST) for on in (False, True))
    assert isinstance(level.tagger_.model, CalibratedModel)
    other = make_planted_corpus(80, seed=5)
    before, after = (classifier.evaluate(*other, ["ECE@5"])["ECE@5"] for classifier in (plain, level))
    assert after < before / 2
    assert not Ensemble(calibrated=True).has_weight_support


def test_length_limit_is_the_minimum_of_all_models():
    line = np.array([0.0, 1.0])
    limited = fixed([1], [0.5], limits={"subwords": 64})
    inner = CalibratedModel(n_labels=200, views=limited.views, model=limited, scores=line, probabilities=line)
    inner.check()
    longer = fixed([1], [0.5], limits={"subwords": 80, "words": 9})
    assert combined(MEAN, longer, combined(NOISY_OR, OTHER, inner)).max_lengths() == {"subwords": 64, "words": 9}
    assert combined(MEAN, ONE, OTHER).max_lengths() == {}


def test_calibration_keeps_missing_and_nan_predictions():
    result = apply_isotonic_curve(answer([[3, NO_LABEL]], [[0.4, 0.0]]), np.array([0.0, 1.0]), np.array([0.2, 0.9]))
    assert result.labels.tolist() == [[3, NO_LABEL]]
    np.testing.assert_allclose(result.scores, [[0.48, 0]], atol=1e-3)
    Y = csr_array((1, 5), dtype=np.float32)
    diverged = Predictions.from_valid_arrays(
        np.array([[3]], np.int32), np.array([[np.nan]], np.float32)
    )  # as from a diverged network
    for nothing in (answer([[NO_LABEL]], [[0.0]]), diverged):
        assert [part.tolist() for part in fit_isotonic_curve(nothing, Y)] == [[0, 1], [0, 1]]


def test_decreasing_calibration_curve_is_rejected():
    result = calibrate_model(*make_overconfident_model(200), 5)
    for damage in ({"probabilities": result.probabilities[::-1].copy()}, {"scores": result.scores * np.nan}):
        with pytest.raises(ValueError, match="scores and probabilities of the calibration do not ascend"):
            replace(result, **damage).check()
    with pytest.raises(ValueError, match="n_labels or views differ"):
        replace(result, n_labels=41).check()


def test_calibrated_consensus_is_saved_and_uses_held_out_documents(tmp_path):
    classifier = Classifier("consensus", **LINEAR, calibrated=True).fit(*TRAIN, valid=TEST)
    assert isinstance(classifier.tagger_.model, CalibratedModel)
    members = classifier.tagger_.model.model.models
    alone = Classifier("consensus", **LINEAR).fit(*TRAIN)
    tests = classifier.tagger_.transform([Document("", text, []) for text in TEST[0]])
    # with --valid, it is trained on all documents
    for member, other in zip(members, alone.tagger_.model.models, strict=True):
        np.testing.assert_array_equal(member.predict(tests, 3).labels, other.predict(tests, 3).labels)
    classifier.save(tmp_path / "model")
    loaded = Classifier.load(tmp_path / "model")
    assert loaded.predict(TEST[0], k=3) == classifier.predict(TEST[0], k=3)
    held_out = Classifier("consensus", **LINEAR, calibrated=True).fit(*TRAIN)
    assert held_out.predict(TEST[0], k=1)


def test_members_are_methods_or_their_names():
    first, second = Ensemble(PLT(C=2.0), n_members=2).members
    assert (first.C, second.C) == (2.0, 2.0)
    assert first.seed != second.seed
    assert Consensus((Parabel(n_trees=1), "plt")).members == (Parabel(n_trees=1), PLT())
    assert Consensus(["parabel", "dismec"]) == Consensus(("parabel", DiSMEC()))


def test_dotted_names_set_parameters_of_members():
    def built(name, **parameters):
        return Pipeline.from_parameters(
            name, parameters={key.replace("__", "."): value for key, value in parameters.items()}
        ).method

    assert built("ensemble", parabel__n_trees=1, parabel__C=UnparsedValue("2")) == Ensemble(Parabel(n_trees=1, C=2.0))
    assert built("consensus", **{key.replace(".", "__"): value for key, value in LINEAR.items()}).members == MEMBERS
    members = ("ensemble", "dismec")
    nested = built("consensus", members=members, ensemble__member="plt", ensemble__plt__C=2.0, dismec__C=3.0)
    assert nested.members == (Ensemble(PLT(C=2.0)), DiSMEC(C=3.0))
    typed = built("consensus", members=UnparsedValue("parabel, plt"), plt__C=UnparsedValue("5"))
    assert typed == Consensus((Parabel(), PLT(C=5.0)))


def test_two_members_can_have_the_same_method():
    parameters = {"members": ("parabel", "parabel"), "parabel-2.C": 2.0, "parabel.n_trees": 1}
    method = Pipeline.from_parameters("consensus", parameters=parameters).method
    assert method.members == (Parabel(n_trees=1), Parabel(C=2.0))
    classifier = Classifier(method).fit(*TRAIN)
    one, two = classifier.tagger_.model.models
    assert (len(one.trees), len(two.trees)) == (1, 3)
    assert classifier.evaluate(*TEST, ["P@1"])["P@1"] > 0.9


def test_seeds_of_ensembles_differ():
    seeds = [seed for ensemble in (Ensemble(), Ensemble(seed=1), Ensemble(seed=2**32 - 1)) for seed in ensemble.seeds]
    assert len(set(seeds)) == 9
    assert {type(seed) for seed in seeds} == {int}
    assert Ensemble(n_members=5).seeds[:3] == Ensemble().seeds == [2968811710, 3964924996, 3141116543]


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("ensemble", {"member": "parabell"}, "There is no method 'parabell'. Did you mean parabel?"),
        ("ensemble", {"member": 7}, "Ensemble: member=7 is invalid; expected a method."),
        ("ensemble", {"member": Consensus(MEMBERS)}, "Consensus has no seed, so its members would be the same; choose"),
        ("ensemble", {"parabel.n_tres": 1}, "parabel has no parameter 'n_tres'; did you mean n_trees?"),
        ("ensemble", {"parabel.xyz": 1}, "parabel has no parameter 'xyz'; it has n_trees, max_leaf"),
        ("ensemble", {"parabel.min_df": 1}, "parabel has no parameter 'min_df'; it has n_trees"),
        (
            "ensemble",
            {"parabel.n_trees": UnparsedValue("many")},
            "parabel: n_trees='many' is invalid; expected a whole num",
        ),
        ("ensemble", {"parabel.n_trees": 0}, "Parabel: n_trees=0 is invalid; expected a whole number from 1 to 1000"),
        ("ensemble", {"parabel.seed": 1}, "the member has seed=1, which all members would share; set the seed"),
        ("ensemble", {"n_members": 0}, "Ensemble: n_members=0 is invalid; expected a whole number from 1 to 1000"),
        ("consensus", {"members": ("parabel",)}, "found 1 members, expected at least two"),
        ("consensus", {"members": "parabel"}, "members='parabel' is invalid; expected methods"),
        ("consensus", {"members": UnparsedValue("plt, nothing")}, "There is no method 'nothing'"),
        ("consensus", {"members": ("plt", "parabel"), "dismec.C": 1.0}, "consensus has no member 'dismec'"),
        ("parabel", {"plt.C": 1.0}, "parabel has no member 'plt', so 'plt.C' cannot be set."),
    ],
)
def test_invalid_members_give_one_error_message(name, parameters, message):
    with pytest.raises(XmtcError) as error:
        Pipeline.from_parameters(name, parameters=parameters)
    assert message in str(error.value)


def test_members_determine_the_views(monkeypatch):
    enter(monkeypatch)
    assert Ensemble().required_views == Consensus(MEMBERS).required_views == ("tfidf",)
    assert Ensemble("attention_xml").required_views == ("words",)
    assert Consensus().required_views == ("tfidf", "words")
    for members, views in [
        (("parabel", "dismec"), ["tfidf"]),
        (("wordvotes", "xml_rnn"), ["words"]),
        (("wordvotes", "dismec"), ["tfidf", "words"]),
    ]:
        small = {"xml_rnn.hidden": 8, "xml_rnn.layers": (8,), "xml_rnn.epochs": 1} if "xml_rnn" in members else {}
        classifier = Classifier("consensus", members=members, **small).fit(*TRAIN, valid=TEST)
        assert list(classifier.tagger_.about["views"]) == views
        assert classifier.predict(TEST[0][:2], k=3)


def test_missing_extra_is_named_when_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "xmtc.methods.attention.attention_xml", None)
    monkeypatch.setattr("xmtc.errors.EXTRAS", {"xmtc": ("PyTorch", "neural")})
    with pytest.raises(MissingExtra, match="attention_xml needs PyTorch"):
        Consensus()
    Consensus(MEMBERS)
    assert "members " in xmtc("methods", "consensus")[1]


@pytest.mark.parametrize(
    ("name", "parameters"), [("ensemble", {"parabel.n_trees": 1, "n_members": 2}), ("consensus", LINEAR)]
)
def test_consensus_on_feature_matrices_is_saved_and_loaded(name, parameters, tmp_path):
    X, tags = csr_array(np.eye(20, dtype=np.float32)), [[str(i % 4)] for i in range(20)]
    classifier = Classifier(name, **parameters, unit_length=False).fit(X, tags)
    classifier.save(tmp_path / "model")
    loaded = Classifier.load(tmp_path / "model")
    assert loaded.tagger_.about == classifier.tagger_.about
    assert (loaded.unit_length, loaded.n_features_in_) == (False, 20)
    assert loaded.predict(X, k=1) == tags
    assert clone(loaded).fit(X, tags).predict(X, k=1) == tags


def test_network_and_linear_method_are_combined(tmp_path):
    classifier = Classifier("consensus", **TINY, min_df=1, max_tokens=50).fit(*TRAIN)
    about = classifier.tagger_.about
    assert list(about["views"]) == list(about["sizes"]) == ["tfidf", "words"]
    assert [member["method"] for member in about["parameters"]["members"]] == ["attention_xml", "parabel"]
    assert about["parameters"]["members"][0]["parameters"]["layers"] == [8]
    classifier.save(tmp_path / "model")
    loaded = Classifier.load(tmp_path / "model", verify=True)
    assert loaded.tagger_.about == about
    np.testing.assert_array_equal(loaded.rank(TEST[0]).labels, classifier.rank(TEST[0]).labels)
    np.testing.assert_array_equal(loaded.rank(TEST[0]).scores, classifier.rank(TEST[0]).scores)
    assert loaded.explain(" ".join(planted_words(3)), "label-03")[0][0] in planted_words(3)
    set_about_value(tmp_path / "model", "parts.model.models", [about["views"]])
    with pytest.raises(XmtcError, match="is damaged"):
        Tagger.load(tmp_path / "model")


def test_linear_consensus_does_not_import_torch(tmp_path):
    Classifier("consensus", **LINEAR).fit(*TRAIN).save(tmp_path / "model")
    code = "import sys, xmtc; xmtc.Classifier.load(sys.argv[1]).predict_labels(['a']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "model"], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("method", "other"),
    [
        (Ensemble(Parabel(n_trees=2), n_members=2), Ensemble(n_members=2)),
        (Consensus((Parabel(n_trees=2), DiSMEC())), Consensus(("parabel", "dismec"))),
    ],
)
def test_interrupted_training_resumes(method, other, tmp_path, monkeypatch):
    rng = np.random.default_rng(11)
    X, Y = rng.random((60, 30)), rng.random((60, 300)) < 0.05
    data = Dataset.from_matrix(csr_array(X.astype(np.float32)), csr_array(Y.astype(np.float32)))
    whole = method.fit(data)
    run, solve = Run(threads=1, checkpoint=Checkpoint(tmp_path / "parts")), Solver.solve_with_progress

    def killed_in_the_second_member(self, *arguments):
        if len(list((tmp_path / "parts").rglob("*.npz"))) == 3:
            raise KeyboardInterrupt
        return solve(self, *arguments)

    monkeypatch.setattr(Solver, "solve_with_progress", killed_in_the_second_member)
    with pytest.raises(KeyboardInterrupt):
        method.fit(data, run=run)
    finished = [len(list((tmp_path / "parts" / f"member-{i}").glob("*.npz"))) for i in range(2)]
    assert finished == [2, 1]
    monkeypatch.setattr(Solver, "solve_with_progress", solve)
    with pytest.raises(XmtcError, match="pieces of a training with other data or parameters"):
        other.fit(data, run=run)
    resumed = method.fit(data, run=run)
    for one, other in zip(whole.models, resumed.models, strict=True):
        for tree, same in zip(one.trees, other.trees, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(tree.arrays, same.arrays, strict=True))
    run.checkpoint.remove()
    assert not (tmp_path / "parts").exists()


def test_overlap_matches_a_worked_example():
    one, other = answer([[1, 2, 3], [4, 5, NO_LABEL]]), answer([[1, 3, 9], [5, 6, NO_LABEL]])
    result = [compute_overlap(one, other, k) for k in (1, 2, 3)]
    assert result == pytest.approx([(1 + 0) / 2, (1 / 2 + 1 / 2) / 2, (2 / 3 + 1 / 3) / 2])
    assert compute_overlap(one, one, 2) == 1
    assert compute_overlap(one, one, 6) == pytest.approx((3 / 6 + 2 / 6) / 2)
    with pytest.raises(XmtcError, match="predictions for the same documents; got 2 and 1"):
        compute_overlap(one, answer([[1]]), 1)


def test_commands_train_and_resume_a_consensus(tmp_path):
    corpus = tmp_path / "train.jsonl"
    corpus.write_text(lines_of(200, seed=0))
    settings = ("-p", "members=parabel,dismec", "-p", "parabel.n_trees=1", "-p", "dismec.C=2", "-p", "min_df=1")
    command = ("train", corpus, "-m", "consensus", "-o", tmp_path / "both", *settings)
    code, message = xmtc(*command, "--checkpoint", tmp_path / "parts")
    assert code == 0, message
    assert "consensus trained on 200 documents with 40 labels and" in message
    assert not (tmp_path / "parts").exists()
    assert xmtc("train", corpus, "-m", "parabel", "-o", tmp_path / "one")[0] == 0
    refused = ("train", corpus, "-m", "ensemble", "-o", tmp_path / "both", "-p", "max_words=9")
    assert "ensemble with these members has no parameter 'max_words' for a corpus of t" in xmtc(*refused)[1]
    shown = json.loads(xmtc("compare", tmp_path / "both", tmp_path / "one", "--test", corpus, "--json")[1])
    assert [list(values) for values in shown["models"]] == [["P@1", "P@3", "P@5", "nDCG@5"]] * 2
    assert list(shown["overlap"]) == [f"top{k}" for k in range(1, 6)]
    assert 0.5 < shown["overlap"]["top1"] <= 1
    lines = xmtc("compare", tmp_path / "one", tmp_path / "one", "--test", corpus)[1].splitlines()
    assert len(lines) == 3
    assert lines[2].split()[:3] == ["overlap", "top1", "100.00"]
