"""Callback that stops a training, for tests of resuming."""

from __future__ import annotations

from collections.abc import Callable

from xmtc.core.events import Event


class TrainingStop(Exception):
    """Exception by which a callback stops a training."""


def stop_at_pass(number: int) -> Callable[[Event], None]:
    """Return a callback that stops a training when this pass has ended, before its checkpoint."""

    def stop(event: Event) -> None:
        if event.as_json().get("pass") == number:
            raise TrainingStop

    return stop
