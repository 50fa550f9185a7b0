"""What may differ between machines without changing the answer: threads, device, cluster, progress, where to resume,
who watches."""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from xmtc.cluster.connection import check_address
from xmtc.core.checkpoint import Checkpoint
from xmtc.core.events import BEGIN, Callback, Event, Stage, measure_peak_memory
from xmtc.core.hyperparameters import is_number_of_type, to_short_repr
from xmtc.core.progress import Progress, ProgressFactory, hide_progress, is_first_process, show_progress
from xmtc.core.remote_run import DriverCallHandler, run_remote_work
from xmtc.core.threads import PrefetchIterator, count_available_threads
from xmtc.errors import XmtcError

Item = TypeVar("Item")
Result = TypeVar("Result")
MapFunction = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]  # `map`, or that of several threads
Dispatcher = Callable[..., Iterator[tuple[Any, float]]]  # (work, items, size) → answers and sizes, in order

MAX_THREADS = 4096
MAX_PREFETCHED_ITEMS = 8  # items that are made before they are needed
DEVICE_PATTERN = re.compile(
    r"auto|(cpu|cuda|mps|xpu|npu|hpu|xla|mtia)(:\d+)?"
)  # PyTorch's, on which networks can train


def get_unit_size(item: Any) -> float:
    """The size of an item where all are alike."""
    return 1


@dataclass(frozen=True)
class Run:
    """Where and how to work; never what to compute.

    `callbacks` is a function, or several, that is handed every event (`xmtc.core.events`): stages of the work as they begin
    and end, passes of networks. Where one answers a pass with True, the training of that network ends, with the best
    weights so far. Other events cannot stop anything, but for the trials of a search. What a function raises ends
    everything."""

    threads: int = 0  # at most; 0: as many as there are when the work begins, see `n_threads`
    progress: ProgressFactory | bool = False  # True shows it, in a terminal, in a notebook or as lines of a log
    checkpoint: Checkpoint = field(default_factory=Checkpoint)  # or the path of its folder
    device: str = "auto"  # of networks: cpu, cuda, cuda:1 ...; auto takes a GPU if there is one
    callbacks: Callback | tuple[Callback, ...] = ()
    part: str = ""  # the name of this training, where it is part of another
    workdir: Path | None = None  # a folder for arrays that may be larger than memory; or its path as a string
    cluster: str = ""  # auto, host:port or ray://host:port of a Ray cluster that shares the work; or this machine alone
    workers: int = 0  # of the cluster, that train a network together; 0: one for each GPU, or, without, each machine

    def __post_init__(self) -> None:
        if isinstance(self.checkpoint, (str, os.PathLike)):
            object.__setattr__(self, "checkpoint", Checkpoint(Path(self.checkpoint)))
        if isinstance(self.workdir, (str, os.PathLike)):
            object.__setattr__(self, "workdir", Path(self.workdir))
        if not is_number_of_type(self.threads, int) or not 0 <= self.threads <= MAX_THREADS:
            raise XmtcError(
                f"threads={to_short_repr(self.threads)} does not fit; expected 0, for all there are, to {MAX_THREADS}."
            )
        object.__setattr__(self, "threads", int(self.threads))
        if not is_number_of_type(self.workers, int) or self.workers < 0:
            raise XmtcError(
                f"workers={to_short_repr(self.workers)} does not fit; expected 0, for all there are, or more."
            )
        object.__setattr__(self, "workers", int(self.workers))
        if not isinstance(self.device, str) or not DEVICE_PATTERN.fullmatch(self.device):
            raise XmtcError(
                f"There is no device {to_short_repr(self.device)}; expected auto, cpu, cuda, cuda:1 or the like."
            )
        check_address(self.cluster)

    if TYPE_CHECKING:  # what it takes is wider than what it holds

        def __init__(
            self,
            threads: int = ...,
            progress: ProgressFactory | bool = ...,
            checkpoint: Checkpoint | str | os.PathLike[str] = ...,
            device: str = ...,
            callbacks: Callback | tuple[Callback, ...] = ...,
            part: str = ...,
            workdir: str | os.PathLike[str] | None = ...,
            cluster: str = ...,
            workers: int = ...,
        ) -> None: ...

    def __repr__(self) -> str:
        """What differs from a plain Run(), which stands in many signatures."""
        usual = Run()
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return f"Run({', '.join(f'{key}={value!r}' for key, value in given.items() if value != getattr(usual, key))})"

    @property
    def n_threads(self) -> int:
        """Threads to work with. Not found before they are needed: a Run() may stand in a signature."""
        return max(1, self.threads or count_available_threads())

    def without_output(self) -> Run:
        """The same without progress and events, for work within work that shows its own."""
        return replace(self, progress=False, callbacks=())

    def for_part(self, name: str) -> Run:
        """For a training that is part of this one: what it tells and keeps is under its name."""
        return replace(self, checkpoint=self.checkpoint.sub_checkpoint(name), part=self.qualify_name(name))

    def qualify_name(self, name: str) -> str:
        return f"{self.part}/{name}" if self.part else name

    @property
    def callback_tuple(self) -> tuple[Callback, ...]:
        return (self.callbacks,) if callable(self.callbacks) else tuple(self.callbacks or ())

    def notify(self, event: Event) -> bool:
        """Hand an event to all callbacks; whether any of them asks to stop. Of several processes, the first tells."""
        if not is_first_process():
            return False
        answers = [callback(event) for callback in self.callback_tuple]
        return any(isinstance(answer, (bool, np.bool_)) and answer for answer in answers)

    def record_history(self) -> tuple[Run, list[dict[str, Any]]]:
        """The same, and a list in which it writes down what is finished: a history."""
        history: list[dict[str, Any]] = []

        def write_down(event: Event) -> None:
            described = event.as_json()
            if described["event"] != BEGIN:
                history.append(described)

        return replace(self, callbacks=(*self.callback_tuple, write_down)), history

    @contextmanager
    def stage(self, title: str, total: float | None = None) -> Iterator[Progress]:
        """A piece of work: shows its progress, and tells when it begins and has ended."""
        title, begin = self.qualify_name(title), time.monotonic()
        self.notify(Stage(title))
        with self._progress_factory(title, total) as progress:
            yield progress
        self.notify(Stage(title, time.monotonic() - begin, measure_peak_memory()))

    @property
    def _progress_factory(self) -> ProgressFactory:
        return self.progress if callable(self.progress) else show_progress if self.progress else hide_progress

    @contextmanager
    def open_thread_map(self) -> Iterator[MapFunction]:
        """A `map` by all threads for the pieces of one computation, again and again; it must release the GIL."""
        if self.n_threads == 1:
            yield map
            return
        with ThreadPoolExecutor(self.n_threads) as pool:
            yield lambda work, items: pool.map(work, items) if len(items) > 1 else map(work, items)

    def map(
        self,
        work: Callable[[Item], Result],
        items: Iterable[Item],
        title: str,
        size: Callable[[Item], float] = get_unit_size,
        total: float | None = None,
        max_pending_per_thread: int = 2,
    ) -> Iterator[Result]:
        """`work` on every item by all threads; answers come in the order of the items, which may be a stream: only
        `ahead` for each thread are ever held, few where all take about as long. The work must release the GIL, as
        compiled kernels do."""
        return self._dispatch(partial(self._map_on_threads, max_pending_per_thread), work, items, title, size, total)

    def map_on_cluster(
        self,
        work: Callable[[Item], Result],
        items: Iterable[Item],
        title: str,
        size: Callable[[Item], float] = get_unit_size,
        total: float | None = None,
        max_pending_per_thread: int = 2,
    ) -> Iterator[Result]:
        """As `map`; where there is a cluster, by its machines. There, `work` and what it holds are sent to each, and
        items as they come: so neither may hold a Run, nor anything that is open."""
        hand_out = self._map_on_machines if self.cluster else partial(self._map_on_threads, max_pending_per_thread)
        return self._dispatch(hand_out, work, items, title, size, total)

    def map_with_checkpoint(
        self,
        work: Callable[[Item], dict[str, np.ndarray]],
        items: Sequence[Item],
        name: Callable[[Item], str],
        title: str,
    ) -> Iterator[dict[str, np.ndarray]]:
        """As `spread`, of pieces that the checkpoint keeps under their names; those that it has are not made again."""
        kept = [self.checkpoint.load_piece(name(item)) for item in items]
        missing = [item for item, piece in zip(items, kept, strict=True) if piece is None]
        made = self.map_on_cluster(work, missing, title, total=len(missing))
        for item, piece in zip(items, kept, strict=True):
            if piece is None:
                piece = next(made)
                self.checkpoint.save_piece(name(item), piece)
            yield piece
        next(made, None)  # there is none left: this ends the stream, and with it the stage

    def run_in_worker_group(self, work: Callable[[Run], Result]) -> Result:
        """What `work` comes to where processes of the cluster do it together, each with a run of its own, as torchrun
        starts them to train one network. As with `spread`, it is sent to them with all that it holds."""
        from xmtc.cluster.training import run_in_worker_group

        host = DriverCallHandler(self, self._progress_factory)
        plain = replace(
            self, progress=False, checkpoint=Checkpoint(), callbacks=(), workdir=None, cluster="", workers=0
        )
        keeps, shows = self.checkpoint.folder is not None, self._progress_factory is not hide_progress
        try:
            there = partial(run_remote_work, work, plain, keeps, shows)
            return run_in_worker_group(self.cluster, there, host.handle, self.device, self.workers)
        finally:
            host.close()

    def _dispatch(
        self,
        hand_out: Dispatcher,
        work: Callable[[Item], Result],
        items: Iterable[Item],
        title: str,
        size: Callable[[Item], float],
        total: float | None,
    ) -> Iterator[Result]:
        failed: list[Exception] = []
        stream = iterate_until_failure(items, failed)
        first = list(islice(stream, 2))
        if len(first) < 2:  # one document to tag: starting threads, or asking a cluster, would cost more
            hand_out, total = map_sequentially, None
        with self.stage(title, total) as progress:
            for result, steps in hand_out(work, chain(first, stream), size):
                progress.advance(steps)
                yield result
            for error in failed:
                raise error

    def _map_on_machines(
        self, work: Callable[[Item], Result], items: Iterable[Item], size: Callable[[Item], float]
    ) -> Iterator[tuple[Result, float]]:
        from xmtc.cluster.scheduling import map_on_cluster  # Ray takes a second to import

        return map_on_cluster(self.cluster, work, items, size)

    def _map_on_threads(
        self, ahead: int, work: Callable[[Item], Result], items: Iterable[Item], size: Callable[[Item], float]
    ) -> Iterator[tuple[Result, float]]:
        """Each answer with its item's size."""
        n_threads = self.n_threads
        if n_threads == 1:
            yield from map_sequentially(work, items, size)
            return
        with ThreadPoolExecutor(n_threads) as pool:
            waiting: deque[tuple[Future[Result], float]] = deque()
            try:
                for item in items:
                    waiting.append((pool.submit(work, item), size(item)))
                    if len(waiting) > ahead * n_threads:
                        yield wait_for_result(waiting.popleft())
                while waiting:
                    yield wait_for_result(waiting.popleft())
            finally:
                for future, _ in waiting:
                    future.cancel()

    def prefetch_items(self, items: Iterable[Item]) -> Generator[Item]:
        """The same items, made by a thread of their own while those before them are worked on; a few at most wait. With
        a single thread, each is made when it is needed."""
        if self.n_threads == 1:
            yield from items
            return
        with closing(PrefetchIterator(items, MAX_PREFETCHED_ITEMS)) as made:
            yield from made


def iterate_until_failure(items: Iterable[Item], failed: list[Exception]) -> Iterator[Item]:
    """The items as far as they can be made, and then why not: to be told after the answers to those before."""
    try:
        yield from items
    except Exception as error:
        failed.append(error)


def map_sequentially(
    work: Callable[[Item], Result], items: Iterable[Item], size: Callable[[Item], float]
) -> Iterator[tuple[Result, float]]:
    return ((work(item), size(item)) for item in items)


def wait_for_result(job: tuple[Future[Result], float]) -> tuple[Result, float]:
    future, size = job
    return future.result(), size
