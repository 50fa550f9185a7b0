"""Methods tried on growing samples of a corpus, each training in a process of its own. After each sample those go on
that may still be the best of those that fit the budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress, pairwise
from pathlib import Path
from time import perf_counter

import numpy as np

from xmtc.compare.answers import Answers
from xmtc.compare.runs import Place, finish, warm_up, write_few
from xmtc.compare.specs import Spec
from xmtc.compare.truth import Truth
from xmtc.data.corpus import Corpus, writing_corpus
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.evaluation import parse_metric
from xmtc.features import COLUMNS, TEXTS
from xmtc.recommend.curves import LOWEST, STEP, seconds_at, steps, value_at

METRICS = ("P@1", "P@3", "P@5", "nDCG@5")
LEAD = "nDCG@5"
FIRST = 1_000  # documents of the first sample
ALMOST = 1.5  # times a sample's documents is too little for another one
HELD_OUT, MOST_HELD_OUT = 0.2, 2_000  # documents to measure on
REACH, SURE = 0.02, 0.005  # what a method may gain on the best with each step, and how far figures may be off
LEAST = 2  # methods that always go on
SLACK = 10.0  # seconds, for what is loaded and compiled
SHARE = 0.5  # of the budget that trying may take


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

    def seconds_at(self, n_docs: int, start: float) -> float:
        """What was ended takes at least as long as it was given."""
        return max(seconds_at(n_docs, known, start) for known in (self.seconds, [*self.seconds, *self.ended]))


@dataclass(frozen=True)
class Samples:
    """A corpus in files: documents to measure on, and growing samples of the others."""

    work: Path
    content: str
    held_out: list[Document]
    sizes: list[int]
    n_docs: int  # of the corpus, which the training to come will have
    options: tuple[str, ...]
    few: str = ""  # documents to have everything compiled on

    def place(self, size: int, limit: float) -> Place:
        ending = "jsonl" if self.content == TEXTS else "txt"
        work = self.work / str(size)
        work.mkdir(parents=True, exist_ok=True)
        train, test = self.work / f"sample-{size}.{ending}", self.work / f"held-out.{ending}"
        return Place(f"{size:,} documents", (str(train),), str(test), work, (), self.options, limit, few=self.few)


def sizes_for(n_train: int) -> list[int]:
    """Each sample has four times the documents of the one before; the last is all there are."""
    sizes = [FIRST]
    while sizes[-1] * STEP * ALMOST <= n_train:
        sizes.append(int(sizes[-1] * STEP))
    return [*(sizes if n_train > ALMOST * sizes[-1] else sizes[:-1]), n_train]


def samples(
    corpus: Corpus, test: Iterable[Document] | None, work: Path, options: tuple[str, ...], seed: int = 0
) -> Samples:
    """Divide a corpus; with test documents, these are measured on, and samples may have all others."""
    content = COLUMNS if corpus.holds_features else TEXTS
    labelled = np.array([bool(document.labels) for document in corpus], bool)
    if labelled.sum() < 2:
        raise XmtcError(f"Found {labelled.sum()} documents with labels; expected hundreds to try methods on.")
    rng = np.random.default_rng(seed)
    order = rng.permutation(np.flatnonzero(labelled))
    n_held = 0 if test is not None else max(1, min(MOST_HELD_OUT, int(HELD_OUT * len(order))))
    held = np.zeros(len(labelled), bool)
    held[order[:n_held]] = True
    measured = list(compress(corpus, held)) if test is None else [each for each in test if each.labels]
    if len(measured) > MOST_HELD_OUT:
        measured = [measured[number] for number in np.sort(rng.permutation(len(measured))[:MOST_HELD_OUT])]
    sizes, few = sizes_for(len(order) - n_held), write_few(corpus, work)
    found = Samples(work, content, measured, sizes, len(order), options, few)
    write(corpus, found, measured, "held-out")
    for size in found.sizes:
        mask = np.zeros(len(labelled), bool)
        mask[order[n_held : n_held + size]] = True
        write(corpus, found, compress(corpus, mask), f"sample-{size}")
    return found


def write(corpus: Corpus, found: Samples, documents: Iterable[Document], name: str) -> None:
    ending, format = ("jsonl", "jsonl") if found.content == TEXTS else ("txt", "sparse")
    with writing_corpus(str(found.work / f"{name}.{ending}"), format, corpus) as add:
        for document in documents:
            add(document)


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
        """Sample by sample, the most promising first, while there is time."""
        alive = list(self.trials)
        for size in self.samples.sizes:
            alive.sort(key=lambda each: -self.value_at(size, each) if each.seconds else 0)
            tried = [each for each in alive if self.is_in_time(each, size) and self.try_out(each, size)]
            if not tried:
                return
            alive = self.promising([each for each in alive if not each.failed])

    def is_in_time(self, method: Trials, size: int) -> bool:
        """Whether a trial may end in the time that is left; what takes longer is ended."""
        return self.left > self.least_seconds(method, size)

    def least_seconds(self, method: Trials, n_docs: int) -> float:
        """Of a training on so many documents. One sample says little of the next, and less of all documents: its time
        is taken to grow slowly."""
        if len(method.seconds) > 1:
            return method.seconds_at(n_docs, self.start)
        return sum((n_docs / n) ** LOWEST * max(0.0, seconds - self.start) for n, seconds in method.seconds)

    def value_at(self, n_docs: int, method: Trials, metric: str = LEAD) -> float:
        """What a method is expected to reach. On a sample that it was not tried on, it gains what the others did."""
        points = dict(method.values[metric])
        for before, size in pairwise(self.samples.sizes):
            both = [dict(each.values[metric]) for each in self.trials]
            gains = [each[size] - each[before] for each in both if size in each and before in each]
            if before in points and size not in points and gains:
                points[size] = min(1.0, points[before] + sum(gains) / len(gains))
        return value_at(n_docs, sorted(points.items()))

    def n_missed(self, method: Trials) -> int:
        """How many of the samples that others were tried on it was not tried on."""
        return len({size for each in self.trials for size, _ in each.seconds} - {size for size, _ in method.seconds})

    def try_out(self, method: Trials, size: int) -> bool:
        """Train on a sample and measure; whether that worked out."""
        place = self.samples.place(size, self.limit(size))
        result = finish(place, method.spec, None, self.tell, self.warm_up)
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

    def limit(self, size: int) -> float:
        """Seconds of a trial: a method that takes longer on a sample will not fit the budget with all documents; and
        none may take the time of the others, of which on the first sample all have the same."""
        fitting = self.start + SLACK + self.budget * (size / self.samples.n_docs) ** LOWEST
        is_first = size == self.samples.sizes[0] and len(self.samples.sizes) > 1
        fair = SLACK + SHARE * self.budget / len(self.trials) if is_first else self.left
        return max(1.0, min(fitting, fair, self.left, self.budget))

    def promising(self, methods: Sequence[Trials]) -> list[Trials]:
        """Those that may fit the budget and are not so far behind that more documents could not make it good; the
        quickest where none does, so that more is known of them."""
        n_docs = self.samples.n_docs
        in_turn = sorted((each for each in methods if each.seconds), key=lambda each: self.least_seconds(each, n_docs))
        fits = [each for each in in_turn if self.least_seconds(each, n_docs) <= 1.5 * self.budget] or in_turn[:LEAST]
        if not fits:
            return []
        values = {each.spec.name: self.value_at(n_docs, each) for each in fits}
        ranked = sorted(fits, key=lambda each: -values[each.spec.name])
        reach = SURE + REACH * max(0.0, steps(max(each.largest for each in fits), n_docs))
        best = max(values.values())
        return [each for row, each in enumerate(ranked) if row < LEAST or best - values[each.spec.name] <= reach]
