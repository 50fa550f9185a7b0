"""How many processes train a network together on a cluster, and what each of them has to itself."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import NamedTuple

from xmtc.errors import XmtcError

Resources = Mapping[str, float]  # of a machine, as Ray counts them


class WorkerGroup(NamedTuple):
    """Processes that are all alike."""

    n_workers: int
    n_cpus: int  # that each has
    has_gpus: bool  # one for each

    @property
    def device(self) -> str:
        return "cuda" if self.has_gpus else "cpu"

    @property
    def description(self) -> str:
        return f"{self.n_workers} worker(s) with {self.n_cpus} CPU(s){' and a GPU' * self.has_gpus} each"


def is_single_process() -> bool:
    """Whether no other process has been started beside this one, by torchrun or by Ray Train."""
    return os.environ.get("WORLD_SIZE", "1") == "1"


def list_machines(ray: ModuleType) -> list[Resources]:
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def plan_worker_group(machines: Sequence[Resources], device: str = "auto", n_requested: int = 0) -> WorkerGroup:
    """One process for each GPU, or, where there are none or they are not wanted, for each machine; or as many as are
    wanted. Each has as many CPUs as all of them can have."""
    has_gpus = should_use_gpus(machines, device)
    most = count_worker_slots(machines, 1, has_gpus)
    if not most or n_requested > most:
        raise XmtcError(
            f"The cluster has room for {most} workers, and {n_requested or 1} are wanted; expected at most one for each "
            f"{'GPU' if has_gpus else 'CPU'}: give fewer --workers, or more machines."
        )
    n_workers = n_requested or (
        most if has_gpus else sum(count_worker_slots([each], 1, has_gpus) > 0 for each in machines)
    )
    widest = max(int(each.get("CPU", 0)) for each in machines)
    n_cpus = max(n for n in range(1, widest + 1) if count_worker_slots(machines, n, has_gpus) >= n_workers)
    return WorkerGroup(n_workers, n_cpus, has_gpus)


def should_use_gpus(machines: Sequence[Resources], device: str) -> bool:
    if device not in ("auto", "cpu"):
        raise XmtcError(
            f"device={device} is a device of this machine, and a network trains on those of the cluster; expected "
            "auto, which takes its GPUs if it has any, or cpu."
        )
    return device == "auto" and any(each.get("GPU", 0) >= 1 for each in machines)


def count_worker_slots(machines: Sequence[Resources], n_cpus: int, has_gpus: bool) -> int:
    """Workers with so many CPUs each that the machines have room for."""
    by_cpus = [int(each.get("CPU", 0)) // n_cpus for each in machines]
    return sum(
        min(room, int(each.get("GPU", 0))) if has_gpus else room for room, each in zip(by_cpus, machines, strict=True)
    )


def shrink_worker_group(team: WorkerGroup, machines: Sequence[Resources]) -> WorkerGroup:
    """As many of them as there is still room for."""
    n_workers = min(team.n_workers, count_worker_slots(machines, team.n_cpus, team.has_gpus))
    if not n_workers:
        raise XmtcError(
            f"The cluster has no machine left for {team.description}; repeat the command where it has some."
        )
    return team._replace(n_workers=n_workers)
