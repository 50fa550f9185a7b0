"""Ordered map on a Ray cluster, in batches of about a second, with two batches per CPU in flight.

Ray repeats the tasks of a machine that has died, also those whose results it had not yet delivered."""

from __future__ import annotations

import pickle
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from types import ModuleType
from typing import Any, NoReturn, TypeVar

import xmtc
from xmtc.cluster.connection import connect
from xmtc.cluster.transfer import get_session_id, pack_value
from xmtc.cluster.worker import process_items
from xmtc.core.parallel import iterate_until_failure
from xmtc.errors import XmtcError

Item = TypeVar("Item")
Result = TypeVar("Result")

TARGET_BATCH_SECONDS = 1.0
MAX_BATCH_ITEMS = 1024
BATCHES_PER_CPU = 2  # one is computed while the next is transferred
MAX_TASK_RETRIES = 20  # of a task whose machine or process has died
POLL_SECONDS = 1.0  # interval at which machines that joined are noticed


def map_on_cluster(
    address: str,
    work: Callable[[Item], Result],
    items: Iterable[Item],
    size: Callable[[Item], float] = lambda item: 1,
    n_cpus: int = 1,
    max_pending_per_cpu: float = inf,
) -> Iterator[tuple[Result, float]]:
    """Yield the result and the size of every item, in the order of the items.

    Exceptions of `work` and of `items` are raised after the results of all earlier items. On KeyboardInterrupt and
    SystemExit, the results that are available are yielded first.

    Parameters
    ----------
    address : str
        Address of the cluster.
    work : callable
        Function of one item.
    items : iterable
        Items, possibly a stream.
    size : callable, optional
        Size of an item, in the unit of its expected duration.
    n_cpus : int, default=1
        CPUs that each batch reserves.
    max_pending_per_cpu : float, optional
        Maximum number of batches per slot that are submitted or wait for an earlier result.
    """
    scheduler = BatchScheduler(connect(address), work, n_cpus)
    pending, throughput, failures = deque[TaskBatch](), ThroughputEstimate(), list[Exception]()
    stream = iterate_until_failure(items, failures)
    try:
        while True:
            try:
                n_slots = scheduler.count_slots()
                while scheduler.n_running < BATCHES_PER_CPU * n_slots and len(pending) < max_pending_per_cpu * n_slots:
                    if not (batch := next_batch(stream, size, throughput.target_batch_size)):
                        break
                    pending.append(scheduler.submit(*batch))
                if pending and not pending[0].is_done:
                    scheduler.wait_for_batch()
                    continue
            except (KeyboardInterrupt, SystemExit):  # not elsewhere: a result might be lost or yielded twice
                yield from scheduler.get_finished_results(pending)
                raise
            if not pending:
                break
            seconds, results = scheduler.get_results(first := pending.popleft())
            throughput.update(seconds, sum(first.sizes[: len(results)]))
            if rest := first.items[len(results) :]:  # its first item failed; submitted again, it raises the error
                pending.appendleft(scheduler.submit(rest, first.sizes[len(results) :]))
            yield from zip(results, first.sizes, strict=False)
        for failure in failures:
            raise failure
    finally:
        scheduler.stop()


def next_batch(
    stream: Iterator[Item], size: Callable[[Item], float], target_size: float
) -> tuple[list[Item], list[float]] | None:
    """Return the next items of at least the target size in total, and their sizes; None at the end."""
    items: list[Item] = []
    sizes: list[float] = []
    for item in stream:
        items.append(item)
        sizes.append(size(item))
        if sum(sizes) >= target_size or len(items) == MAX_BATCH_ITEMS:
            break
    return (items, sizes) if items else None


@dataclass
class ThroughputEstimate:
    """Size of the items completed per second so far; without any, batches have one item."""

    seconds: float = 0.0
    completed_size: float = 0.0

    @property
    def target_batch_size(self) -> float:
        return TARGET_BATCH_SECONDS * self.completed_size / self.seconds if self.seconds else 0.0

    def update(self, seconds: float, size: float) -> None:
        self.seconds, self.completed_size = self.seconds + seconds, self.completed_size + size


@dataclass
class TaskBatch:
    """A submitted batch of items."""

    result_ref: Any  # Ray reference of the results
    items: list[Any]
    sizes: list[float]
    is_done: bool = False


@dataclass
class BatchScheduler:
    """Submission of batches of one function to a cluster, and retrieval of their results."""

    ray: ModuleType
    work: Callable[[Any], Any]
    n_cpus: int
    running: dict[Any, TaskBatch] = field(default_factory=dict)  # by Ray reference of their results

    @property
    def n_running(self) -> int:
        return len(self.running)

    def count_slots(self) -> int:
        """Return the number of batches that can run at a time; it changes when machines join or leave."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 0)) // self.n_cpus)

    @cached_property
    def session(self) -> str:
        return get_session_id(self.ray)

    @cached_property
    def work_refs(self) -> tuple[Any, list[Any]]:
        """Ray references of the pickled function and of its arrays."""
        work = pack_value(self.work, self.session)
        return self.ray.put(work.content), work.arrays

    @cached_property
    def task(self) -> Any:
        return self.ray.remote(num_cpus=self.n_cpus, max_retries=MAX_TASK_RETRIES)(process_items)

    @cached_property
    def work_id(self) -> str:
        return uuid.uuid4().hex

    def submit(self, items: list[Any], sizes: list[float]) -> TaskBatch:
        work, arrays = self.work_refs
        packed = pack_value(items, self.session)
        arguments = xmtc.__version__, self.work_id, work, packed.content, len(arrays)
        batch = TaskBatch(self.task.remote(*arguments, *arrays, *packed.arrays), items, sizes)
        self.running[batch.result_ref] = batch
        return batch

    def wait_for_batch(self) -> None:
        """Wait until a batch is done, at most POLL_SECONDS."""
        done, _ = self.ray.wait(list(self.running), timeout=POLL_SECONDS)
        for result_ref in done:
            self.running.pop(result_ref).is_done = True

    def get_results(self, batch: TaskBatch) -> tuple[float, list[Any]]:
        """Return the duration in seconds and the results, fewer than items if one after the first failed."""
        errors = self.ray.exceptions
        try:
            return pickle.loads(self.ray.get(batch.result_ref))
        except errors.RayTaskError as error:
            raise_task_error(error)
        except errors.RayError as error:
            raise XmtcError(
                f"The cluster did not finish its work in {MAX_TASK_RETRIES + 1} attempts ({get_first_line(error)}); "
                "check that its machines have enough memory and the same versions of xmtc, Python and Ray."
            ) from None

    def get_finished_results(self, batches: Iterable[TaskBatch]) -> Iterator[tuple[Any, float]]:
        """Yield results and sizes in order, without waiting, up to the first batch that is not finished."""
        for batch in batches:
            if not self.ray.wait([batch.result_ref], timeout=0)[0]:
                return
            results = self.get_results(batch)[1]
            yield from zip(results, batch.sizes, strict=False)
            if len(results) < len(batch.items):
                return

    def stop(self) -> None:
        """Cancel the batches that have not started."""
        for result_ref in self.running:
            self.ray.cancel(result_ref)
        self.running.clear()


def raise_task_error(error: Any) -> NoReturn:
    """Raise the exception that a Ray task raised."""
    cause = getattr(error, "cause", None)
    if not isinstance(cause, Exception):
        raise error
    raise_remote_error(cause, str(error))


def raise_remote_error(error: Exception, trace: str) -> NoReturn:
    """Raise an exception of a worker, with its traceback as a note unless it is an XmtcError."""
    if not isinstance(error, XmtcError):
        error.add_note(f"On a machine of the cluster:\n{trace}")
    raise error from None


def get_first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
