"""Trials of methods on growing samples of a corpus.

After each sample, only methods that may still be the best within the time limit continue. A trial differs from the
final training in two ways. It uses the analyzer that the whole corpus selects: a small sample has many rare words and
would select a slower one. And it is not calibrated: that doubles the training time on few documents, but not on many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import log
from time import perf_counter

from xmtc.analysis.compare.ground_truth import GroundTruth
from xmtc.analysis.compare.saved_predictions import SavedPredictions
from xmtc.analysis.method_specs import MethodSpec, as_typed_parameters
from xmtc.analysis.recommend.samples import Samples
from xmtc.analysis.trials import make_training_run, run_or_load, warm_up
from xmtc.errors import XmtcError
from xmtc.evaluation import parse_metric
from xmtc.evaluation.learning_curves import (
    MIN_DOCUMENT_EXPONENT,
    SAMPLE_GROWTH,
    extrapolate_metric,
    extrapolate_seconds,
)
from xmtc.features.tfidf import Tfidf
from xmtc.methods import method_class
from xmtc.pipeline import Pipeline
from xmtc.scores.calibration import count_trainings
from xmtc.text.analyzers import AUTO

TRIAL_METRICS = ("P@1", "P@3", "P@5", "nDCG@5")
MAIN_METRIC = "nDCG@5"
MAX_GAIN_PER_SAMPLE = 0.02  # that a method may catch up on the best one with each sample
METRIC_UNCERTAINTY = 0.005
MIN_RELATIVE_METRIC = 0.6  # of the best value on a sample; a method below it does not become the best
MIN_PROMISING_METHODS = 2  # that continue in any case
SLACK_SECONDS = 10.0  # for loading and compilation
TRIAL_BUDGET_SHARE = 0.5  # of the time limit, for all trials
MAX_OVERRUN_RATIO = 1.5  # of the actual to the estimated time of a trial


@dataclass
class MethodTrials:
    """Trials of one method, the smallest sample first."""

    spec: MethodSpec
    seconds: list[tuple[int, float]] = field(default_factory=list)  # (n_docs, training time)
    values: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: {name: [] for name in TRIAL_METRICS})
    peak_mb: float | None = None
    failed: str = ""
    timeouts: list[tuple[int, float]] = field(default_factory=list)  # (n_docs, time limit that was exceeded)

    @property
    def largest_sample(self) -> int:
        return self.seconds[-1][0] if self.seconds else 0


class MethodSearch:
    """Search for the best method of a corpus within a time limit."""

    def __init__(
        self, samples: Samples, specs: Sequence[MethodSpec], budget: float, report_progress: Callable[[str], None]
    ) -> None:
        self.samples, self.budget, self.report_progress = samples, budget, report_progress
        self.trials = [MethodTrials(spec) for spec in specs]
        self.deadline = perf_counter() + TRIAL_BUDGET_SHARE * budget

    @property
    def startup_seconds(self) -> float:
        """Time before the method itself starts, estimated as a little less than the fastest trial."""
        fastest = [method.seconds[0][1] for method in self.trials if method.seconds]
        return 0.8 * min(fastest, default=0.0)

    @property
    def seconds_left(self) -> float:
        return self.deadline - perf_counter()

    def run(self) -> None:
        """Run the trials sample by sample, the fastest method first; the time it saves goes to the others."""
        methods = list(self.trials)
        for size in self.samples.sizes:
            methods.sort(key=lambda method: self.estimate_trial_seconds(size, method))
            n_successful = 0
            for position, method in enumerate(methods):
                n_successful += self.run_trial_in_time(method, size, len(methods) - position)
            if not n_successful:
                return
            methods = self.select_promising([method for method in methods if not method.failed])

    def run_trial_in_time(self, method: MethodTrials, size: int, n_waiting: int) -> bool:
        """Run a trial with a fair share of the time left; return True if it had the time and succeeded."""
        if self.seconds_left <= self.estimate_min_seconds(method, size):
            return False
        share = max(self.seconds_left / n_waiting, MAX_OVERRUN_RATIO * self.estimate_trial_seconds(size, method))
        return self.run_trial(method, size, share)

    def estimate_trial_seconds(self, n_docs: int, method: MethodTrials) -> float:
        """Estimate the time of a trial; a trial that was ended counts as one that took at least its limit."""
        if not method.seconds:
            return 0.0
        size_of = self.samples.get_size
        estimates = []
        for points in (method.seconds, [*method.seconds, *method.timeouts]):
            known = [(size_of(n), seconds) for n, seconds in points]
            estimates.append(extrapolate_seconds(size_of(n_docs), known, self.startup_seconds))
        return max(estimates)

    def estimate_min_seconds(self, method: MethodTrials, n_docs: int) -> float:
        """Estimate a lower bound of a trial's time; after one sample only, assume the slowest growth."""
        if len(method.seconds) > 1:
            return self.estimate_trial_seconds(n_docs, method)
        return sum(
            (n_docs / n) ** MIN_DOCUMENT_EXPONENT * max(0.0, seconds - self.startup_seconds)
            for n, seconds in method.seconds
        )

    def as_training_seconds(self, method: MethodTrials, seconds: float) -> float:
        """Convert the time of a trial on all documents to that of the final training, which may be calibrated."""
        n_trainings = count_spec_trainings(method.spec, self.samples)
        return seconds + (n_trainings - 1) * max(0.0, seconds - self.startup_seconds)

    def estimate_training_seconds(self, method: MethodTrials) -> float:
        return self.as_training_seconds(method, self.estimate_trial_seconds(self.samples.n_docs, method))

    def estimate_metric(self, n_docs: int, method: MethodTrials, metric: str = MAIN_METRIC) -> float:
        """Estimate a metric after training on `n_docs` documents.

        On a sample without a trial of this method, it gains what the other methods gained on average; in proportion
        less if it is behind them.
        """
        points = dict(method.values[metric])
        for before, size in pairwise(self.samples.sizes):
            rows = [dict(other.values[metric]) for other in self.trials]
            pairs = [(row[before], row[size]) for row in rows if size in row and before in row]
            if before in points and size not in points and pairs:
                mean_before, mean_after = (sum(values) / len(pairs) for values in zip(*pairs, strict=True))
                relative = min(1.0, points[before] / mean_before) if mean_before else 1.0
                points[size] = min(1.0, points[before] + relative * (mean_after - mean_before))
        size_of = self.samples.get_size
        return extrapolate_metric(size_of(n_docs), [(size_of(n), value) for n, value in sorted(points.items())])

    def count_missed_samples(self, method: MethodTrials) -> int:
        """Count the samples on which other methods have a trial and this one has none."""
        tried = {size for other in self.trials for size, _ in other.seconds}
        return len(tried - {size for size, _ in method.seconds})

    def run_trial(self, method: MethodTrials, size: int, share: float) -> bool:
        """Train on a sample, evaluate and record the result; return True on success."""
        context = self.samples.make_trial_context(size, self.compute_limit_seconds(method, size, share))
        run = make_training_run(context, as_trial_spec(method.spec, self.samples), None)
        if run.load_result(context) is None:
            self.deadline += warm_up(context, run.spec)  # compilation happens once per machine
        result = run_or_load(context, run, self.report_progress)
        if "failed" in result:
            is_timeout = bool(result.get("ended")) and context.limit_seconds is not None
            method.failed = result["failed"] if not (method.seconds or is_timeout) else ""
            method.timeouts = [(size, context.limit_seconds or 0.0)] if is_timeout else []
            return False
        predictions = SavedPredictions.load(context.work / result["answers"])
        truth = GroundTruth.from_documents(self.samples.held_out, [predictions.trained])
        ranked = truth.match_predictions(truth.renumber_predictions(predictions)[0])
        method.seconds.append((size, result["train_s"]))
        method.peak_mb = result["peak_mb"]
        for name in TRIAL_METRICS:
            method.values[name].append((size, parse_metric(name).compute(ranked)))
        return True

    def compute_limit_seconds(self, method: MethodTrials, size: int, share: float) -> float:
        """Return the time limit of a trial: a method that exceeds it cannot train on all documents in time."""
        work = self.budget / count_spec_trainings(method.spec, self.samples)
        fitting = self.startup_seconds + SLACK_SECONDS + work * (size / self.samples.n_docs) ** MIN_DOCUMENT_EXPONENT
        return max(1.0, min(fitting, SLACK_SECONDS + share, self.seconds_left, self.budget))

    def select_promising(self, methods: Sequence[MethodTrials]) -> list[MethodTrials]:
        """Return the methods worth a trial on a larger sample: they may train in time and may catch up on the best, or
        match label names, which is for a consensus.

        If no method may train in time, return the fastest ones.
        """
        n_docs = self.samples.n_docs
        min_seconds = {
            method.spec.name: self.as_training_seconds(method, self.estimate_min_seconds(method, n_docs))
            for method in methods
        }
        by_time = sorted((method for method in methods if method.seconds), key=lambda m: min_seconds[m.spec.name])
        in_time = [m for m in by_time if min_seconds[m.spec.name] <= MAX_OVERRUN_RATIO * self.budget]
        in_time = in_time or by_time[:MIN_PROMISING_METHODS]
        if not in_time:
            return []
        values = {method.spec.name: self.estimate_metric(n_docs, method) for method in in_time}
        by_metric = sorted(in_time, key=lambda method: -values[method.spec.name])
        largest = max(method.largest_sample for method in in_time)
        reach = METRIC_UNCERTAINTY + MAX_GAIN_PER_SAMPLE * log(n_docs / largest) / log(SAMPLE_GROWTH)
        best = max(values.values())
        max_gap = min(reach, (1 - MIN_RELATIVE_METRIC) * best)
        return [
            method
            for rank, method in enumerate(by_metric)
            if rank < MIN_PROMISING_METHODS or best - values[method.spec.name] <= max_gap or matches_names(method)
        ]


def matches_names(method: MethodTrials) -> bool:
    return method_class(method.spec.method).has_label_name_input is True  # a property of combinations


def try_build_pipeline(spec: MethodSpec, samples: Samples) -> Pipeline | None:
    """Return the pipeline of a method, or None if it cannot be trained here; the trial reports the reason."""
    try:
        return Pipeline.from_parameters(spec.method, samples.content, as_typed_parameters(spec))
    except XmtcError:
        return None


def as_trial_spec(spec: MethodSpec, samples: Samples) -> MethodSpec:
    """Return a method without calibration, and with the analyzer of the whole corpus where it would select one."""
    pipeline = try_build_pipeline(spec, samples)
    if pipeline is None:
        return spec
    parameters = dict(spec.parameters) | {"calibrate": "false"}
    view = pipeline.views.get("tfidf")
    if isinstance(view, Tfidf) and len(pipeline.views) == 1 and view.analyzer == AUTO and view.ngrams == 1:
        parameters["analyzer"] = samples.analyzer
    return MethodSpec(spec.name, spec.method, tuple(parameters.items()))


def count_spec_trainings(spec: MethodSpec, samples: Samples) -> int:
    """Return how often the final training fits the method: more than once if calibration needs further models."""
    pipeline = try_build_pipeline(spec, samples)
    if pipeline is None or not pipeline.calibration.calibrate:
        return 1
    return count_trainings(pipeline.method, samples.n_docs)
