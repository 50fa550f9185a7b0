"""Size and resources of a group of processes that train a network together on a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import NamedTuple

from xmtc.errors import XmtcError

Resources = Mapping[str, float]  # of a machine, by Ray's names


class WorkerGroup(NamedTuple):
    """Group of processes with equal resources."""

    n_workers: int
    n_cpus: int  # per worker
    has_gpus: bool  # one per worker

    @property
    def device(self) -> str:
        return "cuda" if self.has_gpus else "cpu"

    @property
    def description(self) -> str:
        return f"{self.n_workers} worker(s) with {self.n_cpus} CPU(s){' and a GPU' * self.has_gpus} each"


def list_machines(ray: ModuleType) -> list[Resources]:
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def plan_worker_group(machines: Sequence[Resources], device: str = "auto", n_requested: int = 0) -> WorkerGroup:
    """Return a group of one worker per GPU, one per machine without GPUs, or the requested number.

    Each worker gets the largest number of CPUs that all of them can have."""
    has_gpus = should_use_gpus(machines, device)
    max_workers = count_worker_slots(machines, 1, has_gpus)
    if not max_workers or n_requested > max_workers:
        raise XmtcError(
            f"The cluster has room for {max_workers} workers, but {n_requested or 1} are requested; expected at most "
            f"one per {'GPU' if has_gpus else 'CPU'}: request fewer --cluster-workers, or add machines."
        )
    n_workers = n_requested or (
        max_workers if has_gpus else sum(count_worker_slots([machine], 1, has_gpus) > 0 for machine in machines)
    )
    max_cpus = max(int(machine.get("CPU", 0)) for machine in machines)
    n_cpus = max(n for n in range(1, max_cpus + 1) if count_worker_slots(machines, n, has_gpus) >= n_workers)
    return WorkerGroup(n_workers, n_cpus, has_gpus)


def should_use_gpus(machines: Sequence[Resources], device: str) -> bool:
    if device not in ("auto", "cpu"):
        raise XmtcError(
            f"device={device} names a device of this machine, but the network trains on the cluster; expected auto, "
            "which uses its GPUs if it has any, or cpu."
        )
    return device == "auto" and any(machine.get("GPU", 0) >= 1 for machine in machines)


def count_worker_slots(machines: Sequence[Resources], n_cpus: int, has_gpus: bool) -> int:
    """Return how many workers with `n_cpus` CPUs, and a GPU if `has_gpus`, the machines have room for."""
    n_slots = 0
    for machine in machines:
        by_cpus = int(machine.get("CPU", 0)) // n_cpus
        n_slots += min(by_cpus, int(machine.get("GPU", 0))) if has_gpus else by_cpus
    return n_slots


def shrink_worker_group(group: WorkerGroup, machines: Sequence[Resources]) -> WorkerGroup:
    """Return the group with as many workers as the remaining machines have room for."""
    n_workers = min(group.n_workers, count_worker_slots(machines, group.n_cpus, group.has_gpus))
    if not n_workers:
        raise XmtcError(f"The cluster has no machine left for {group.description}; repeat the command when it has.")
    return group._replace(n_workers=n_workers)
