"""Number of available threads, and background threads.

The number of threads is limited by the CPU affinity, cgroup quotas, environment variables and PyTorch's setting. More
threads than CPUs slow networks down considerably, because threads synchronise after every small step."""

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
# Limits for OpenMP, numba and joblib. Worker processes of joblib get the first two, to share the CPUs.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "LOKY_MAX_CPU_COUNT")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def cache_with_lock(make: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Cache like functools.cache, but compute a value only once if several threads ask for it at the same time."""
    cached, lock = cache(make), Lock()

    @wraps(make)
    def locked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with lock:
            return cached(*args, **kwargs)  # type: ignore[arg-type]

    return locked


def count_available_threads() -> int:
    """Return the number of threads to use; not cached, because affinity and environment may change."""
    return max(1, int(min(count_cpus(), read_cpu_quota(), *read_environment_limits(), *read_torch_limit())))


def count_cpus() -> int:
    """Return the number of CPUs that this process may run on (taskset, Slurm and containers restrict it)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_environment_limits() -> Iterator[int]:
    """Yield the limits that environment variables set."""
    for variable in THREAD_VARIABLES:
        first = os.environ.get(variable, "").partition(",")[0].strip()  # OpenMP allows one number per nesting level
        if first.isdecimal() and int(first) > 0:
            yield int(first)


def read_torch_limit() -> Iterator[int]:
    """Yield PyTorch's number of threads if it was lowered, as in its data loaders.

    Its default of one thread per physical core is not a limit."""
    get_num_threads = getattr(sys.modules.get("torch"), "get_num_threads", None)
    if get_num_threads is not None and (n := get_num_threads()) < count_cpus() / 2:
        yield n


@cache  # reading the files takes longer than one prediction
def read_cpu_quota() -> float:
    """Return the CPU quota of this process's control groups, rounded up; a container sees all CPUs of its host."""
    return min((quota for folder in find_cgroup_folders() for quota in read_cgroup_quotas(folder)), default=inf)


def find_cgroup_folders() -> Iterator[Path]:
    """Yield the cgroup folders of this process and their parents, for cgroup v1 and v2."""
    try:
        lines = PROCESS_CGROUP_FILE.read_text().splitlines()
    except OSError:  # not Linux
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
    """Yield the number of CPUs of a quota, if the folder has one."""
    for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = " ".join((folder / file).read_text() for file in files).split()
            if int(quota) > 0:  # -1 means no quota
                yield ceil(int(quota) / int(period))
        except (OSError, ValueError, ZeroDivisionError):  # no such file; "max" means no quota
            continue


Item = TypeVar("Item")


class PrefetchIterator(Generic[Item]):
    """Iterator whose items a background thread produces ahead, at most `max_pending` of them, until `close`."""

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
        """Stop producing items, and wait for the current one."""
        self.pool.shutdown(cancel_futures=True)
        self.items = iter(())


class BackgroundWorker(Generic[Item]):
    """Background thread that processes items in order; a call blocks while `max_pending` items wait."""

    def __init__(self, work: Callable[[Item], object], max_pending: int) -> None:
        self.work, self.max_pending = work, max_pending
        self.pool = ThreadPoolExecutor(1)
        self.pending: deque[Future[Any]] = deque()

    def __call__(self, item: Item) -> None:
        if len(self.pending) == self.max_pending:
            self.pending.popleft().result()
        self.pending.append(self.pool.submit(self.work, item))

    def finish(self) -> None:
        """Wait until all items are processed."""
        while self.pending:
            self.pending.popleft().result()

    def close(self) -> None:
        self.finish()
        self.pool.shutdown()
