"""Measure the overhead of a Ray cluster: a Parabel tree on a synthetic corpus (`zipf.py`), with threads and with nodes
of one CPU, all on this machine. As the number of CPUs is the same, training does not get faster.

    python benchmarks/cluster.py 100000 --nodes 1 2 4 --rounds 2

Every training must leave the same bytes. One of them loses a node in the middle.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import ray
from ray.cluster_utils import Cluster
from zipf import corpus

from xmtc.cluster import scheduling, transfer
from xmtc.cluster.connection import connect
from xmtc.core.dataset import Dataset
from xmtc.core.method import Model
from xmtc.core.run import Run
from xmtc.methods.label_tree.parabel import Parabel
from xmtc.storage.folder import encode_value

MIB = 2**20
SENT = {"arrays": 0, "messages": 0, "batches": 0}


@contextmanager
def start_nodes(n: int, store: int) -> Iterator[Cluster]:
    """Start a head without CPUs, where this process runs, and nodes of one CPU."""
    head = {"num_cpus": 0, "object_store_memory": store, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(n):
        cluster.add_node(num_cpus=1, object_store_memory=store)
    connect(cluster.address)
    list(
        scheduling.map_on_cluster("auto", warm_worker, range(8 * n))
    )  # workers are running and have imported what they need
    try:
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def warm_worker(number: int) -> None:
    from xmtc.linear import tree_training as training  # noqa: F401

    time.sleep(0.5)


def count_what_is_sent() -> None:
    put, packed = transfer.put_array, transfer.pack_value

    def put_and_count(array: np.ndarray, session: str, give: Callable[[Any], Any]) -> Any:
        def counted(found: np.ndarray) -> Any:
            SENT["arrays"] += found.nbytes
            return give(found)

        return put(array, session, counted)

    def pack_and_count(value: Any, session: str) -> transfer.PackedValue:
        parcel = packed(value, session)
        SENT["messages"] += len(parcel.content)
        SENT["batches"] += isinstance(value, list)
        return parcel

    transfer.put_array, scheduling.pack_value = put_and_count, pack_and_count


def hash_model(model: Model) -> str:
    arrays: dict[str, np.ndarray] = {}
    encode_value(model, "model", arrays)
    found = hashlib.blake2b(digest_size=8)
    for name in sorted(arrays):
        found.update(np.ascontiguousarray(arrays[name]).data)
    return found.hexdigest()


def measure(what: str, data: Dataset, run: Run, rounds: int) -> str:
    """Return the best of several trainings, after one for compilation and workers."""
    wall, here = np.inf, np.inf
    for number in range(rounds + 1):
        SENT.update(dict.fromkeys(SENT, 0))
        begin, used = time.perf_counter(), time.process_time()
        model = Parabel(n_trees=1).fit(data, run=run)
        if number:
            wall, here = min(wall, time.perf_counter() - begin), min(here, time.process_time() - used)
    sent = [f"{SENT['batches']:,}", *(f"{SENT[kind] / MIB:,.0f}" for kind in ("arrays", "messages"))]
    found = hash_model(model)
    print("|", " | ".join([what, f"{wall:.1f}", f"{here:.1f}", *sent, found]), "|", flush=True)
    return found


def measure_overhead(size: int = 256 * MIB) -> None:
    """Measure single operations: an empty task, storing an array, sending it to another node."""
    begin, n = time.perf_counter(), 500
    crew = scheduling.BatchScheduler(ray, abs, 1)
    done = len(ray.get([crew.submit([number], [1]).result_ref for number in range(n)]))
    print(f"\nA batch that takes no time: {1000 * (time.perf_counter() - begin) / done:.2f} ms")
    array, begin = np.ones(size, np.uint8), time.perf_counter()
    place = ray.put(array)
    put = time.perf_counter() - begin

    @ray.remote(num_cpus=1)
    def measure_fetch(places: list[Any]) -> float:
        begin = time.perf_counter()
        ray.get(places)
        return time.perf_counter() - begin

    got = ray.get(measure_fetch.remote([place]))
    rates = f"to the store {size / put / 1e9:.2f} GB/s, to another node {size / got / 1e9:.2f} GB/s"
    print(f"{size / MIB:.0f} MiB: {rates}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("size", type=int, help="labels, and as many documents")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--store", type=int, default=512, help="MiB of each node's object store")
    asked = parser.parse_args()
    count_what_is_sent()
    data = corpus(asked.size, asked.size, seed=1)
    print(f"Python {platform.python_version()}, Ray {ray.__version__}, {asked.size:,} documents and labels\n")
    print("| who | s | s of CPU here | batches | arrays MiB | messages MiB | digest |\n|---|---|---|---|---|---|---|")
    found = {measure(f"{n} threads", data, Run(threads=n), asked.rounds) for n in (1, 2)}
    for n in asked.nodes:
        with start_nodes(n, asked.store * MIB) as cluster:
            found.add(measure(f"{n} nodes", data, Run(cluster="auto"), asked.rounds))
            if n == max(asked.nodes):
                dying = NodeRemover(cluster)
                found.add(measure(f"{n} nodes, one dies", data, Run(cluster="auto", progress=dying.shown), 1))
                measure_overhead()
    print("\nThe same bytes." if len(found) == 1 else "\nNOT the same bytes.")


class NodeRemover:
    """Measure a training in which a node is lost halfway."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.n_told, self.n_trainings = cluster, 0, 0

    @contextmanager
    def show_progress(self, title: str, total: float | None = None) -> Iterator[NodeRemover]:
        self.n_trainings += title == "training"
        self.done, self.half = 0.0, (total or np.inf) / 2 if title == "training" else np.inf
        yield self

    def advance(self, steps: float = 1) -> None:
        self.done += steps
        if self.n_trainings == 2 and self.done > self.half:
            self.half = np.inf
            self.cluster.remove_node(next(iter(self.cluster.worker_nodes)), allow_graceful=False)

    def set_status(self, news: str) -> None:
        return None


if __name__ == "__main__":
    main()
