"""Methods tried on growing samples of a corpus, each training in a process of its own. After each sample those go on
that may still be the best of those that fit the budget.

A trial is not quite the training to come. Its analyzer is the one that all documents choose: few documents hold many
words that others do not, and would choose another, which takes several times as long. It is not calibrated: that takes
time twice on few documents, and once on many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import log
from time import perf_counter

from xmtc.analysis.compare.ground_truth import GroundTruth
from xmtc.analysis.compare.saved_predictions import SavedPredictions
from xmtc.analysis.method_specs import MethodSpec, as_typed_parameters
from xmtc.analysis.recommend.learning_curves import (
    MIN_DOCUMENT_EXPONENT,
    SAMPLE_GROWTH,
    extrapolate_metric,
    extrapolate_seconds,
)
from xmtc.analysis.recommend.samples import Samples
from xmtc.analysis.trials import TrialContext, run_or_load, warm_up
from xmtc.errors import XmtcError
from xmtc.evaluation import parse_metric
from xmtc.features.tfidf import Tfidf
from xmtc.pipeline import Pipeline
from xmtc.scores.calibration import count_trainings
from xmtc.text.analyzers import AUTO

TRIAL_METRICS = ("P@1", "P@3", "P@5", "nDCG@5")
MAIN_METRIC = "nDCG@5"
MAX_GAIN_PER_SAMPLE, METRIC_UNCERTAINTY = (
    0.02,
    0.005,
)  # what a method may gain on the best with each sample, and how far figures may be off
MIN_RELATIVE_METRIC = 0.6  # of the best value on a sample: a method that has less does not become the best
MIN_PROMISING_METHODS = 2  # methods that always go on
SLACK_SECONDS = 10.0  # seconds, for what is loaded and compiled
TRIAL_BUDGET_SHARE = 0.5  # of the budget that trying may take
MAX_OVERRUN_RATIO = 1.5  # times what a trial is expected to take, it may take


@dataclass
class MethodTrials:
    """What is known of a method."""

    spec: MethodSpec
    seconds: list[tuple[int, float]] = field(default_factory=list)  # by documents, the smallest sample first
    values: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: {name: [] for name in TRIAL_METRICS})
    peak_mb: float | None = None
    failed: str = ""
    timeouts: list[tuple[int, float]] = field(default_factory=list)  # a larger sample, and seconds that were not enough

    @property
    def largest_sample(self) -> int:
        return self.seconds[-1][0] if self.seconds else 0


class MethodSearch:
    """The trials of one corpus, within a time."""

    def __init__(
        self, samples: Samples, specs: Sequence[MethodSpec], budget: float, report_progress: Callable[[str], None]
    ) -> None:
        self.samples, self.budget, self.report_progress = samples, budget, report_progress
        self.trials = [MethodTrials(spec) for spec in specs]
        self.deadline = perf_counter() + TRIAL_BUDGET_SHARE * budget

    @property
    def startup_seconds(self) -> float:
        """Seconds that any training takes before its method has its turn: a little less than the quickest took."""
        quickest = [each.seconds[0][1] for each in self.trials if each.seconds]
        return 0.8 * min(quickest, default=0.0)

    @property
    def seconds_left(self) -> float:
        return self.deadline - perf_counter()

    def run(self) -> None:
        """Sample by sample, the quickest first: what they leave of their share is for the others."""
        alive = list(self.trials)
        for size in self.samples.sizes:
            alive.sort(key=lambda each: self.estimate_trial_seconds(size, each))
            tried = [self.run_trial_in_time(each, size, len(alive) - row) for row, each in enumerate(alive)]
            if not any(tried):
                return
            alive = self.select_promising([each for each in alive if not each.failed])

    def run_trial_in_time(self, method: MethodTrials, size: int, n_waiting: int) -> bool:
        """Whether a trial had the time, and worked out; of what is left, it has a fair share."""
        if self.seconds_left <= self.estimate_min_seconds(method, size):
            return False
        share = max(self.seconds_left / n_waiting, MAX_OVERRUN_RATIO * self.estimate_trial_seconds(size, method))
        return self.run_trial(method, size, share)

    def estimate_trial_seconds(self, n_docs: int, method: MethodTrials) -> float:
        """Of a trial on so many documents; what was ended takes at least as long as it was given."""
        if not method.seconds:
            return 0.0
        size, kept = self.samples.get_size, (method.seconds, [*method.seconds, *method.timeouts])
        known = ([(size(n), seconds) for n, seconds in each] for each in kept)
        return max(extrapolate_seconds(size(n_docs), each, self.startup_seconds) for each in known)

    def estimate_min_seconds(self, method: MethodTrials, n_docs: int) -> float:
        """Of a trial on so many documents. One sample says little of the next, and less of all documents: its time is
        taken to grow slowly."""
        if len(method.seconds) > 1:
            return self.estimate_trial_seconds(n_docs, method)
        return sum(
            (n_docs / n) ** MIN_DOCUMENT_EXPONENT * max(0.0, seconds - self.startup_seconds)
            for n, seconds in method.seconds
        )

    def as_training_seconds(self, method: MethodTrials, seconds: float) -> float:
        """The time of a training on all documents, where a trial would take so long: a calibration may double what is
        the method's own."""
        times = count_spec_trainings(method.spec, self.samples)
        return seconds + (times - 1) * max(0.0, seconds - self.startup_seconds)

    def estimate_training_seconds(self, method: MethodTrials) -> float:
        return self.as_training_seconds(method, self.estimate_trial_seconds(self.samples.n_docs, method))

    def estimate_metric(self, n_docs: int, method: MethodTrials, metric: str = MAIN_METRIC) -> float:
        """What a method is expected to reach. On a sample that it was not tried on, it gains what the others did; less
        in proportion, where it is behind them."""
        points = dict(method.values[metric])
        for before, size in pairwise(self.samples.sizes):
            rows = [dict(each.values[metric]) for each in self.trials]
            both = [(each[before], each[size]) for each in rows if size in each and before in each]
            if before in points and size not in points and both:
                less, more = (sum(each) / len(both) for each in zip(*both, strict=True))
                behind = min(1.0, points[before] / less) if less else 1.0
                points[size] = min(1.0, points[before] + behind * (more - less))
        size_of = self.samples.get_size
        return extrapolate_metric(size_of(n_docs), [(size_of(n), value) for n, value in sorted(points.items())])

    def count_missed_samples(self, method: MethodTrials) -> int:
        """How many of the samples that others were tried on it was not tried on."""
        return len({size for each in self.trials for size, _ in each.seconds} - {size for size, _ in method.seconds})

    def run_trial(self, method: MethodTrials, size: int, share: float) -> bool:
        """Train on a sample and measure; whether that worked out."""
        place = self.samples.make_trial_context(size, self.compute_limit_seconds(method, size, share))
        result = run_or_load(place, as_trial_spec(method.spec, self.samples), None, self.report_progress, self.warm_up)
        if "failed" in result:
            method.failed = result["failed"] if not method.seconds else ""
            method.timeouts = (
                [(size, place.limit_seconds)] if result.get("ended") and place.limit_seconds is not None else []
            )
            return False
        answers = SavedPredictions.load(place.work / result["answers"])
        truth = GroundTruth.from_documents(self.samples.held_out, [answers.trained])
        judged = truth.match_predictions(truth.renumber_predictions(answers)[0])
        method.seconds.append((size, result["train_s"]))
        method.peak_mb = result["peak_mb"]
        for name in TRIAL_METRICS:
            method.values[name].append((size, parse_metric(name).compute(judged)))
        return True

    def warm_up(self, place: TrialContext, spec: MethodSpec) -> None:
        """Have everything compiled, in time that is not the trials': a machine does it once."""
        begin = perf_counter()
        warm_up(place, spec)
        self.deadline += perf_counter() - begin

    def compute_limit_seconds(self, method: MethodTrials, size: int, share: float) -> float:
        """Seconds of a trial: a method that takes longer on a sample will not fit the budget with all documents."""
        work = self.budget / count_spec_trainings(method.spec, self.samples)
        fitting = self.startup_seconds + SLACK_SECONDS + work * (size / self.samples.n_docs) ** MIN_DOCUMENT_EXPONENT
        return max(1.0, min(fitting, SLACK_SECONDS + share, self.seconds_left, self.budget))

    def select_promising(self, methods: Sequence[MethodTrials]) -> list[MethodTrials]:
        """Those that may fit the budget and are not so far behind that more documents could not make it good; the
        quickest where none does, so that more is known of them."""
        n_docs = self.samples.n_docs
        least = {
            each.spec.name: self.as_training_seconds(each, self.estimate_min_seconds(each, n_docs)) for each in methods
        }
        in_turn = sorted((each for each in methods if each.seconds), key=lambda each: least[each.spec.name])
        fits = [each for each in in_turn if least[each.spec.name] <= MAX_OVERRUN_RATIO * self.budget] or in_turn[
            :MIN_PROMISING_METHODS
        ]
        if not fits:
            return []
        values = {each.spec.name: self.estimate_metric(n_docs, each) for each in fits}
        ranked = sorted(fits, key=lambda each: -values[each.spec.name])
        largest = max(each.largest_sample for each in fits)
        reach = METRIC_UNCERTAINTY + MAX_GAIN_PER_SAMPLE * log(n_docs / largest) / log(SAMPLE_GROWTH)
        best = max(values.values())
        behind = min(reach, (1 - MIN_RELATIVE_METRIC) * best)
        return [
            each
            for row, each in enumerate(ranked)
            if row < MIN_PROMISING_METHODS or best - values[each.spec.name] <= behind
        ]


def try_build_pipeline(spec: MethodSpec, found: Samples) -> Pipeline | None:
    """None where it cannot be trained here, which its trial will say."""
    try:
        return Pipeline.from_parameters(spec.method, found.content, as_typed_parameters(spec))
    except XmtcError:
        return None


def as_trial_spec(spec: MethodSpec, found: Samples) -> MethodSpec:
    """With the analyzer of all documents, where that was left open, and without a calibration."""
    pipeline = try_build_pipeline(spec, found)
    if pipeline is None:
        return spec
    given = dict(spec.parameters) | {"calibrate": "false"}
    view = pipeline.views.get("tfidf")
    if isinstance(view, Tfidf) and len(pipeline.views) == 1 and view.analyzer == AUTO and view.ngrams == 1:
        given["analyzer"] = found.analyzer
    return MethodSpec(spec.name, spec.method, tuple(given.items()))


def count_spec_trainings(spec: MethodSpec, found: Samples) -> int:
    pipeline = try_build_pipeline(spec, found)
    if pipeline is None or not pipeline.calibration.calibrate:
        return 1
    return count_trainings(pipeline.method, found.n_docs)
