"""How many threads are ours to use: as many as CPUs, but no more than a container's quota, the environment or PyTorch
has been told. Threads beyond what the CPUs are ours for make nothing quicker, and networks slower by far: where threads
meet after every small step, all wait for the one that is not running."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, wraps
from math import ceil, inf
from pathlib import Path
from threading import Lock
from typing import Any, Generic, ParamSpec, TypeVar

CGROUP_ROOT, PROCESS_CGROUP_FILE = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
# What OpenMP, numba and joblib are told. In its worker processes joblib sets the first two, to share the CPUs out.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "LOKY_MAX_CPU_COUNT")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def cache_with_lock(make: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """As functools.cache; of several threads that are the first to ask, one makes the answer and the others wait. With
    the cache alone each would make it, one beside the other and, in Python, none faster for it."""
    kept, lock = cache(make), Lock()

    @wraps(make)
    def found(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with lock:
            return kept(*args, **kwargs)  # type: ignore[arg-type]

    return found


def count_available_threads() -> int:
    """Asked whenever it is needed: a process may be given other CPUs, and its workers other variables."""
    return max(1, int(min(count_cpus(), read_cpu_quota(), *read_environment_limits(), *read_torch_limit())))


def count_cpus() -> int:
    """Those that this process may run on: taskset, a batch system or a container may have left it fewer."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_environment_limits() -> Iterator[int]:
    for variable in THREAD_VARIABLES:
        first = os.environ.get(variable, "").partition(",")[0].strip()  # OpenMP takes one number for each nesting
        if first.isdecimal() and int(first) > 0:
            yield int(first)


def read_torch_limit() -> Iterator[int]:
    """Where it has been told to use few, as its data loaders tell it. By itself it may take one thread for two CPUs, if
    these are one core: that is nobody's wish, and no limit for others."""
    asked = getattr(sys.modules.get("torch"), "get_num_threads", None)
    if asked is not None and (n := asked()) < count_cpus() / 2:
        yield n


@cache  # files take longer to read than a text to tag, and quotas stay
def read_cpu_quota() -> float:
    """CPUs that this process's control groups leave it the time of, rounded up: a container with two CPUs of a machine
    with 64 sees all of them, and is stopped when it uses more."""
    return min((quota for folder in find_cgroup_folders() for quota in read_cgroup_quotas(folder)), default=inf)


def find_cgroup_folders() -> Iterator[Path]:
    """The folders of this process's groups and of those above them, of both versions of the interface."""
    try:
        lines = PROCESS_CGROUP_FILE.read_text().splitlines()
    except OSError:  # another system
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            roots = [CGROUP_ROOT, CGROUP_ROOT / "unified"]
        elif "cpu" in controllers.split(","):
            roots = [CGROUP_ROOT / "cpu", CGROUP_ROOT / controllers]
        else:
            continue
        parts = [part for part in path.split("/") if part]
        for root in roots:
            yield from (root.joinpath(*parts[:depth]) for depth in range(len(parts) + 1))


def read_cgroup_quotas(folder: Path) -> Iterator[int]:
    for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = " ".join((folder / file).read_text() for file in files).split()
            if int(quota) > 0:  # -1 stands for none
                yield ceil(int(quota) / int(period))
        except (OSError, ValueError, ZeroDivisionError):  # not there; "max" stands for none
            continue


Item = TypeVar("Item")


class PrefetchIterator(Generic[Item]):
    """The same items; making them begins at once, and so many at most wait to be asked for. After `close` no more are
    made."""

    def __init__(self, items: Iterable[Item], max_pending: int) -> None:
        self.items, self.end = iter(items), object()
        self.pool = ThreadPoolExecutor(1)
        self.pending: deque[Future[Any]] = deque()
        for _ in range(max_pending):
            self._submit_next()

    def _submit_next(self) -> None:
        self.pending.append(self.pool.submit(next, self.items, self.end))

    def __iter__(self) -> Iterator[Item]:
        while (item := self.pending.popleft().result()) is not self.end:
            self._submit_next()
            yield item

    def close(self) -> None:
        """Waits for the item that is being made, so that nothing is left open."""
        self.pool.shutdown(cancel_futures=True)
        self.items = iter(())


class BackgroundWorker(Generic[Item]):
    """Work on items, one after the other; whoever hands them over goes on, until so many wait."""

    def __init__(self, work: Callable[[Item], object], max_pending: int) -> None:
        self.work, self.max_pending = work, max_pending
        self.pool = ThreadPoolExecutor(1)
        self.pending: deque[Future[Any]] = deque()

    def __call__(self, item: Item) -> None:
        if len(self.pending) == self.max_pending:
            self.pending.popleft().result()
        self.pending.append(self.pool.submit(self.work, item))

    def finish(self) -> None:
        """Wait until nothing waits."""
        while self.pending:
            self.pending.popleft().result()

    def close(self) -> None:
        self.finish()
        self.pool.shutdown()
