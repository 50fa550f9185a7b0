"""Execution settings of a training or prediction: threads, device, cluster, progress, checkpoint and callbacks.

They never change results, except that networks differ in the last digits between devices and numbers of threads."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from xmtc.cluster.connection import check_address
from xmtc.core.checkpoint import Checkpoint
from xmtc.core.events import PASS, STAGE, Callback, Event, Stage, measure_peak_memory
from xmtc.core.hyperparameters import is_number_of_type, to_short_repr
from xmtc.core.parallel import iterate_until_failure, map_on_threads, map_sequentially
from xmtc.core.process_rank import is_first_process
from xmtc.core.progress import Progress, ProgressFactory, hide_progress, show_progress
from xmtc.core.remote_run import DriverCallHandler, run_remote_work
from xmtc.core.threads import PrefetchIterator, count_available_threads
from xmtc.errors import XmtcError

Item = TypeVar("Item")
Result = TypeVar("Result")
MapFunction = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]  # `map`, or a map on several threads
Dispatcher = Callable[..., Iterator[tuple[Any, float]]]  # (work, items, size) → results and sizes, in order

MAX_THREADS = 4096
MAX_PREFETCHED_ITEMS = 8
DEVICE_PATTERN = re.compile(r"auto|(cpu|cuda|mps|xpu|npu|hpu|xla|mtia)(:\d+)?")  # PyTorch devices that train networks


def check_run(run: Any) -> None:
    """Raise XmtcError for a value that is not a Run, such as a number of threads."""
    if not isinstance(run, Run):
        raise XmtcError(
            f"run={to_short_repr(run)} is invalid; expected a Run, such as run=Run(threads=4) or run=Run(device='cpu')."
        )


def get_unit_size(item: Any) -> float:
    """Return 1, the size of an item where all items take about as long."""
    return 1


@dataclass(frozen=True)
class Run:
    """Execution settings: where and how to compute, never what.

    Parameters
    ----------
    threads : int, default=0
        Maximum number of threads; 0 uses all available CPUs (see `n_threads`).
    progress : bool or callable, default=False
        Whether to show progress, as a bar in a terminal or notebook and as lines in a log; or a function
        `(title, total)` that returns a context manager of a `Progress`.
    checkpoint : Checkpoint, str or path, optional
        Checkpoint directory; an interrupted training resumes from it.
    device : str, default="auto"
        PyTorch device of networks, such as cpu, cuda or cuda:1; auto uses a GPU if there is one.
    callbacks : callable or tuple of callables, default=()
        Functions that receive every event (`xmtc.core.events`). If one returns True for a `Pass`, the training of
        that network stops with the best weights so far. An exception in a callback ends the training.
    part : str, default=""
        Name of this training within a larger one, prefixed to the titles of its stages.
    workdir : str or path, optional
        Directory for memory-mapped arrays (training larger than RAM).
    cluster : str, default=""
        Ray cluster to use: auto, host:port or ray://host:port; empty uses this machine only.
    workers : int, default=0
        Number of cluster processes that train a network together; 0 is one per GPU or, without GPUs, one per machine.

    Raises
    ------
    XmtcError
        If a value is out of range, or a device or cluster address is malformed.

    Examples
    --------
    >>> Run(threads=2)
    Run(threads=2)
    >>> Run(threads=2).n_threads
    2
    """

    threads: int = 0
    progress: ProgressFactory | bool = False
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    device: str = "auto"
    callbacks: Callback | tuple[Callback, ...] = ()
    part: str = ""
    workdir: Path | None = None
    cluster: str = ""
    workers: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.checkpoint, (str, os.PathLike)):
            object.__setattr__(self, "checkpoint", Checkpoint(Path(self.checkpoint)))
        if isinstance(self.workdir, (str, os.PathLike)):
            object.__setattr__(self, "workdir", Path(self.workdir))
        if not is_number_of_type(self.threads, int) or not 0 <= self.threads <= MAX_THREADS:
            raise XmtcError(
                f"threads={to_short_repr(self.threads)} is invalid; expected 0 (all CPUs) to {MAX_THREADS}."
            )
        object.__setattr__(self, "threads", int(self.threads))
        if not is_number_of_type(self.workers, int) or self.workers < 0:
            raise XmtcError(
                f"workers={to_short_repr(self.workers)} is invalid; expected 0 (one per GPU or machine) or more."
            )
        object.__setattr__(self, "workers", int(self.workers))
        if not isinstance(self.device, str) or not DEVICE_PATTERN.fullmatch(self.device):
            raise XmtcError(
                f"device={to_short_repr(self.device)} is invalid; expected auto, cpu, cuda, cuda:1 or the like."
            )
        check_address(self.cluster)

    if TYPE_CHECKING:  # the constructor accepts more types than the fields hold

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
        """Return only what differs from the defaults, because Run() is a default in many signatures."""
        default = Run()
        values = {parameter.name: getattr(self, parameter.name) for parameter in fields(self)}
        changed = [f"{name}={value!r}" for name, value in values.items() if value != getattr(default, name)]
        return f"Run({', '.join(changed)})"

    @property
    def n_threads(self) -> int:
        """Number of threads to use. Counted on each access, since the available CPUs may change."""
        return max(1, self.threads or count_available_threads())

    def without_output(self) -> Run:
        """Return a copy without progress and callbacks."""
        return replace(self, progress=False, callbacks=())

    def for_trial(self) -> Run:
        """Return the settings of a trial, whose result is discarded: without output and without the checkpoint and the
        working directory of the training."""
        return replace(self.without_output(), checkpoint=Checkpoint(), workdir=None)

    def for_part(self, name: str) -> Run:
        """Return the settings of a training that is part of this one, with a checkpoint and stage titles of its own."""
        return replace(self, checkpoint=self.checkpoint.sub_checkpoint(name), part=self.qualify_name(name))

    def qualify_name(self, name: str) -> str:
        return f"{self.part}/{name}" if self.part else name

    @property
    def callback_tuple(self) -> tuple[Callback, ...]:
        return (self.callbacks,) if callable(self.callbacks) else tuple(self.callbacks or ())

    def notify(self, event: Event) -> bool:
        """Pass an event to all callbacks and return True if any of them requests a stop.

        If several processes train together, only the first one calls them."""
        if not is_first_process():
            return False
        answers = [callback(event) for callback in self.callback_tuple]
        return any(isinstance(answer, (bool, np.bool_)) and answer for answer in answers)

    def record_history(self) -> tuple[Run, list[dict[str, Any]]]:
        """Return a copy, and a list to which it appends every finished stage and pass (see `xmtc.core.history`)."""
        history: list[dict[str, Any]] = []

        def record(event: Event) -> None:
            entry = event.as_json()
            if entry["event"] in (STAGE, PASS):
                history.append(entry)

        return replace(self, callbacks=(*self.callback_tuple, record)), history

    @contextmanager
    def stage(self, title: str, total: float | None = None) -> Iterator[Progress]:
        """Show the progress of a stage, and notify the callbacks of its begin and end.

        Parameters
        ----------
        title : str
            Name of the stage.
        total : float, optional
            Number of steps; without it no progress is shown.

        Yields
        ------
        Progress
            Object whose `advance` counts steps.
        """
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
        """Yield a `map` that uses all threads, for repeated calls; the mapped function must release the GIL."""
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
        """Apply a function to every item on all threads, as one stage.

        Parameters
        ----------
        work : callable
            Function of one item; it must release the GIL, as compiled kernels do.
        items : iterable
            Items, possibly a stream.
        title : str
            Name of the stage.
        size : callable, optional
            Progress steps of an item; 1 by default.
        total : float, optional
            Sum of all sizes.
        max_pending_per_thread : int, default=2
            Number of items per thread that are held at a time.

        Yields
        ------
        object
            Results in the order of the items.
        """
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
        """Apply a function to every item as `map` does, on the machines of the cluster if there is one.

        The function and the items are pickled, so neither may hold a Run or an open file."""
        dispatch = self._map_on_machines if self.cluster else partial(self._map_on_threads, max_pending_per_thread)
        return self._dispatch(dispatch, work, items, title, size, total)

    def map_with_checkpoint(
        self,
        work: Callable[[Item], dict[str, np.ndarray]],
        items: Sequence[Item],
        name: Callable[[Item], str],
        title: str,
    ) -> Iterator[dict[str, np.ndarray]]:
        """Apply a function to every item as `map_on_cluster` does; pieces in the checkpoint are not computed again.

        Parameters
        ----------
        work : callable
            Function of one item that returns the arrays of its piece.
        items : sequence
            Items.
        name : callable
            Function of one item that returns the name of its piece in the checkpoint.
        title : str
            Name of the stage.

        Yields
        ------
        dict of str to ndarray
            Pieces in the order of the items.
        """
        saved = [self.checkpoint.load_piece(name(item)) for item in items]
        missing = [item for item, piece in zip(items, saved, strict=True) if piece is None]
        computed = self.map_on_cluster(work, missing, title, total=len(missing))
        for item, piece in zip(items, saved, strict=True):
            if piece is None:
                piece = next(computed)
                self.checkpoint.save_piece(name(item), piece)
            yield piece
        next(computed, None)  # exhausts the generator, which ends the stage

    def run_in_worker_group(self, work: Callable[[Run], Result]) -> Result:
        """Call a function in several cluster processes that train one network together, and return its result.

        Parameters
        ----------
        work : callable
            Function of the Run of its process; it is pickled with everything that it holds.

        Returns
        -------
        object
            Result of the first process.
        """
        from xmtc.cluster.training import run_in_worker_group

        handler = DriverCallHandler(self, self._progress_factory)
        plain = replace(
            self,
            progress=False,
            checkpoint=Checkpoint(interval_seconds=self.checkpoint.interval_seconds),
            callbacks=(),
            workdir=None,
            cluster="",
            workers=0,
        )
        has_checkpoint, should_show = self.checkpoint.folder is not None, self._progress_factory is not hide_progress
        try:
            remote_work = partial(run_remote_work, work, plain, has_checkpoint, should_show)
            return run_in_worker_group(self.cluster, remote_work, handler.handle, self.device, self.workers)
        finally:
            handler.close()

    def _dispatch(
        self,
        dispatch: Dispatcher,
        work: Callable[[Item], Result],
        items: Iterable[Item],
        title: str,
        size: Callable[[Item], float],
        total: float | None,
    ) -> Iterator[Result]:
        failures: list[Exception] = []
        stream = iterate_until_failure(items, failures)
        first = list(islice(stream, 2))
        if len(first) < 2:  # starting threads, or connecting to a cluster, would take longer than one item
            dispatch, total = map_sequentially, None
        with self.stage(title, total) as progress:
            for result, steps in dispatch(work, chain(first, stream), size):
                progress.advance(steps)
                yield result
            for error in failures:
                raise error

    def _map_on_threads(
        self,
        max_pending_per_thread: int,
        work: Callable[[Item], Result],
        items: Iterable[Item],
        size: Callable[[Item], float],
    ) -> Iterator[tuple[Result, float]]:
        n_threads = self.n_threads
        return map_on_threads(n_threads, max_pending_per_thread * n_threads, work, items, size)

    def _map_on_machines(
        self, work: Callable[[Item], Result], items: Iterable[Item], size: Callable[[Item], float]
    ) -> Iterator[tuple[Result, float]]:
        from xmtc.cluster.scheduling import map_on_cluster  # Ray takes a second to import

        return map_on_cluster(self.cluster, work, items, size)

    def prefetch_items(self, items: Iterable[Item]) -> Generator[Item]:
        """Yield the items, which a background thread produces ahead; with a single thread, none is prefetched."""
        if self.n_threads == 1:
            yield from items
            return
        with closing(PrefetchIterator(items, MAX_PREFETCHED_ITEMS)) as prefetched:
            yield from prefetched
