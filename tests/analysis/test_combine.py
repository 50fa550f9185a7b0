"""Tests of combining models that were trained separately."""

from __future__ import annotations

import json

import numpy as np
import pytest
from commands import lines_of
from planted import make_planted_corpus, planted_words
from test_damaged_models import set_about_value
from test_features import run as xmtc
from voting import enter

from xmtc import Classifier, Tagger, XmtcError
from xmtc.analysis.combine import combine
from xmtc.data.in_memory import to_documents
from xmtc.methods.ensemble.calibrated_model import CalibratedModel
from xmtc.methods.ensemble.model import RemappedModel
from xmtc.parameters import parameters_from_about
from xmtc.testing import planted_label

TRAIN, TEST = make_planted_corpus(300, seed=1), make_planted_corpus(80, seed=2)
QUICK = {"max_leaf": 8, "n_trees": 1}


def test_combined_models_predict_as_a_consensus_method():
    parts = [Classifier("parabel", **QUICK).fit(*TRAIN), Classifier("dismec").fit(*TRAIN)]
    together = Classifier("consensus", members=("parabel", "dismec"), **{f"parabel.{k}": v for k, v in QUICK.items()})
    together.fit(*TRAIN)
    combined = combine([part.tagger_ for part in parts])
    assert list(combined.views) == ["tfidf"]  # the same view is held once
    assert not any(isinstance(model, RemappedModel) for model in combined.model.models)
    result, expected = combined.predict(to_documents(TEST[0])), together.rank(TEST[0])
    np.testing.assert_array_equal(result.labels, expected.labels)
    np.testing.assert_array_equal(result.scores, expected.scores)
    scores = [tagger.about.pop("scores") for tagger in (combined, together.tagger_)]
    assert [each["are"] for each in scores] == ["raw", "raw"]
    assert combined.about | {"calibrate": True} == together.tagger_.about


@pytest.mark.parametrize("rule", ["noisy-or", "mean"])
def test_models_with_different_views_and_labels_are_combined(rule, tmp_path):
    texts, tags = TRAIN
    one = Classifier("parabel", min_df=1, **QUICK).fit(texts[:200], tags[:200]).tagger_
    few = [[label for label in labels if label < planted_label(20)] + ["another"] for labels in tags]
    other = Classifier("dismec", min_df=3).fit(texts, few).tagger_
    combined = combine([one, other], rule)
    assert list(combined.views) == ["tfidf", "tfidf-2"]
    assert combined.labels.words() == ["another", *(planted_label(i) for i in range(40))]
    assert combined.frequencies[0] == 300

    by_hand = []
    for text in TEST[0]:
        ours, theirs = (
            {tag.label: tag.score for tag in tagger.predict_labels([text], k=100)[0]} for tagger in (one, other)
        )
        pairs = {name: (ours.get(name, 0.0), theirs.get(name, 0.0)) for name in ours | theirs}
        join = {"noisy-or": lambda a, b: 1 - (1 - a) * (1 - b), "mean": lambda a, b: (a + b) / 2}[rule]
        by_hand.append({name: join(*pair) for name, pair in pairs.items()})
    for result, expected in zip(combined.predict_labels(TEST[0], k=5), by_hand, strict=True):
        assert [tag.score for tag in result] == pytest.approx(sorted(expected.values(), reverse=True)[:5], abs=1e-5)
        assert all(tag.score == pytest.approx(expected[tag.label], abs=1e-5) for tag in result)

    combined.save(tmp_path / "both")
    loaded = Tagger.load(tmp_path / "both", verify=True)
    assert loaded.predict_labels(TEST[0]) == combined.predict_labels(TEST[0])
    assert loaded.explain(" ".join(planted_words(3)), planted_label(3))[0][0] in planted_words(3)
    assert loaded.explain(" ".join(planted_words(30)), planted_label(30))[0][0] in planted_words(
        30
    )  # which only one has
    assert loaded.highlight(TEST[0][0], k=2)[0].words


def test_models_with_different_kinds_of_views_are_combined(monkeypatch, tmp_path):
    enter(monkeypatch)
    parts = [Classifier("dismec").fit(*TRAIN).tagger_, Classifier("wordvotes").fit(*TRAIN).tagger_]
    combined = combine([combine(parts), parts[1]])  # and what was combined can be combined
    assert sorted(combined.views) == ["tfidf", "words"]
    combined.save(tmp_path / "both")
    assert Tagger.load(tmp_path / "both").predict_labels(TEST[0]) == combined.predict_labels(TEST[0])


def test_calibration_documents_turn_scores_into_probabilities():
    parts = [Classifier("parabel", **QUICK).fit(*TRAIN).tagger_, Classifier("dismec").fit(*TRAIN).tagger_]
    combined = combine(parts, valid=list(to_documents(*TEST)))
    assert isinstance(combined.model, CalibratedModel)
    assert len(combined.model.model.models) == 2
    other = list(to_documents(*make_planted_corpus(80, seed=3)))
    before, after = (tagger.evaluate(other, ["ECE@5"])["ECE@5"] for tagger in (combine(parts), combined))
    assert after < before / 2
    assert combined.about["parameters"]["calibrated"] is True
    assert combined.predict(to_documents(TEST[0])).scores.max() < 1


@pytest.mark.parametrize(
    ("path", "value", "phrase"),
    [
        ("numbers", None, "numbers does not have one distinct number"),
        ("names.mapping", {"tfidf": "tfidf", "words": "tfidf"}, "names does not have the views"),
        ("views.mapping", {"tfidf-2": 7}, "n_labels or views of models.1 differ"),
    ],
)
def test_damaged_combined_model_is_refused(path, value, phrase, tmp_path):
    one = Classifier("parabel", **QUICK).fit(*TRAIN).tagger_
    other = Classifier("dismec", min_df=3).fit(TRAIN[0], [["a"], ["b"]] * 150).tagger_
    combine([one, other]).save(tmp_path / "both")
    where = "parts.model.models"
    models = json.loads((tmp_path / "both" / "about.json").read_text())["parts"]["model"]["models"]
    inner = models[1]
    *outer, last = path.split(".")
    for name in outer:
        inner = inner[name]
    inner[last] = {"array": "parts"} if value is None else value
    if value is None:
        inner[last] = models[0]["numbers"]
    set_about_value(tmp_path / "both", where, models)
    with pytest.raises(XmtcError, match=f"is damaged: .*{phrase}"):
        Tagger.load(tmp_path / "both").predict_labels(["text"])


def test_command_combines_models(tmp_path):
    for name, n, seed in (("train", 200, 0), ("valid", 60, 1), ("test", 60, 2)):
        (tmp_path / f"{name}.jsonl").write_text(lines_of(n, seed))
    for method in ("parabel", "dismec"):
        assert xmtc("train", tmp_path / "train.jsonl", "-m", method, "-o", tmp_path / method)[0] == 0
    models = (tmp_path / "parabel", tmp_path / "dismec")
    code, output = xmtc("combine", *models, "-o", tmp_path / "both", "--valid", tmp_path / "valid.jsonl")
    assert (code, "2 models with 40 labels" in output) == (0, True)
    assert "P@1" in xmtc("evaluate", tmp_path / "both", tmp_path / "test.jsonl")[1]
    assert json.loads(xmtc("info", tmp_path / "both")[1])["method"] == "consensus"
    assert (
        "--rule max is not known; expected one of" in xmtc("combine", *models, "-o", tmp_path / "x", "--rule", "max")[1]
    )
    assert "expected at least two" in xmtc("combine", models[0], "-o", tmp_path / "x")[1]


def test_views_with_other_parameters_are_described():
    taggers = [Classifier("dismec", **values).fit(*TRAIN).tagger_ for values in ({}, {"ngrams": 2}, {})]
    combined = combine(taggers)
    assert {name: view["ngrams"] for name, view in combined.about["views"].items()} == {"tfidf": 1, "tfidf-2": 2}
    assert parameters_from_about(combined.about)["member_views"] == ("dismec-2.ngrams=2",)
    twice = combine([combined, combine(taggers[1::-1])])
    assert {view["ngrams"] for view in twice.about["views"].values()} == {1, 2}
    assert "members" in parameters_from_about(twice.about)
