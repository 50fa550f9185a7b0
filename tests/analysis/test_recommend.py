"""Recommendation: extrapolation from samples, selection of methods, and the command."""

import json
import runpy
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import pytest
from commands import invoke, lines_of, run_trial_here

from xmtc.analysis.method_specs import MethodSpec, check_spec
from xmtc.analysis.recommend.method_search import (
    TRIAL_METRICS,
    MethodSearch,
    MethodTrials,
    as_trial_spec,
    count_spec_trainings,
)
from xmtc.analysis.recommend.recommendation import (
    LINEAR_METHODS,
    ExpectedResult,
    Recommendation,
    choose_result,
    list_candidate_methods,
    list_partners,
    recommend_method,
    try_consensus,
)
from xmtc.analysis.recommend.samples import FIRST_SAMPLE_DOCUMENTS, Samples, choose_sample_sizes, make_samples
from xmtc.cli.recommend import format_recommendation
from xmtc.data.corpus import open_corpus
from xmtc.evaluation.learning_curves import GAIN_DECAY, CorpusSize, extrapolate_metric, extrapolate_seconds

PETS = ("cat", "dog", "hen")


def make_trials(tried: list[tuple[int, float]]) -> list[tuple[CorpusSize, float]]:
    """Return trials on samples that all have the same labels."""
    return [(CorpusSize(n_docs, 50), figure) for n_docs, figure in tried]


def test_time_extrapolation_matches_a_worked_example():
    # 2 s to start, then 1 s for 1,000 and 4 s for 4,000 documents: linear in the documents
    tried = make_trials([(1_000, 3.0), (4_000, 6.0)])
    assert extrapolate_seconds(CorpusSize(16_000, 50), tried, startup_seconds=2.0) == pytest.approx(2 + 16)
    assert extrapolate_seconds(CorpusSize(4_000, 50), tried, startup_seconds=2.0) == pytest.approx(6.0)
    # Twice the time for four times the documents: exponent 1/2, below the minimum.
    tried = make_trials([(1_000, 3.0), (4_000, 4.0)])
    assert extrapolate_seconds(CorpusSize(16_000, 50), tried, startup_seconds=2.0) == pytest.approx(2 + 2 * 4**0.7)
    # 16 times the time: exponent 2, above the maximum.
    tried = make_trials([(1_000, 3.0), (4_000, 18.0)])
    assert extrapolate_seconds(CorpusSize(16_000, 50), tried, startup_seconds=2.0) == pytest.approx(2 + 16 * 4**1.3)


def test_time_extrapolation_from_one_sample_matches_a_worked_example():
    assert extrapolate_seconds(
        CorpusSize(8_000, 50), make_trials([(4_000, 4.0)]), startup_seconds=2.0
    ) == pytest.approx(2 + 2 * 2)
    assert extrapolate_seconds(
        CorpusSize(8_000, 200), make_trials([(4_000, 4.0)]), startup_seconds=2.0
    ) == pytest.approx(2 + 2 * 2 * 2)
    # faster than the assumed start-up time
    assert extrapolate_seconds(
        CorpusSize(8_000, 50), make_trials([(4_000, 1.0)]), startup_seconds=2.0
    ) == pytest.approx(1.0)


def test_time_extrapolation_follows_the_number_of_labels():
    whole = CorpusSize(64_000, 400)  # sixteen times the documents, and no more labels
    # 1 s, then 4 s for the documents and twice that for twice the labels: one classifier per label
    tried = [(CorpusSize(1_000, 200), 1.0), (CorpusSize(4_000, 400), 8.0)]
    assert extrapolate_seconds(whole, tried) == pytest.approx(8 * 16)
    assert extrapolate_seconds(CorpusSize(4_000, 1_600), tried) == pytest.approx(8 * 4)
    # 4 s for the documents, independent of the labels: a tree
    tried = [(CorpusSize(1_000, 200), 1.0), (CorpusSize(4_000, 400), 4.0)]
    assert extrapolate_seconds(CorpusSize(16_000, 1_600), tried) == pytest.approx(16)
    # Twice the product of both: the rest is a power of the number of documents.
    tried = [(CorpusSize(1_000, 200), 1.0), (CorpusSize(4_000, 400), 2 * 4**1.2)]
    assert extrapolate_seconds(whole, tried) == pytest.approx(2 * 4**1.2 * 16**1.2)


def test_accuracy_extrapolation_matches_a_worked_example():
    tried = make_trials([(1_000, 0.50), (4_000, 0.60)])
    assert extrapolate_metric(CorpusSize(16_000, 50), tried) == pytest.approx(0.60 + 0.10 * GAIN_DECAY)
    assert extrapolate_metric(CorpusSize(64_000, 50), tried) == pytest.approx(
        0.60 + 0.10 * (GAIN_DECAY + GAIN_DECAY**2)
    )
    assert extrapolate_metric(CorpusSize(4_000, 50), tried) == 0.60
    assert extrapolate_metric(CorpusSize(64_000, 50), tried[:1]) == 0.50  # of one sample nothing is known but itself
    assert extrapolate_metric(CorpusSize(10**9, 50), make_trials([(1_000, 0.5), (4_000, 0.99)])) == 1.0


def test_accuracy_extrapolation_follows_documents_per_label():
    # Four times the documents had twice the labels: half a step, which gained 0.05.
    tried = [(CorpusSize(1_000, 200), 0.05), (CorpusSize(4_000, 400), 0.10)]
    assert extrapolate_metric(CorpusSize(16_000, 400), tried) == pytest.approx(0.10 + 0.10 * GAIN_DECAY)
    # All labels are new: the step is at least a fifth, which avoids a division by zero.
    tried = [(CorpusSize(1_000, 1_000), 0.05), (CorpusSize(4_000, 4_000), 0.06)]
    assert extrapolate_metric(CorpusSize(16_000, 4_000), tried) == pytest.approx(0.06 + 0.05 * GAIN_DECAY)


def test_sample_sizes_grow_to_the_whole_corpus():
    assert choose_sample_sizes(600) == [600]
    assert choose_sample_sizes(FIRST_SAMPLE_DOCUMENTS) == [FIRST_SAMPLE_DOCUMENTS]
    assert choose_sample_sizes(1_120) == [1_120]
    assert choose_sample_sizes(4_906) == [1_000, 4_906]
    assert choose_sample_sizes(43_000) == [1_000, 4_000, 16_000, 43_000]
    # 1,000 of half a million documents are too few.
    assert choose_sample_sizes(533_633) == [4_000, 16_000, 64_000, 256_000, 533_633]


def test_samples_are_rewritten_for_another_corpus(tmp_path):
    """Check that samples and trials of the same corpus in the same folder are kept."""
    work = tmp_path / "work"
    work.mkdir()
    written = []
    for n_docs in (30, 30, 40):
        (tmp_path / "corpus.jsonl").write_text(lines_of(n_docs, seed=n_docs))
        result = make_samples(open_corpus(str(tmp_path / "corpus.jsonl")), None, work)
        (size,) = result.sizes
        assert result.analyzer == "words"
        assert result.get_size(size) == (size, labels_in(work / f"sample-{size}.jsonl"))
        assert result.full_size == (n_docs, labels_in(tmp_path / "corpus.jsonl"))
        assert len((work / "held-out.jsonl").read_text().splitlines()) == len(result.held_out)
        written.append((work / "held-out.jsonl").read_bytes())
    assert written[0] == written[1] != written[2]


def labels_in(path: Path) -> int:
    return len({label for line in path.read_text().splitlines() for label in json.loads(line)["labels"]})


def make_search(values: dict[str, list[float]], seconds: dict[str, float], budget: float = 100.0) -> MethodSearch:
    """Return a search with trials of all methods on 1,000 documents and of some on 4,000."""
    sizes = [1_000, 4_000, 16_000]
    n_labels = dict.fromkeys([*sizes, 20_000], 50)
    result = MethodSearch(Samples(None, "texts", [], sizes, 20_000, n_labels=n_labels), [], budget, print)
    for name, row in values.items():
        trials = MethodTrials(MethodSpec(name, name))
        sizes = [1_000, 4_000][: len(row)]
        trials.values = {metric: list(zip(sizes, row, strict=True)) for metric in TRIAL_METRICS}
        trials.seconds = [(size, 1.0 + seconds[name] * size / 1_000) for size in sizes]
        result.trials.append(trials)
    return result


def test_gain_on_a_missing_sample_is_estimated_from_other_methods():
    result = make_search(
        {"dismec": [0.5, 0.6], "plt": [0.4, 0.52], "parabel": [0.45]}, dict.fromkeys(("dismec", "plt", "parabel"), 1)
    )
    parabel = result.trials[2]
    assert result.estimate_metric(4_000, parabel) == pytest.approx(0.45 + 0.11)
    assert result.count_missed_samples(parabel) == 1
    assert result.estimate_metric(16_000, parabel) == pytest.approx(0.56 + GAIN_DECAY * 0.11)
    parabel.values["nDCG@5"] = [(1_000, 0.15)]  # a third of what the others have, so it gains a third
    assert result.estimate_metric(4_000, parabel) == pytest.approx(0.15 + 0.11 / 3)
    parabel.values["nDCG@5"] = [(1_000, 0.9)]
    assert result.estimate_metric(4_000, parabel) == 1.0


def try_first_pair(search: MethodSearch) -> ExpectedResult | None:
    return try_consensus(search, list_partners(search, search.trials)[0])


def test_label_names_are_tried_to_the_end_and_in_a_consensus():
    names = ("dismec", "plt", "proxml", "lexical")
    search = make_search(
        {"dismec": [0.6, 0.7], "plt": [0.5, 0.6], "proxml": [0.5, 0.6], "lexical": [0.1, 0.1]}, dict.fromkeys(names, 1)
    )
    assert [method.spec.name for method in search.select_promising(search.trials)] == ["dismec", "plt", "lexical"]
    pairs = [[method.spec.name for method in pair] for pair in list_partners(search, search.trials)]
    assert pairs == [["dismec", "plt"], ["dismec", "lexical"]]
    search.trials[3].seconds.pop()  # was not tried on as many documents
    assert len(list_partners(search, search.trials)) == 1
    assert "lexical" not in [spec.method for spec in list_candidate_methods("texts")]
    assert [spec.method for spec in list_candidate_methods("texts", has_vocabulary=True)][-1] == "lexical"


def test_inaccurate_or_slow_methods_are_dropped():
    names = ("dismec", "plt", "parabel", "bonsai", "fastxml")
    seconds = dict.fromkeys(names, 1.0) | {"fastxml": 60.0}
    rows = {"dismec": [0.50], "plt": [0.49], "parabel": [0.47], "bonsai": [0.40], "fastxml": [0.60]}
    result = make_search(rows, seconds)
    alive = result.select_promising(result.trials)
    assert [each.spec.name for each in alive] == ["dismec", "plt", "parabel"]
    assert result.select_promising([result.trials[4]]) == [result.trials[4]]  # more is to be known where nothing fits
    assert not result.select_promising([])


def test_time_limit_of_a_stopped_trial_is_a_lower_bound():
    result = make_search({"dismec": [0.5, 0.6], "plt": [0.4, 0.5]}, {"dismec": 0.1, "plt": 0.1})
    dismec = result.trials[0]
    before = result.estimate_trial_seconds(20_000, dismec)
    dismec.timeouts = [(16_000, 60.0)]
    assert result.estimate_trial_seconds(20_000, dismec) > 60 > before
    assert (dismec.largest_sample, result.count_missed_samples(result.trials[1])) == (
        4_000,
        0,
    )  # nothing is known of how good it is there
    dismec.timeouts = [(16_000, 0.1)]  # hardly any time was left
    assert result.estimate_trial_seconds(20_000, dismec) == before


def test_one_small_sample_drops_no_method_on_a_large_corpus():
    names = ("dismec", "plt", "parabel", "bonsai")
    result = make_search({name: [0.01] for name in names}, dict.fromkeys(names, 3.0), budget=600.0)
    result.samples = replace(result.samples, n_docs=500_000, n_labels=result.samples.n_labels | {500_000: 5_000})
    assert all(result.estimate_trial_seconds(500_000, each) > 900 for each in result.trials)
    assert result.select_promising(result.trials) == result.trials


def test_trial_uses_the_analyzer_of_the_corpus_and_no_calibration():
    result = replace(make_search({}, {}).samples, analyzer="grams")
    assert as_trial_spec(MethodSpec("plt", "plt"), result).parameters == (("calibrate", "false"), ("analyzer", "grams"))
    named = as_trial_spec(MethodSpec("a", "plt", (("analyzer", "words"), ("calibrate", "true"))), result)
    assert named == MethodSpec("a", "plt", (("analyzer", "words"), ("calibrate", "false")))
    assert as_trial_spec(MethodSpec("b", "plt", (("ngrams", "2"),)), result).parameters == (
        ("ngrams", "2"),
        ("calibrate", "false"),
    )
    assert as_trial_spec(MethodSpec("c", "plt"), replace(result, content="features")).parameters == (
        ("calibrate", "false"),
    )
    no_such = MethodSpec("d", "lexical", (("vocabulary", "no.ttl"),))
    assert as_trial_spec(no_such, result).method == "lexical"  # its trial says what is missing


def test_calibration_doubles_the_time_except_on_very_large_corpora():
    result = make_search({"plt": [0.5, 0.6]}, {"plt": 1.0})
    (plt,) = result.trials
    start, trial = result.startup_seconds, result.estimate_trial_seconds(20_000, plt)
    assert result.estimate_training_seconds(plt) == pytest.approx(start + 2 * (trial - start))
    plt.spec = MethodSpec("plt", "plt", (("calibrate", "false"),))
    assert result.estimate_training_seconds(plt) == trial
    assert count_spec_trainings(MethodSpec("plt", "plt"), replace(result.samples, n_docs=200_000)) == 1


# Seconds of processor and nDCG@5 on samples of yso-finna-en; with all documents Bonsai has
# 40.7, Parabel 39.2, PLT 38.2 and DiSMEC, in ten times the time, 38.5.
SHORT_TEXTS = {
    "plt": [(1.8, 0.030), (2.5, 0.090), (5.8, 0.232)],
    "dismec": [(2.8, 0.046), (14.0, 0.129), (74.2, 0.244)],
    "proxml": [(3.2, 0.044), (17.6, 0.128)],
    "bonsai": [(2.4, 0.039), (4.9, 0.128), (11.9, 0.261)],
    "parabel": [(2.2, 0.030), (4.8, 0.101), (9.4, 0.245)],
    "fastxml": [(4.6, 0.020), (19.4, 0.067)],
    "pfastrexml": [(4.6, 0.027), (20.3, 0.083)],
    "annexml": [(3.3, 0.041), (15.1, 0.112)],
}


@pytest.mark.parametrize("times", [0.1, 0.5, 1, 2])
def test_recommendation_for_half_a_million_short_documents(monkeypatch, times):
    """Check an idle and a busy machine."""
    clock = [0.0]

    def fake_trial(self, method, size, share):
        row = self.samples.sizes.index(size)
        known = SHORT_TEXTS[method.spec.method]
        seconds = times * known[row][0] if row < len(known) else 1e9
        limit = self.compute_limit_seconds(method, size, share)
        clock[0] += min(seconds, limit) + 2 * times
        if seconds > limit:
            method.timeouts = [(size, limit)]
            return False
        method.seconds.append((size, seconds))
        for metric in TRIAL_METRICS:
            method.values[metric].append((size, known[row][1]))
        return True

    monkeypatch.setattr(MethodSearch, "run_trial", fake_trial)
    monkeypatch.setattr("xmtc.analysis.recommend.method_search.perf_counter", lambda: clock[0])
    sizes = choose_sample_sizes(533_633)
    n_labels = dict(zip([*sizes, 535_633], [6_847, 14_272, 19_769, 23_131, 23_790, 23_795], strict=True))
    result = Samples(None, "texts", [], sizes, 535_633, n_labels=n_labels)
    advice = recommend_method(result, [MethodSpec(name, name) for name in SHORT_TEXTS], 600.0, print)
    assert advice.chosen.name == "bonsai"
    assert advice.chosen.metrics["nDCG@5"] == pytest.approx(0.407, abs=0.03)
    assert advice.chosen.seconds < 300
    assert clock[0] < 1.1 * 300


def test_a_method_whose_first_trial_runs_out_of_time_is_not_called_failed(monkeypatch, tmp_path):
    def run_out_of_time(context, run, report_progress):
        return {"failed": "train was ended after 20 s", "ended": "after 20 s"}

    monkeypatch.setattr("xmtc.analysis.recommend.method_search.run_or_load", run_out_of_time)
    samples = Samples(tmp_path, "texts", [], [1000], 1000, n_labels={1000: 10})
    for name in ("sample-1000", "held-out"):
        Path(samples.get_path(name)).write_text("")
    search = MethodSearch(samples, [MethodSpec("dismec", "dismec")], 600.0, print)
    search.run()
    assert search.trials[0].failed == ""
    assert search.trials[0].timeouts[0][0] == 1000

    result = Recommendation(
        make_estimate("plt", 0.5, 10), [], {}, {"dismec": "after 20 s on 1,000 documents"}, 1000, 200, 600.0
    )
    text = format_recommendation(result, "train.jsonl", [])
    assert "dismec did not finish after 20 s on 1,000 documents" in text
    assert "failed" not in text


def make_estimate(name: str, value: float, seconds: float, fits: bool = True, doubt: float = 0.0) -> ExpectedResult:
    return ExpectedResult(name, MethodSpec(name, name), {"nDCG@5": value}, seconds, None, {}, fits, doubt)


def test_most_accurate_method_in_the_limit_is_chosen_and_ties_go_to_the_fastest():
    rows = [
        make_estimate("slow", 0.9, 500, fits=False),
        make_estimate("good", 0.801, 90),
        make_estimate("quick", 0.8, 10),
    ]
    assert choose_result(rows).name == "quick"
    assert choose_result([*rows, make_estimate("better", 0.85, 99)]).name == "better"
    assert choose_result([*rows, make_estimate("doubtful", 0.804, 5, doubt=0.01)]).name == "quick"
    assert choose_result([rows[0], make_estimate("slower", 0.95, 900, fits=False)]).name == "slow"


def test_consensus_needs_two_kinds_of_methods_and_a_gain(monkeypatch):
    result = make_search(
        {"dismec": [0.5, 0.6], "proxml": [0.5, 0.59], "plt": [0.4, 0.55]},
        dict.fromkeys(("dismec", "proxml", "plt"), 1.0),
        budget=200.0,
    )
    together = 0.62

    def fake_trial(self, method, size, share):
        assert dict(method.spec.parameters) == {"members": "dismec,plt"}
        method.values = {metric: [(size, together)] for metric in TRIAL_METRICS}
        method.seconds = [(size, 9.0)]
        return True

    monkeypatch.setattr(MethodSearch, "run_trial", fake_trial)
    gained = try_first_pair(result)
    best = result.estimate_metric(20_000, result.trials[0])
    assert gained.metrics["nDCG@5"] == pytest.approx(best + 0.02)
    assert gained.fits
    together = 0.601
    assert not try_first_pair(result).fits
    alone = make_search({"dismec": [0.5]}, {"dismec": 1.0})
    assert list_partners(alone, alone.trials) == []


def test_networks_are_tried_only_where_they_can_be_trained(monkeypatch):
    monkeypatch.setattr("xmtc.analysis.recommend.recommendation.list_trainable_networks", lambda: ["attention_xml"])
    assert [spec.method for spec in list_candidate_methods("texts")] == [*LINEAR_METHODS, "attention_xml"]
    assert [spec.method for spec in list_candidate_methods("features")] == list(LINEAR_METHODS)


def test_command_recommends_a_method_and_keeps_trials(tmp_path, monkeypatch):
    monkeypatch.setattr("xmtc.analysis.trials.run_in_child", run_trial_here)
    (tmp_path / "train.jsonl").write_text(lines_of(1_400, seed=0))
    words = ["recommend", "train.jsonl", "--methods", "plt,dismec,lexical:vocabulary=no.ttl", "--time-limit", "4m"]
    done = invoke(*words, "--json", "--checkpoint", "trials", "--threads", "1", cwd=tmp_path)
    assert "set aside" not in done.stderr.decode()
    assert done.returncode == 0, done.stderr.decode()
    result = json.loads(done.stdout)
    chosen = result["recommended"]
    assert (result["documents"], result["measured on"]) == (1_400, 280)
    assert chosen["name"] in ("plt", "dismec")
    assert chosen["command"] == f"xmtc train train.jsonl -m {chosen['name']} -o MODEL --threads 1"
    assert 0.5 < chosen["metrics"]["nDCG@5"] <= 1
    assert 0 < chosen["seconds"] < 120
    assert list(chosen["tried"]) == ["1120"]
    assert "no.ttl" in result["failed"]["lexical:vocabulary=no.ttl"]
    again = invoke(*words, "--checkpoint", "trials", "--threads", "1", cwd=tmp_path)
    assert "plt" not in again.stderr.decode()  # its trials are kept
    text = again.stdout.decode()
    assert text.startswith("nDCG@5 after")
    assert f"Train {chosen['name']}: expected P@1" in text
    assert text.rstrip().endswith(chosen["command"])


@pytest.mark.parametrize("content", ["texts", "features"])
def test_compilation_does_not_count_as_trial_time(tmp_path, monkeypatch, content):
    """Check that a warm-up on few documents precedes the first trial of each method."""
    requests: list[dict] = []

    def record_request(request, log, limit=None):
        requests.append(request)
        if "few." in str(request["corpus"]):
            for module in ("recommend.method_search", "trials"):
                monkeypatch.setattr(f"xmtc.analysis.{module}.perf_counter", lambda: perf_counter() + 1_000)
        return run_trial_here(request, log, limit)

    monkeypatch.setattr("xmtc.analysis.trials.run_in_child", record_request)
    spec = MethodSpec(f"plt on {content}", "plt")  # a process warms up each spec once
    if content == "texts":
        path = tmp_path / "train.jsonl"
        path.write_text(lines_of(60, seed=0))
    else:
        path = tmp_path / "train.txt"
        path.write_text("60 8 4\n" + "".join(f"{i % 4} {i % 4}:1 {4 + i % 3}:1\n" for i in range(60)))
    result = MethodSearch(make_samples(open_corpus(str(path)), None, tmp_path), [spec], 60.0, print)
    result.run()
    tasks = [(request["task"], "few." in str(request["corpus"])) for request in requests]
    assert tasks == [("train", True), ("train", False), ("predict", False)]
    assert result.trials[0].seconds
    assert result.seconds_left > 0  # 30 s for trials, and 1,000 s for the compiler


@pytest.mark.parametrize(
    ("words", "sentence"),
    [(["--time-limit", "0m"], "--time-limit 0m is not a time"), (["--methods", "parable"], "Did you mean parabel")],
)
def test_invalid_options_are_refused(tmp_path, words, sentence):
    (tmp_path / "train.jsonl").write_text(lines_of(20, seed=0))
    done = invoke("recommend", "train.jsonl", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr.decode()


def test_corpus_without_labels_is_refused(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"id": "1", "text": "a", "labels": []}\n' * 3)
    done = invoke("recommend", "train.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    assert "Found 0 documents with labels" in done.stderr.decode()


SCRIPT = Path(__file__).parents[2] / "experiments" / "recommend.py"


@pytest.mark.skipif(not SCRIPT.exists(), reason="the results are in the checkout alone")
def test_stored_recommendations_are_near_the_best_method_in_the_limit():
    script = runpy.run_path(str(SCRIPT))
    rows = [line.strip("| ").split(" | ") for line in script["render_table"]().splitlines()[2:]]
    assert len(rows) >= 4
    for row in rows:
        assert row[5] == "–" or float(row[5]) <= 1, row
    assert script["render_table"]() in (SCRIPT.parents[1] / "docs" / "results" / "accuracy.md").read_text()


def test_consensus_members_keep_the_parameters_of_their_trials(monkeypatch):
    rows = {"dismec": [0.5, 0.6], "plt": [0.4, 0.55]}
    result = make_search(rows, dict.fromkeys(rows, 1.0), budget=200.0)
    given: dict[str, str] = {}

    def fake_trial(self, method, size, share):
        given.update(method.spec.parameters)
        check_spec(method.spec, "texts")
        method.values = {metric: [(size, 0.62)] for metric in TRIAL_METRICS}
        method.seconds = [(size, 9.0)]
        return True

    monkeypatch.setattr(MethodSearch, "run_trial", fake_trial)
    dismec, plt = result.trials
    dismec.spec = MethodSpec("dismec:C=2;min_df=3", "dismec", (("C", "2"), ("min_df", "3")))
    plt.spec = MethodSpec("plt:max_leaf=20", "plt", (("max_leaf", "20"), ("min_df", "3")))
    assert try_first_pair(result).fits
    assert given == {"members": "dismec,plt", "dismec.C": "2", "min_df": "3", "plt.max_leaf": "20"}
    plt.spec = MethodSpec("plt", "plt", (("min_df", "1"),))  # texts are read in one way
    assert try_first_pair(result) is None


def test_rejected_lines_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr("xmtc.analysis.trials.run_in_child", run_trial_here)
    (tmp_path / "train.jsonl").write_text(lines_of(100, seed=0) + "{train\n")
    (tmp_path / "test.jsonl").write_text(lines_of(40, seed=1) + "{test\n")
    words = [
        "recommend",
        "train.jsonl",
        "--test",
        "test.jsonl",
        "--methods",
        "plt",
        "--time-limit",
        "1m",
        "--threads",
        "1",
    ]
    done = invoke(*words, "--on-error", "skip", "--rejects", "bad.tsv", cwd=tmp_path)
    assert "1 line of train.jsonl set aside in bad.tsv, the first at line 101" in done.stderr.decode()
    assert "1 line of test.jsonl set aside in test.jsonl.rejects, the first at line 41" in done.stderr.decode()


def test_command_tries_label_names_of_a_vocabulary(tmp_path, monkeypatch):
    monkeypatch.setattr("xmtc.analysis.trials.run_in_child", run_trial_here)
    documents = [{"text": f"{animal} number {i}", "labels": [f"{animal}s"]} for i in range(60) for animal in PETS]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, documents)))
    (tmp_path / "pets.tsv").write_text("id\tname\n" + "".join(f"{animal}s\t{animal}\n" for animal in PETS))
    words = ["recommend", "train.jsonl", "--vocab", "pets.tsv", "--time-limit", "1m", "--threads", "1"]
    done = invoke(*words, "--methods", "lexical", cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().splitlines()[-1] == (
        "xmtc train train.jsonl -m lexical -o MODEL --threads 1 --vocab pets.tsv"
    )
    done = invoke(*words[:3], "none.tsv", cwd=tmp_path)
    assert done.returncode == 2
    assert "none.tsv does not exist" in done.stderr.decode()
