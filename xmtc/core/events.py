"""What long work tells while it goes on: to callbacks (`Run(watch=...)`), to a log (`--log-json`) and to the history of
the model that it leaves. Each event has one form for all of them: a flat JSON object."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Protocol

BEGIN, STAGE, PASS = "begin", "stage", "pass"


class Event(Protocol):
    def as_json(self) -> dict[str, Any]: ...


Callback = Callable[[Any], Any]  # is handed an event; what it answers with True asks the training to stop


@dataclass(frozen=True)
class Stage:
    """A piece of work, such as growing trees. It is told of twice: when it begins, without seconds, and when it has
    ended."""

    title: str
    seconds: float | None = None
    memory: int | None = None  # bytes, the most that this process has held so far; None where nobody can say

    def as_json(self) -> dict[str, Any]:
        if self.seconds is None:
            return {"event": BEGIN, "title": self.title}
        return {"event": STAGE, "title": self.title, "seconds": round(self.seconds, 3), "memory": self.memory}


@dataclass(frozen=True)
class Pass:
    """A pass of a network over its documents."""

    network: str  # its name, where a method trains several
    number: int  # from 1 on
    loss: float  # the mean over the steps of the pass
    rate: float  # the learning rate of its last step
    seconds: float  # of the pass, validation included
    metrics: dict[str, float] = field(default_factory=dict)  # of the validation documents, if there are any, by name
    memory: int | None = None  # as of a Stage
    gpu_memory: int | None = None  # bytes, the most that tensors on the GPU have taken; None on a CPU

    def as_json(self) -> dict[str, Any]:
        return {
            "event": PASS,
            "network": self.network,
            "pass": self.number,
            "loss": self.loss if isfinite(self.loss) else None,  # JSON has no nan
            **self.metrics,
            "rate": self.rate,
            "seconds": round(self.seconds, 3),
            "memory": self.memory,
            "gpu_memory": self.gpu_memory,
        }


def measure_peak_memory() -> int | None:
    """The most memory that this process has held, in bytes; None on systems that do not say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
