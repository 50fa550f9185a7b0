"""A Ray cluster of several nodes on this machine, each with one CPU: the same bytes as without it, whoever dies, joins
or runs out of memory."""

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

STORE = 80 * 2**20  # bytes of a node's object store: about as few as Ray takes
KINDS = {name: method_class(name) for name in METHODS if name not in ("ensemble", "consensus")}
SHARED = [name for name, kind in KINDS.items() if kind.has_cluster_support and not kind.has_multiprocess_support]
TEXTS, TAGS = make_planted_corpus(300, 1)
DOCUMENTS = list(to_documents(TEXTS, TAGS))


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A head without CPUs, and two nodes with one each."""
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
    """What a model folder holds, but for the history, which has seconds in it."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != model_folder.HISTORY_FILE}


def trained(folder: Path, method: str, run: Run = Run(threads=2), **parameters: Any) -> dict[str, bytes]:
    tiny = method_class(method).quick_parameters | parameters
    Pipeline.from_parameters(method, parameters={"calibrate": False} | tiny).fit(DOCUMENTS, run=run).save(folder)
    return files_of(folder)


@contextmanager
def told(title: str, total: float | None = None) -> Iterator[Any]:
    """Progress that calls `WHEN_TOLD` with what it is told of."""

    class Told:
        def advance(self, steps: float = 1) -> None:
            WHEN_TOLD["advance"](title)

        def tell(self, news: str) -> None:
            raise AssertionError(news)

    yield Told()


WHEN_TOLD: dict[str, Any] = {}


# The same as on one machine


@pytest.mark.parametrize("method", SHARED)
def test_a_cluster_changes_no_byte(nodes, tmp_path, method):
    assert trained(tmp_path / "there", method, Run(cluster="auto")) == trained(tmp_path / "here", method)


def test_matched_negatives_change_no_byte(nodes, tmp_path):
    options = {"match_negatives": True, "max_leaf": 4}
    here = trained(tmp_path / "here", "parabel", **options)
    assert trained(tmp_path / "there", "parabel", Run(cluster="auto"), **options) == here


def test_a_node_that_dies_changes_no_byte(nodes, tmp_path, monkeypatch):
    """Of the blocks of labels that its training consists of, one is done when the node goes."""
    monkeypatch.setattr("xmtc.methods.one_vs_all.base.MAX_BLOCK_LABELS", 2)
    dying = nodes.add_node(num_cpus=1, object_store_memory=STORE)
    gone = []

    def kill(title: str) -> None:
        if title == "training" and not gone:
            gone.append(dying)
            nodes.remove_node(dying, allow_graceful=False)

    monkeypatch.setitem(WHEN_TOLD, "advance", kill)
    there = trained(tmp_path / "there", "dismec", Run(cluster="auto", progress=told))
    assert gone
    assert there == trained(tmp_path / "here", "dismec")


def test_what_a_dead_node_was_doing_and_had_done_is_done_again(nodes):
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


def test_a_node_that_joins_gets_work(nodes):
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


def test_an_object_store_that_is_too_small_spills(nodes):
    arrays = [np.full(10 * 2**20 // 8, number, np.int64) for number in range(12)]  # 120 MiB, of 80

    def work(number: int) -> tuple[int, np.ndarray]:
        return int(arrays[number].sum()), arrays[number]

    found = list(map_on_cluster("auto", work, range(12)))
    for number, ((total, array), _) in enumerate(found):
        assert total == number * arrays[0].size
        assert (array == number).all()
    session = Path(nodes.head_node.get_session_dir_path())
    assert any(path.stat().st_size for path in session.glob("ray_spilled_objects*/*"))


def test_a_training_that_was_stopped_goes_on(nodes, tmp_path, monkeypatch):
    monkeypatch.setattr("xmtc.methods.one_vs_all.base.NARROW_BLOCK_LABELS", 4)
    seen: list[str] = []

    def stop(title: str) -> None:
        seen.append(title)
        if seen.count("training") == 3:
            raise KeyboardInterrupt

    monkeypatch.setitem(WHEN_TOLD, "advance", stop)
    run = Run(cluster="auto", progress=told, checkpoint=tmp_path / "pieces")
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "there", "dismec", run)
    assert len(list((tmp_path / "pieces").glob("labels-*.npz"))) == 2
    seen.clear()
    n_blocks = -(-len({tag for tags in TAGS for tag in tags}) // 4)
    monkeypatch.setitem(WHEN_TOLD, "advance", seen.append)
    there = trained(tmp_path / "there", "dismec", run)
    assert seen.count("training") == n_blocks - 2
    assert there == trained(tmp_path / "here", "dismec")


def test_who_joins_again_sends_arrays_again(nodes):
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


# The commands


def write(path: Path, documents: list[Document]) -> str:
    from json import dumps

    path.write_text("".join(f"{dumps({'text': each.text, 'labels': each.labels})}\n" for each in documents))
    return str(path)


def run_command(*words: Any) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_train_and_predict(nodes, tmp_path, monkeypatch):
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


def test_what_a_cluster_cannot_share_is_said(nodes, tmp_path):
    corpus = write(tmp_path / "corpus.jsonl", DOCUMENTS[:60])
    told = run_command(
        "train", corpus, "-o", tmp_path / "model", "-m", "fasttext", "-p", "epochs=1", "--cluster", "auto"
    )
    assert "fasttext trains on one machine" in told


def test_trials_beside_each_other_are_the_same(nodes):
    space = {"C": Range(0.1, 10.0, log=True), "min_df": Range(1, 200)}  # the second: not every one has words left
    goal = TuningGoal(trials=6, at_once=4)
    found = [
        tune(DOCUMENTS[:200], DOCUMENTS[200:], Pipeline.from_parameters("parabel"), space, goal, run)
        for run in (Run(cluster="auto"), Run(threads=1))
    ]
    there, here = ([(each.number, each.parameters, each.value, each.failure) for each in trials] for trials in found)
    assert there == here
    assert len(here) == 6


def test_methods_and_seeds_are_compared(nodes, tmp_path):
    corpus, test = write(tmp_path / "train.jsonl", DOCUMENTS[:200]), write(tmp_path / "test.jsonl", DOCUMENTS[200:])
    place = TrialContext("planted", (corpus,), test, tmp_path / "work", threads=1, cluster="auto")
    (spec,) = parse_specs(["parabel"], ["calibrate=false"], "texts")
    told: list[str] = []
    (found,) = run_methods(place, [spec], 2, told.append)
    assert not found.failed
    for seed, load in enumerate(found.loaders):
        tagger = Pipeline.from_parameters("parabel", parameters={"calibrate": False, "seed": seed}).fit(DOCUMENTS[:200])
        expected, answers = SavedPredictions.from_tagger(tagger, DOCUMENTS[200:]).first, load().first
        assert np.array_equal(answers.labels, expected.labels)
        assert np.array_equal(answers.scores, expected.scores)
    assert len(told) == len(found.loaders) == 2
    run_methods(place, [spec], 2, told.append)
    assert len(told) == 2  # both were kept


def test_a_machine_that_does_not_see_the_corpus(nodes, tmp_path, monkeypatch):
    corpus = write(tmp_path / "train.jsonl", DOCUMENTS[:20])
    place = TrialContext("planted", (corpus,), corpus, tmp_path / "work", cluster="auto")
    jobs = [make_training_run(place, spec, 0) for spec in parse_specs(["parabel", "plt"], [], "texts")]
    place.work.mkdir()
    Path(corpus).unlink()
    with pytest.raises(XmtcError, match=r"train\.jsonl does not exist on .*, a machine of the cluster"):
        list(run_on_cluster(place, jobs))


def test_without_methods_there_is_nothing_to_share(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "about.json").write_text("{}")
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "model"), "--test", "t.jsonl", "--cluster", "auto"])
    assert "--cluster applies to trainings" in str(done.exception)


# Networks, which Ray Train has several processes train together

SMALL = "hidden=8 layers=8 dimension=8 epochs=2 batch=16 height=1 arity=4 calibrate=false".split()


def fitted(folder: Path, run: Run, *parameters: str) -> bytes:
    """The arrays of a small AttentionXML, a tree of two levels and so two networks."""
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


def test_workers_train_what_torchrun_trains_also_where_they_were_stopped(nodes, tmp_path):
    passes: list[tuple[str, int]] = []
    wanted = [(level, number) for level in ("level-0", "level-1") for number in (1, 2)]

    def watch(event: Any) -> None:
        if isinstance(event, Pass):
            passes.append((event.network, event.number))
            if len(passes) == 3:  # the first network is kept by then
                raise KeyboardInterrupt

    run = Run(threads=1, cluster="auto", checkpoint=tmp_path / "pieces", callbacks=watch)
    with pytest.raises(KeyboardInterrupt):
        fitted(tmp_path / "there", run)
    assert (tmp_path / "pieces" / "level-0-unfinished.npz").exists()
    there = fitted(tmp_path / "there", run)
    assert passes == wanted[:3] + wanted
    assert there == by_torchrun(tmp_path, 2)


def test_machines_that_are_left_go_on(nodes, tmp_path):
    """Of three, one is gone after the first network; two begin with the second, and tell nothing twice."""
    dying, passes = nodes.add_node(num_cpus=1, object_store_memory=STORE), []

    def watch(event: Any) -> None:
        if isinstance(event, Pass):
            passes.append((event.network, event.number))
            if len(passes) == 3:
                nodes.remove_node(dying, allow_graceful=False)

    fitted(tmp_path / "there", Run(threads=1, cluster="auto", checkpoint=tmp_path / "pieces", callbacks=watch))
    assert passes == [(level, n) for level in ("level-0", "level-1") for n in (1, 2)]


def test_a_consensus_has_a_network_and_a_tree_trained(nodes, tmp_path):
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


def test_a_mistake_that_a_worker_finds(nodes, tmp_path):
    with pytest.raises(XmtcError, match=r"^nowhere\.txt is neither a file nor the name of known word vectors"):
        fitted(tmp_path / "there", Run(cluster="auto"), "vectors=nowhere.txt")


def test_without_ray_train(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.train", None)
    with pytest.raises(MissingExtra, match=r"needs Ray Train and PyTorch .* pip install 'xmtc\[neural,cluster\]'"):
        import_ray_train()


def test_workers_are_those_of_a_cluster():
    done = CliRunner().invoke(app, ["train", "corpus.jsonl", "-o", "model", "--cluster-workers", "2"])
    assert "--cluster-workers needs --cluster" in str(done.exception)
    with pytest.raises(XmtcError, match="workers=-1 is invalid"):
        Run(workers=-1)


TWO_GPUS, FOUR_CPUS, HEAD = {"CPU": 8.0, "GPU": 2.0}, {"CPU": 4.0}, {"memory": 1e9}


@pytest.mark.parametrize(
    ("machines", "device", "n_wanted", "expected"),
    [
        ([HEAD, FOUR_CPUS, FOUR_CPUS], "auto", 0, WorkerGroup(2, 4, False)),  # one on each machine
        ([FOUR_CPUS, {"CPU": 2.0}], "auto", 0, WorkerGroup(2, 2, False)),
        ([FOUR_CPUS, FOUR_CPUS], "auto", 3, WorkerGroup(3, 2, False)),
        ([TWO_GPUS, TWO_GPUS, FOUR_CPUS], "auto", 0, WorkerGroup(4, 4, True)),  # one for each GPU
        ([TWO_GPUS, FOUR_CPUS], "cpu", 0, WorkerGroup(2, 4, False)),
        ([{"CPU": 1.0, "GPU": 4.0}, TWO_GPUS], "auto", 0, WorkerGroup(3, 1, True)),  # where there is a CPU for it
    ],
)
def test_who_trains_a_network(machines, device, n_wanted, expected):
    assert plan_worker_group(machines, device, n_wanted) == expected


def test_who_cannot_train_a_network():
    with pytest.raises(XmtcError, match="room for 2 workers, but 3 are requested; expected at most one per GPU"):
        plan_worker_group([TWO_GPUS], n_requested=3)
    with pytest.raises(XmtcError, match="room for 0 workers, but 1 are requested"):
        plan_worker_group([HEAD])
    with pytest.raises(XmtcError, match="device=cuda:1 names a device of this machine"):
        plan_worker_group([TWO_GPUS], "cuda:1")
    assert shrink_worker_group(WorkerGroup(3, 2, False), [FOUR_CPUS]) == WorkerGroup(2, 2, False)
    with pytest.raises(XmtcError, match="no machine left"):
        shrink_worker_group(WorkerGroup(3, 2, False), [HEAD])


def test_what_a_run_elsewhere_shows_tells_and_keeps(tmp_path, monkeypatch):
    """Without a cluster: asking is calling. It begins twice, as after a death."""
    told_of, steps = [], []
    monkeypatch.setitem(WHEN_TOLD, "advance", steps.append)
    host = DriverCallHandler(Run(checkpoint=tmp_path, callbacks=told_of.append), told)

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


# What goes wrong


def test_a_users_mistake_stays_one(nodes):
    def work(number: int) -> int:
        if number == 3:
            raise XmtcError("Found a three; expected another number.")
        return number

    stream = map_on_cluster("auto", work, range(10))
    assert [next(stream)[0] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(XmtcError, match=r"^Found a three; expected another number\.$"):
        next(stream)


def test_a_failure_costs_no_answer_of_its_batch(nodes, monkeypatch):
    monkeypatch.setattr(scheduling, "TARGET_BATCH_SECONDS", 1e6)  # all but the first batches have as many as there are

    def work(number: int) -> int:
        if number == 30:
            raise XmtcError("Found thirty; expected another number.")
        return number

    stream, found = map_on_cluster("auto", work, range(50)), []
    with pytest.raises(XmtcError, match="Found thirty"):
        found.extend(answer for answer, _ in stream)
    assert found == list(range(30))


def test_items_that_cannot_be_had_cost_no_answer_to_those_before(nodes):
    def items() -> Iterator[int]:
        yield from range(5)
        raise XmtcError("Found nothing more; expected a sixth.")

    stream, found = map_on_cluster("auto", abs, items()), []
    with pytest.raises(XmtcError, match="expected a sixth"):
        found.extend(answer for answer, _ in stream)
    assert found == list(range(5))


@pytest.mark.parametrize(("slow", "expected"), [(None, [0, 1, 2, 3]), (1, [0])])
def test_who_stops_it_gets_what_is_there_in_order(nodes, tmp_path, slow, expected):
    """After an answer that is missing, none is given: the next would be taken for it."""

    def work(number: int) -> int:
        time.sleep(600 if number == slow else 0)
        (tmp_path / str(number)).touch()
        return number

    def items() -> Iterator[int]:
        yield from range(4)
        while len(list(tmp_path.iterdir())) < 4 - (slow is not None):  # as if a pipe were read that nobody writes to
            time.sleep(0.1)
        time.sleep(1)  # for the way back
        raise KeyboardInterrupt

    stream, found = map_on_cluster("auto", work, items()), []
    with pytest.raises(KeyboardInterrupt):
        found.extend(answer for answer, _ in stream)
    assert found == expected


@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_answers_before_a_bad_line_are_written(nodes, tmp_path, monkeypatch, format):
    """As many as on one machine: what was read before it and is under way is waited for."""
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


def test_other_errors_say_where_they_were(nodes):
    def work(number: int) -> float:
        return 1 / number

    with pytest.raises(ZeroDivisionError) as caught:
        list(map_on_cluster("auto", work, [1, 0]))
    assert "On a machine of the cluster" in caught.value.__notes__[0]


def test_work_that_ends_every_worker_is_given_up(nodes, monkeypatch):
    monkeypatch.setattr(scheduling, "MAX_TASK_RETRIES", 1)

    def work(number: int) -> None:
        os._exit(1)

    with pytest.raises(XmtcError, match="did not finish its work in 2 attempts"):
        list(map_on_cluster("auto", work, [1, 2]))


def test_another_version_is_refused(nodes, monkeypatch):
    monkeypatch.setattr("xmtc.__version__", "0.0.0")
    with pytest.raises(XmtcError, match=r"but this machine has 0\.0\.0; install the same"):
        list(map_on_cluster("auto", abs, [1, 2]))


@pytest.mark.parametrize("address", ["head", "http://head:1", "head:port", "ray://head", 6379, None])
def test_what_can_be_no_address(address):
    with pytest.raises(XmtcError, match="is invalid; expected auto"):
        Run(cluster=address)


def test_nobody_answers():
    with pytest.raises(XmtcError, match=r"No cluster answers at 127\.0\.0\.1:1 .*`ray start --head`"):
        check_reachable("127.0.0.1:1")


def test_without_ray(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"A cluster needs Ray: pip install 'xmtc\[cluster\]'"):
        connect("auto")


# How things travel


def test_an_array_is_sent_once_and_forgotten_with_its_owner():
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


def test_large_arrays_travel_by_themselves(nodes):
    import ray

    large, small = np.arange(MIN_SHARED_ARRAY_BYTES, dtype=np.int64), np.arange(5)
    parcel = transfer.pack_value({"large": large, "again": large, "small": small}, "session")
    assert len(parcel.content) < 1000
    found = unpack_value(parcel.content, ray.get(parcel.arrays))
    assert np.array_equal(found["large"], large)
    assert np.shares_memory(found["large"], found["again"])
    assert found["large"].flags.writeable
    assert found["small"].flags.writeable


def test_what_was_marked_is_the_same_memory():
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


def test_compiled_functions_travel_by_name(nodes):
    from xmtc.core.sparse import shell_sort

    assert pickle.loads(transfer.pack_value(shell_sort, "session").content) is shell_sort


def test_batches_grow_until_they_take_a_second():
    pace = ThroughputEstimate()
    assert next_batch(iter("abc"), lambda item: 1, pace.target_batch_size) == (["a"], [1])
    pace.update(seconds=0.5, size=2)
    assert next_batch(iter("abcdefg"), lambda item: 1, pace.target_batch_size) == (list("abcd"), [1] * 4)
    assert next_batch(iter("ab"), lambda item: 1, pace.target_batch_size) == (["a", "b"], [1, 1])
    assert next_batch(iter(""), lambda item: 1, pace.target_batch_size) is None


def test_a_signal_stays_ours():
    import signal

    def ours(number: int, frame: Any) -> None: ...

    before = signal.signal(signal.SIGTERM, ours)
    try:
        with connection.preserve_signal_handler():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, before)
