"""How far long work has come: a bar in a terminal and in a notebook, elsewhere plain lines with the time. Quick work
shows nothing."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.util import find_spec
from math import inf
from typing import Protocol

from xmtc.cluster.worker_group import is_alone
from xmtc.errors import visible

PATIENCE = 2.0  # seconds before a bar appears
FIRST, LONGEST = 10.0, 60.0  # seconds before the first line; between lines, which grow, at most


class Progress(Protocol):
    """Shows how far a long piece of work has come."""

    def advance(self, steps: float = 1) -> None: ...

    def tell(self, news: str) -> None: ...


class Silence:
    """The Progress that shows nothing."""

    def advance(self, steps: float = 1) -> None:
        return None

    def tell(self, news: str) -> None:
        return None


ShowProgress = Callable[..., AbstractContextManager[Progress]]  # (title, total) → what is told of the progress


def silent(title: str, total: float | None = None) -> AbstractContextManager[Progress]:
    return nullcontext(Silence())


def shown(title: str, total: float | None = None) -> AbstractContextManager[Progress]:
    """What suits the place, on standard error. Without a total there is nothing to say: whoever knows the size shows
    it."""
    stream = sys.stderr  # None without a console, as under pythonw
    if total is None or stream is None or getattr(stream, "closed", False) or not is_first_process():
        return silent(title, total)
    return bar(title, total) if stream.isatty() or is_notebook() else lines(title, total)


def is_first_process() -> bool:
    """Of those that torchrun has started, if it has, one speaks for all."""
    return is_alone() or os.environ.get("RANK", "0") == "0"


def is_notebook() -> bool:
    """Whether rich can draw in a notebook here, for which it needs ipywidgets."""
    if "IPython" not in sys.modules or find_spec("ipywidgets") is None:
        return False
    from rich.console import Console

    return Console().is_jupyter


@contextmanager
def bar(title: str, total: float) -> Iterator[Progress]:
    """A bar with the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("time left"))
    bars = Bars(*columns, TimeRemainingColumn(), TimeElapsedColumn(), console=Console(stderr=True), transient=True)
    timer = threading.Timer(PATIENCE, bars.start)
    timer.daemon = True
    timer.start()
    try:
        yield Bar(bars, bars.add_task(title, total=total))
    finally:
        timer.cancel()
        timer.join()  # it may be about to start them
        bars.stop()


class Bar:
    def __init__(self, bars, task) -> None:
        self.bars, self.task, self.title = bars, task, bars.tasks[task].description

    def advance(self, steps: float = 1) -> None:
        self.bars.advance(self.task, steps)

    def tell(self, news: str) -> None:
        self.bars.update(self.task, description=f"{self.title} ({news})")


class Pace:
    """When a line is due: some seconds after work began, then after intervals that grow. Pieces of work that follow
    each other have one pace, so that many short ones are heard of, too."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.seen, self.due, self.wait = clock, -inf, inf, FIRST

    def rest(self) -> None:
        self.seen = -inf

    def begin(self) -> None:
        """A piece of work begins; after a rest, the pace does as well."""
        now = self.clock()
        if now - self.seen > FIRST:
            self.due, self.wait = now + FIRST, FIRST
        self.seen = now

    @property
    def is_due(self) -> bool:
        self.seen = self.clock()
        return self.seen >= self.due

    @property
    def is_long(self) -> bool:
        """Whether the work has taken so long that its news are worth a line each."""
        return self.is_due or self.wait > FIRST

    def next(self) -> None:
        self.wait = min(2 * self.wait, LONGEST)
        self.due = self.seen + self.wait


PACE = Pace()


@contextmanager
def lines(title: str, total: float, pace: Pace = PACE) -> Iterator[Progress]:
    """For the logs of nohup, Slurm and CI: lines that say how far it is, news as they come, and the end."""
    told = Lines(title, total, pace)
    yield told
    if told.has_spoken:
        told.say(f"done after {duration(told.seconds)}")


class Lines:
    def __init__(self, title: str, total: float, pace: Pace) -> None:
        self.title, self.total, self.pace, self.done, self.news, self.has_spoken = title, total, pace, 0.0, "", False
        pace.begin()
        self.began = pace.seen

    @property
    def seconds(self) -> float:
        return self.pace.clock() - self.began

    def advance(self, steps: float = 1) -> None:
        self.done += steps
        if self.pace.is_due:
            self.say_how_far()

    def tell(self, news: str) -> None:
        self.news = news
        if self.pace.is_long:
            self.say_how_far()

    def say_how_far(self) -> None:
        share = min(1.0, self.done / self.total) if self.total else 1.0
        left = f", {duration(self.seconds * (1 - share) / share)} left" if 0 < share < 1 else ""
        self.say(f"{100 * share:.0f} % after {duration(self.seconds)}{left}{self.news and f' ({self.news})'}")
        self.news = ""
        self.pace.next()

    def say(self, phrase: str) -> None:
        self.has_spoken = True
        say(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {self.title}: {phrase}")


def say(line: str) -> None:
    """On standard error, if it is there: work does not end because nobody reads of it any more."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(visible(line), file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """In two units: 42 s, 3 min 20 s, 2 h 5 min."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
