"""Tests of what an installation leaves out skip themselves, as in `make matrix`, which has no PyTorch. `make test` has
everything, and there nothing is skipped for this reason."""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator
from importlib.util import find_spec

import pytest

ABSENT = [name for name in ("torch", "transformers", "tokenizers", "napkinxc") if find_spec(name) is None]


def pytest_configure() -> None:
    """In the background of a shell, or under nohup, signals are ignored, and commands that tests start would inherit
    that."""
    for name, handler in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL)):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those that led to it: what names the extra to install has come of the import that failed."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def skipping() -> Generator[None, object, object]:
    try:
        return (yield)
    except ImportError as error:
        names = {(getattr(part, "name", None) or "").partition(".")[0] for part in chain(error)}
        if names & set(ABSENT):
            pytest.skip(str(error))
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    return (yield from skipping())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    return (yield from skipping())
