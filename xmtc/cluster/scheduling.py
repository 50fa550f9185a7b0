"""Handing out: batches of items that take about a second each, two for every CPU of the cluster at a time. Ray begins
anew what a machine that has died was working on, and what it had finished but not yet delivered."""

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
from xmtc.errors import XmtcError

Item = TypeVar("Item")
Result = TypeVar("Result")

TARGET_BATCH_SECONDS = 1.0  # that a batch is to take
MAX_BATCH_ITEMS = 1024  # of a batch
BATCHES_PER_CPU = 2  # batches under way: one is worked on while the next one travels
MAX_TASK_RETRIES = 20  # times that work is begun anew after whoever was at it has died
POLL_SECONDS = 1.0  # seconds after which to see whether machines have joined


def map_on_cluster(
    address: str,
    work: Callable[[Item], Result],
    items: Iterable[Item],
    size: Callable[[Item], float] = lambda item: 1,
    n_cpus: int = 1,
    max_pending_per_cpu: float = inf,
) -> Iterator[tuple[Result, float]]:
    """The answers, in the order of the items, each with its item's size. What `work` or the items raise is raised here,
    after the answers to all items before; where somebody stops it, after those that are there. A batch has `n_cpus` to
    itself. `n_ahead` bounds, for each CPU, the batches that wait for the answers to an earlier one, where somebody
    holds what they are about."""
    crew = BatchScheduler(connect(address), work, n_cpus)
    waiting, pace, failures = deque[TaskBatch](), ThroughputEstimate(), list[Exception]()
    left = iterate_until_failure(items, failures)
    try:
        while True:
            try:
                n_places = crew.count_slots()
                while crew.n_running < BATCHES_PER_CPU * n_places and len(waiting) < max_pending_per_cpu * n_places:
                    if not (batch := next_batch(left, size, pace.target_batch_size)):
                        break
                    waiting.append(crew.submit(*batch))
                if waiting and not waiting[0].is_done:
                    crew.wait_for_batch()
                    continue
            except (KeyboardInterrupt, SystemExit):  # only here: elsewhere an answer might be left out, or given twice
                yield from crew.get_finished_results(waiting)
                raise
            if not waiting:
                break
            seconds, answers = crew.get_results(first := waiting.popleft())
            pace.update(seconds, sum(first.sizes[: len(answers)]))
            if rest := first.items[len(answers) :]:  # begin with one that failed, and now says why
                waiting.appendleft(crew.submit(rest, first.sizes[len(answers) :]))
            yield from zip(answers, first.sizes, strict=False)
        for failure in failures:
            raise failure
    finally:
        crew.stop()


def iterate_until_failure(items: Iterable[Item], failures: list[Exception]) -> Iterator[Item]:
    """The items before the first that cannot be had, and then why."""
    try:
        yield from items
    except Exception as failure:
        failures.append(failure)


def next_batch(
    left: Iterator[Item], size: Callable[[Item], float], share: float
) -> tuple[list[Item], list[float]] | None:
    """Items that together are at least so large, and their sizes; None where there are no more."""
    items: list[Item] = []
    sizes: list[float] = []
    for item in left:
        items.append(item)
        sizes.append(size(item))
        if sum(sizes) >= share or len(items) == MAX_BATCH_ITEMS:
            break
    return (items, sizes) if items else None


@dataclass
class ThroughputEstimate:
    """How much is done in a second, by what was done so far. At first nothing is known, and items go one by one."""

    seconds: float = 0.0
    completed_size: float = 0.0

    @property
    def target_batch_size(self) -> float:
        return TARGET_BATCH_SECONDS * self.completed_size / self.seconds if self.seconds else 0.0

    def update(self, seconds: float, size: float) -> None:
        self.seconds, self.completed_size = self.seconds + seconds, self.completed_size + size


@dataclass
class TaskBatch:
    result_ref: Any  # of its answers, in the object store
    items: list[Any]
    sizes: list[float]
    is_done: bool = False


@dataclass
class BatchScheduler:
    """The CPUs of a cluster at one piece of work."""

    ray: ModuleType
    work: Callable[[Any], Any]
    n_cpus: int
    running: dict[Any, TaskBatch] = field(default_factory=dict)  # by the places of their answers

    @property
    def n_running(self) -> int:
        return len(self.running)

    def count_slots(self) -> int:
        """Batches that can be worked on at a time; asked again and again, because machines come and go."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 0)) // self.n_cpus)

    @cached_property
    def session(self) -> str:
        return get_session_id(self.ray)

    @cached_property
    def work_refs(self) -> tuple[Any, list[Any]]:
        """Where the work lies in the object store, and where its arrays do."""
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
        parcel = pack_value(items, self.session)
        told = xmtc.__version__, self.work_id, work, parcel.content, len(arrays)
        batch = TaskBatch(self.task.remote(*told, *arrays, *parcel.arrays), items, sizes)
        self.running[batch.result_ref] = batch
        return batch

    def wait_for_batch(self) -> None:
        """Wait until a batch is done, or until it is time to see who has joined."""
        done, _ = self.ray.wait(list(self.running), timeout=POLL_SECONDS)
        for place in done:
            self.running.pop(place).is_done = True

    def get_results(self, batch: TaskBatch) -> tuple[float, list[Any]]:
        """With the seconds that they took; fewer than items, where one failed that is not the first."""
        errors = self.ray.exceptions
        try:
            return pickle.loads(self.ray.get(batch.result_ref))
        except errors.RayTaskError as error:
            raise_task_error(error)
        except errors.RayError as error:
            raise XmtcError(
                f"The cluster did not finish its work, though it was begun {MAX_TASK_RETRIES + 1} times ({get_first_line(error)}); look "
                "whether its machines run out of memory, and are of the same xmtc, Python and Ray."
            ) from None

    def get_finished_results(self, batches: Iterable[TaskBatch]) -> Iterator[tuple[Any, float]]:
        """In order and without waiting, up to the first that is not there."""
        for batch in batches:
            if not self.ray.wait([batch.result_ref], timeout=0)[0]:
                return
            answers = self.get_results(batch)[1]
            yield from zip(answers, batch.sizes, strict=False)
            if len(answers) < len(batch.items):
                return

    def stop(self) -> None:
        """Nobody needs the rest: what has not begun does not begin."""
        for place in self.running:
            self.ray.cancel(place)
        self.running.clear()


def raise_task_error(error: Any) -> NoReturn:
    """As it was raised there; with where, if it is nobody's mistake."""
    cause = getattr(error, "cause", None)
    if not isinstance(cause, Exception):
        raise error
    if not isinstance(cause, XmtcError):
        cause.add_note(f"On a machine of the cluster:\n{error}")
    raise cause from None


def get_first_line(error: Exception) -> str:
    """The first line of what Ray says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
