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
from xmtc.core.progress import Progress, Silence, is_first_process

if TYPE_CHECKING:
    from xmtc.core.run import Run

OFTEN = 0.5  # seconds between two words of how far the work has come

Ask = Callable[..., Any]


def work_afar(work: Callable[[Run], Any], plain: Run, keeps: bool, shows: bool, ask: Ask, device: str) -> Any:
    """What a process elsewhere does: the work, with a run that asks. The plain one neither shows nor keeps anything."""
    if is_first_process():
        ask("begin")
    run = replace(
        plain,
        progress=partial(shown_afar, ask) if shows else False,
        checkpoint=CheckpointAfar(Path(), ask) if keeps else Checkpoint(),
        watch=partial(ask, "tell"),
        device=device,
    )
    return work(run)


@dataclass(frozen=True)
class CheckpointAfar(Checkpoint):
    """Pieces that are kept where the run began; the folder is named as seen from its own there."""

    ask: Ask = field(default=lambda *question: None, repr=False)

    def claim(self, training: str) -> None:
        self.ask("claim", self.folder, training)

    def part(self, name: str) -> CheckpointAfar:
        assert self.folder is not None
        return replace(self, folder=self.folder / name)

    def recall(self, piece: str) -> dict[str, np.ndarray] | None:
        found = self.ask("recall", self.folder, piece)
        return None if found is None else {name: np.array(array) for name, array in found.items()}  # its own, to change

    def keep(self, piece: str, arrays: dict[str, np.ndarray]) -> None:
        if is_first_process():
            self.ask("keep", self.folder, piece, arrays)


@contextmanager
def shown_afar(ask: Ask, title: str, total: float | None = None) -> Iterator[Progress]:
    if not is_first_process():
        yield Silence()
        return
    ask("show", title, total)
    progress = ProgressAfar(ask)
    yield progress
    progress.say()
    ask("shown")


class ProgressAfar:
    """Says now and then how far the work has come."""

    def __init__(self, ask: Ask) -> None:
        self.ask, self.steps, self.said = ask, 0.0, time.monotonic()

    def advance(self, steps: float = 1) -> None:
        self.steps += steps
        if time.monotonic() - self.said > OFTEN:
            self.say()

    def tell(self, news: str) -> None:
        self.say()
        self.ask("news", news)

    def say(self) -> None:
        self.ask("advance", self.steps)
        self.steps, self.said = 0.0, time.monotonic()


class Host:
    """Answers, by the name of what is asked."""

    def __init__(self, run: Run, show: Callable[..., AbstractContextManager[Progress]]) -> None:
        self.run, self.show = run, show
        self.open: list[tuple[ExitStack, Progress]] = []
        self.told: dict[tuple[str, int], bool] = {}  # passes, and whether somebody asked to stop

    def answer(self, name: str, *words: Any) -> Any:
        return getattr(self, f"on_{name}")(*words)

    def close(self) -> None:
        """End what is still shown, of work that has not ended."""
        while self.open:
            self.on_shown()

    def on_begin(self) -> None:
        """The processes begin, or begin anew because one has died."""
        self.close()

    def on_show(self, title: str, total: float | None) -> None:
        stack = ExitStack()
        self.open.append((stack, stack.enter_context(self.show(title, total))))

    def on_advance(self, steps: float) -> None:
        self.open[-1][1].advance(steps)

    def on_news(self, news: str) -> None:
        self.open[-1][1].tell(news)

    def on_shown(self) -> None:
        self.open.pop()[0].close()

    def on_tell(self, event: Event) -> bool:
        """Passes are told of once: who begins anew first tells of those that are behind it, as if it were resumed."""
        if not isinstance(event, Pass):
            return self.run.tell(event)
        key = event.network, event.number
        if key not in self.told:
            self.told[key] = self.run.tell(event)
        return self.told[key]

    def at(self, folder: Path) -> Checkpoint:
        own = self.run.checkpoint.folder
        return replace(self.run.checkpoint, folder=own and own / folder)

    def on_claim(self, folder: Path, training: str) -> None:
        self.at(folder).claim(training)

    def on_recall(self, folder: Path, piece: str) -> dict[str, np.ndarray] | None:
        return self.at(folder).recall(piece)

    def on_keep(self, folder: Path, piece: str, arrays: dict[str, np.ndarray]) -> None:
        self.at(folder).keep(piece, arrays)
