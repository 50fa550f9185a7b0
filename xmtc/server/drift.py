"""Drift of the texts that a service classifies, in its Prometheus metrics.

A sample of the texts is compared with the reference of the model. Only predictions and shares of unknown words are
kept, no texts.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock, Thread

import numpy as np

from xmtc.core.run import Run
from xmtc.data.document import Document
from xmtc.scores.drift import MIN_DRIFT_DOCUMENTS, DriftReport, Observations, compare_with_reference
from xmtc.server import log
from xmtc.tagger import Tagger

MAX_SAMPLED_TEXTS = 8  # of a batch
SAMPLE_SECONDS = 1.0  # between two samples, so that sampling costs little under load
WINDOW_TEXTS = 1000  # most recent sampled texts that are compared
TEXTS_PER_REPORT = 100  # sampled texts between two comparisons


@dataclass
class DriftMonitor:
    """Comparison of the texts of one model with its reference."""

    tagger: Tagger
    run: Run
    report: Callable[[DriftReport], None]
    rows: deque[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=lambda: deque(maxlen=WINDOW_TEXTS))
    next_sample: float = 0.0  # on the clock of time.monotonic
    n_unreported: int = 0
    lock: Lock = field(default_factory=Lock)
    comparison: Thread | None = None  # it takes a second or two, in which requests are answered

    def sample(self, texts: Sequence[str]) -> None:
        """Observe the first texts of a batch, at most once in SAMPLE_SECONDS."""
        with self.lock:
            if time.monotonic() < self.next_sample:
                return
            self.next_sample = time.monotonic() + SAMPLE_SECONDS
        with log_failure():  # the request is answered all the same
            self._observe([Document("", text, []) for text in texts[:MAX_SAMPLED_TEXTS]])

    def _observe(self, documents: list[Document]) -> None:
        observed = self.tagger.observe(documents, self.run)
        with self.lock:
            for row in range(len(documents)):
                self.rows.append((observed.labels[row], observed.scores[row], observed.unknown[row : row + 1]))
            self.n_unreported += len(documents)
            is_comparing = self.comparison is not None and self.comparison.is_alive()
            if is_comparing or self.n_unreported < min(TEXTS_PER_REPORT, max(MIN_DRIFT_DOCUMENTS, len(self.rows))):
                return
            self.n_unreported = 0
            self.comparison = Thread(target=self._compare, args=(list(self.rows),), name="drift", daemon=True)
            self.comparison.start()

    def _compare(self, rows: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> None:
        labels, scores, unknown = zip(*rows, strict=True)
        with log_failure():
            window = Observations(np.array(labels), np.array(scores), np.concatenate(unknown))
            self.report(compare_with_reference(self.tagger.require_reference(), window))


@contextmanager
def log_failure() -> Iterator[None]:
    """Log an exception instead of raising it."""
    try:
        yield
    except Exception as error:
        log.write_event("drift not measured", cause=type(error).__name__)
