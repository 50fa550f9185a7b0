"""Runs in other processes: workers train with a Run whose progress, events and checkpoint are handled by the driver.

A worker calls the driver by the name of a request and its arguments. `DriverCallHandler` handles them in the process
where the training was started."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xmtc.core.checkpoint import Checkpoint
from xmtc.core.events import Event, Pass
from xmtc.core.process_rank import is_first_process
from xmtc.core.progress import NullProgress, Progress

if TYPE_CHECKING:
    from xmtc.core.run import Run

PROGRESS_INTERVAL_SECONDS = 0.5  # minimum time between two progress messages to the driver

DriverCall = Callable[..., Any]  # (request name, *arguments) → the driver's answer


def run_remote_work(
    work: Callable[[Run], Any],
    plain: Run,
    has_checkpoint: bool,
    should_show: bool,
    call_driver: DriverCall,
    device: str,
) -> Any:
    """Return the result of `work` in a worker, with a Run that delegates output and checkpoint to the driver.

    `plain` holds the other settings, without output and checkpoint."""
    if is_first_process():
        call_driver("begin")
    run = replace(
        plain,
        progress=partial(show_remote_progress, call_driver) if should_show else False,
        checkpoint=RemoteCheckpoint(Path(), plain.checkpoint.interval_seconds, call_driver)
        if has_checkpoint
        else Checkpoint(),
        callbacks=partial(call_driver, "event"),
        device=device,
    )
    return work(run)


@dataclass(frozen=True)
class RemoteCheckpoint(Checkpoint):
    """Checkpoint on the driver's machine; `folder` is relative to the driver's checkpoint directory."""

    call_driver: DriverCall = field(default=lambda *request: None, repr=False)

    def claim(self, training: str) -> None:
        self.call_driver("claim", self.folder, training)

    def sub_checkpoint(self, name: str) -> RemoteCheckpoint:
        assert self.folder is not None
        return replace(self, folder=self.folder / name)

    def load_piece(self, piece: str) -> dict[str, np.ndarray] | None:
        arrays = self.call_driver("load_piece", self.folder, piece)
        # copies, because arrays of the object store are read-only
        return None if arrays is None else {name: np.array(array) for name, array in arrays.items()}

    def save_piece(self, piece: str, arrays: dict[str, np.ndarray]) -> None:
        if is_first_process():
            self.call_driver("save_piece", self.folder, piece, arrays)


@contextmanager
def show_remote_progress(call_driver: DriverCall, title: str, total: float | None = None) -> Iterator[Progress]:
    if not is_first_process():
        yield NullProgress()
        return
    call_driver("stage_begin", title, total)
    progress = RemoteProgress(call_driver)
    yield progress
    progress.send_progress()
    call_driver("stage_end")


class RemoteProgress:
    """Progress that is sent to the driver at most every PROGRESS_INTERVAL_SECONDS."""

    def __init__(self, call_driver: DriverCall) -> None:
        self.call_driver, self.steps, self.last_sent = call_driver, 0.0, time.monotonic()

    def advance(self, steps: float = 1) -> None:
        self.steps += steps
        if time.monotonic() - self.last_sent > PROGRESS_INTERVAL_SECONDS:
            self.send_progress()

    def set_status(self, status: str) -> None:
        self.send_progress()
        self.call_driver("status", status)

    def send_progress(self) -> None:
        self.call_driver("advance", self.steps)
        self.steps, self.last_sent = 0.0, time.monotonic()


class DriverCallHandler:
    """Handler of the workers' requests in the driver."""

    def __init__(self, run: Run, show_progress: Callable[..., AbstractContextManager[Progress]]) -> None:
        self.run, self.show_progress = run, show_progress
        self.open_stages: list[tuple[ExitStack, Progress]] = []
        self.stop_answers: dict[tuple[str, int], bool] = {}  # whether a callback stopped (network, number of the pass)
        self.handlers: dict[str, Callable[..., Any]] = {
            "begin": self.close,
            "stage_begin": self.begin_stage,
            "stage_end": self.end_stage,
            "advance": self.advance,
            "status": self.set_status,
            "event": self.notify,
            "claim": self.claim,
            "load_piece": self.load_piece,
            "save_piece": self.save_piece,
        }

    def handle(self, request: str, *arguments: Any) -> Any:
        return self.handlers[request](*arguments)

    def close(self) -> None:
        """End the stages that are still shown: workers begin, restart after a failure, or have failed."""
        while self.open_stages:
            self.end_stage()

    def begin_stage(self, title: str, total: float | None) -> None:
        stack = ExitStack()
        self.open_stages.append((stack, stack.enter_context(self.show_progress(title, total))))

    def advance(self, steps: float) -> None:
        self.open_stages[-1][1].advance(steps)

    def set_status(self, status: str) -> None:
        self.open_stages[-1][1].set_status(status)

    def end_stage(self) -> None:
        self.open_stages.pop()[0].close()

    def notify(self, event: Event) -> bool:
        """Notify the callbacks. A pass is reported once: restarted workers repeat the passes of their checkpoint."""
        if not isinstance(event, Pass):
            return self.run.notify(event)
        key = event.network, event.number
        if key not in self.stop_answers:
            self.stop_answers[key] = self.run.notify(event)
        return self.stop_answers[key]

    def get_checkpoint(self, folder: Path) -> Checkpoint:
        root = self.run.checkpoint.folder
        return replace(self.run.checkpoint, folder=root and root / folder)

    def claim(self, folder: Path, training: str) -> None:
        self.get_checkpoint(folder).claim(training)

    def load_piece(self, folder: Path, piece: str) -> dict[str, np.ndarray] | None:
        return self.get_checkpoint(folder).load_piece(piece)

    def save_piece(self, folder: Path, piece: str, arrays: dict[str, np.ndarray]) -> None:
        self.get_checkpoint(folder).save_piece(piece, arrays)
