"""Shared configuration of the tests.

Tests that need an optional package which is not installed are skipped, as in `make matrix`, which has no PyTorch."""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
sys.path[:0] = [str(path) for path in (FOLDER.parent, FOLDER / "support", *sorted(FOLDER.iterdir())) if path.is_dir()]
ABSENT = [name for name in ("torch", "transformers", "tokenizers", "napkinxc") if find_spec(name) is None]


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of tests that `make check` leaves out, and restore signal handlers: under nohup, signals are
    ignored, and child processes would inherit that."""
    config.addinivalue_line("markers", "integration: starts processes, or reads many random or real inputs")
    for name, handler in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL)):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, its cause, the cause of that, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def skip_if_missing() -> Generator[None, object, object]:
    try:
        return (yield)
    except ImportError as error:
        names = {(getattr(part, "name", None) or "").partition(".")[0] for part in chain(error)}
        if names & set(ABSENT):
            pytest.skip(str(error))
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    return (yield from skip_if_missing())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    return (yield from skip_if_missing())
