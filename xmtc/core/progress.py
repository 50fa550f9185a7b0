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

from xmtc.cluster.worker_group import is_single_process
from xmtc.errors import escape_controls

BAR_DELAY_SECONDS = 2.0  # seconds before a bar appears
FIRST_LINE_SECONDS, MAX_LINE_INTERVAL_SECONDS = (
    10.0,
    60.0,
)  # seconds before the first line; between lines, which grow, at most


class Progress(Protocol):
    """Shows how far a long piece of work has come."""

    def advance(self, steps: float = 1) -> None: ...

    def set_status(self, news: str) -> None: ...


class NullProgress:
    """The Progress that shows nothing."""

    def advance(self, steps: float = 1) -> None:
        return None

    def set_status(self, news: str) -> None:
        return None


ProgressFactory = Callable[..., AbstractContextManager[Progress]]  # (title, total) → what is told of the progress


def hide_progress(title: str, total: float | None = None) -> AbstractContextManager[Progress]:
    return nullcontext(NullProgress())


def show_progress(title: str, total: float | None = None) -> AbstractContextManager[Progress]:
    """What suits the place, on standard error. Without a total there is nothing to say: whoever knows the size shows
    it."""
    stream = sys.stderr  # None without a console, as under pythonw
    if total is None or stream is None or getattr(stream, "closed", False) or not is_first_process():
        return hide_progress(title, total)
    return show_bar(title, total) if stream.isatty() or is_notebook() else show_lines(title, total)


def is_first_process() -> bool:
    """Of those that torchrun has started, if it has, one speaks for all."""
    return is_single_process() or os.environ.get("RANK", "0") == "0"


def is_notebook() -> bool:
    """Whether rich can draw in a notebook here, for which it needs ipywidgets."""
    if "IPython" not in sys.modules or find_spec("ipywidgets") is None:
        return False
    from rich.console import Console

    return Console().is_jupyter


@contextmanager
def show_bar(title: str, total: float) -> Iterator[Progress]:
    """A bar with the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("time left"))
    bars = Bars(*columns, TimeRemainingColumn(), TimeElapsedColumn(), console=Console(stderr=True), transient=True)
    timer = threading.Timer(BAR_DELAY_SECONDS, bars.start)
    timer.daemon = True
    timer.start()
    try:
        yield ProgressBar(bars, bars.add_task(title, total=total))
    finally:
        timer.cancel()
        timer.join()  # it may be about to start them
        bars.stop()


class ProgressBar:
    def __init__(self, bars, task) -> None:
        self.bars, self.task, self.title = bars, task, bars.tasks[task].description

    def advance(self, steps: float = 1) -> None:
        self.bars.advance(self.task, steps)

    def set_status(self, news: str) -> None:
        self.bars.update(self.task, description=f"{self.title} ({news})")


class LineSchedule:
    """When a line is due: some seconds after work began, then after intervals that grow. Pieces of work that follow
    each other have one pace, so that many short ones are heard of, too."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.last_activity, self.due_time, self.wait_seconds = clock, -inf, inf, FIRST_LINE_SECONDS

    def reset(self) -> None:
        self.last_activity = -inf

    def start(self) -> None:
        """A piece of work begins; after a rest, the pace does as well."""
        now = self.clock()
        if now - self.last_activity > FIRST_LINE_SECONDS:
            self.due_time, self.wait_seconds = now + FIRST_LINE_SECONDS, FIRST_LINE_SECONDS
        self.last_activity = now

    @property
    def is_due(self) -> bool:
        self.last_activity = self.clock()
        return self.last_activity >= self.due_time

    @property
    def is_long(self) -> bool:
        """Whether the work has taken so long that its news are worth a line each."""
        return self.is_due or self.wait_seconds > FIRST_LINE_SECONDS

    def schedule_next(self) -> None:
        self.wait_seconds = min(2 * self.wait_seconds, MAX_LINE_INTERVAL_SECONDS)
        self.due_time = self.last_activity + self.wait_seconds


LINE_SCHEDULE = LineSchedule()


@contextmanager
def show_lines(title: str, total: float, pace: LineSchedule = LINE_SCHEDULE) -> Iterator[Progress]:
    """For the logs of nohup, Slurm and CI: lines that say how far it is, news as they come, and the end."""
    told = ProgressLines(title, total, pace)
    yield told
    if told.has_printed:
        told.print_message(f"done after {format_duration(told.seconds)}")


class ProgressLines:
    def __init__(self, title: str, total: float, pace: LineSchedule) -> None:
        self.title, self.total, self.line_schedule, self.completed, self.status_text, self.has_printed = (
            title,
            total,
            pace,
            0.0,
            "",
            False,
        )
        pace.start()
        self.start_time = pace.last_activity

    @property
    def seconds(self) -> float:
        return self.line_schedule.clock() - self.start_time

    def advance(self, steps: float = 1) -> None:
        self.completed += steps
        if self.line_schedule.is_due:
            self.print_progress()

    def set_status(self, news: str) -> None:
        self.status_text = news
        if self.line_schedule.is_long:
            self.print_progress()

    def print_progress(self) -> None:
        share = min(1.0, self.completed / self.total) if self.total else 1.0
        left = f", {format_duration(self.seconds * (1 - share) / share)} left" if 0 < share < 1 else ""
        self.print_message(
            f"{100 * share:.0f} % after {format_duration(self.seconds)}{left}{self.status_text and f' ({self.status_text})'}"
        )
        self.status_text = ""
        self.line_schedule.schedule_next()

    def print_message(self, phrase: str) -> None:
        self.has_printed = True
        print_to_stderr(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {self.title}: {phrase}")


def print_to_stderr(line: str) -> None:
    """On standard error, if it is there: work does not end because nobody reads of it any more."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(escape_controls(line), file=sys.stderr, flush=True)


def format_duration(seconds: float) -> str:
    """In two units: 42 s, 3 min 20 s, 2 h 5 min."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
