"""Ray clusters of several nodes on this machine, each with one CPU: the same bytes as without a cluster, also if nodes
die, join or run out of memory."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import make_planted_corpus
from typer.testing import CliRunner

from xmtc import model_folder
from xmtc.analysis.compare.methods import run_methods
from xmtc.analysis.compare.saved_predictions import SavedPredictions
from xmtc.analysis.method_specs import parse_specs
from xmtc.analysis.trials import TrialContext, make_training_run, run_on_cluster
from xmtc.analysis.tune.search import TuningGoal, tune
from xmtc.analysis.tune.space import Range
from xmtc.cli import app
from xmtc.cli.train import parse_parameters
from xmtc.cluster import connection, scheduling, transfer
from xmtc.cluster.connection import check_reachable, connect
from xmtc.cluster.scheduling import ThroughputEstimate, map_on_cluster, next_batch
from xmtc.cluster.training import import_ray_train
from xmtc.cluster.transfer import MIN_SHARED_ARRAY_BYTES, SENT_ARRAYS, as_writable, put_array, unpack_value
from xmtc.cluster.worker_group import WorkerGroup, plan_worker_group, shrink_worker_group
from xmtc.core.events import Pass
from xmtc.core.remote_run import DriverCallHandler, run_remote_work
from xmtc.core.run import Run
from xmtc.data.document import Document
from xmtc.data.in_memory import to_documents
from xmtc.errors import MissingExtra, XmtcError
from xmtc.methods import METHODS, method_class
from xmtc.pipeline import Pipeline

STORE = 80 * 2**20  # bytes of the object store of a node: about the minimum of Ray
KINDS = {name: method_class(name) for name in METHODS if name not in ("ensemble", "consensus", "slice")}
SHARED = [name for name, kind in KINDS.items() if kind.has_cluster_support and not kind.has_multiprocess_support]
TEXTS, TAGS = make_planted_corpus(300, 1)
DOCUMENTS = list(to_documents(TEXTS, TAGS))


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """Start a head without CPUs and two nodes with one CPU each."""
    pytest.importorskip("ray", reason="Ray is not here: pip install 'xmtc[cluster]', or make cluster-test")
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        cluster.add_node(num_cpus=1, object_store_memory=STORE)
    connect(cluster.address)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the content of a model folder except the history, which contains times."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != model_folder.HISTORY_FILE}


def train_model(folder: Path, method: str, run: Run = Run(threads=2), **parameters: Any) -> dict[str, bytes]:
    tiny = method_class(method).quick_parameters | parameters
    Pipeline.from_parameters(method, parameters={"calibrate": False} | tiny).fit(DOCUMENTS, run=run).save(folder)
    return files_of(folder)


@contextmanager
def make_progress(title: str, total: float | None = None) -> Iterator[Any]:
    """Record progress, and call `PROGRESS_CALLBACKS` with its updates."""

    class CalledProgress:
        def advance(self, steps: float = 1) -> None:
            PROGRESS_CALLBACKS["advance"](title)

        def set_status(self, status: str) -> None:
            raise AssertionError(status)

    yield CalledProgress()


PROGRESS_CALLBACKS: dict[str, Any] = {}


# Same results as on one machine


@pytest.mark.parametrize("method", SHARED)
def test_cluster_training_gives_the_same_bytes(nodes, tmp_path, method):
    assert train_model(tmp_path / "there", method, Run(cluster="auto")) == train_model(tmp_path / "here", method)


def test_matched_negatives_give_the_same_bytes(nodes, tmp_path):
    options = {"match_negatives": True, "max_leaf": 4}
    here = train_model(tmp_path / "here", "parabel", **options)
    assert train_model(tmp_path / "there", "parabel", Run(cluster="auto"), **options) == here


def test_dead_node_does_not_change_the_bytes(nodes, tmp_path, monkeypatch):
    """One block of labels is finished when the node dies."""
    monkeypatch.setattr("xmtc.methods.one_vs_all.base.MAX_BLOCK_LABELS", 2)
    dying = nodes.add_node(num_cpus=1, object_store_memory=STORE)
    gone = []

    def kill(title: str) -> None:
        if title == "training" and not gone:
            gone.append(dying)
            nodes.remove_node(dying, allow_graceful=False)

    monkeypatch.setitem(PROGRESS_CALLBACKS, "advance", kill)
    there = train_model(tmp_path / "there", "dismec", Run(cluster="auto", progress=make_progress))
    assert gone
    assert there == train_model(tmp_path / "here", "dismec")


def test_tasks_and_results_of_a_dead_node_are_recomputed(nodes):
    dying = nodes.add_node(num_cpus=1, object_store_memory=STORE)

    def work(number: int) -> tuple[int, str, np.ndarray]:
        import ray

        time.sleep(0.2)
        return number, ray.get_runtime_context().get_node_id(), np.full(50_000, number)

    found = []
    for answer, size in map_on_cluster("auto", work, range(20), size=lambda number: 2.5):
        assert size == 2.5
        found.append(answer)
        if len(found) == 5:
            nodes.remove_node(dying, allow_graceful=False)
    assert [number for number, _, _ in found] == list(range(20))
    assert all((array == number).all() for number, _, array in found)


def test_joining_node_gets_tasks(nodes):
    def work(number: int) -> str:
        import ray

        time.sleep(0.3)
        return ray.get_runtime_context().get_node_id()

    joined, found = None, []
    for node, _ in map_on_cluster("auto", work, range(60)):
        found.append(node)
        if joined is None:
            joined = nodes.add_node(num_cpus=1, object_store_memory=STORE)
    assert joined.node_id not in found[:2]
    assert joined.node_id in found
    nodes.remove_node(joined)


def test_full_object_store_spills_to_disk(nodes):
    arrays = [np.full(10 * 2**20 // 8, number, np.int64) for number in range(12)]  # 120 MiB, the store has 80

    def work(number: int) -> tuple[int, np.ndarray]:
        return int(arrays[number].sum()), arrays[number]

    found = list(map_on_cluster("auto", work, range(12)))
    for number, ((total, array), _) in enumerate(found):
        assert total == number * arrays[0].size
        assert (array == number).all()
    session = Path(nodes.head_node.get_session_dir_path())
    assert any(path.stat().st_size for path in session.glob("ray_spilled_objects*/*"))


def test_interrupted_training_resumes(nodes, tmp_path, monkeypatch):
    monkeypatch.setattr("xmtc.methods.one_vs_all.base.NARROW_BLOCK_LABELS", 4)
    seen: list[str] = []

    def stop(title: str) -> None:
        seen.append(title)
        if seen.count("training") == 3:
            raise KeyboardInterrupt

    monkeypatch.setitem(PROGRESS_CALLBACKS, "advance", stop)
    run = Run(cluster="auto", progress=make_progress, checkpoint=tmp_path / "pieces")
    with pytest.raises(KeyboardInterrupt):
        train_model(tmp_path / "there", "dismec", run)
    assert len(list((tmp_path / "pieces").glob("labels-*.npz"))) == 2
    seen.clear()
    n_blocks = -(-len({tag for tags in TAGS for tag in tags}) // 4)
    monkeypatch.setitem(PROGRESS_CALLBACKS, "advance", seen.append)
    there = train_model(tmp_path / "there", "dismec", run)
    assert seen.count("training") == n_blocks - 2
    assert there == train_model(tmp_path / "here", "dismec")


def test_new_connection_sends_arrays_again(nodes):
    import ray

    array = np.ones(MIN_SHARED_ARRAY_BYTES)

    def work(number: int) -> float:
        return number * array.sum()

    for _ in range(2):
        assert [answer for answer, _ in map_on_cluster("auto", work, [1, 2])] == [
            MIN_SHARED_ARRAY_BYTES,
            2 * MIN_SHARED_ARRAY_BYTES,
        ]
        ray.shutdown()
        connect(nodes.address)


# Commands


def write(path: Path, documents: list[Document]) -> str:
    from json import dumps

    path.write_text("".join(f"{dumps({'text': each.text, 'labels': each.labels})}\n" for each in documents))
    return str(path)


def run_command(*words: Any) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_commands_train_and_predict_on_a_cluster(nodes, tmp_path, monkeypatch):
    monkeypatch.setattr("xmtc.cli.predict.BATCH_DOCS", 7)
    corpus = write(tmp_path / "corpus.jsonl", DOCUMENTS)
    answers = []
    for name, options in (("there", ["--cluster", nodes.address]), ("here", [])):
        run_command("train", corpus, "-o", tmp_path / name, *options)
        run_command("predict", tmp_path / name, corpus, "-o", tmp_path / f"{name}.csv", *options)
        answers.append((tmp_path / f"{name}.csv").read_bytes())
    assert files_of(tmp_path / "there") == files_of(tmp_path / "here")
    assert answers[0] == answers[1]
    assert answers[0].count(b"\n") > 300


def test_options_without_effect_on_a_cluster_are_rejected(nodes, tmp_path):
    corpus = write(tmp_path / "corpus.jsonl", DOCUMENTS[:60])
    make_progress = run_command(
        "train", corpus, "-o", tmp_path / "model", "-m", "fasttext", "-p", "epochs=1", "--cluster", "auto"
    )
    assert "fasttext trains on one machine" in make_progress


def test_concurrent_trials_equal_sequential_trials(nodes):
    # with a large min_df, some trials have no words left
    space = {"C": Range(0.1, 10.0, log=True), "min_df": Range(1, 200)}
    goal = TuningGoal(trials=6, at_once=4)
    found = [
        tune(DOCUMENTS[:200], DOCUMENTS[200:], Pipeline.from_parameters("parabel"), space, goal, run)
        for run in (Run(cluster="auto"), Run(threads=1))
    ]
    there, here = ([(each.number, each.parameters, each.value, each.failure) for each in trials] for trials in found)
    assert there == here
    assert len(here) == 6


def test_comparison_of_methods_and_seeds_runs_on_a_cluster(nodes, tmp_path):
    corpus, test = write(tmp_path / "train.jsonl", DOCUMENTS[:200]), write(tmp_path / "test.jsonl", DOCUMENTS[200:])
    place = TrialContext("planted", (corpus,), test, tmp_path / "work", threads=1, cluster="auto")
    (spec,) = parse_specs(["parabel"], ["calibrate=false"], "texts")
    make_progress: list[str] = []
    (found,) = run_methods(place, [spec], 2, make_progress.append)
    assert not found.failed
    for seed, load in enumerate(found.loaders):
        tagger = Pipeline.from_parameters("parabel", parameters={"calibrate": False, "seed": seed}).fit(DOCUMENTS[:200])
        expected, answers = SavedPredictions.from_tagger(tagger, DOCUMENTS[200:]).first, load().first
        assert np.array_equal(answers.labels, expected.labels)
        assert np.array_equal(answers.scores, expected.scores)
    assert len(make_progress) == len(found.loaders) == 2
    run_methods(place, [spec], 2, make_progress.append)
    assert len(make_progress) == 2  # both trainings were stored


def test_node_without_the_corpus_is_reported(nodes, tmp_path, monkeypatch):
    corpus = write(tmp_path / "train.jsonl", DOCUMENTS[:20])
    place = TrialContext("planted", (corpus,), corpus, tmp_path / "work", cluster="auto")
    jobs = [make_training_run(place, spec, 0) for spec in parse_specs(["parabel", "plt"], [], "texts")]
    place.work.mkdir()
    Path(corpus).unlink()
    with pytest.raises(XmtcError, match=r"train\.jsonl does not exist on .*, a machine of the cluster"):
        list(run_on_cluster(place, jobs))


def test_cluster_option_needs_methods_to_train(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "about.json").write_text("{}")
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "model"), "--test", "t.jsonl", "--cluster", "auto"])
    assert "--cluster applies to trainings" in str(done.exception)


# Networks, trained by several processes of Ray Train

SMALL = "hidden=8 layers=8 dimension=8 epochs=2 batch=16 height=1 arity=4 calibrate=false".split()


def fit_network(folder: Path, run: Run, *parameters: str) -> bytes:
    """Return the arrays of a small AttentionXML: a tree of two levels, so two networks."""
    pipeline = Pipeline.from_parameters("attention_xml", parameters=parse_parameters([*SMALL, *parameters]))
    pipeline.fit(DOCUMENTS[:120], run=run).save(folder)
    return (folder / "arrays.safetensors").read_bytes()


def by_torchrun(folder: Path, n_processes: int) -> bytes:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n_processes)]
    command += ["-m", "xmtc", "train", write(folder / "corpus.jsonl", DOCUMENTS[:120]), "-m", "attention_xml"]
    command += ["-o", str(folder / "torchrun"), "--threads", "1", "--device", "cpu", *(f"-p{each}" for each in SMALL)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    return (folder / "torchrun" / "arrays.safetensors").read_bytes()


def test_workers_equal_torchrun_also_after_an_interruption(nodes, tmp_path):
    passes: list[tuple[str, int]] = []
    wanted = [(level, number) for level in ("level-0", "level-1") for number in (1, 2)]

    def watch(event: Any) -> None:
        if isinstance(event, Pass):
            passes.append((event.network, event.number))
            if len(passes) == 3:  # the first network is stored by then
                raise KeyboardInterrupt

    run = Run(threads=1, cluster="auto", checkpoint=tmp_path / "pieces", callbacks=watch)
    with pytest.raises(KeyboardInterrupt):
        fit_network(tmp_path / "there", run)
    assert (tmp_path / "pieces" / "level-0-unfinished.npz").exists()
    there = fit_network(tmp_path / "there", run)
    assert passes == wanted[:3] + wanted
    assert there == by_torchrun(tmp_path, 2)


def test_remaining_nodes_continue(nodes, tmp_path):
    """One of three nodes dies after the first network; two continue with the second and report no event twice."""
    dying, passes = nodes.add_node(num_cpus=1, object_store_memory=STORE), []

    def watch(event: Any) -> None:
        if isinstance(event, Pass):
            passes.append((event.network, event.number))
            if len(passes) == 3:
                nodes.remove_node(dying, allow_graceful=False)

    fit_network(tmp_path / "there", Run(threads=1, cluster="auto", checkpoint=tmp_path / "pieces", callbacks=watch))
    assert passes == [(level, n) for level in ("level-0", "level-1") for n in (1, 2)]


def test_consensus_of_a_network_and_a_tree_is_trained(nodes, tmp_path):
    corpus, options = (
        write(tmp_path / "corpus.jsonl", DOCUMENTS),
        ["--cluster-workers", 1, "--log-json", tmp_path / "log"],
    )
    settings = ["-pmembers=bce_ae,parabel", "-pbce_ae.epochs=2", "-pbce_ae.hidden=8", "-pcalibrate=false"]
    words = "train", corpus, "-m", "consensus", *settings, "--threads", 1, "--device", "cpu"
    run_command(*words, "-o", tmp_path / "there", "--cluster", "auto", *options)
    run_command(*words, "-o", tmp_path / "here")
    assert files_of(tmp_path / "there") == files_of(tmp_path / "here")
    assert (tmp_path / "log").read_text().count('"event": "pass", "network": "member-0/network"') == 2


def test_user_error_in_a_worker_is_reported(nodes, tmp_path):
    with pytest.raises(XmtcError, match=r"^nowhere\.txt is neither a file nor the name of known word vectors"):
        fit_network(tmp_path / "there", Run(cluster="auto"), "vectors=nowhere.txt")


def test_missing_ray_train_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.train", None)
    with pytest.raises(MissingExtra, match=r"needs Ray Train and PyTorch .* pip install 'xmtc\[neural,cluster\]'"):
        import_ray_train()


def test_number_of_workers_depends_on_the_cluster():
    done = CliRunner().invoke(app, ["train", "corpus.jsonl", "-o", "model", "--cluster-workers", "2"])
    assert "--cluster-workers needs --cluster" in str(done.exception)
    with pytest.raises(XmtcError, match="workers=-1 is invalid"):
        Run(workers=-1)


TWO_GPUS, FOUR_CPUS, HEAD = {"CPU": 8.0, "GPU": 2.0}, {"CPU": 4.0}, {"memory": 1e9}


@pytest.mark.parametrize(
    ("machines", "device", "n_wanted", "expected"),
    [
        ([HEAD, FOUR_CPUS, FOUR_CPUS], "auto", 0, WorkerGroup(2, 4, False)),  # one per machine
        ([FOUR_CPUS, {"CPU": 2.0}], "auto", 0, WorkerGroup(2, 2, False)),
        ([FOUR_CPUS, FOUR_CPUS], "auto", 3, WorkerGroup(3, 2, False)),
        ([TWO_GPUS, TWO_GPUS, FOUR_CPUS], "auto", 0, WorkerGroup(4, 4, True)),  # one per GPU
        ([TWO_GPUS, FOUR_CPUS], "cpu", 0, WorkerGroup(2, 4, False)),
        ([{"CPU": 1.0, "GPU": 4.0}, TWO_GPUS], "auto", 0, WorkerGroup(3, 1, True)),  # if it has a CPU
    ],
)
def test_worker_group_is_planned(machines, device, n_wanted, expected):
    assert plan_worker_group(machines, device, n_wanted) == expected


def test_too_many_requested_workers_are_rejected():
    with pytest.raises(XmtcError, match="room for 2 workers, but 3 are requested; expected at most one per GPU"):
        plan_worker_group([TWO_GPUS], n_requested=3)
    with pytest.raises(XmtcError, match="room for 0 workers, but 1 are requested"):
        plan_worker_group([HEAD])
    with pytest.raises(XmtcError, match="device=cuda:1 names a device of this machine"):
        plan_worker_group([TWO_GPUS], "cuda:1")
    assert shrink_worker_group(WorkerGroup(3, 2, False), [FOUR_CPUS]) == WorkerGroup(2, 2, False)
    with pytest.raises(XmtcError, match="no machine left"):
        shrink_worker_group(WorkerGroup(3, 2, False), [HEAD])


def test_remote_run_forwards_progress_events_and_checkpoints(tmp_path, monkeypatch):
    """Without a cluster: remote calls are direct calls. The run starts twice, as after the death of a node."""
    told_of, steps = [], []
    monkeypatch.setitem(PROGRESS_CALLBACKS, "advance", steps.append)
    host = DriverCallHandler(Run(checkpoint=tmp_path, callbacks=told_of.append), make_progress)

    def work(run: Run) -> str:
        run.checkpoint.claim("a training")
        kept = run.checkpoint.sub_checkpoint("part").load_piece("piece")
        if kept is None:
            run.checkpoint.sub_checkpoint("part").claim("a training")
            run.checkpoint.sub_checkpoint("part").save_piece("piece", {"numbers": np.arange(3)})
        with run.stage("training", 2) as progress:
            run.notify(Pass("network", 1, 0.5, 0.1, 1.0))
            progress.advance()
            if kept is None:
                raise RuntimeError("Another one has died.")
        return f"{run.device} {kept['numbers'].tolist()}"

    with pytest.raises(RuntimeError, match="has died"):
        run_remote_work(work, Run(), True, True, host.handle, "cpu")
    assert run_remote_work(work, Run(), True, True, host.handle, "cpu") == "cpu [0, 1, 2]"
    assert len([event for event in told_of if isinstance(event, Pass)]) == 1
    assert steps == ["training"]
    assert not host.open_stages


# Failures


def test_user_error_of_a_task_is_raised(nodes):
    def work(number: int) -> int:
        if number == 3:
            raise XmtcError("Found a three; expected another number.")
        return number

    stream = map_on_cluster("auto", work, range(10))
    assert [next(stream)[0] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(XmtcError, match=r"^Found a three; expected another number\.$"):
        next(stream)


def test_results_before_a_failure_in_a_batch_are_returned(nodes, monkeypatch):
    monkeypatch.setattr(scheduling, "TARGET_BATCH_SECONDS", 1e6)  # every batch after the first has the maximum size

    def work(number: int) -> int:
        if number == 30:
            raise XmtcError("Found thirty; expected another number.")
        return number

    stream, found = map_on_cluster("auto", work, range(50)), []
    with pytest.raises(XmtcError, match="Found thirty"):
        found.extend(answer for answer, _ in stream)
    assert found == list(range(30))


def test_results_before_a_failing_input_are_returned(nodes):
    def items() -> Iterator[int]:
        yield from range(5)
        raise XmtcError("Found nothing more; expected a sixth.")

    stream, found = map_on_cluster("auto", abs, items()), []
    with pytest.raises(XmtcError, match="expected a sixth"):
        found.extend(answer for answer, _ in stream)
    assert found == list(range(5))


@pytest.mark.parametrize(("slow", "expected"), [(None, [0, 1, 2, 3]), (1, [0])])
def test_interrupt_returns_finished_results_in_order(nodes, tmp_path, slow, expected):
    """After a missing result, no result is returned, because it would be assigned to the wrong input."""

    def work(number: int) -> int:
        time.sleep(600 if number == slow else 0)
        (tmp_path / str(number)).touch()
        return number

    def items() -> Iterator[int]:
        yield from range(4)
        while len(list(tmp_path.iterdir())) < 4 - (slow is not None):  # like reading a pipe without a writer
            time.sleep(0.1)
        time.sleep(1)  # for the transfer of the result
        raise KeyboardInterrupt

    stream, found = map_on_cluster("auto", work, items()), []
    with pytest.raises(KeyboardInterrupt):
        found.extend(answer for answer, _ in stream)
    assert found == expected


@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_predictions_before_a_bad_line_are_written(nodes, tmp_path, monkeypatch, format):
    """As on one machine, all predictions for earlier lines are written."""
    monkeypatch.setattr("xmtc.cli.predict.BATCH_DOCS", 7)
    corpus = tmp_path / "corpus.jsonl"
    run_command("train", write(corpus, DOCUMENTS), "-o", tmp_path / "model", "-m", "dismec")
    lines = corpus.read_text().splitlines()
    corpus.write_text("\n".join([*lines[:30], "{", *lines[30:]]))
    words = ["predict", str(tmp_path / "model"), str(corpus), "--format", format]
    here, there = (CliRunner().invoke(app, [*words, *options]) for options in ([], ["--cluster", "auto"]))
    assert here.stdout == there.stdout
    assert len(here.stdout.splitlines()) >= 28
    assert "line 31" in str(here.exception) == str(there.exception)


def test_other_errors_name_the_node(nodes):
    def work(number: int) -> float:
        return 1 / number

    with pytest.raises(ZeroDivisionError) as caught:
        list(map_on_cluster("auto", work, [1, 0]))
    assert "On a machine of the cluster" in caught.value.__notes__[0]


def test_task_that_kills_every_worker_is_abandoned(nodes, monkeypatch):
    monkeypatch.setattr(scheduling, "MAX_TASK_RETRIES", 1)

    def work(number: int) -> None:
        os._exit(1)

    with pytest.raises(XmtcError, match="did not finish its work in 2 attempts"):
        list(map_on_cluster("auto", work, [1, 2]))


def test_node_with_another_version_is_rejected(nodes, monkeypatch):
    monkeypatch.setattr("xmtc.__version__", "0.0.0")
    with pytest.raises(XmtcError, match=r"but this machine has 0\.0\.0; install the same"):
        list(map_on_cluster("auto", abs, [1, 2]))


@pytest.mark.parametrize("address", ["head", "http://head:1", "head:port", "ray://head", 6379, None])
def test_invalid_address_is_rejected(address):
    with pytest.raises(XmtcError, match="is invalid; expected auto"):
        Run(cluster=address)


def test_unreachable_address_is_reported():
    with pytest.raises(XmtcError, match=r"No cluster answers at 127\.0\.0\.1:1 .*`ray start --head`"):
        check_reachable("127.0.0.1:1")


def test_missing_ray_is_reported(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"A cluster needs Ray: pip install 'xmtc\[cluster\]'"):
        connect("auto")


# Transfer of data


def test_array_is_sent_once_and_released_with_its_owner():
    array, sent = np.zeros(MIN_SHARED_ARRAY_BYTES), []
    for _ in range(2):
        assert put_array(array, "here", lambda found: sent.append(found) or "its place") == "its place"
    assert len(sent) == 1
    put_array(array, "elsewhere", lambda found: "another place")
    assert ("here", id(array)) in SENT_ARRAYS
    key = "here", id(array)
    sent.clear()
    del array
    gc.collect()
    assert key not in SENT_ARRAYS


def test_large_arrays_are_sent_separately(nodes):
    import ray

    large, small = np.arange(MIN_SHARED_ARRAY_BYTES, dtype=np.int64), np.arange(5)
    parcel = transfer.pack_value({"large": large, "again": large, "small": small}, "session")
    assert len(parcel.content) < 1000
    found = unpack_value(parcel.content, ray.get(parcel.arrays))
    assert np.array_equal(found["large"], large)
    assert np.shares_memory(found["large"], found["again"])
    assert found["large"].flags.writeable
    assert found["small"].flags.writeable


def test_as_writable_shares_memory():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    marked = array.view()
    marked.flags.writeable = False
    found = as_writable(marked)
    assert found.flags.writeable
    assert np.shares_memory(found, array)
    assert (found.dtype, found.shape, found.tolist()) == (array.dtype, array.shape, array.tolist())
    del array, marked
    gc.collect()
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_compiled_functions_are_sent_by_name(nodes):
    from xmtc.core.sparse import shell_sort

    assert pickle.loads(transfer.pack_value(shell_sort, "session").content) is shell_sort


def test_batches_grow_to_the_target_time():
    pace = ThroughputEstimate()
    assert next_batch(iter("abc"), lambda item: 1, pace.target_batch_size) == (["a"], [1])
    pace.update(seconds=0.5, size=2)
    assert next_batch(iter("abcdefg"), lambda item: 1, pace.target_batch_size) == (list("abcd"), [1] * 4)
    assert next_batch(iter("ab"), lambda item: 1, pace.target_batch_size) == (["a", "b"], [1, 1])
    assert next_batch(iter(""), lambda item: 1, pace.target_batch_size) is None


def test_signal_handler_is_preserved():
    import signal

    def ours(number: int, frame: Any) -> None: ...

    before = signal.signal(signal.SIGTERM, ours)
    try:
        with connection.preserve_signal_handler():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, before)
