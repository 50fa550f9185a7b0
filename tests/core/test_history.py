"""Training events: callbacks, which may stop the training, and the history of a model."""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from planted import make_planted_corpus
from typer.testing import CliRunner

from xmtc import Classifier, Pass, Run, Stage, Tagger, XmtcError, plot_history, train
from xmtc.analysis.combine import combine
from xmtc.cli import app
from xmtc.core.checkpoint import Checkpoint
from xmtc.core.history import build_pass_rows, build_stage_rows, from_json_lines, to_json_lines
from xmtc.data.document import Document
from xmtc.explain.highlights import Highlight, WeightedText

TEXTS, TAGS = make_planted_corpus(200, seed=0)
ONE = Run(threads=1, device="cpu")
TINY = {"hidden": 8, "layers": (8,), "dimension": 12, "batch": 40, "rate": 0.02, "average_from": 2}


def documents(n_docs: int = 200) -> list[Document]:
    return [Document(str(i), text, tags) for i, (text, tags) in enumerate(zip(TEXTS[:n_docs], TAGS, strict=False))]


def trees(run: Run = ONE, **parameters) -> Tagger:
    return train(documents(), "parabel", run=run, **{"max_leaf": 10, "n_trees": 1} | parameters)


@cache
def parabel() -> Tagger:
    return trees()


def network(run: Run = ONE, **parameters) -> Tagger:
    """Train a tiny network for four epochs, validated on its training documents."""
    pytest.importorskip("torch")
    return train(documents(), "xml_rnn", documents(), run, **TINY | {"epochs": 4} | parameters)


def passes(tagger: Tagger) -> list[dict]:
    return [entry for entry in tagger.history if entry["event"] == "pass"]


def titles(tagger: Tagger) -> list[str]:
    return list(dict.fromkeys(entry["title"] for entry in tagger.history if entry["event"] == "stage"))


def test_a_linear_method_has_a_history_of_stages():
    tagger = trees()
    assert titles(tagger) == ["reading texts", "weighing words", "summing labels", "growing trees", "training"]
    for entry in tagger.history:
        assert list(entry) == ["event", "title", "seconds", "memory"]
        assert 0 <= entry["seconds"] < 100
        assert entry["memory"] is None or 10**7 < entry["memory"] < 10**12


def test_a_network_has_a_history_of_passes():
    result = passes(network(decay=0.5))
    assert [entry["pass"] for entry in result] == [1, 2, 3, 4]
    assert [entry["rate"] for entry in result] == [0.02, 0.01, 0.005, 0.0025]
    assert result[-1]["loss"] < result[0]["loss"]
    assert {entry["network"] for entry in result} == {"level-0"}
    assert all(0 <= entry["nDCG@5"] <= 1 and entry["seconds"] > 0 and entry["gpu_memory"] is None for entry in result)


def test_a_history_makes_a_data_frame():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(passes(network()))
    assert table["pass"].tolist() == [1, 2, 3, 4]
    assert {"loss", "nDCG@5", "rate", "seconds", "memory"} <= set(table.columns)


def record_passes(loss, scores, run: Run = ONE, metric: str = "P@1", **plan) -> list[Pass]:
    """Train a network with one weight on the batches 0, 1 and 2, and return its epochs."""
    torch = pytest.importorskip("torch")
    from xmtc.nn.training import TrainingOptions, run_training_loop

    module, events = torch.nn.Linear(1, 1, bias=False), []
    usual = {"epochs": 3, "rate": 0.1, "average_from": 9, "average_every": 1, "patience": 9, "seed": 0}

    def watch(event) -> None:
        if isinstance(event, Pass):
            events.append(event)

    def compute_loss(docs):
        return loss(docs, lambda number: module.weight.sum() * 0 + number)

    batches = [np.array([i]) for i in range(3)]
    watched = replace(run, callbacks=(*run.callback_tuple, watch))
    plan_of_passes, score = TrainingOptions(**usual | plan), iter(scores).__next__
    run_training_loop(module, lambda rng: iter(batches), compute_loss, score, plan_of_passes, 3, watched, "it", metric)
    return events


def test_the_loss_of_a_pass_is_the_mean_over_its_steps():
    result = record_passes(lambda docs, constant: constant(2 * float(docs[0])), [0.1, 0.3, 0.2])
    assert [(done.network, done.number, done.loss, done.metrics) for done in result] == [
        ("it", 1, 2.0, {"P@1": 0.1}),
        ("it", 2, 2.0, {"P@1": 0.3}),
        ("it", 3, 2.0, {"P@1": 0.2}),
    ]


def test_parts_of_a_loss_are_added_up():
    result = record_passes(lambda docs, constant: map(constant, (0.5, float(docs[0]))), [0.1, 0.2, 0.3])
    assert [done.loss for done in result] == [1.5, 1.5, 1.5]


def test_the_rate_is_that_of_the_last_step():
    result = record_passes(lambda docs, constant: constant(0), [0.1, 0.2, 0.3], n_steps=9, warmup_steps=3)
    assert [done.rate for done in result] == pytest.approx([0.1 * 2 / 3, 0.1 * 4 / 6, 0.1 * 1 / 6])


def test_without_validation_there_is_no_metric_and_nan_loss_is_null():
    result = record_passes(lambda docs, constant: constant(float("nan")), [0.0, 0.0, 0.0], metric="")
    assert result[0].metrics == {}
    line = to_json_lines([result[0].as_json()])
    assert json.loads(line, parse_constant=pytest.fail)["loss"] is None
    assert len(from_json_lines(line)) == 1


def test_a_callback_stops_after_the_second_pass_and_the_model_predicts():
    stopped = network(Run(threads=1, callbacks=lambda event: isinstance(event, Pass) and event.number == 2))
    assert [entry["pass"] for entry in passes(stopped)] == [1, 2]
    assert titles(stopped)[-2:] == ["training", "calibration/predicting"]
    assert len(stopped.predict_labels(TEXTS[:3])[2]) == 5

    shorter, longer = network(epochs=2), network(epochs=20)
    answers = [tagger.predict(documents(20), run=ONE).scores for tagger in (stopped, shorter, longer)]
    np.testing.assert_array_equal(answers[0], answers[1])  # the best weights so far
    assert not np.array_equal(answers[0], answers[2])


def test_callback_gets_history_events_and_stage_starts():
    events = []
    tagger = network(Run(threads=1, callbacks=events.append))
    assert tuple(event.as_json() for event in events if event.as_json()["event"] != "begin") == tagger.history
    started = [event.title for event in events if isinstance(event, Stage) and event.seconds is None]
    assert started == [event.title for event in events if isinstance(event, Stage) and event.seconds is not None]


def test_only_a_true_callback_result_stops_training():
    answers = {None: False, True: True, False: False, np.True_: True, np.False_: False, "yes": False, 1.5: False}
    for answer, stops in answers.items():
        assert Run(callbacks=lambda event, answer=answer: answer).notify(Stage("training")) == stops
    events = []
    assert Run(callbacks=(lambda event: True, events.append)).notify(Stage("training"))
    assert events == [Stage("training")]  # all callbacks are called, whatever the first returns


def test_stages_cannot_be_stopped():
    tagger = trees(Run(threads=1, callbacks=lambda event: True))
    assert titles(tagger) == titles(trees())
    assert len(tagger.predict_labels(TEXTS[:1])[0]) == 5


@pytest.mark.parametrize("make", [trees, network])
def test_callback_exception_ends_training(make):
    def watch(event) -> None:
        if event.as_json() | {"seconds": 0, "memory": 0} == Stage("training", 0, 0).as_json():
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        make(Run(threads=1, callbacks=watch))


def test_run_without_output_notifies_nobody():
    events = []
    run = Run(progress=True, callbacks=events.append).without_output()
    with run.stage("predicting", 10):
        assert not run.notify(Stage("it"))
    assert events == []


def test_a_history_is_saved_and_loaded(tmp_path):
    tagger = network()
    tagger.save(tmp_path / "model")
    loaded = Tagger.load(tmp_path / "model", verify=True)
    assert loaded.history == tagger.history
    assert Classifier.load(tmp_path / "model").history_ == tagger.history
    loaded.save(tmp_path / "again")
    assert Tagger.load(tmp_path / "again").history == tagger.history


def test_replacing_a_model_replaces_its_history(tmp_path):
    folder = tmp_path / "model"
    tagger = trees()
    tagger.save(folder)
    other = trees(ngrams=2)
    other.save(folder)
    assert Tagger.load(folder).history == other.history
    replace(tagger, history=()).save(folder)
    assert not (folder / "history.jsonl").exists()
    assert Tagger.load(folder).history == ()


STAGE = '{"event": "stage", "title": "training", "seconds": 1.0, "memory": null}\n'
DAMAGES = {
    "half a line": STAGE + STAGE[:20],
    "no JSON": "once upon a time",
    "no UTF-8": b"\xff\xfe\x00",
    "no events": "[]\n3\n",
    "no event that is known": STAGE.replace("stage", "begin"),
    "an invalid event": STAGE.replace('"stage"', "[1]"),
    "no seconds": '{"event": "stage", "title": "training", "memory": 1}\n',
    "invalid seconds": STAGE.replace("1.0", "null"),
    "seconds that are text": STAGE.replace("1.0", '"1"'),
    "seconds that are true": STAGE.replace("1.0", "true"),
    "no number": STAGE.replace("1.0", "NaN"),
    "too large a number": STAGE.replace("1.0", "1e999"),
    "a number beyond floats": STAGE.replace("1.0", "1" * 400),
    "a number too long to read": STAGE.replace("1.0", "1" * 5000),
    "a list inside": STAGE.replace("null", "[[]]"),
    "depth": "[" * 100_000,
    "a pass without a number": '{"event": "pass", "network": "it", "rate": 1, "seconds": 1}\n',
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_history_is_empty_and_the_model_still_works(damage, tmp_path):
    folder = tmp_path / "model"
    parabel().save(folder)
    content = DAMAGES[damage]
    (folder / "history.jsonl").write_bytes(content if isinstance(content, bytes) else content.encode())
    loaded = Tagger.load(folder, verify=True)
    assert loaded.history == ()
    assert loaded.predict_labels(TEXTS[:1], run=ONE) == parabel().predict_labels(TEXTS[:1], run=ONE)
    parabel().save(folder)  # the model can be replaced
    assert Tagger.load(folder).history == parabel().history


def test_history_that_is_too_large_or_a_folder_is_empty(tmp_path):
    folder = tmp_path / "model"
    parabel().save(folder)
    assert Tagger.load(folder).history
    os.truncate(folder / "history.jsonl", 2**27)  # a sparse file
    assert Tagger.load(folder).history == ()
    (folder / "history.jsonl").unlink()
    (folder / "history.jsonl").mkdir()
    assert Tagger.load(folder).history == ()


def read_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("make", [trees, network])
def test_same_seed_gives_the_same_files_except_the_history(make, tmp_path):
    make().save(tmp_path / "one")
    make(Run(threads=1, device="cpu", callbacks=lambda event: None)).save(tmp_path / "two")
    one, two = read_files(tmp_path / "one"), read_files(tmp_path / "two")
    assert one.keys() == two.keys() == {"about.json", "arrays.safetensors", "history.jsonl"}
    del one["history.jsonl"], two["history.jsonl"]
    assert one == two


def without_times(event: dict) -> dict:
    return {key: value for key, value in event.items() if key not in ("seconds", "memory", "gpu_memory")}


def test_resumed_training_has_the_history_of_uninterrupted_training(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from xmtc.nn import training

    whole = network()
    step = training.TrainingState.step

    def interrupt_step(self, loss):
        if (self.epoch, self.n_epoch_steps) == (2, 2):
            raise KeyboardInterrupt
        step(self, loss)

    monkeypatch.setattr(training.TrainingState, "step", interrupt_step)
    first, again = [], []
    run = Run(threads=1, checkpoint=Checkpoint(tmp_path / "parts", interval_seconds=0))
    with pytest.raises(KeyboardInterrupt):
        network(replace(run, callbacks=first.append))
    monkeypatch.setattr(training.TrainingState, "step", step)
    resumed = network(replace(run, callbacks=again.append))
    assert list(map(without_times, passes(resumed))) == list(map(without_times, passes(whole)))
    before, after = ([event for event in each if isinstance(event, Pass)] for each in (first, again))
    assert after[:2] == before  # with the original durations and memory
    assert len(after) == 4

    def stops(event) -> bool:
        return isinstance(event, Pass) and event.number == 3

    stopped = network(replace(run, callbacks=stops))  # a finished training cannot be stopped
    assert passes(stopped) == passes(resumed)
    run.checkpoint.remove()


def test_member_and_network_names_are_in_the_history():
    pytest.importorskip("torch")
    members = {"members": ("xml_rnn", "parabel"), "xml_rnn.epochs": 2, "parabel.max_leaf": 10}
    members |= {f"xml_rnn.{name}": value for name, value in TINY.items()}
    tagger = train(documents(), "consensus", run=ONE, **members)
    assert [(entry["network"], entry["pass"]) for entry in passes(tagger)] == [
        ("member-0/level-0", 1),
        ("member-0/level-0", 2),
    ]
    assert {"member-0/training", "member-1/growing trees", "member-1/training"} <= set(titles(tagger))


def test_combined_model_has_the_histories_of_its_models():
    one, other = parabel(), network()
    both = combine([one, other], valid=documents(20), run=ONE)
    assert [entry["pass"] for entry in passes(both)] == [1, 2, 3, 4]
    assert passes(both)[0]["network"] == "member-1/level-0"
    assert "member-0/growing trees" in titles(both)
    assert titles(both)[-1] == "predicting"  # stage of the calibration


def test_tuning_notifies_trials_and_can_be_stopped():
    pytest.importorskip("optuna")
    from xmtc.analysis.tune.search import TuningGoal, TuningTrial, tune
    from xmtc.analysis.tune.space import build_search_space
    from xmtc.pipeline import Pipeline

    events = []

    def watch(event) -> bool:
        events.append(event)
        return isinstance(event, TuningTrial)

    pipeline = Pipeline.from_parameters("parabel", parameters={"max_leaf": 10})
    space = build_search_space("parabel", pipeline, ["n_trees=1,2,3"], [])
    run = Run(threads=1, callbacks=watch)
    result = tune(documents()[:150], documents()[150:], pipeline, space, TuningGoal(trials=3), run)
    assert len(result) == 1
    assert [event.as_json()["event"] for event in events] == ["begin", "trial", "stage"]
    assert events[1] == result[0]


def test_history_table_rows():
    stage = {"event": "stage", "title": "growing trees", "seconds": 1.5, "memory": 2**30}
    done = Pass("level-0", 1, 0.25, 0.002, 3.0, {"nDCG@5": 0.5}, 2**31, None).as_json()
    history = [stage, stage | {"memory": 2**31}, done, stage | {"title": "training", "memory": None}]
    assert build_stage_rows(history) == [["growing trees (2 times)", "3.0", "2.00"], ["training", "1.5", ""]]
    assert build_pass_rows(history) == [["level-0", "1", "0.25", "50.00", "0.002", "3.0", "2.00", ""]]


def test_unusual_titles_are_stored_unchanged_and_printed_escaped(tmp_path):
    odd = ["reading \u2028 水 \udc80", "\x1b[2J", "a\rb\nc"]
    history = [{"event": "stage", "title": title, "seconds": 1.0, "memory": None} for title in odd]
    replace(parabel(), history=tuple(history)).save(tmp_path / "model")
    assert list(Tagger.load(tmp_path / "model").history) == history
    message = info(tmp_path / "model", "--history")
    assert not {"\x1b", "\u2028", "\r"} & set(message)
    assert "reading � 水 �" in message
    assert "�[2J" in message
    assert [json.loads(line) for line in info(tmp_path / "model", "--history", "--json").splitlines()] == history


@pytest.mark.parametrize("kind", ["passes", "stages"])
def test_plot_of_history(kind, tmp_path):
    pytest.importorskip("matplotlib")
    done = [Pass(f"level-{i % 2}", 1 + i // 2, 1 / (i + 1), 0.1, 1.0, {"nDCG@5": 0.1 * i}).as_json() for i in range(6)]
    history = parabel().history if kind == "stages" else done
    figure = plot_history(history, tmp_path / "history.svg")
    assert (tmp_path / "history.svg").read_bytes().startswith(b"<?xml")
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels == (["loss", "nDCG@5"] if kind == "passes" else [""])
    if kind == "passes":
        lines = figure.axes[0].lines
        assert [line.get_label() for line in lines] == ["level-0", "level-1"]
        np.testing.assert_allclose(lines[1].get_xydata(), [[1, 1 / 2], [2, 1 / 4], [3, 1 / 6]])
    else:
        assert len(figure.axes[0].patches) == len(build_stage_rows(history))


def test_each_stage_has_a_bar_with_the_length_of_its_duration():
    pytest.importorskip("matplotlib")
    stages = [("reading", 5.0), ("training", 1.0), ("training", 0.5), ("reading", 0.04)]
    bars = plot_history([Stage(title, seconds).as_json() for title, seconds in stages]).axes[0].patches
    assert [bar.get_width() for bar in bars] == [5.0, 1.5, 0.04]
    assert len({bar.get_y() for bar in bars}) == 3


def test_plot_errors(tmp_path, monkeypatch):
    with pytest.raises(XmtcError, match="The history is empty"):
        plot_history([])
    pytest.importorskip("matplotlib")
    for name in ("history.nonsense", "nowhere/history.png"):
        with pytest.raises(XmtcError, match=r"cannot be written .*name a file such as history\.png"):
            plot_history(parabel().history, tmp_path / name)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(XmtcError, match="needs matplotlib, which is not installed: pip install matplotlib"):
        plot_history(parabel().history)


def info(*words) -> str:
    """Return the output of `xmtc info`, run in this process because importing PyTorch is slow."""
    done = CliRunner().invoke(app, ["info", *map(str, words)], catch_exceptions=False)
    return done.stdout + done.stderr


def test_info_shows_the_history(tmp_path):
    folder = tmp_path / "model"
    network().save(folder)
    message = info(folder, "--history").splitlines()
    assert message[0].split() == ["stage", "seconds", "GiB"]
    assert message[1].startswith("reading texts ")
    assert message[-6].split() == ["network", "pass", "loss", "nDCG@5", "rate", "seconds", "GiB"]
    assert message[-2].split()[:2] == ["level-0", "4"]
    assert info(folder, "--history", "--json") == (folder / "history.jsonl").read_text()
    assert json.loads(info(folder))["method"] == json.loads(info(folder, "--json"))["method"] == "xml_rnn"

    (folder / "history.jsonl").unlink()
    assert info(folder, "--history") == f"{folder} has no training history.\n"


def test_info_plots_the_history(tmp_path):
    pytest.importorskip("matplotlib")
    parabel().save(tmp_path / "model")
    info(tmp_path / "model", "--history", "--plot", tmp_path / "history.png")
    assert (tmp_path / "history.png").read_bytes().startswith(b"\x89PNG")


def test_module_of_a_trained_network_is_a_copy():
    torch = pytest.importorskip("torch")
    tagger = train(documents(), "rank_ae", run=ONE, hidden=8, layer=8, epochs=2, batch=40)
    module, data = tagger.model.network(), tagger.transform(documents(3))
    assert isinstance(module, torch.nn.Module)
    assert not module.training
    expected = tagger.model.predict(data, 5, ONE)
    batch = tagger.model.network.design.loader(data, torch.device("cpu")).load_batch(np.arange(3))
    with torch.no_grad():
        scores = module(batch).sigmoid().numpy()
    np.testing.assert_allclose(np.take_along_axis(scores, expected.labels, 1), expected.scores, rtol=1e-5)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()  # does not change the model
    np.testing.assert_array_equal(tagger.model.predict(data, 5, ONE).scores, expected.scores)


def test_short_reprs():
    assert repr(parabel()) == "Tagger(parabel, 40 labels, 319 tfidf features, trained on 200 documents)"
    assert repr(network(epochs=1)) == "Tagger(xml_rnn, 40 labels, 321 words, trained on 200 documents)"
    assert repr(Classifier("parabel", n_trees=2)) == "Classifier('parabel', n_trees=2)"
    assert repr(Classifier()) == "Classifier('parabel')"
    both = combine([parabel(), trees(min_df=5)], run=ONE)
    assert "tfidf features, " in repr(both)
    assert "tfidf-2 features, " in repr(both)


def test_a_classifier_has_a_history():
    fitted = Classifier("parabel", max_leaf=10, n_trees=1).fit(TEXTS, TAGS, run=ONE)
    assert titles(fitted.tagger_) == titles(parabel())
    assert fitted.history_ == fitted.tagger_.history
    assert not hasattr(Classifier(), "history_")


def test_highlight_has_an_html_repr():
    pieces = [WeightedText("<b>word</b>", 2.0), WeightedText(" & ", 0.0), WeightedText("other", -1.0)]
    shown = Highlight("<script>", 0.5, pieces, [("<b>word</b>", 2.0), ("other", -1.0)])._repr_html_()
    assert "<b>" not in shown
    assert "<script>" not in shown
    assert '<mark style="--w:1.00" title="2">&lt;b&gt;word&lt;/b&gt;</mark> &amp; ' in shown
    assert '<mark class="against" style="--w:0.50" title="−1">other</mark>' in shown
    style = shown[shown.index("<style>") : shown.index("</style>")]
    assert "--for: 255 140 26" in style
    assert style.count("{") == style.count("}")
    assert style.splitlines()[1].startswith(".xmtc-highlight {")
    assert style.rstrip().endswith("}")
    assert ":root" not in style


PAGE = Path(__file__).parents[2] / "docs/how-to/watch-a-training.md"
documented = pytest.mark.skipif(not PAGE.exists(), reason="the pages are in the checkout alone")


def run_documented_program(name: str) -> Classifier:
    """Run the program under this heading of the documentation page."""
    pytest.importorskip("torch")
    program = PAGE.read_text().partition(f"### {name}\n")[2].partition("```py\n")[2].partition("```")[0]
    assert len(program.splitlines()) <= 13
    classifier = Classifier("xml_rnn", epochs=2, **TINY)
    exec(program, {"classifier": classifier, "texts": TEXTS, "tags": TAGS})
    return classifier


@documented
def test_tensorboard_in_ten_lines(monkeypatch):
    written, module = [], ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = lambda folder: SimpleNamespace(add_scalar=lambda *figure: written.append(figure))
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    done = passes(run_documented_program("TensorBoard").tagger_)
    names = ("loss", "rate", "nDCG@5")
    assert written == [(f"level-0/{name}", entry[name], entry["pass"]) for entry in done for name in names]


@documented
def test_mlflow_in_ten_lines(monkeypatch):
    written, module = [], ModuleType("mlflow")
    module.start_run = nullcontext
    module.log_metrics = lambda figures, step: written.append((figures["level-0/nDCG at 5"], step))
    monkeypatch.setitem(sys.modules, "mlflow", module)
    done = passes(run_documented_program("MLflow").tagger_)
    assert written == [(entry["nDCG@5"], entry["pass"]) for entry in done]


def test_plot_has_a_notebook_repr():
    pytest.importorskip("matplotlib")
    assert plot_history(parabel().history)._repr_png_().startswith(b"\x89PNG")
