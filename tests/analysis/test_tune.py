"""Tests of the hyper-parameter search: search spaces, trials, failures and the command."""

from __future__ import annotations

import filecmp
import json
import shlex
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from commands import lines_of
from planted import make_planted_corpus
from recorded_progress import RecordedProgress
from test_methods import ONE, quick
from typer.testing import CliRunner, Result

from xmtc import METHODS
from xmtc.analysis.tune import search
from xmtc.analysis.tune.search import TuningGoal, TuningTrial, tune
from xmtc.analysis.tune.space import Choice, Range, build_search_space, get_default_domain
from xmtc.cli import app
from xmtc.core.hyperparameters import is_valid_value
from xmtc.data.document import Document
from xmtc.data.in_memory import to_documents
from xmtc.data.splits import hold_out
from xmtc.errors import MissingExtra, XmtcError
from xmtc.features import VIEWS, view_class
from xmtc.features.tfidf import Tfidf
from xmtc.methods import method_class
from xmtc.methods.label_tree.parabel import Parabel
from xmtc.methods.label_tree.plt import PLT
from xmtc.pipeline import Pipeline

TRAIN, VALID = (list(to_documents(*make_planted_corpus(n, seed))) for n, seed in ((300, 1), (80, 2)))
PIPELINE = Pipeline.from_parameters(Parabel(max_leaf=8))
MARKED = ("max_leaf", "C", "min_weight")  # by the trees


def run_search(*wishes: str, fixed: tuple[str, ...] = MARKED, pipeline=PIPELINE, **goal) -> list[TuningTrial]:
    space = build_search_space("parabel", pipeline, wishes, fixed)
    return tune(TRAIN, VALID, pipeline, space, TuningGoal(**{"trials": 5, **goal}), ONE)


def reproducible_fields(trials: list[TuningTrial]) -> list[tuple]:
    """Return the fields of trials that do not depend on time."""
    return [(trial.number, trial.parameters, trial.value, trial.failure) for trial in trials]


def test_search_finds_a_clearly_better_value():
    bad = Pipeline.from_parameters(Parabel(max_leaf=8, min_weight=10.0))  # drops every weight
    result = run_search("min_weight=0.01:10:log", fixed=("max_leaf", "C"), pipeline=bad, trials=8)
    first = next(trial for trial in result if trial.number == 1)
    assert first.parameters == {"min_weight": 10.0}
    assert first.value < 0.5
    assert result[0].value > 0.95
    assert result[0].parameters["min_weight"] < 1
    assert [trial.value for trial in result] == sorted((trial.value for trial in result), reverse=True)


def test_error_metrics_are_minimised():
    result = run_search("min_weight=0.01:10:log", fixed=("max_leaf", "C"), trials=6, metric="ECE@3")
    values = [trial.value for trial in result]
    assert values == sorted(values)
    assert values[0] < values[-1]


def test_search_finds_a_better_feature_option():
    result = run_search("max_features=3,30,0", trials=9)
    assert result[0].parameters == {"max_features": 0}
    assert {trial.parameters["max_features"] for trial in result} == {3, 30, 0}
    assert len(result) == 3  # none was trained twice


def test_first_trial_has_the_default_parameters():
    first = min(run_search("max_features=0,5", fixed=("max_leaf",)), key=lambda trial: trial.number)
    assert first.parameters == {"C": 1.0, "min_weight": 0.1, "max_features": 0}
    assert first.value == search.TrialEvaluator(TRAIN, VALID, "nDCG@5", ONE).evaluate_pipeline(PIPELINE)


def test_trials_stay_in_the_search_space():
    result = run_search("C=2:3", "max_features=5,9", fixed=("max_leaf",))
    assert len(result) == 5
    for trial in result:
        assert 2 <= trial.parameters["C"] <= 3
        assert trial.parameters["max_features"] in (5, 9)
    assert min(result, key=lambda trial: trial.number).parameters["min_weight"] == 0.1  # which does lie in it


def test_equal_seeds_give_equal_trials():
    one, again, other = (run_search(fixed=(), seed=seed) for seed in (1, 1, 2))
    assert reproducible_fields(one) == reproducible_fields(again) != reproducible_fields(other)
    assert {trial.number for trial in one} == {1, 2, 3, 4, 5}


def test_trial_values_are_short_numbers():
    for trial in run_search(fixed=("max_leaf",)):
        assert all(float(f"{value:.3g}") == value for value in trial.parameters.values())
    assert search.round_value(Range(0.12345, 0.12346), 0.123451) == 0.12345
    assert search.round_value(Range(10, 99999), 12345) == 12345


def test_auto_is_refused():
    pipeline = Pipeline.from_parameters("auto")
    for start in (
        lambda: build_search_space("auto", pipeline, ["min_df=1,2"]),
        lambda: tune(TRAIN[:50], VALID[:10], pipeline, {"min_df": Choice((1, 2))}, TuningGoal(trials=1), ONE),
    ):
        with pytest.raises(XmtcError, match="auto plans another method for each training, so tune needs a method"):
            start()


@pytest.mark.parametrize("name", [name for name in METHODS if name != "auto"])  # it plans a method for each training
def test_every_method_can_be_tuned(name):
    values = quick(name) | ({"epochs": 1} if "epochs" in {f.name for f in fields(method_class(name))} else {})
    pipeline = Pipeline.from_parameters(name, parameters=values)
    run_search = next(key for key, (field, _) in pipeline.parameters.items() if get_default_domain(field))
    space = build_search_space(name, pipeline, fixed=[key for key in pipeline.parameters if key != run_search])
    assert list(space) == [run_search]
    result = tune(TRAIN[:150], VALID[:40], pipeline, space, TuningGoal(trials=2), ONE)
    assert [trial.failure for trial in result] == ["", ""]
    assert all(trial.parameters.keys() == space.keys() for trial in result)


def test_parameters_of_consensus_members_are_searched():
    pipeline = Pipeline.from_parameters("consensus", parameters={"members": ("parabel", "parabel", "dismec")})
    space = build_search_space("consensus", pipeline, ["parabel-2.C=0.5,2"], ["dismec.C"])
    assert {"parabel.max_leaf", "parabel.C", "parabel-2.C", "dismec.min_weight"} <= space.keys()
    assert "dismec.C" not in space
    chosen = pipeline.with_parameters({"parabel-2.C": 0.5, "dismec.min_weight": 0.02, "min_df": 3})
    assert [member.C for member in chosen.method.members] == [1.0, 0.5, 1.0]
    assert chosen.method.members[2].min_weight == 0.02
    assert chosen.views["tfidf"].min_df == 3
    result = tune(TRAIN[:100], VALID[:40], pipeline, {"parabel-2.C": Choice((0.5, 2.0))}, TuningGoal(trials=3), ONE)
    assert {trial.parameters["parabel-2.C"] for trial in result} == {0.5, 2.0}


@pytest.mark.parametrize("name", METHODS)
def test_default_search_spaces_are_valid(name):
    kinds = [method_class(name), *map(view_class, VIEWS)]
    for field in (field for kind in kinds for field in fields(kind)):
        place = get_default_domain(field)
        ends = () if place is None else place.values if isinstance(place, Choice) else (place.low, place.high)
        assert all(is_valid_value(field, value) for value in ends), field.name
        is_off = isinstance(place, Range) and place.log and field.default == 0  # which no logarithmic scale has
        assert place is None or field.default in place or is_off, field.name
        assert not isinstance(place, Range) or (place.low < place.high and (place.low > 0 or not place.log)), field.name


def test_features_are_computed_once_unless_they_are_searched(monkeypatch):
    made = []

    def count_words(self, texts, run):
        made.append(self)
        return genuine(self, texts, run)

    genuine = Tfidf.count_words
    monkeypatch.setattr(Tfidf, "count_words", count_words)
    run_search(fixed=())
    assert len(made) == 1
    run_search("ngrams=1,2", trials=8)
    assert {features.ngrams for features in made[1:]} == {1, 2}


def test_validation_set_is_used_for_early_stopping_and_unknown_labels_count_as_missed(monkeypatch):
    seen = []

    def fit(self, data, valid, run):
        seen.append((data.n_docs, valid.n_docs, data.n_labels == valid.n_labels))
        return genuine(self, data, valid, run)

    genuine = Parabel.fit
    monkeypatch.setattr(Parabel, "fit", fit)
    strange = [document._replace(labels=[*document.labels, "stranger"]) for document in VALID]
    known, missed = (
        search.TrialEvaluator(TRAIN, valid, "R@5", ONE).evaluate_pipeline(PIPELINE) for valid in (VALID, strange)
    )
    assert missed < known
    assert seen == [(300, 80, True)] * 2


def test_search_continues_after_a_failed_trial():
    result = run_search("min_df=1,2,299", trials=12)
    assert result[-1].value is None
    assert result[-1].parameters == {"min_df": 299}
    assert result[-1].failure.startswith("No word occurs in at least min_df=299 of the 300 documents")
    assert result[0].value > 0.9
    with pytest.raises(XmtcError, match=r"Every trial failed\. The last one: No word occurs in at least min_df=29"):
        run_search("min_df=298,299", trials=2)


class OutOfMemoryError(RuntimeError):
    """Error with the name of PyTorch's out-of-memory error."""


@pytest.mark.parametrize("error", [MemoryError(), OutOfMemoryError("CUDA out of memory.")])
def test_out_of_memory_is_a_failed_trial(error, monkeypatch):
    def fit(self, *arguments):
        if self.max_leaf == 9:
            raise error
        return genuine(self, *arguments)

    genuine = Parabel.fit
    monkeypatch.setattr(Parabel, "fit", fit)
    result = run_search("max_leaf=8,9", fixed=("C", "min_weight"))
    assert [trial.failure for trial in result] == ["", "Not enough memory for this trial; search smaller sizes."]


def test_programming_error_stops_the_search(monkeypatch):
    def fit(self, *arguments):
        raise RuntimeError("a mistake")

    monkeypatch.setattr(Parabel, "fit", fit)
    with pytest.raises(RuntimeError, match="a mistake"):
        run_search(fixed=())


def test_metric_without_a_value_is_a_failed_trial():
    with pytest.raises(XmtcError, match=r"Every trial failed\. The last one: AUC@rare has no value on the valid"):
        tune(TRAIN, VALID[:2], PIPELINE, {"C": Range(0.5, 2.0)}, TuningGoal("AUC@rare", trials=1), ONE)


def test_invalid_data_is_reported_before_training(monkeypatch):
    monkeypatch.setattr(Parabel, "fit", lambda *arguments: pytest.fail("nothing can be trained"))
    bare = [Document("1", "a word", []), Document("2", "a word", [])]
    with pytest.raises(XmtcError, match="None of the 2 training documents has a label"):
        tune(bare, VALID, PIPELINE, {"C": Range(0.5, 2.0)}, run=ONE)


@pytest.mark.parametrize(("n_finished", "n_kept"), [(2, 2), (0, None)])
def test_ctrl_c_keeps_finished_trials(n_finished, n_kept, monkeypatch):
    def fit(self, *arguments):
        fit.calls += 1
        if fit.calls > n_finished:
            raise KeyboardInterrupt
        return genuine(self, *arguments)

    genuine, fit.calls = Parabel.fit, 0
    monkeypatch.setattr(Parabel, "fit", fit)
    if n_kept is None:
        with pytest.raises(KeyboardInterrupt):
            run_search(fixed=())
    else:
        assert len(run_search(fixed=())) == n_kept


def test_no_trial_starts_after_the_time_limit():
    assert len(run_search(fixed=(), minutes=1e-9)) == 1


def test_progress_counts_trials_and_shows_the_best_value():
    progress = RecordedProgress()
    run = search.replace(ONE, progress=progress)
    result = tune(TRAIN, VALID, PIPELINE, {"C": Range(0.5, 2.0)}, TuningGoal(trials=3), run)
    assert (progress.title, progress.total, progress.steps) == ("tuning parabel", 3, 3)
    assert progress.statuses[-1] == f"best nDCG@5 {100 * result[0].value:.2f}"


@pytest.mark.parametrize(
    ("wish", "place"),
    [
        ("C=0.1:10", Range(0.1, 10.0)),
        ("C=0.1:10:log", Range(0.1, 10.0, log=True)),
        ("max_leaf=4:64", Range(4, 64)),
        ("max_leaf=4,64", Choice((4, 64))),
        ("match_negatives=true,false", Choice((True, False))),
        ("stop_words=english,a:b", Choice(("english", "a:b"))),
        ("stop_words=a,b|c", Choice(("a,b", "c"))),
    ],
)
def test_search_ranges_are_parsed(wish, place):
    name = wish.partition("=")[0]
    assert build_search_space("parabel", Pipeline.from_parameters("parabel"), [wish])[name] == place
    kind = type(place.low) if isinstance(place, Range) else type(place.values[0])
    assert kind in (type(getattr(Parabel(), name, None)), type(getattr(Tfidf(), name, None)))


FORMS = "expected -s name=low:high, name=low:high:log or name=a,b,c."


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ("C", f"-s C has no domain; {FORMS}"),
        ("D=1:2", "parabel has no parameter 'D' to search; it has n_trees, max_leaf, C, "),
        ("C=10:1", "-s C=10:1 is not a range; expected the lower number first."),
        ("C=1:2:3", f"-s C=1:2:3 is not a domain; {FORMS}"),
        ("C=1:x", "parabel: C='x' is invalid; expected a number from 1e-06 to 1000000000.0."),
        ("C=-1:1", "parabel: C=-1 is invalid; expected a number from 1e-06 to 1000000000.0."),
        ("max_leaf=1.5:3", "parabel: max_leaf='1.5' is invalid; expected a whole number of at least 1."),
        ("beam=0:10:log", "-s beam=0:10:log cannot have a logarithmic scale; expected numbers above 0."),
        ("C=1", "-s C=1 has one value only; fix it with -p, or give -s name=low:high"),
        ("n_trees=1,1", "-s n_trees=1,1 has one value only; fix it with -p, or give -s name=low:high"),
        ("min_df=1:2", "min_df is both fixed (-p) and searched (-s); remove one of them."),
    ],
)
def test_invalid_search_ranges_are_refused(wish, sentence):
    with pytest.raises(XmtcError) as error:
        build_search_space("parabel", Pipeline.from_parameters("parabel"), [wish], fixed=["min_df"])
    assert str(error.value).startswith(sentence)


def test_parameter_with_choices_accepts_only_these():
    with pytest.raises(XmtcError, match="plt: arity='2:64' is invalid; expected one of 2, 4, 8"):
        build_search_space("plt", Pipeline.from_parameters("plt"), ["arity=2:64"])
    with pytest.raises(XmtcError, match="PLT: arity=3 is invalid; expected one of 2, 4, 8"):
        PLT(arity=3)


def test_fixed_parameters_are_not_searched():
    assert build_search_space("parabel", Pipeline.from_parameters("parabel"), fixed=["C", "max_leaf"]).keys() == {
        "min_weight"
    }
    with pytest.raises(XmtcError, match="parabel has nothing left to search; name parameters with -s name=low:high"):
        build_search_space("parabel", Pipeline.from_parameters("parabel"), fixed=MARKED)


def test_validation_documents_are_held_out():
    documents = [*TRAIN, *(Document(f"bare{i}", "no labels", []) for i in range(50))]
    train, valid = hold_out(documents, 0.2, seed=1)
    assert (len(train), len(valid)) == (290, 60)
    assert sorted(map(str, [*train, *valid])) == sorted(map(str, documents))
    assert all(document.labels for document in valid)
    again, other = hold_out(documents, 0.2, seed=1)[1], hold_out(documents, 0.2, seed=2)[1]
    np.testing.assert_array_equal(valid.mask, again.mask)
    assert (valid.mask != other.mask).any()
    assert list(valid) == list(valid)  # a second pass gives the same
    with pytest.raises(XmtcError, match="Found 1 documents with labels; expected at least two, one for training"):
        hold_out([Document("1", "a", ["x"]), Document("2", "b", [])])


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tune")
    (folder / "train.jsonl").write_text(lines_of(300, seed=0).replace('"text"', '"body"'))
    (folder / "valid.jsonl").write_text(lines_of(60, seed=1).replace('"text"', '"body"'))
    return folder


def call(*words: object) -> Result:
    return CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)


@pytest.mark.parametrize("valid", [[], ["--valid", "valid.jsonl"]])
def test_command_trains_the_best_parameters(valid, place, monkeypatch):
    monkeypatch.chdir(place)
    words = ["--text", "body", "-p", "max_leaf=8", "-s", "ngrams=1,2", "--trials", "3", "--metric", "p@1", *valid]
    done = call("tune", "train.jsonl", *words, "--trials-file", "trials.json", "-o", "best")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["trial", "P@1", "seconds", "C", "min_weight", "ngrams"]
    assert len(lines[1:4]) == 3
    stored = json.loads(Path("trials.json").read_text())
    best = stored["trials"][0]
    assert lines[1].split()[:2] == [str(best["number"]), f"{100 * best['value']:.2f}"]
    assert f"Best: {' '.join(f'{name}={value}' for name, value in best['parameters'].items())}" in lines
    assert lines[-1] == stored["command"]
    assert stored["fixed"] == ["max_leaf=8"]
    assert "Searching the best P@1 of parabel: C from 0.1 to 10 (log); " in done.stderr
    assert "best: parabel trained on 300 documents" in done.stderr
    command = shlex.split(lines[-1])
    assert command[:2] == ["xmtc", "train"]
    assert ("--valid" in command) == bool(valid)
    command[command.index("-o") + 1] = "again"
    assert call(*command[1:]).exit_code == 0
    for name in ("about.json", "arrays.safetensors"):
        assert filecmp.cmp(f"best/{name}", f"again/{name}", shallow=False)


def test_json_output_and_reasons_of_failures(place, monkeypatch):
    monkeypatch.chdir(place)
    fixed = [word for name in MARKED for word in ("-p", f"{name}=1")]
    words = ["train.jsonl", "--text", "body", *fixed, "-s", "min_df=2,400", "--trials", "4"]
    trials = json.loads(call("tune", *words, "--json").stdout)["trials"]
    assert [trial["parameters"]["min_df"] for trial in trials] == [2, 400]
    shown = call("tune", *words)
    assert [line.split()[1] for line in shown.stdout.splitlines()[1:3]] == [f"{100 * trials[0]['value']:.2f}", "failed"]
    assert f"Trial {trials[1]['number']} failed: No word occurs in at least min_df=400 of the 240 docu" in shown.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-m", "bonsay"], "There is no method 'bonsay'."),
        (["--metric", "P"], "'P' is not a metric"),
        (["--metric", "hP@1"], "--metric hP@1 needs a vocabulary, which the models of a search do not have; use"),
        (["--metric", "micro-F1@decision"], "--metric micro-F1@decision needs a decision, which the models of a"),
        (["-s", "C"], "-s C has no domain"),
        (["-p", "C=1", "-s", "C=1:2"], "C is both fixed (-p) and searched (-s); remove one of them."),
        (["-o", "valid.jsonl"], "valid.jsonl exists and is not a model folder"),
        (["--trials-file", "no/trials.json"], "--trials-file no/trials.json cannot be written; choose another path."),
        (["--trials-file", "train.jsonl"], "train.jsonl is part of the corpus that is read, expected another file"),
        (["--text", "texts"], "train.jsonl, line 1: "),
    ],
)
def test_invalid_options_are_refused_before_training(words, sentence, place, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setattr(Parabel, "fit", lambda *arguments: pytest.fail("this is the work"))
    with pytest.raises(XmtcError) as error:
        call("tune", "train.jsonl", "--text", "body", *words)
    assert str(error.value).startswith(sentence)


def test_missing_optuna_names_the_extra(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtra) as error:
        call("tune", place / "train.jsonl", "--text", "body")
    assert str(error.value) == "xmtc tune needs Optuna: pip install 'xmtc[tune]'"
