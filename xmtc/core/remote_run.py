"""A run whose work is done by processes elsewhere: they have a Run as it would be here, but what it shows, tells and
keeps goes through a function that asks. `Host` is who answers, on the machine where the run began."""

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
from xmtc.core.progress import NullProgress, Progress, is_first_process

if TYPE_CHECKING:
    from xmtc.core.run import Run

PROGRESS_INTERVAL_SECONDS = 0.5  # seconds between two words of how far the work has come

DriverCall = Callable[..., Any]


def run_remote_work(
    work: Callable[[Run], Any],
    plain: Run,
    has_checkpoint: bool,
    should_show: bool,
    call_driver: DriverCall,
    device: str,
) -> Any:
    """What a process elsewhere does: the work, with a run that asks. The plain one neither shows nor keeps anything."""
    if is_first_process():
        call_driver("begin")
    run = replace(
        plain,
        progress=partial(show_remote_progress, call_driver) if should_show else False,
        checkpoint=RemoteCheckpoint(Path(), call_driver) if has_checkpoint else Checkpoint(),
        callbacks=partial(call_driver, "tell"),
        device=device,
    )
    return work(run)


@dataclass(frozen=True)
class RemoteCheckpoint(Checkpoint):
    """Pieces that are kept where the run began; the folder is named as seen from its own there."""

    call_driver: DriverCall = field(default=lambda *question: None, repr=False)

    def claim(self, training: str) -> None:
        self.call_driver("claim", self.folder, training)

    def sub_checkpoint(self, name: str) -> RemoteCheckpoint:
        assert self.folder is not None
        return replace(self, folder=self.folder / name)

    def load_piece(self, piece: str) -> dict[str, np.ndarray] | None:
        found = self.call_driver("recall", self.folder, piece)
        return None if found is None else {name: np.array(array) for name, array in found.items()}  # its own, to change

    def save_piece(self, piece: str, arrays: dict[str, np.ndarray]) -> None:
        if is_first_process():
            self.call_driver("keep", self.folder, piece, arrays)


@contextmanager
def show_remote_progress(call_driver: DriverCall, title: str, total: float | None = None) -> Iterator[Progress]:
    if not is_first_process():
        yield NullProgress()
        return
    call_driver("show", title, total)
    progress = RemoteProgress(call_driver)
    yield progress
    progress.send_progress()
    call_driver("shown")


class RemoteProgress:
    """Says now and then how far the work has come."""

    def __init__(self, ask: DriverCall) -> None:
        self.call_driver, self.steps, self.last_sent = ask, 0.0, time.monotonic()

    def advance(self, steps: float = 1) -> None:
        self.steps += steps
        if time.monotonic() - self.last_sent > PROGRESS_INTERVAL_SECONDS:
            self.send_progress()

    def set_status(self, news: str) -> None:
        self.send_progress()
        self.call_driver("news", news)

    def send_progress(self) -> None:
        self.call_driver("advance", self.steps)
        self.steps, self.last_sent = 0.0, time.monotonic()


class DriverCallHandler:
    """Answers, by the name of what is asked."""

    def __init__(self, run: Run, show: Callable[..., AbstractContextManager[Progress]]) -> None:
        self.run, self.show_progress = run, show
        self.open_stages: list[tuple[ExitStack, Progress]] = []
        self.stop_answers: dict[tuple[str, int], bool] = {}  # passes, and whether somebody asked to stop

    def handle(self, name: str, *words: Any) -> Any:
        return getattr(self, f"on_{name}")(*words)

    def close(self) -> None:
        """End what is still shown, of work that has not ended."""
        while self.open_stages:
            self.on_shown()

    def on_begin(self) -> None:
        """The processes begin, or begin anew because one has died."""
        self.close()

    def on_show(self, title: str, total: float | None) -> None:
        stack = ExitStack()
        self.open_stages.append((stack, stack.enter_context(self.show_progress(title, total))))

    def on_advance(self, steps: float) -> None:
        self.open_stages[-1][1].advance(steps)

    def on_news(self, news: str) -> None:
        self.open_stages[-1][1].set_status(news)

    def on_shown(self) -> None:
        self.open_stages.pop()[0].close()

    def on_tell(self, event: Event) -> bool:
        """Passes are told of once: who begins anew first tells of those that are behind it, as if it were resumed."""
        if not isinstance(event, Pass):
            return self.run.notify(event)
        key = event.network, event.number
        if key not in self.stop_answers:
            self.stop_answers[key] = self.run.notify(event)
        return self.stop_answers[key]

    def get_checkpoint(self, folder: Path) -> Checkpoint:
        own = self.run.checkpoint.folder
        return replace(self.run.checkpoint, folder=own and own / folder)

    def on_claim(self, folder: Path, training: str) -> None:
        self.get_checkpoint(folder).claim(training)

    def on_recall(self, folder: Path, piece: str) -> dict[str, np.ndarray] | None:
        return self.get_checkpoint(folder).load_piece(piece)

    def on_keep(self, folder: Path, piece: str, arrays: dict[str, np.ndarray]) -> None:
        self.get_checkpoint(folder).save_piece(piece, arrays)
