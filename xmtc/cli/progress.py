"""Progress on the terminal: silent when piped, and for work that takes less than two seconds. That the first command
after an installation has to compile is said even then."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from xmtc.base.run import Progress, Silence

PATIENCE = 2.0  # seconds


@contextmanager
def bar(title: str, total: float | None = None) -> Iterator[Progress]:
    """A bar with the time left. Without a total there is nothing to say: whoever knows the size shows the bar."""
    if total is None or not sys.stderr.isatty():
        yield Silence()
        return
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
        bars.stop()


@functools.cache
def say_when_compiling() -> None:
    """One line on standard error, if this command has to compile what it uses."""
    from xmtc.compiled import when_compiling

    said = "xmtc: compiling what is used here for the first time, which takes some seconds once ..."
    when_compiling(lambda: print(said, file=sys.stderr, flush=True))


class Bar:
    def __init__(self, bars, task) -> None:
        self.bars, self.task, self.title = bars, task, bars.tasks[task].description

    def advance(self, steps: float = 1) -> None:
        self.bars.advance(self.task, steps)

    def tell(self, news: str) -> None:
        self.bars.update(self.task, description=f"{self.title} ({news})")
