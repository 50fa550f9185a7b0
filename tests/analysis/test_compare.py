"""Tests of comparisons: metrics, ranks over corpora, trials of methods, and result files."""

import csv
import io
import json
import os
import re
import tempfile
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from commands import invoke, lines_of, run_trial_here

from xmtc.analysis.compare.comparison import Candidate, Comparison, ComparisonEntry, Cost, compare_candidates
from xmtc.analysis.compare.files import render_csv, render_markdown, render_page
from xmtc.analysis.compare.ground_truth import GroundTruth
from xmtc.analysis.compare.json_file import as_json, join_comparisons, load_comparisons
from xmtc.analysis.compare.methods import load_training_statistics
from xmtc.analysis.compare.models import make_unique_names
from xmtc.analysis.compare.plots import find_pareto_front, make_points, plot_accuracy_and_cost, spread_positions
from xmtc.analysis.compare.ranking import METHOD_RANKING_METRICS, build_ranking
from xmtc.analysis.compare.saved_predictions import SavedPredictions, TrainingStatistics
from xmtc.analysis.method_specs import MethodSpec, parse_specs
from xmtc.analysis.result_files import load_results
from xmtc.analysis.trials import (
    TrialContext,
    TrialResult,
    fingerprint_files,
    make_corpus_name,
    make_slug,
    make_training_run,
    run_in_child,
    run_or_load,
)
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.evaluation.significance import ConfidenceInterval

TRUE = [["a", "b"], ["a"], ["c"], ["b", "new"]]
DOCUMENTS = [Document(f"d{i}", f"text {i}", labels) for i, labels in enumerate(TRUE)]
ONE = TrainingStatistics(["a", "b", "c"], [8, 4, 1], 10)
OTHER = TrainingStatistics(["b", "c", "z"], [3, 2, 1], 9)  # other labels, in other numbers


def answers(labels: list[list[int]], trained: TrainingStatistics, seconds: float | None = None) -> SavedPredictions:
    scores = np.linspace(0.9, 0.5, len(labels[0]))[None, :] * np.ones((len(labels), 1))
    result = Predictions(np.array(labels), np.where(np.array(labels) == NO_LABEL, 0, scores))
    return SavedPredictions(result, result, trained, seconds)


GOOD = answers([[0, 1], [0, 1], [2, 0], [1, 0]], ONE, 0.4)  # a b, a b, c a, b a
POOR = answers([[0, 1], [2, 0], [1, NO_LABEL], [0, 2]], OTHER)  # b c, z b, c, b z


def candidates() -> list[Candidate]:
    return [
        Candidate("poor", (lambda: POOR,), Cost(train_s=1.0)),
        Candidate("good", (lambda: GOOD, lambda: GOOD), Cost(train_s=20.0), commands=("xmtc train x",)),
        Candidate("broken", (), failed="training was ended after 3 s"),
    ]


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    truth = GroundTruth.from_documents(DOCUMENTS, [ONE, OTHER])
    return compare_candidates(candidates(), truth, "letters", {"Made on": "paper"})


def test_labels_are_matched_by_name():
    truth = GroundTruth.from_documents(DOCUMENTS, [ONE, OTHER])
    assert truth.names == ["a", "b", "c", "new", "z"]
    assert truth.frequencies.tolist() == [8, 4, 2, 0, 1]
    assert truth.n_train == 10
    assert truth.renumber_predictions(POOR)[0].labels.tolist() == [[1, 2], [4, 1], [2, NO_LABEL], [1, 4]]
    assert truth.Y.toarray().astype(int).tolist()[3] == [0, 1, 0, 1, 0]


def test_metrics_match_a_worked_example(comparison):
    poor, good, broken = comparison.entries
    assert good.metrics["P@1"].mean == 1
    assert good.metrics["P@3"].mean == pytest.approx((2 + 1 + 1 + 1) / 3 / 4)
    assert poor.metrics["P@1"].mean == pytest.approx(3 / 4)
    assert poor.metrics["P@3"].mean == pytest.approx((1 + 0 + 1 + 1) / 3 / 4)
    assert (good.n_runs, poor.n_runs) == (2, 1)
    assert good.deviation["P@1"] == 0  # the same run twice
    assert poor.deviation == {}
    assert (broken.metrics, broken.failed) == ({}, "training was ended after 3 s")
    assert comparison.successful_entries == [poor, good]
    assert good.cost.predict_ms == pytest.approx(1000 * 0.4 / 4)
    assert poor.cost.predict_ms is None


def test_ratios_equal_the_values_of_evaluate(comparison):
    from xmtc.evaluation import evaluate

    truth = GroundTruth.from_documents(DOCUMENTS, [ONE, OTHER])
    names = ["PSP@1", "PSP@3", "rare@5", "unseen@5"]
    values = evaluate(truth.renumber_predictions(POOR)[0], truth.Y, names, truth.frequencies, n_train=10)
    for name, value in values.items():
        assert comparison.entries[0].metrics[name].mean == pytest.approx(value)


def test_confidence_intervals_are_of_paired_differences(comparison):
    poor, good, _ = comparison.entries
    assert good.behind["P@1"] == ConfidenceInterval(0, 0, 0)
    result = poor.behind["P@1"]
    assert result.mean == pytest.approx(-1 / 4)
    # One of four documents differs, so each bootstrap mean is between -1 and 0.
    assert (result.low, result.high) == pytest.approx((-0.75, 0))
    assert not result.excludes_zero


def test_overlap_and_disagreements_match_a_worked_example(comparison):
    # Top label of the four documents: b, b, c, b.
    assert comparison.overlap["good"]["poor"] == pytest.approx((1 + 1 + 1 + 1) / 5 / 4)
    first = comparison.disagreements[0]
    assert first.id == "d1"  # all share one label: there the one is right and the other not at all
    assert first.true == ["a"]
    assert first.answers == {"poor": ["z", "b"], "good": ["a", "b"]}


def test_unlabelled_documents_count_unless_all_are_unlabelled():
    with pytest.raises(XmtcError, match="None of the 2 test documents has a label"):
        GroundTruth.from_documents([Document("1", "x", []), Document("2", "y", [])], [ONE])


def test_stored_predictions_are_complete(tmp_path):
    GOOD.save(tmp_path / "good.npz")
    again = SavedPredictions.load(tmp_path / "good.npz")
    assert again.first.labels.tolist() == GOOD.first.labels.tolist()
    assert again.deep.scores.tolist() == GOOD.deep.scores.tolist()
    assert (again.trained, again.seconds) == (ONE, 0.4)
    assert TrainingStatistics.load(tmp_path / "good.npz") == ONE


# Several corpora


def make_comparison(data: str, values: dict[str, list[float] | None]) -> Comparison:
    entries = [
        ComparisonEntry(name, failed="no memory")
        if row is None
        else ComparisonEntry(
            name,
            {metric: ConfidenceInterval(v, v, v) for metric, v in zip(METHOD_RANKING_METRICS, row, strict=True)},
            n_runs=1,
        )
        for name, row in values.items()
    ]
    return Comparison(data, 10, 3, 20, entries)


def test_ranks_over_corpora_match_a_worked_example():
    flat = [0.5, 0.5, 0.5, 0.5, 0.5]
    first = make_comparison("one", {"a": [0.9] * 5, "b": flat, "c": [0.7, 0.4, 0.4, 0.4, 0.4]})
    second = make_comparison("two", {"b": [0.8] * 5, "a": [0.8] * 5, "c": None, "d": flat})
    result = build_ranking([first, second])
    # a: 1 five times, 1.5 five times; b: 3 2 2 2 2 and 1.5; c: 2 3 3 3 3 and, failed, last
    assert result.methods == ["a", "b", "c"]
    assert result.average == pytest.approx([1.25, (3 + 8 + 7.5) / 10, (2 + 12 + 15) / 10])
    assert result.by_metric["P@1"] == pytest.approx([1.25, 2.25, 2.5])
    assert (result.n_results, result.n_corpora, result.left_out) == (10, 2, ["d"])
    assert result.failed == {"c": ["two"]}
    pair = result.pairs[0]
    assert (pair.one, pair.other, pair.wins, pair.losses) == ("a", "b", 5, 0)
    assert pair.p == pytest.approx(2 / 2**5)  # five differences of one sign
    assert pair.adjusted >= pair.p
    assert result.critical == pytest.approx(2.343 * np.sqrt(3 * 4 / (6 * 10)), abs=1e-3)  # Demšar's Table 5
    assert build_ranking([make_comparison("one", {"a": flat, "b": None})]) is None


def test_stored_comparisons_are_loaded_and_joined(comparison, tmp_path):
    path = tmp_path / "one.json"
    path.write_text(as_json([comparison]))
    (again,) = load_comparisons(str(path))
    assert as_json([again]) == path.read_text()
    more = make_comparison("letters", {"new": [0.5] * 5})
    with pytest.raises(XmtcError, match="on 4 and on 10 documents"):
        join_comparisons([again, more])
    same = Comparison("letters", 4, 3, 20, more.entries)
    (both,) = join_comparisons([again, same])
    assert [entry.name for entry in both.entries] == ["poor", "good", "broken", "new"]
    assert not both.entries[0].behind
    path.write_text(path.read_text().replace('"entries"', '"entrees"'))
    with pytest.raises(XmtcError, match="is damaged"):
        load_comparisons(str(path))


# Plots and pages


def entry(name: str, seconds: float | None, value: float) -> ComparisonEntry:
    return ComparisonEntry(
        name, {"nDCG@5": ConfidenceInterval(value, value - 0.01, value + 0.01)}, cost=Cost(train_s=seconds)
    )


def test_pareto_front_has_the_methods_that_no_faster_one_beats():
    entries = [entry("slow", 100, 0.8), entry("best", 10, 0.9), entry("quick", 1, 0.5), entry("worse", 2, 0.4)]
    result = make_points([*entries, entry("unknown", None, 1.0)])
    assert [point.name for point in result] == ["quick", "worse", "best", "slow"]
    assert [point.name for point in find_pareto_front(result)] == ["quick", "best"]
    assert [
        name for name in ("quick", "worse", "best", "slow") if f">{name}<" not in plot_accuracy_and_cost(entries)
    ] == []
    assert plot_accuracy_and_cost(entries[:1]) == ""


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_plot_of_methods_with_extreme_values(value):
    same = [
        ComparisonEntry(name, {"nDCG@5": ConfidenceInterval(value, value, value)}, cost=Cost(train_s=1.0))
        for name in "ab"
    ]
    plot = plot_accuracy_and_cost(same)
    assert ">a<" in plot
    assert ">b<" in plot


def test_names_in_plots_are_escaped():
    odd = [entry("$x$ <b>", 1, 0.5), entry("名前", 2, 0.6)]
    plot = plot_accuracy_and_cost(odd)
    assert ">$x$ &lt;b&gt;<" in plot
    assert ">名前<" in plot


def test_page_without_matplotlib_has_no_plots(comparison, monkeypatch):
    monkeypatch.setattr("xmtc.analysis.svg.has_matplotlib", lambda: False)
    text = render_page([comparison])
    assert "<svg" not in text
    assert "Plots are omitted because matplotlib is not installed" in text


def test_names_in_plots_do_not_overlap():
    assert spread_positions([10, 11, 50], 16, 100) == [10, 26, 50]
    high = spread_positions([90, 91, 92], 16, 100)
    assert high[-1] <= 100
    assert np.diff(high).min() >= 16


class TagChecker(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag, attrs):
        held = dict(attrs)
        assert tag != "script"
        assert not (held.get("src") or "").startswith("http")
        self.ids += [held["id"]] if "id" in held else []
        self.links += [held["href"].removeprefix("#")] if "href" in held else []
        if tag not in ("meta", "path", "circle", "rect", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("path", "circle", "rect", "polyline"):
            assert self.open.pop() == tag


def test_html_pages_are_well_formed(comparison):
    other = make_comparison("<b>other", {"poor": [0.4] * 5, "good": [0.6] * 5, "broken": [0.1] * 5})
    for shown in ([comparison], [comparison, other]):
        text = render_page(shown)
        tags = TagChecker()
        tags.feed(text)
        assert not tags.open
        assert len(set(tags.ids)) == len(tags.ids)
        assert set(tags.links) <= set(tags.ids)
        assert 'content="xmtc compare"' in text
    assert "critical difference" in text
    assert "<b>other" not in text
    assert "training was ended after 3 s" in render_page([comparison])
    assert "<u>a</u>" in render_page([comparison])


def test_markdown_and_csv_output(comparison):
    text = render_markdown([comparison])
    assert text.startswith("<!-- xmtc compare -->")
    assert re.search(r"\| broken \|( – \|)+ training was ended after 3 s \|", text)
    result = list(csv.DictReader(io.StringIO(render_csv([comparison]))))
    assert [each["method"] for each in result] == ["poor", "good", "broken"]
    assert float(result[0]["P@1"]) == 0.75
    assert float(result[0]["P@1 behind"]) == -0.25
    assert result[2]["failed"] == "training was ended after 3 s"


# Selection of methods


def test_method_specs_have_their_parameters():
    result = parse_specs(["parabel", "dismec", "parabel:n_trees=1;max_leaf=5"], ["min_df=1", "dismec.C=2"], "texts")
    assert [each.name for each in result] == ["parabel", "dismec", "parabel:n_trees=1;max_leaf=5"]
    assert result[0].as_arguments(3) == ["-m", "parabel", "-p", "min_df=1", "-p", "seed=3"]
    assert result[1].as_arguments() == ["-m", "dismec", "-p", "min_df=1", "-p", "C=2"]
    assert result[2].as_arguments() == ["-m", "parabel", "-p", "n_trees=1", "-p", "max_leaf=5", "-p", "min_df=1"]
    assert result[0].has_free_seed
    assert not MethodSpec("x", "parabel", (("seed", "4"),)).has_free_seed
    (both,) = parse_specs(["consensus"], ["consensus.members=parabel,dismec", "consensus.parabel.n_trees=1"], "texts")
    assert both.parameters == (("members", "parabel,dismec"), ("parabel.n_trees", "1"))
    assert not both.has_free_seed


@pytest.mark.parametrize(
    ("methods", "parameters", "error"),
    [
        (["parable"], [], "Did you mean parabel"),
        (["parabel", "parabel"], [], "parabel is given twice"),
        ([" "], [], "No method is given"),
        (["parabel:n_trees"], [], "n_trees has no value"),
        (["parabel"], ["n_tree=1"], "is a parameter of none of parabel"),
        (["parabel"], ["n_trees"], "has no value"),
        (["parabel:n_trees=many"], [], "parabel:n_trees=many: "),
        (["parabel"], ["parabel.depth=1"], "no parameter 'depth'"),
    ],
)
def test_invalid_methods_are_refused_before_training(methods, parameters, error):
    with pytest.raises(XmtcError, match=re.escape(error)):
        parse_specs(methods, parameters, "texts")


def test_text_method_fails_in_its_own_row_on_features():
    assert parse_specs(["attention_xml", "parabel"], [], "features")


def test_names_of_corpora_and_runs():
    assert make_corpus_name("../data/cve-libraries/train.jsonl.gz") == "cve-libraries"
    assert make_corpus_name("corpus.jsonl") == "corpus"
    assert make_corpus_name("texts.txt,labels.txt") == "texts"
    assert make_slug("parabel, seed 0") != make_slug("parabel-seed 0")
    assert re.fullmatch(r"[\w.=-]+", make_slug("consensus:members=a;x=/../y"))


# Commands


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    (folder / "train.jsonl").write_text(lines_of(120, seed=0))
    (folder / "test.jsonl").write_text(lines_of(40, seed=1))
    return folder


ENDLESS = "epochs=1000000000"


@pytest.fixture
def trials_in_this_process(monkeypatch):
    """Run trials in this process; a training with ENDLESS exceeds the time limit."""

    def run(request, log, limit=None):
        if tuple(ENDLESS.split("=")) in map(tuple, request.get("parameters", [])):
            return TrialResult(None, limit, limit, 50.0, f"train was ended after {limit:g} s", timeout_seconds=limit)
        return run_trial_here(request, log, limit)

    monkeypatch.setattr("xmtc.analysis.trials.run_in_child", run)


def read_stdout(done) -> str:
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_interrupted_comparison_resumes_without_training_again(corpus, trials_in_this_process):
    """Compare a method that works, one that fails and one that exceeds the time limit."""
    corpora = ["--train", "train.jsonl", "--test", "test.jsonl"]
    words = ["compare", *corpora, "--seeds", "2", "--time-limit", "12s", "-o", "out.json"]
    methods = ["dismec", "lexical:vocabulary=nowhere.ttl", f"fasttext:{ENDLESS}"]
    lines = read_stdout(invoke(*words, *methods, cwd=corpus)).splitlines()
    assert lines[0].startswith("dismec ")
    assert "nowhere.ttl" in lines[1] + lines[2]
    assert "was ended after 12 s" in lines[1] + lines[2]
    (result,) = load_comparisons(str(corpus / "out.json"))
    dismec = result.entries[0]
    assert dismec.n_runs == 2
    assert dismec.cost.train_s > 0
    assert dismec.cost.peak_mb == 50
    assert dismec.cost.model_mb > 0
    assert dismec.commands[0].startswith("xmtc train train.jsonl -m dismec -p seed=0 -o out.checkpoint/")
    assert not list((corpus / "out.checkpoint").glob("*/models/*"))
    kept = next((corpus / "out.checkpoint").glob("*/results.json"))
    before = {name: each for name, each in load_results(kept).items() if name.startswith("dismec")}
    again = invoke(*words, *methods, cwd=corpus)
    assert {name: each for name, each in load_results(kept).items() if name.startswith("dismec")} == before
    stderr = again.stderr.decode()
    assert "dismec, seed 0" not in stderr
    assert "fasttext" not in stderr  # it would take longer than that again
    assert "lexical" in stderr  # what failed may work now


def test_interrupted_run_and_changed_file_are_run_again(corpus, monkeypatch, tmp_path):
    place = TrialContext("x", (str(corpus / "train.jsonl"),), str(corpus / "test.jsonl"), tmp_path)
    calls: list[str] = []

    def interrupted(request, log, limit=None):
        calls.append(request["task"])
        raise KeyboardInterrupt

    spec = MethodSpec("dismec", "dismec")
    monkeypatch.setattr("xmtc.analysis.trials.run_in_child", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_or_load(place, make_training_run(place, spec, 0), print)
    assert calls == ["train"]
    assert load_results(place.results_path) == {}
    monkeypatch.setattr("xmtc.analysis.trials.run_in_child", run_in_child)
    first = run_or_load(place, make_training_run(place, spec, 0), print)
    assert "failed" not in first
    assert first["train_s"] > 0
    assert first["peak_mb"] > 10
    os.utime(corpus / "train.jsonl", (1, 1))  # as a copy of the same bytes has another date
    monkeypatch.setattr("xmtc.analysis.trials.run_in_child", interrupted)
    assert run_or_load(place, make_training_run(place, spec, 0), print) == first  # nothing is run
    monkeypatch.setattr("xmtc.__version__", "another")
    assert make_training_run(place, spec, 0).load_result(place) is None
    monkeypatch.undo()
    assert [each.n_docs for each in load_training_statistics(place, [spec])] == [120]
    other = replace(place, test=str(corpus / "train.jsonl"))
    assert not list(load_training_statistics(other, [spec]))  # it is a run on other files
    (tmp_path / first["answers"]).unlink()
    monkeypatch.setattr("xmtc.analysis.trials.run_in_child", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_or_load(place, make_training_run(place, spec, 0), print)


@pytest.mark.parametrize("has_test", [True, False])
def test_rejected_lines_are_reported(tmp_path, trials_in_this_process, has_test):
    """Check that --rejects names the file of the training corpus; the test corpus gets its own."""
    (tmp_path / "train.jsonl").write_text(lines_of(60, seed=0) + "{train\n")
    (tmp_path / "test.jsonl").write_text(lines_of(20, seed=1) + "{test\n")
    words = ["compare", "plt", "--train", "train.jsonl", *(["--test", "test.jsonl"] if has_test else [])]
    done = invoke(*words, "--on-error", "skip", "--rejects", "bad.tsv", "-o", "out.json", cwd=tmp_path)
    stderr = done.stderr.decode()
    assert "1 line of train.jsonl set aside in bad.tsv, the first at line 61" in stderr
    assert (tmp_path / "bad.tsv").read_text().endswith("\t{train\n")
    assert ("1 line of test.jsonl set aside in test.jsonl.rejects, the first at line 21" in stderr) == has_test


def test_corpus_without_test_file_is_split_and_corpora_are_ranked(corpus, trials_in_this_process):
    (corpus / "other.jsonl").write_text(lines_of(100, seed=5))
    words = ["parabel", "dismec", "--train", "train.jsonl", "--train", "other.jsonl"]
    words += ["-p", "min_df=1", "-o", "both.html", "--threads", "1"]
    lines = read_stdout(invoke("compare", *words, cwd=corpus)).splitlines()
    assert lines[0] == f"{corpus.name}:"
    assert lines[3] == "other:"
    text = (corpus / "both.html").read_text()
    assert "Average ranks" in text
    assert "Friedman" not in text  # whose test is for three methods or more
    assert "Significance of differences" in text
    parts = next((corpus / "both.checkpoint").glob("other-*"))
    assert (parts / "train.jsonl.gz").exists()
    assert (parts / "test.jsonl.gz").exists()


def test_comparison_to_standard_output_leaves_no_files(corpus, trials_in_this_process, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    words = ["--test", "test.jsonl", "--param", "min_df=1", "-o", "-", "--threads", "1"]
    assert read_stdout(invoke("compare", "dismec", "--train", "train.jsonl", *words, cwd=corpus)).startswith(
        "<!DOCTYPE html>"
    )
    assert not list(tmp_path.iterdir())


def test_corpus_without_documents_to_hold_out_is_refused(corpus, tmp_path):
    """Check twice that the error comes before any training."""
    lines = (json.dumps({"text": f"word {i}", "labels": [f"l{i}"]}) for i in range(5))
    (tmp_path / "own.jsonl").write_text("\n".join(lines))
    for _ in range(2):
        done = invoke("compare", "plt", "--train", corpus / "train.jsonl", "--train", "own.jsonl", cwd=tmp_path)
        assert done.returncode == 2
        stderr = done.stderr.decode()
        assert stderr.startswith("xmtc: No document of own.jsonl can be held out")


def test_trained_models_are_compared(corpus):
    for method in ("parabel", "dismec", "plt"):
        read_stdout(invoke("train", "train.jsonl", "-m", method, "-o", method, "-p", "min_df=1", cwd=corpus))
    models = ["parabel", "dismec", "plt"]
    lines = read_stdout(invoke("compare", *models, "--test", "test.jsonl", cwd=corpus)).splitlines()
    assert [line.split()[0] for line in lines] == [*models, "overlap"]
    shown = json.loads(read_stdout(invoke("compare", *models, "--test", "test.jsonl", "--json", cwd=corpus)))
    assert len(shown["models"]) == 3
    assert list(shown["overlap"]) == [f"top{k}" for k in range(1, 6)]
    read_stdout(invoke("compare", *models, "--test", "test.jsonl", "-o", "models.json", cwd=corpus))
    (result,) = load_comparisons(str(corpus / "models.json"))
    for entry, measured in zip(result.entries, shown["models"], strict=True):
        assert {name: entry.metrics[name].mean for name in measured} == pytest.approx(measured)
        assert entry.cost.train_s is not None
        assert entry.cost.model_mb > 0
    read_stdout(invoke("compare", "models.json", "-o", "again.md", cwd=corpus))
    assert "Difference from the best" in (corpus / "again.md").read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train.jsonl"], "train.jsonl is not a model folder, a method or a result file"),
        (["absent.json", "one.json"], "absent.json does not exist; expected ITEMs to compare"),
        (["one.json", "model"], "one.json is a result and model is a model; compare models, methods or results"),
        (["model", "--test", "test.jsonl"], "Models are compared with `xmtc compare MODEL MODEL --test CORPUS`"),
        (["model", "model"], "Models are compared with `xmtc compare MODEL MODEL --test CORPUS`"),
        (["model", "model", "--cluster", "auto"], "--cluster applies to trainings"),
        (["bonsai", "model"], "bonsai is a method and model is a model"),
        (["bonsai"], "give a training corpus with --train CORPUS"),
        (["parabel", "--train", "train.jsonl", "--time-limit", "soon"], "--time-limit soon is not a time"),
        (["parabel", "--train", "train.jsonl", "-o", "x.pdf"], "does not say what to write"),
        (["parabel", "--train", "train.jsonl", "-o", "train.md"], "exists and is not a comparison of xmtc"),
        (["parabel", "--train", "train.jsonl", "--checkpoint", "model"], "--checkpoint model contains other files"),
        (["parabel", "--train", "train.jsonl", "--test", "a", "--test", "b"], "Found 2 --test for 1 --train"),
        (["parable", "--train", "train.jsonl"], "Did you mean parabel"),
    ],
)
def test_conflicting_options_are_refused(corpus, words, sentence):
    (corpus / "model").mkdir(exist_ok=True)
    (corpus / "model" / "about.json").write_text("{}")  # by which a model is known; none is opened here
    (corpus / "train.md").write_text("mine")
    (corpus / "one.json").write_text(as_json([make_comparison("letters", {"a": [0.5] * 5})]))
    done = invoke("compare", *words, cwd=corpus)
    assert done.returncode == 2
    assert sentence in done.stderr.decode()
    assert (corpus / "train.md").read_text() == "mine"


def test_fingerprint_notices_changes_in_folders_and_patterns(tmp_path):
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" / "part-1.jsonl"
    path.write_text("one")
    for corpus in (str(path), f"{tmp_path}/folder", f"{tmp_path}/folder/part-*.jsonl"):
        before = fingerprint_files([corpus])
        assert fingerprint_files([corpus]) == before
        path.write_text(path.read_text() + " more")
        assert fingerprint_files([corpus]) != before
    odd = tmp_path / "a,b.jsonl"
    odd.write_text("")
    assert [each[0] for each in fingerprint_files([str(odd), f"{path},{odd}"])] == [str(odd), str(path)]  # each once
    assert fingerprint_files([str(tmp_path / "nowhere")]) == []


def test_fingerprint_depends_on_content_not_on_date(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "a.jsonl"

    def write(content: str, date: int) -> None:
        path.write_text(content)
        os.utime(path, (date, date))

    for date, corpus in enumerate((str(path), str(folder), f"{folder}/*.jsonl")):
        write("one", 3 * date)
        before = fingerprint_files([corpus])
        write("one", 3 * date + 1)
        assert fingerprint_files([corpus]) == before
        write("two", 3 * date + 2)
        assert fingerprint_files([corpus]) != before
    before = fingerprint_files([str(folder)])
    path.rename(folder / "b.jsonl")
    assert fingerprint_files([str(folder)]) != before  # names are ids


def test_fingerprint_reads_a_file_once(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    path.write_text("one")
    before = fingerprint_files([str(path)])
    monkeypatch.setattr("builtins.open", lambda *_: pytest.fail("read again"))
    assert fingerprint_files([str(path)]) == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_fingerprint_does_not_read_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    ((path, size, _),) = fingerprint_files([str(tmp_path / "pipe")])
    assert (path, size) == (str(tmp_path / "pipe"), 0)


def test_models_with_equal_names_get_distinct_names():
    assert make_unique_names(["m", "other/m", "m", "m/"]) == ["m", "other/m", "m (2)", "m (3)"]
