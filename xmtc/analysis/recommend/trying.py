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

from xmtc.analysis.compare.answers import Answers
from xmtc.analysis.compare.runs import Place, finish, warm_up
from xmtc.analysis.compare.specs import Spec, typed
from xmtc.analysis.compare.truth import Truth
from xmtc.analysis.recommend.curves import LOWEST, STEP, seconds_at, value_at
from xmtc.analysis.recommend.samples import Samples
from xmtc.errors import XmtcError
from xmtc.evaluation import parse_metric
from xmtc.features.tfidf import Tfidf
from xmtc.pipeline import Pipeline
from xmtc.scores.calibration import n_trainings
from xmtc.text.analyzers import AUTO

METRICS = ("P@1", "P@3", "P@5", "nDCG@5")
LEAD = "nDCG@5"
REACH, SURE = 0.02, 0.005  # what a method may gain on the best with each sample, and how far figures may be off
FAR = 0.6  # of the best value on a sample: a method that has less does not become the best
LEAST = 2  # methods that always go on
SLACK = 10.0  # seconds, for what is loaded and compiled
SHARE = 0.5  # of the budget that trying may take
LATE = 1.5  # times what a trial is expected to take, it may take


@dataclass
class Trials:
    """What is known of a method."""

    spec: Spec
    seconds: list[tuple[int, float]] = field(default_factory=list)  # by documents, the smallest sample first
    values: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: {name: [] for name in METRICS})
    peak_mb: float | None = None
    failed: str = ""
    ended: list[tuple[int, float]] = field(default_factory=list)  # a larger sample, and seconds that were not enough

    @property
    def largest(self) -> int:
        return self.seconds[-1][0] if self.seconds else 0


class Trying:
    """The trials of one corpus, within a time."""

    def __init__(self, found: Samples, specs: Sequence[Spec], budget: float, tell: Callable[[str], None]) -> None:
        self.samples, self.budget, self.tell = found, budget, tell
        self.trials = [Trials(spec) for spec in specs]
        self.deadline = perf_counter() + SHARE * budget

    @property
    def start(self) -> float:
        """Seconds that any training takes before its method has its turn: a little less than the quickest took."""
        quickest = [each.seconds[0][1] for each in self.trials if each.seconds]
        return 0.8 * min(quickest, default=0.0)

    @property
    def left(self) -> float:
        return self.deadline - perf_counter()

    def run(self) -> None:
        """Sample by sample, the quickest first: what they leave of their share is for the others."""
        alive = list(self.trials)
        for size in self.samples.sizes:
            alive.sort(key=lambda each: self.seconds_at(size, each))
            tried = [self.is_tried(each, size, len(alive) - row) for row, each in enumerate(alive)]
            if not any(tried):
                return
            alive = self.promising([each for each in alive if not each.failed])

    def is_tried(self, method: Trials, size: int, n_waiting: int) -> bool:
        """Whether a trial had the time, and worked out; of what is left, it has a fair share."""
        if self.left <= self.least_seconds(method, size):
            return False
        share = max(self.left / n_waiting, LATE * self.seconds_at(size, method))
        return self.try_out(method, size, share)

    def seconds_at(self, n_docs: int, method: Trials) -> float:
        """Of a trial on so many documents; what was ended takes at least as long as it was given."""
        if not method.seconds:
            return 0.0
        size, kept = self.samples.size, (method.seconds, [*method.seconds, *method.ended])
        known = ([(size(n), seconds) for n, seconds in each] for each in kept)
        return max(seconds_at(size(n_docs), each, self.start) for each in known)

    def least_seconds(self, method: Trials, n_docs: int) -> float:
        """Of a trial on so many documents. One sample says little of the next, and less of all documents: its time is
        taken to grow slowly."""
        if len(method.seconds) > 1:
            return self.seconds_at(n_docs, method)
        return sum((n_docs / n) ** LOWEST * max(0.0, seconds - self.start) for n, seconds in method.seconds)

    def in_training(self, method: Trials, seconds: float) -> float:
        """The time of a training on all documents, where a trial would take so long: a calibration may double what is
        the method's own."""
        times = n_trainings_of(method.spec, self.samples)
        return seconds + (times - 1) * max(0.0, seconds - self.start)

    def training_seconds(self, method: Trials) -> float:
        return self.in_training(method, self.seconds_at(self.samples.n_docs, method))

    def value_at(self, n_docs: int, method: Trials, metric: str = LEAD) -> float:
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
        size_of = self.samples.size
        return value_at(size_of(n_docs), [(size_of(n), value) for n, value in sorted(points.items())])

    def n_missed(self, method: Trials) -> int:
        """How many of the samples that others were tried on it was not tried on."""
        return len({size for each in self.trials for size, _ in each.seconds} - {size for size, _ in method.seconds})

    def try_out(self, method: Trials, size: int, share: float) -> bool:
        """Train on a sample and measure; whether that worked out."""
        place = self.samples.place(size, self.limit(method, size, share))
        result = finish(place, as_tried(method.spec, self.samples), None, self.tell, self.warm_up)
        if "failed" in result:
            method.failed = result["failed"] if not method.seconds else ""
            method.ended = [(size, place.limit)] if result.get("ended") and place.limit is not None else []
            return False
        answers = Answers.load(place.work / result["answers"])
        truth = Truth.of(self.samples.held_out, [answers.trained])
        judged = truth.judged(truth.renumbered(answers)[0])
        method.seconds.append((size, result["train_s"]))
        method.peak_mb = result["peak_mb"]
        for name in METRICS:
            method.values[name].append((size, parse_metric(name).value(judged)))
        return True

    def warm_up(self, place: Place, spec: Spec) -> None:
        """Have everything compiled, in time that is not the trials': a machine does it once."""
        begin = perf_counter()
        warm_up(place, spec)
        self.deadline += perf_counter() - begin

    def limit(self, method: Trials, size: int, share: float) -> float:
        """Seconds of a trial: a method that takes longer on a sample will not fit the budget with all documents."""
        work = self.budget / n_trainings_of(method.spec, self.samples)
        fitting = self.start + SLACK + work * (size / self.samples.n_docs) ** LOWEST
        return max(1.0, min(fitting, SLACK + share, self.left, self.budget))

    def promising(self, methods: Sequence[Trials]) -> list[Trials]:
        """Those that may fit the budget and are not so far behind that more documents could not make it good; the
        quickest where none does, so that more is known of them."""
        n_docs = self.samples.n_docs
        least = {each.spec.name: self.in_training(each, self.least_seconds(each, n_docs)) for each in methods}
        in_turn = sorted((each for each in methods if each.seconds), key=lambda each: least[each.spec.name])
        fits = [each for each in in_turn if least[each.spec.name] <= LATE * self.budget] or in_turn[:LEAST]
        if not fits:
            return []
        values = {each.spec.name: self.value_at(n_docs, each) for each in fits}
        ranked = sorted(fits, key=lambda each: -values[each.spec.name])
        largest = max(each.largest for each in fits)
        reach = SURE + REACH * log(n_docs / largest) / log(STEP)
        best = max(values.values())
        behind = min(reach, (1 - FAR) * best)
        return [each for row, each in enumerate(ranked) if row < LEAST or best - values[each.spec.name] <= behind]


def pipeline_of(spec: Spec, found: Samples) -> Pipeline | None:
    """None where it cannot be trained here, which its trial will say."""
    try:
        return Pipeline.of(spec.method, found.content, typed(spec))
    except XmtcError:
        return None


def as_tried(spec: Spec, found: Samples) -> Spec:
    """With the analyzer of all documents, where that was left open, and without a calibration."""
    pipeline = pipeline_of(spec, found)
    if pipeline is None:
        return spec
    given = dict(spec.given) | {"calibrate": "false"}
    view = pipeline.views.get("tfidf")
    if isinstance(view, Tfidf) and len(pipeline.views) == 1 and view.analyzer == AUTO and view.ngrams == 1:
        given["analyzer"] = found.analyzer
    return Spec(spec.name, spec.method, tuple(given.items()))


def n_trainings_of(spec: Spec, found: Samples) -> int:
    pipeline = pipeline_of(spec, found)
    if pipeline is None or not pipeline.calibration.calibrate:
        return 1
    return n_trainings(pipeline.method, found.n_docs)
