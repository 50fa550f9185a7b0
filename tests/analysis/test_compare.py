"""Comparisons: metrics, rankings over corpora, trials of methods, and files."""

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
    found = Predictions(np.array(labels), np.where(np.array(labels) == NO_LABEL, 0, scores))
    return SavedPredictions(found, found, trained, seconds)


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


def test_labels_are_told_apart_by_name():
    truth = GroundTruth.from_documents(DOCUMENTS, [ONE, OTHER])
    assert truth.names == ["a", "b", "c", "new", "z"]
    assert truth.frequencies.tolist() == [8, 4, 2, 0, 1]
    assert truth.n_train == 10
    assert truth.renumber_predictions(POOR)[0].labels.tolist() == [[1, 2], [4, 1], [2, NO_LABEL], [1, 4]]
    assert truth.Y.toarray().astype(int).tolist()[3] == [0, 1, 0, 1, 0]


def test_metrics_by_hand(comparison):
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


def test_psp_is_what_evaluate_says(comparison):
    from xmtc.evaluation import evaluate

    truth = GroundTruth.from_documents(DOCUMENTS, [ONE, OTHER])
    said = evaluate(truth.renumber_predictions(POOR)[0], truth.Y, ["PSP@1", "PSP@3"], truth.frequencies, n_train=10)
    for name, value in said.items():
        assert comparison.entries[0].metrics[name].mean == pytest.approx(value)


def test_differences_are_paired(comparison):
    poor, good, _ = comparison.entries
    assert good.behind["P@1"] == ConfidenceInterval(0, 0, 0)
    found = poor.behind["P@1"]
    assert found.mean == pytest.approx(-1 / 4)
    # one document of four differs: the mean of four draws of it is between -1 and 0
    assert (found.low, found.high) == pytest.approx((-0.75, 0))
    assert not found.excludes_zero


def test_overlap_and_disagreements_by_hand(comparison):
    # of five places: b; b; c; b
    assert comparison.overlap["good"]["poor"] == pytest.approx((1 + 1 + 1 + 1) / 5 / 4)
    first = comparison.disagreements[0]
    assert first.id == "d1"  # all share one label: there the one is right and the other not at all
    assert first.true == ["a"]
    assert first.answers == {"poor": ["z", "b"], "good": ["a", "b"]}


def test_a_document_without_labels_stays_and_none_at_all_is_refused():
    with pytest.raises(XmtcError, match="None of the 2 test documents has a label"):
        GroundTruth.from_documents([Document("1", "x", []), Document("2", "y", [])], [ONE])


def test_answers_are_kept_whole(tmp_path):
    GOOD.save(tmp_path / "good.npz")
    again = SavedPredictions.load(tmp_path / "good.npz")
    assert again.first.labels.tolist() == GOOD.first.labels.tolist()
    assert again.deep.scores.tolist() == GOOD.deep.scores.tolist()
    assert (again.trained, again.seconds) == (ONE, 0.4)
    assert TrainingStatistics.load(tmp_path / "good.npz") == ONE


# Several corpora


def made_up(data: str, values: dict[str, list[float] | None]) -> Comparison:
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


def test_ranks_over_corpora_by_hand():
    flat = [0.5, 0.5, 0.5, 0.5, 0.5]
    first = made_up("one", {"a": [0.9] * 5, "b": flat, "c": [0.7, 0.4, 0.4, 0.4, 0.4]})
    second = made_up("two", {"b": [0.8] * 5, "a": [0.8] * 5, "c": None, "d": flat})
    found = build_ranking([first, second])
    # a: 1 five times, 1.5 five times; b: 3 2 2 2 2 and 1.5; c: 2 3 3 3 3 and, failed, last
    assert found.methods == ["a", "b", "c"]
    assert found.average == pytest.approx([1.25, (3 + 8 + 7.5) / 10, (2 + 12 + 15) / 10])
    assert found.by_metric["P@1"] == pytest.approx([1.25, 2.25, 2.5])
    assert (found.n_results, found.n_corpora, found.left_out) == (10, 2, ["d"])
    assert found.failed == {"c": ["two"]}
    pair = found.pairs[0]
    assert (pair.one, pair.other, pair.wins, pair.losses) == ("a", "b", 5, 0)
    assert pair.p == pytest.approx(2 / 2**5)  # five differences of one sign
    assert pair.adjusted >= pair.p
    assert found.critical == pytest.approx(2.343 * np.sqrt(3 * 4 / (6 * 10)), abs=1e-3)  # Demšar's Table 5
    assert build_ranking([made_up("one", {"a": flat, "b": None})]) is None


def test_stored_comparisons_come_back_and_are_joined(comparison, tmp_path):
    path = tmp_path / "one.json"
    path.write_text(as_json([comparison]))
    (again,) = load_comparisons(str(path))
    assert as_json([again]) == path.read_text()
    more = made_up("letters", {"new": [0.5] * 5})
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


def test_the_front_holds_what_nothing_as_quick_beats():
    entries = [entry("slow", 100, 0.8), entry("best", 10, 0.9), entry("quick", 1, 0.5), entry("worse", 2, 0.4)]
    found = make_points([*entries, entry("unknown", None, 1.0)])
    assert [point.name for point in found] == ["quick", "worse", "best", "slow"]
    assert [point.name for point in find_pareto_front(found)] == ["quick", "best"]
    assert [
        name for name in ("quick", "worse", "best", "slow") if f">{name}<" not in plot_accuracy_and_cost(entries)
    ] == []
    assert plot_accuracy_and_cost(entries[:1]) == ""


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_methods_that_are_all_right_or_all_wrong_have_a_plot(value):
    same = [
        ComparisonEntry(name, {"nDCG@5": ConfidenceInterval(value, value, value)}, cost=Cost(train_s=1.0))
        for name in "ab"
    ]
    plot = plot_accuracy_and_cost(same)
    assert ">a<" in plot
    assert ">b<" in plot


def test_names_in_plots_are_plain_text():
    odd = [entry("$x$ <b>", 1, 0.5), entry("名前", 2, 0.6)]
    plot = plot_accuracy_and_cost(odd)
    assert ">$x$ &lt;b&gt;<" in plot
    assert ">名前<" in plot


def test_a_page_without_matplotlib_has_no_plots(comparison, monkeypatch):
    monkeypatch.setattr("xmtc.analysis.svg.has_matplotlib", lambda: False)
    text = render_page([comparison])
    assert "<svg" not in text
    assert "Plots are omitted because matplotlib is not installed" in text


def test_names_do_not_stand_on_each_other():
    assert spread_positions([10, 11, 50], 16, 100) == [10, 26, 50]
    high = spread_positions([90, 91, 92], 16, 100)
    assert high[-1] <= 100
    assert np.diff(high).min() >= 16


class Tags(HTMLParser):
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


def test_pages_are_whole(comparison):
    other = made_up("<b>other", {"poor": [0.4] * 5, "good": [0.6] * 5, "broken": [0.1] * 5})
    for shown in ([comparison], [comparison, other]):
        text = render_page(shown)
        tags = Tags()
        tags.feed(text)
        assert not tags.open
        assert len(set(tags.ids)) == len(tags.ids)
        assert set(tags.links) <= set(tags.ids)
        assert 'content="xmtc compare"' in text
    assert "critical difference" in text
    assert "<b>other" not in text
    assert "training was ended after 3 s" in render_page([comparison])
    assert "<u>a</u>" in render_page([comparison])


def test_markdown_and_rows(comparison):
    text = render_markdown([comparison])
    assert text.startswith("<!-- xmtc compare -->")
    assert re.search(r"\| broken \|( – \|)+ training was ended after 3 s \|", text)
    found = list(csv.DictReader(io.StringIO(render_csv([comparison]))))
    assert [each["method"] for each in found] == ["poor", "good", "broken"]
    assert float(found[0]["P@1"]) == 0.75
    assert float(found[0]["P@1 behind"]) == -0.25
    assert found[2]["failed"] == "training was ended after 3 s"


# Which methods


def test_methods_and_their_parameters():
    found = parse_specs(["parabel", "dismec", "parabel:n_trees=1;max_leaf=5"], ["min_df=1", "dismec.C=2"], "texts")
    assert [each.name for each in found] == ["parabel", "dismec", "parabel:n_trees=1;max_leaf=5"]
    assert found[0].as_arguments(3) == ["-m", "parabel", "-p", "min_df=1", "-p", "seed=3"]
    assert found[1].as_arguments() == ["-m", "dismec", "-p", "min_df=1", "-p", "C=2"]
    assert found[2].as_arguments() == ["-m", "parabel", "-p", "n_trees=1", "-p", "max_leaf=5", "-p", "min_df=1"]
    assert found[0].has_free_seed
    assert not MethodSpec("x", "parabel", (("seed", "4"),)).has_free_seed
    (both,) = parse_specs(["consensus"], ["consensus.members=parabel,dismec", "consensus.parabel.n_trees=1"], "texts")
    assert both.parameters == (("members", "parabel,dismec"), ("parabel.n_trees", "1"))
    assert not both.has_free_seed


@pytest.mark.parametrize(
    ("methods", "parameters", "said"),
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
def test_what_cannot_be_compared_is_refused_before_the_work(methods, parameters, said):
    with pytest.raises(XmtcError, match=re.escape(said)):
        parse_specs(methods, parameters, "texts")


def test_what_reads_texts_is_a_row_that_fails_on_features():
    assert parse_specs(["attention_xml", "parabel"], [], "features")


def test_names_of_corpora_and_runs():
    assert make_corpus_name("../data/cve-libraries/train.jsonl.gz") == "cve-libraries"
    assert make_corpus_name("corpus.jsonl") == "corpus"
    assert make_corpus_name("texts.txt,labels.txt") == "texts"
    assert make_slug("parabel, seed 0") != make_slug("parabel-seed 0")
    assert re.fullmatch(r"[\w.=-]+", make_slug("consensus:members=a;x=/../y"))


# As commands


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    (folder / "train.jsonl").write_text(lines_of(120, seed=0))
    (folder / "test.jsonl").write_text(lines_of(40, seed=1))
    return folder


ENDLESS = "epochs=1000000000"


@pytest.fixture
def one_process(monkeypatch):
    """Run trials in this process; a training with ENDLESS exceeds the time limit."""

    def run(request, log, limit=None):
        if tuple(ENDLESS.split("=")) in map(tuple, request.get("parameters", [])):
            return TrialResult(None, limit, limit, 50.0, f"train was ended after {limit:g} s", timeout_seconds=limit)
        return run_trial_here(request, log, limit)

    monkeypatch.setattr("xmtc.analysis.trials.run_in_child", run)


def said(done) -> str:
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_methods_are_compared_and_an_interruption_costs_nothing(corpus, one_process):
    """One works, one fails, one takes too long; what was finished is not trained again."""
    corpora = ["--train", "train.jsonl", "--test", "test.jsonl"]
    words = ["compare", *corpora, "--seeds", "2", "--time-limit", "12s", "-o", "out.json"]
    methods = ["dismec", "lexical:vocabulary=nowhere.ttl", f"fasttext:{ENDLESS}"]
    lines = said(invoke(*words, *methods, cwd=corpus)).splitlines()
    assert lines[0].startswith("dismec ")
    assert "nowhere.ttl" in lines[1] + lines[2]
    assert "was ended after 12 s" in lines[1] + lines[2]
    (found,) = load_comparisons(str(corpus / "out.json"))
    dismec = found.entries[0]
    assert dismec.n_runs == 2
    assert dismec.cost.train_s > 0
    assert dismec.cost.peak_mb == 50
    assert dismec.cost.model_mb > 0
    assert dismec.commands[0].startswith("xmtc train train.jsonl -m dismec -p seed=0 -o out.work/")
    assert not list((corpus / "out.work").glob("*/models/*"))
    kept = next((corpus / "out.work").glob("*/results.json"))
    before = {name: each for name, each in load_results(kept).items() if name.startswith("dismec")}
    again = invoke(*words, *methods, cwd=corpus)
    assert {name: each for name, each in load_results(kept).items() if name.startswith("dismec")} == before
    told = again.stderr.decode()
    assert "dismec, seed 0" not in told
    assert "fasttext" not in told  # it would take longer than that again
    assert "lexical" in told  # what failed may work now


def test_an_interrupted_run_is_run_again_and_a_changed_file_too(corpus, monkeypatch, tmp_path):
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
def test_what_is_set_aside_is_told(tmp_path, one_process, has_test):
    """In the file that is named: what is trained on; beside the other, what is compared on."""
    (tmp_path / "train.jsonl").write_text(lines_of(60, seed=0) + "{train\n")
    (tmp_path / "test.jsonl").write_text(lines_of(20, seed=1) + "{test\n")
    words = ["compare", "plt", "--train", "train.jsonl", *(["--test", "test.jsonl"] if has_test else [])]
    done = invoke(*words, "--on-error", "skip", "--rejects", "bad.tsv", "-o", "out.json", cwd=tmp_path)
    told = done.stderr.decode()
    assert "1 line of train.jsonl set aside in bad.tsv, the first at line 61" in told
    assert (tmp_path / "bad.tsv").read_text().endswith("\t{train\n")
    assert ("1 line of test.jsonl set aside in test.jsonl.rejects, the first at line 21" in told) == has_test


def test_a_corpus_without_test_documents_is_divided_and_corpora_are_ranked(corpus, one_process):
    (corpus / "other.jsonl").write_text(lines_of(100, seed=5))
    words = ["parabel", "dismec", "--train", "train.jsonl", "--train", "other.jsonl"]
    words += ["-p", "min_df=1", "-o", "both.html", "--threads", "1"]
    lines = said(invoke("compare", *words, cwd=corpus)).splitlines()
    assert lines[0] == f"{corpus.name}:"
    assert lines[3] == "other:"
    text = (corpus / "both.html").read_text()
    assert "Average ranks" in text
    assert "Friedman" not in text  # whose test is for three methods or more
    assert "Significance of differences" in text
    parts = next((corpus / "both.work").glob("other-*"))
    assert (parts / "train.jsonl.gz").exists()
    assert (parts / "test.jsonl.gz").exists()


def test_nothing_is_left_where_no_folder_was_named(corpus, one_process, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    words = ["--test", "test.jsonl", "--param", "min_df=1", "-o", "-", "--threads", "1"]
    assert said(invoke("compare", "dismec", "--train", "train.jsonl", *words, cwd=corpus)).startswith("<!DOCTYPE html>")
    assert not list(tmp_path.iterdir())


def test_a_corpus_of_which_nothing_can_be_held_out_is_refused(corpus, tmp_path):
    """Asked again, too, and before another is trained on."""
    lines = (json.dumps({"text": f"word {i}", "labels": [f"l{i}"]}) for i in range(5))
    (tmp_path / "own.jsonl").write_text("\n".join(lines))
    for _ in range(2):
        done = invoke("compare", "plt", "--train", corpus / "train.jsonl", "--train", "own.jsonl", cwd=tmp_path)
        assert done.returncode == 2
        told = done.stderr.decode()
        assert told.startswith("xmtc: No document of own.jsonl can be held out")


def test_models_are_compared(corpus):
    for method in ("parabel", "dismec", "plt"):
        said(invoke("train", "train.jsonl", "-m", method, "-o", method, "-p", "min_df=1", cwd=corpus))
    models = ["parabel", "dismec", "plt"]
    lines = said(invoke("compare", *models, "--test", "test.jsonl", cwd=corpus)).splitlines()
    assert [line.split()[0] for line in lines] == [*models, "overlap"]
    shown = json.loads(said(invoke("compare", *models, "--test", "test.jsonl", "--json", cwd=corpus)))
    assert len(shown["models"]) == 3
    assert list(shown["overlap"]) == [f"top{k}" for k in range(1, 6)]
    said(invoke("compare", *models, "--test", "test.jsonl", "-o", "models.json", cwd=corpus))
    (found,) = load_comparisons(str(corpus / "models.json"))
    for entry, measured in zip(found.entries, shown["models"], strict=True):
        assert {name: entry.metrics[name].mean for name in measured} == pytest.approx(measured)
        assert entry.cost.train_s is not None
        assert entry.cost.model_mb > 0
    said(invoke("compare", "models.json", "-o", "again.md", cwd=corpus))
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
        (["parabel", "--train", "train.jsonl", "-o", "train.md"], "exists and is no comparison of xmtc"),
        (["parabel", "--train", "train.jsonl", "--work", "model"], "--work model contains other files"),
        (["parabel", "--train", "train.jsonl", "--test", "a", "--test", "b"], "Found 2 --test for 1 --train"),
        (["parable", "--train", "train.jsonl"], "Did you mean parabel"),
    ],
)
def test_what_does_not_go_together_is_said(corpus, words, sentence):
    (corpus / "model").mkdir(exist_ok=True)
    (corpus / "model" / "about.json").write_text("{}")  # by which a model is known; none is opened here
    (corpus / "train.md").write_text("mine")
    (corpus / "one.json").write_text(as_json([made_up("letters", {"a": [0.5] * 5})]))
    done = invoke("compare", *words, cwd=corpus)
    assert done.returncode == 2
    assert sentence in done.stderr.decode()
    assert (corpus / "train.md").read_text() == "mine"


def test_a_file_is_known_to_be_changed_also_in_a_folder_and_by_a_pattern(tmp_path):
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


def test_a_file_that_is_copied_again_is_the_same_and_another_of_its_size_is_not(tmp_path):
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


def test_a_file_is_read_once_for_all_runs(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    path.write_text("one")
    before = fingerprint_files([str(path)])
    monkeypatch.setattr("builtins.open", lambda *_: pytest.fail("read again"))
    assert fingerprint_files([str(path)]) == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_not_read_to_be_known(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    ((path, size, _),) = fingerprint_files([str(tmp_path / "pipe")])
    assert (path, size) == (str(tmp_path / "pipe"), 0)


def test_models_of_one_name_are_told_apart():
    assert make_unique_names(["m", "other/m", "m", "m/"]) == ["m", "other/m", "m (2)", "m (3)"]
