"""Events of a training: for callbacks (`Run(callbacks=...)`), logs (`--log-json`) and the history of the model.

`as_json` of each event is a flat JSON object, the same for all three."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Protocol

BEGIN, STAGE, PASS, CONVERGENCE = "begin", "stage", "pass", "convergence"
COMMAND = "command"  # entry of a history: a command that made the model
MAX_UNCONVERGED_SHARE = 0.05  # of the classifiers, up to which there is no warning


class Event(Protocol):
    """A stage or a pass of a training."""

    def as_json(self) -> dict[str, Any]: ...


Callback = Callable[[Any], Any]  # of an event; returns True to stop the training of a network


@dataclass(frozen=True)
class Stage:
    """Begin or end of a stage, such as growing trees.

    Parameters
    ----------
    title : str
        Name of the stage.
    seconds : float, optional
        Duration; None when the stage begins.
    memory : int, optional
        Peak memory of this process in bytes; None if the system does not report it.

    Examples
    --------
    >>> from xmtc import Classifier, Run, Stage
    >>> titles = []
    >>> def collect(event):
    ...     if isinstance(event, Stage) and event.seconds is None:
    ...         titles.append(event.title)
    >>> texts, labels = ["red apple", "blue sky"], [["fruit"], ["weather"]]
    >>> _ = Classifier(min_df=1, calibrate=False).fit(texts, labels, run=Run(callbacks=collect))
    >>> len(titles) > 1
    True
    """

    title: str
    seconds: float | None = None
    memory: int | None = None

    def as_json(self) -> dict[str, Any]:
        if self.seconds is None:
            return {"event": BEGIN, "title": self.title}
        return {"event": STAGE, "title": self.title, "seconds": round(self.seconds, 3), "memory": self.memory}


@dataclass(frozen=True)
class Pass:
    """End of a pass (epoch) of a network over its documents.

    Parameters
    ----------
    network : str
        Name of the network, if a method trains several.
    number : int
        Number of the pass, from 1.
    loss : float
        Mean loss over the steps of the pass.
    rate : float
        Learning rate of the last step.
    seconds : float
        Duration including validation.
    metrics : dict of str to float
        Metrics on the validation documents, by name.
    memory : int, optional
        Peak memory of this process in bytes; None if the system does not report it.
    gpu_memory : int, optional
        Peak memory of tensors on the GPU in bytes; None on a CPU.

    Examples
    --------
    >>> from xmtc import Pass
    >>> event = Pass("", 2, loss=0.25, rate=0.001, seconds=1.5, metrics={"nDCG@5": 0.5})
    >>> event.as_json()["pass"], event.as_json()["nDCG@5"]
    (2, 0.5)
    """

    network: str
    number: int
    loss: float
    rate: float
    seconds: float
    metrics: dict[str, float] = field(default_factory=dict)
    memory: int | None = None
    gpu_memory: int | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "event": PASS,
            "network": self.network,
            "pass": self.number,
            "loss": self.loss if isfinite(self.loss) else None,  # JSON has no NaN
            **self.metrics,
            "rate": self.rate,
            "seconds": round(self.seconds, 3),
            "memory": self.memory,
            "gpu_memory": self.gpu_memory,
        }


@dataclass(frozen=True)
class Convergence:
    """End of the training of linear classifiers.

    Parameters
    ----------
    n_classifiers : int
        Number of classifiers, one per label and per node of a tree.
    n_unconverged : int
        Number of classifiers that still changed considerably in the last pass.
    n_passes : int
        Maximum number of passes over the documents, or of Newton steps.
    """

    n_classifiers: int = 0
    n_unconverged: int = 0
    n_passes: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "event": CONVERGENCE,
            "classifiers": self.n_classifiers,
            "unconverged": self.n_unconverged,
            "passes": self.n_passes,
        }

    @property
    def warning(self) -> str:
        """Sentence about classifiers that did not converge; empty if they are few."""
        if self.n_unconverged <= MAX_UNCONVERGED_SHARE * self.n_classifiers:
            return ""
        return (
            f"{self.n_unconverged:,} of {self.n_classifiers:,} classifiers did not converge in {self.n_passes} passes; "
            "raise max_passes, lower C, or scale the features."
        )


def merge_convergence(parts: Iterable[Convergence]) -> Convergence:
    """Return the convergence of all classifiers of several trainings."""
    n_classifiers, n_unconverged, n_passes = 0, 0, 0
    for part in parts:
        n_classifiers, n_unconverged = n_classifiers + part.n_classifiers, n_unconverged + part.n_unconverged
        n_passes = max(n_passes, part.n_passes)
    return Convergence(n_classifiers, n_unconverged, n_passes)


def collect_convergence(parts: list[Convergence], event: Event) -> None:
    """Append the event if it reports the convergence of linear classifiers."""
    if isinstance(event, Convergence):
        parts.append(event)


def measure_peak_memory() -> int | None:
    """Return the peak memory of this process in bytes, or None if the system does not report it."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
