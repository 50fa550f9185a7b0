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
from xmtc.cluster.transfer import packed, session_of
from xmtc.cluster.worker import work_on
from xmtc.errors import XmtcError

Item = TypeVar("Item")
Result = TypeVar("Result")

SECONDS = 1.0  # that a batch is to take
MOST_ITEMS = 1024  # of a batch
PER_CPU = 2  # batches under way: one is worked on while the next one travels
AGAIN = 20  # times that work is begun anew after whoever was at it has died
LOOK = 1.0  # seconds after which to see whether machines have joined


def spread(
    address: str,
    work: Callable[[Item], Result],
    items: Iterable[Item],
    size: Callable[[Item], float] = lambda item: 1,
    n_cpus: int = 1,
    n_ahead: float = inf,
) -> Iterator[tuple[Result, float]]:
    """The answers, in the order of the items, each with its item's size. What `work` or the items raise is raised here,
    after the answers to all items before; where somebody stops it, after those that are there. A batch has `n_cpus` to
    itself. `n_ahead` bounds, for each CPU, the batches that wait for the answers to an earlier one, where somebody
    holds what they are about."""
    crew = Crew(connect(address), work, n_cpus)
    waiting, pace, failures = deque[Batch](), Pace(), list[Exception]()
    left = until_failure(items, failures)
    try:
        while True:
            try:
                n_places = crew.n_places()
                while crew.n_busy < PER_CPU * n_places and len(waiting) < n_ahead * n_places:
                    if not (batch := next_batch(left, size, pace.share)):
                        break
                    waiting.append(crew.begin(*batch))
                if waiting and not waiting[0].is_done:
                    crew.look()
                    continue
            except (KeyboardInterrupt, SystemExit):  # only here: elsewhere an answer might be left out, or given twice
                yield from crew.answers_there(waiting)
                raise
            if not waiting:
                break
            seconds, answers = crew.answers(first := waiting.popleft())
            pace.learn(seconds, sum(first.sizes[: len(answers)]))
            if rest := first.items[len(answers) :]:  # begin with one that failed, and now says why
                waiting.appendleft(crew.begin(rest, first.sizes[len(answers) :]))
            yield from zip(answers, first.sizes, strict=False)
        for failure in failures:
            raise failure
    finally:
        crew.stop()


def until_failure(items: Iterable[Item], failures: list[Exception]) -> Iterator[Item]:
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
        if sum(sizes) >= share or len(items) == MOST_ITEMS:
            break
    return (items, sizes) if items else None


@dataclass
class Pace:
    """How much is done in a second, by what was done so far. At first nothing is known, and items go one by one."""

    seconds: float = 0.0
    done: float = 0.0

    @property
    def share(self) -> float:
        return SECONDS * self.done / self.seconds if self.seconds else 0.0

    def learn(self, seconds: float, size: float) -> None:
        self.seconds, self.done = self.seconds + seconds, self.done + size


@dataclass
class Batch:
    place: Any  # of its answers, in the object store
    items: list[Any]
    sizes: list[float]
    is_done: bool = False


@dataclass
class Crew:
    """The CPUs of a cluster at one piece of work."""

    ray: ModuleType
    work: Callable[[Any], Any]
    n_cpus: int
    busy: dict[Any, Batch] = field(default_factory=dict)  # by the places of their answers

    @property
    def n_busy(self) -> int:
        return len(self.busy)

    def n_places(self) -> int:
        """Batches that can be worked on at a time; asked again and again, because machines come and go."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 0)) // self.n_cpus)

    @cached_property
    def session(self) -> str:
        return session_of(self.ray)

    @cached_property
    def sent(self) -> tuple[Any, list[Any]]:
        """Where the work lies in the object store, and where its arrays do."""
        work = packed(self.work, self.session)
        return self.ray.put(work.content), work.arrays

    @cached_property
    def task(self) -> Any:
        return self.ray.remote(num_cpus=self.n_cpus, max_retries=AGAIN)(work_on)

    @cached_property
    def name(self) -> str:
        return uuid.uuid4().hex

    def begin(self, items: list[Any], sizes: list[float]) -> Batch:
        work, arrays = self.sent
        parcel = packed(items, self.session)
        told = xmtc.__version__, self.name, work, parcel.content, len(arrays)
        batch = Batch(self.task.remote(*told, *arrays, *parcel.arrays), items, sizes)
        self.busy[batch.place] = batch
        return batch

    def look(self) -> None:
        """Wait until a batch is done, or until it is time to see who has joined."""
        done, _ = self.ray.wait(list(self.busy), timeout=LOOK)
        for place in done:
            self.busy.pop(place).is_done = True

    def answers(self, batch: Batch) -> tuple[float, list[Any]]:
        """With the seconds that they took; fewer than items, where one failed that is not the first."""
        errors = self.ray.exceptions
        try:
            return pickle.loads(self.ray.get(batch.place))
        except errors.RayTaskError as error:
            raise_again(error)
        except errors.RayError as error:
            raise XmtcError(
                f"The cluster did not finish its work, though it was begun {AGAIN + 1} times ({reason(error)}); look "
                "whether its machines run out of memory, and are of the same xmtc, Python and Ray."
            ) from None

    def answers_there(self, batches: Iterable[Batch]) -> Iterator[tuple[Any, float]]:
        """In order and without waiting, up to the first that is not there."""
        for batch in batches:
            if not self.ray.wait([batch.place], timeout=0)[0]:
                return
            answers = self.answers(batch)[1]
            yield from zip(answers, batch.sizes, strict=False)
            if len(answers) < len(batch.items):
                return

    def stop(self) -> None:
        """Nobody needs the rest: what has not begun does not begin."""
        for place in self.busy:
            self.ray.cancel(place)
        self.busy.clear()


def raise_again(error: Any) -> NoReturn:
    """As it was raised there; with where, if it is nobody's mistake."""
    cause = getattr(error, "cause", None)
    if not isinstance(cause, Exception):
        raise error
    if not isinstance(cause, XmtcError):
        cause.add_note(f"On a machine of the cluster:\n{error}")
    raise cause from None


def reason(error: Exception) -> str:
    """The first line of what Ray says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
