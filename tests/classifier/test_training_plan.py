"""Method `auto`: plans within a time budget, and their repetition."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from planted import make_planted_corpus
from typer.testing import CliRunner

from xmtc import Classifier, XmtcError
from xmtc.cli import app
from xmtc.cli.train import parse_parameters
from xmtc.core.run import Run
from xmtc.data.in_memory import to_documents
from xmtc.methods.ensemble.auto import Auto
from xmtc.pipeline import Pipeline
from xmtc.training_plan import (
    LEXICAL,
    PlanCandidate,
    Sample,
    TrainingPlan,
    Trial,
    list_candidates,
    make_stacking_plan,
    make_training_plan,
    run_trials,
    select_members,
    select_single,
)

ONE = Run(threads=1, device="cpu")
LABELS = {label for labels in make_planted_corpus(700, seed=1)[1] for label in labels}
DOCUMENTS = list(to_documents(*make_planted_corpus(700, seed=1)))
TEST = make_planted_corpus(80, seed=2)[0]
PARABEL = Trial(PlanCandidate("", "parabel"), 0.60, 1.0, 1.0)
BONSAI = Trial(PlanCandidate("", "bonsai"), 0.66, 1.0, 4.0)
DISMEC = Trial(PlanCandidate("", "dismec"), 0.70, 1.0, 10.0)
CHARS = Trial(PlanCandidate("chars", "dismec"), 0.69, 5.0, 20.0)
ALL_PAIRS = PlanCandidate("words:1-2", "dismec", ngram_min_lift=0.0)
TRIALS = [PARABEL, BONSAI, DISMEC, CHARS]


def make_sample(n_docs: int = 1000) -> Sample:
    return replace(Sample.draw(DOCUMENTS[:100], 0), n_docs=n_docs)


@pytest.mark.parametrize(
    ("seconds", "members", "total"),
    [
        (1000, [DISMEC, BONSAI, CHARS], 1 + 6 * 10 + 6 * 4 + 5 + 6 * 20),  # 5 folds, so 6 trainings each; two views
        (100, [DISMEC, BONSAI], 1 + 6 * 10 + 6 * 4),
        (62, [DISMEC], 1 + 6 * 10),
        (40, [BONSAI], 1 + 6 * 4),  # the best one does not fit
        (10, [], 0),
    ],
)
def test_members_are_added_while_the_time_suffices(seconds, members, total):
    sample = make_sample()
    found, expected = select_members(TRIALS, sample, seconds + 1e-4 * 12 * 1000 * max(1, len(members)))
    assert found == members
    assert expected == pytest.approx(total + 1e-4 * 12 * 1000 * len(members))


def test_members_far_behind_are_left_out_but_for_lexical():
    far = Trial(PlanCandidate("", "fastxml"), 0.64, 1.0, 1.0)
    lexical = Trial(LEXICAL, 0.0, 0.0, 1.0)
    assert select_members([PARABEL, BONSAI, DISMEC, far, lexical], make_sample(), 1000)[0] == [DISMEC, lexical, BONSAI]
    near = replace(far, value=0.66)
    assert select_members([near, DISMEC], make_sample(), 1000)[0] == [DISMEC, near]


def test_single_method_is_the_best_that_is_fast_enough():
    sample = make_sample(100)  # 10 documents cannot calibrate: one training
    assert select_single(TRIALS, sample, 12) == (DISMEC, 11)
    assert select_single(TRIALS, sample, 6) == (BONSAI, 5)
    assert select_single(TRIALS, sample, 1) == (PARABEL, 2)


def test_plan_of_members_names_their_views():
    pairs = Trial(ALL_PAIRS, 0.7, 1.0, 1.0)
    assert "-p bonsai.analyzer" not in make_stacking_plan(Auto(), [BONSAI, pairs], {}, "measured", 9.0).arguments
    own = "-p dismec.analyzer=words:1-2 -p dismec.ngram_min_lift=0"
    assert own in make_stacking_plan(Auto(), [BONSAI, pairs], {}, "measured", 9.0).arguments
    members = [DISMEC, CHARS, BONSAI]
    plan = make_stacking_plan(Auto(minutes=2), members, {"analyzer": "words"}, "measured", 9.0)
    assert plan.arguments == (
        "-m stacked -p members=dismec,dismec,bonsai -p analyzer=words -p dismec-2.analyzer=chars -p minutes=1.5"
    )
    assert plan.as_json() == {"minutes": 2.0, "arguments": plan.arguments, "because": "measured"}


def test_candidates():
    view = Pipeline.from_parameters("auto").views["tfidf"]
    assert PlanCandidate("chars", "dismec") in list_candidates(view, "words")
    assert PlanCandidate("chars", "dismec") not in list_candidates(view, "chars")
    assert PlanCandidate("words", "bonsai") in list_candidates(view, "words:1-2")
    assert PlanCandidate("words", "bonsai") not in list_candidates(view, "words")
    assert ALL_PAIRS in list_candidates(view, "words:1-2")  # which drops most pairs
    assert {candidate.analyzer for candidate in list_candidates(view, None)} == {""}  # the user has set the analyzer


def test_analyzers_that_contradict_the_user_are_no_candidates(monkeypatch):
    view = Pipeline.from_parameters("auto", parameters={"ngrams": 2}).views["tfidf"]
    assert ALL_PAIRS in list_candidates(view, "words")
    assert ALL_PAIRS not in list_candidates(view.replace(ngram_min_lift=2.0), "words")
    assert PlanCandidate("chars", "dismec") not in list_candidates(view, "words")
    given = []
    monkeypatch.setattr("xmtc.training_plan.select_document_analyzer", lambda *args: given.append(args[2]) or "words")
    plan = make_training_plan(Auto(minutes=5), view, DOCUMENTS, ONE)
    assert given == [view]
    assert plan.method == "stacked"
    assert "chars" not in plan.arguments


def test_printed_plan_repeats_the_training():
    own = {"min_df": 1, "lowercase": False, "calibrate": False, "name_documents": "never"}
    tagger = Pipeline.from_parameters("auto", parameters={"minutes": 5.0} | own).fit(DOCUMENTS, run=ONE)
    about = tagger.about
    assert about["method"] == "stacked"
    assert about["plan"]["minutes"] == 5
    assert about["plan"]["because"].startswith("nDCG@5 after 560 documents: parabel ")
    words = shlex.split(about["plan"]["arguments"])
    assert words[:2] == ["-m", "stacked"]
    values = parse_parameters(words[3::2])
    assert {"min_df", "lowercase", "calibrate", "name_documents"} < values.keys()
    again = Pipeline.from_parameters("stacked", parameters=values).fit(DOCUMENTS, run=ONE)
    assert again.about == {name: value for name, value in about.items() if name != "plan"}
    np.testing.assert_array_equal(tagger.predict(TEST, 5).scores, again.predict(TEST, 5).scores)


def test_short_budget_trains_one_method(monkeypatch):
    monkeypatch.setattr("xmtc.training_plan.BUDGET_SHARE", 0.0)
    plan = make_training_plan(Auto(minutes=0.1), Pipeline.from_parameters("auto").views["tfidf"], DOCUMENTS, ONE)
    assert plan.method in ("parabel", "bonsai", "dismec")
    assert plan.reason.startswith("the time suffices for one method; nDCG@5 after 560 documents")


def test_plan_has_the_parameters_of_the_user():
    own = {"min_df": 1, "lowercase": False, "stop_words": ("a", "of"), "calibrate": False, "name_length": 0.3}
    pipeline = Pipeline.from_parameters("auto", parameters=own).with_parameters({"vocabulary": "my names.ttl"})
    planned = pipeline.with_plan(DOCUMENTS[:60], ONE)
    assert planned.plan.arguments == (
        "-m dismec -p analyzer=words -p min_df=1 -p stop_words=a,of, -p lowercase=false -p calibrate=false "
        "-p name_length=0.3 -p 'vocabulary=my names.ttl'"
    )
    assert not planned.calibration.calibrate
    assert planned.names.vocabulary == "my names.ttl"
    words = shlex.split(planned.plan.arguments)
    again = Pipeline.from_parameters("dismec", parameters=parse_parameters(words[3::2]))
    assert replace(planned, plan=None) == again


def test_vocabulary_adds_lexical(tmp_path):
    (tmp_path / "names.tsv").write_text("".join(f"{label}\t{label}\n" for label in {*LABELS, "unheard"}))
    own = {"min_df": 1, "vocabulary": str(tmp_path / "names.tsv"), "name_documents": "always"}
    tagger = Pipeline.from_parameters("auto", parameters={"minutes": 5.0} | own).fit(DOCUMENTS, run=ONE)
    words = shlex.split(tagger.about["plan"]["arguments"])
    assert "lexical" in words[3].removeprefix("members=").split(",")
    assert f"lexical.vocabulary={tmp_path / 'names.tsv'}" in words
    assert "unheard" in list(tagger.labels)  # by name only
    again = Pipeline.from_parameters("stacked", parameters=parse_parameters(words[3::2])).fit(DOCUMENTS, run=ONE)
    np.testing.assert_array_equal(tagger.predict(TEST, 5).scores, again.predict(TEST, 5).scores)


def test_trial_that_would_take_past_the_deadline_is_left_out():
    view = Pipeline.from_parameters("auto").views["tfidf"].replace(analyzer="words")
    candidates = [PlanCandidate("", "parabel"), PlanCandidate("", "dismec")]
    trials = run_trials(candidates, view, Sample.draw(DOCUMENTS, 0), deadline=0.0, run=ONE)
    assert [trial.candidate.method for trial in trials] == ["parabel"]  # there is always one


def test_little_memory(monkeypatch):
    monkeypatch.setattr("xmtc.training_plan.get_memory_limit", lambda: 1000)
    plan = make_training_plan(Auto(), Pipeline.from_parameters("auto").views["tfidf"], DOCUMENTS, ONE)
    assert plan == TrainingPlan("parabel", plan.parameters, "the memory suffices for no other method", 10.0)


@pytest.mark.parametrize(("n_docs", "method"), [(60, "dismec"), (640, "stacked")])
def test_features(n_docs, method):
    X = (np.random.default_rng(0).random((n_docs, 30)) < 0.2).astype(float)
    labels = [[str(column) for column in np.flatnonzero(row)[:2]] or ["none"] for row in X]
    classifier = Classifier("auto", minutes=5).fit(X, labels, run=ONE)
    about = classifier.tagger_.about
    assert about["method"] == method
    assert set(about["views"]) == {"columns"}
    assert classifier.evaluate(X, labels, ["P@1"])["P@1"] > 0.8
    if n_docs == 60:
        assert about["plan"]["because"] == "60 labelled documents are too few to compare methods"


def test_other_methods_have_no_plan():
    pipeline = Pipeline.from_parameters("parabel")
    assert pipeline.with_plan(DOCUMENTS, ONE) is pipeline


def test_command(tmp_path: Path):
    corpus = tmp_path / "corpus.jsonl"
    rows = [{"text": document.text, "labels": list(document.labels)} for document in DOCUMENTS[:80]]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    output = str(tmp_path / "model")
    result = CliRunner().invoke(app, ["train", str(corpus), "-m", "auto", "--minutes", "1", "-o", output])
    assert result.exit_code == 0, result.output
    assert f"Plan: xmtc train {corpus} -m dismec -p analyzer=words -o MODEL\n" in result.output
    assert "Reason: 80 labelled documents are too few to compare methods." in result.output
    wrong = CliRunner().invoke(app, ["train", str(corpus), "--minutes", "1", "-o", output])
    assert isinstance(wrong.exception, XmtcError)
    assert "add -m auto" in str(wrong.exception)
