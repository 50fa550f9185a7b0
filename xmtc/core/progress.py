"""Progress display: a bar in a terminal or notebook, otherwise time-stamped lines. Short work shows nothing."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.util import find_spec
from math import inf
from typing import Protocol

from xmtc.core.process_rank import is_first_process
from xmtc.errors import escape_controls

BAR_DELAY_SECONDS = 2.0  # before a bar appears
FIRST_LINE_SECONDS = 10.0  # before the first line
MAX_LINE_INTERVAL_SECONDS = 60.0  # between lines; the interval doubles up to this


class Progress(Protocol):
    """Receiver of the progress of a stage."""

    def advance(self, steps: float = 1) -> None: ...

    def set_status(self, status: str) -> None: ...


class NullProgress:
    """Progress that shows nothing."""

    def advance(self, steps: float = 1) -> None:
        return None

    def set_status(self, status: str) -> None:
        return None


ProgressFactory = Callable[..., AbstractContextManager[Progress]]  # of a title and a total


def hide_progress(title: str, total: float | None = None) -> AbstractContextManager[Progress]:
    return nullcontext(NullProgress())


def show_progress(title: str, total: float | None = None) -> AbstractContextManager[Progress]:
    """Show a bar or lines on standard error, whichever suits it; nothing without a total."""
    stream = sys.stderr  # None without a console, as under pythonw
    if total is None or stream is None or getattr(stream, "closed", False) or not is_first_process():
        return hide_progress(title, total)
    return show_bar(title, total) if stream.isatty() or is_notebook() else show_lines(title, total)


def is_notebook() -> bool:
    """Return True in a notebook with ipywidgets, which rich needs to draw there."""
    if "IPython" not in sys.modules or find_spec("ipywidgets") is None:
        return False
    from rich.console import Console

    return Console().is_jupyter


@contextmanager
def show_bar(title: str, total: float) -> Iterator[Progress]:
    """Show a bar with the remaining time."""
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
        timer.join()  # the timer may be starting the bars
        bars.stop()


class ProgressBar:
    """Progress shown as a bar by rich."""

    def __init__(self, bars, task) -> None:
        self.bars, self.task, self.title = bars, task, bars.tasks[task].description

    def advance(self, steps: float = 1) -> None:
        self.bars.advance(self.task, steps)

    def set_status(self, status: str) -> None:
        self.bars.update(self.task, description=f"{self.title} ({status})")


class LineSchedule:
    """Times at which a line is due: FIRST_LINE_SECONDS after work began, then at growing intervals.

    Consecutive stages share one schedule, so that many short ones together print lines as well."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.last_activity, self.due_time, self.wait_seconds = clock, -inf, inf, FIRST_LINE_SECONDS

    def reset(self) -> None:
        self.last_activity = -inf

    def start(self) -> None:
        """Begin a stage; after a pause of FIRST_LINE_SECONDS the schedule starts anew."""
        now = self.clock()
        if now - self.last_activity > FIRST_LINE_SECONDS:
            self.due_time, self.wait_seconds = now + FIRST_LINE_SECONDS, FIRST_LINE_SECONDS
        self.last_activity = now

    def touch(self) -> None:
        """Record activity now."""
        self.last_activity = self.clock()

    @property
    def is_due(self) -> bool:
        return self.last_activity >= self.due_time

    @property
    def is_long(self) -> bool:
        """True if the work has taken so long that each status is printed."""
        return self.is_due or self.wait_seconds > FIRST_LINE_SECONDS

    def schedule_next(self) -> None:
        self.wait_seconds = min(2 * self.wait_seconds, MAX_LINE_INTERVAL_SECONDS)
        self.due_time = self.last_activity + self.wait_seconds


LINE_SCHEDULE = LineSchedule()


@contextmanager
def show_lines(title: str, total: float, schedule: LineSchedule = LINE_SCHEDULE) -> Iterator[Progress]:
    """Print lines for logs, as of nohup, Slurm and CI."""
    lines = ProgressLines(title, total, schedule)
    yield lines
    if lines.has_printed:
        lines.print_message(f"done after {format_duration(lines.seconds)}")


class ProgressLines:
    """Progress printed as time-stamped lines."""

    def __init__(self, title: str, total: float, schedule: LineSchedule) -> None:
        self.title, self.total, self.line_schedule = title, total, schedule
        self.completed, self.status_text, self.has_printed = 0.0, "", False
        schedule.start()
        self.start_time = schedule.last_activity

    @property
    def seconds(self) -> float:
        return self.line_schedule.clock() - self.start_time

    def advance(self, steps: float = 1) -> None:
        self.completed += steps
        self.line_schedule.touch()
        if self.line_schedule.is_due:
            self.print_progress()

    def set_status(self, status: str) -> None:
        self.status_text = status
        self.line_schedule.touch()
        if self.line_schedule.is_long:
            self.print_progress()

    def print_progress(self) -> None:
        share = min(1.0, self.completed / self.total) if self.total else 1.0
        seconds_left = round(self.seconds * (1 - share) / share) if share else 0
        left = f", {format_duration(seconds_left)} left" if seconds_left else ""
        status = f" ({self.status_text})" if self.status_text else ""
        self.print_message(f"{100 * share:.0f} % after {format_duration(self.seconds)}{left}{status}")
        self.status_text = ""
        self.line_schedule.schedule_next()

    def print_message(self, message: str) -> None:
        self.has_printed = True
        print_to_stderr(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {self.title}: {message}")


def print_to_stderr(line: str) -> None:
    """Print a line on standard error; ignore errors, so that a closed stream does not end the work."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(escape_controls(line), file=sys.stderr, flush=True)


def format_duration(seconds: float) -> str:
    """Return a duration in at most two units.

    Examples
    --------
    >>> format_duration(42), format_duration(200), format_duration(7500)
    ('42 s', '3 min 20 s', '2 h 5 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
