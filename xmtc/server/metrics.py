"""Prometheus metrics of the service.

Several workers share their counts through files in the folder that METRICS_FOLDER_VARIABLE names."""

from __future__ import annotations

import os
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from xmtc.scores.drift import DRIFT_KINDS, DriftReport
from xmtc.server.settings import METRICS_FOLDER_VARIABLE

LATENCY_BUCKETS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BATCH_SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024)

DRIFT_GAUGES = {
    "unknown_words": "Mean share of unknown words",
    "first_score": "Mean score of the first label",
    "label_distance": "Distance of predicted labels from the reference, and the distance by chance",
    "estimated_precision": "Measured P@1 of the reference and estimated P@1 of recent texts",
}


class Metrics:
    """Counters and histograms of one worker."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "xmtc_requests", "Requests by route, method and status.", ["route", "method", "status"], registry=registry
        )
        self.seconds = Histogram(
            "xmtc_request_seconds",
            "Duration of requests in seconds.",
            ["route"],
            buckets=LATENCY_BUCKETS_SECONDS,
            registry=registry,
        )
        self.texts = Counter("xmtc_texts", "Texts classified.", ["model"], registry=registry)
        self.sizes = Histogram(
            "xmtc_batch_texts", "Texts per batch.", ["model"], buckets=BATCH_SIZE_BUCKETS, registry=registry
        )
        self.reloads = Counter("xmtc_reloads", "Reloads of models.", ["model", "outcome"], registry=registry)
        self.running = Gauge(
            "xmtc_requests_running", "Running requests.", registry=registry, multiprocess_mode="livesum"
        )

        self.drift = {
            name: Gauge(
                f"xmtc_drift_{name}",
                f"{text}, by kind of documents.",
                ["model", "documents"],
                registry=registry,
                multiprocess_mode="mostrecent",
            )
            for name, text in DRIFT_GAUGES.items()
        }
        self.drift_warning = Gauge(
            "xmtc_drift_warning",
            "1 if recent texts differ from the reference of the model more than by chance.",
            ["model", "kind"],
            registry=registry,
            multiprocess_mode="mostrecent",
        )

    def drift_observer(self, model: str) -> Callable[[DriftReport], None]:
        """Return a function that sets the metrics of drift of a model."""

        def observe(report: DriftReport) -> None:
            accuracy = report.accuracy["P@1"]
            pairs = {
                "unknown_words": report.unknown_words,
                "first_score": report.scores,
                "label_distance": report.label_distance,
                "estimated_precision": accuracy,
            }
            for name, pair in pairs.items():
                if pair is not None:
                    self.drift[name].labels(model, "reference").set(pair.reference)
                    self.drift[name].labels(model, "recent").set(pair.new)
            for kind in DRIFT_KINDS:
                self.drift_warning.labels(model, kind).set(kind in report.warnings)

        return observe

    def batch_observer(self, model: str) -> Callable[[int], None]:
        """Return a function that counts the texts of one batch of a model."""
        texts, sizes = self.texts.labels(model), self.sizes.labels(model)

        def observe(n_texts: int) -> None:
            texts.inc(n_texts)
            sizes.observe(n_texts)

        return observe

    def render(self) -> bytes:
        """Return the metrics of all workers in the Prometheus text format."""
        if METRICS_FOLDER_VARIABLE not in os.environ:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
        return generate_latest(registry)
