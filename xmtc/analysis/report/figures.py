"""The figures of a report, computed from answers and true labels alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.evaluation import judge, parse_metric
from xmtc.evaluation.assignment_metrics import Decided, decided_figures, label_counts, triple
from xmtc.evaluation.metrics.calibration import BINS, bins_of
from xmtc.evaluation.metrics.curves import MIN_OCCURRENCES, label_curves
from xmtc.evaluation.metrics.propensity_scored import gains
from xmtc.evaluation.ranked_results import Judged
from xmtc.evaluation.significance import Interval, interval, ratio_interval

METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "R@5")
BY_LENGTH = ("P@1", "P@5", "nDCG@5")
BANDS = (0, 1, 5, 20, 100, 1000)  # training documents that a label has at least
QUARTERS = 4
CONFUSED, EXAMPLES, WORST = 3, 3, 10  # how many of each are named


@dataclass(frozen=True)
class Band:
    """Labels with about as many training documents."""

    least: int
    most: int | None
    n_labels: int  # that the documents have
    n_true: int
    found_at_5: float  # the share of the true ones that are among the first five
    precision: float
    recall: float
    f1: float
    auc: float  # nan where no label occurs often enough for a curve
    aupr: float


@dataclass(frozen=True)
class LabelFigures:
    number: int
    trained: int
    support: int
    given: int
    right: int
    confused_with: tuple[tuple[int, int], ...]  # labels that were given where it was missed, and how often
    missed_in: tuple[int, ...]  # documents
    wrongly_in: tuple[int, ...]

    @property
    def precision(self) -> float:
        return self.right / self.given if self.given else float("nan")

    @property
    def recall(self) -> float:
        return self.right / self.support if self.support else float("nan")

    @property
    def f1(self) -> float:
        return 2 * self.right / max(1, self.given + self.support)

    @property
    def missed(self) -> int:
        return self.support - self.right

    @property
    def wrong(self) -> int:
        return self.given - self.right


@dataclass(frozen=True)
class Bin:
    """Scores that are about the same: their mean, how often they are right, and how many they are."""

    score: float
    right: float
    n: int


@dataclass(frozen=True)
class Quarter:
    """Documents of about the same length."""

    least: int  # words
    most: int
    n_docs: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class Branch:
    name: str
    n_true: int
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class Report:
    n_docs: int
    metrics: dict[str, Interval]
    decided: Decided
    bands: list[Band]
    labels: list[LabelFigures]  # that documents have or get, the most frequent first
    calibration: list[Bin]
    calibration_error: float
    lengths: list[Quarter]
    branches: list[Branch]
    worst: list[int]  # documents, the ones that it is surest and most wrong about first
    unknown: list[tuple[int, int]]  # labels that it does not know, and how many documents have them


def figures(
    ranked: Predictions,
    given: Predictions,
    Y: csr_array,
    frequencies: np.ndarray,
    n_train: int,
    *,
    words: np.ndarray | None = None,
    branches: Sequence[str | None] | None = None,
    seed: int = 0,
) -> Report:
    """Of a model's ranked answers, and of those that it was decided to give. Columns of Y beyond the frequencies are
    labels that the model does not know. `words` are the documents' lengths, `branches` the names of the labels' own."""
    judged = judge(ranked, Y, train_frequencies=frequencies, n_train=n_train)
    decided = judge(given, judged.Y)
    trained = np.append(frequencies, np.zeros(max(0, judged.n_labels - len(frequencies)), np.int64))
    return Report(
        n_docs=judged.n_docs,
        metrics=metrics(judged, seed),
        decided=decided_figures(decided),
        bands=bands(judged, decided, trained),
        labels=label_figures(decided, trained),
        calibration=calibration(judged),
        calibration_error=parse_metric("ECE@5").value(judged),
        lengths=[] if words is None else quarters(judged, words),
        branches=[] if branches is None else by_branch(decided, branches),
        worst=worst(judged),
        unknown=[
            (int(label), int(judged.frequencies[label]))
            for label in np.argsort(-judged.frequencies, kind="stable")
            if label >= len(frequencies) and judged.frequencies[label]
        ],
    )


def metrics(judged: Judged, seed: int) -> dict[str, Interval]:
    found = {name: interval(parse_metric(name).per_document(judged), seed=seed) for name in METRICS}
    return found | {"PSP@5": ratio_interval(*gains(judged, np.ones(5), np.ones(1)), seed=seed)}


def matrix(found: Predictions, n_labels: int) -> csr_array:
    """(n_docs, n_labels) ones at the answers."""
    named = found.labels != NO_LABEL
    rows = np.repeat(np.arange(found.n_docs), named.sum(axis=1))
    return csr_array((np.ones(len(rows), np.int32), (rows, found.labels[named])), shape=(found.n_docs, n_labels))


def bands(judged: Judged, decided: Judged, trained: np.ndarray) -> list[Band]:
    """By how many training documents labels have; bands without a true label are left out."""
    right, given, true = label_counts(decided)
    first = judged.predictions.labels[:, :5][judged.hits[:, :5]]
    found = np.bincount(first, minlength=len(true))
    made = []
    for least, most, here in in_bands(trained[: len(true)]):
        if true[here].sum():
            auc, aupr = mean_curves(judged, np.flatnonzero(here))
            precision, recall, f = triple(right[here].sum(), given[here].sum(), true[here].sum())
            n_true = int(true[here].sum())
            share = float(found[here].sum() / n_true)
            made.append(Band(least, most, int((true[here] > 0).sum()), n_true, share, precision, recall, f, auc, aupr))
    return made


def in_bands(trained: np.ndarray) -> Iterator[tuple[int, int | None, np.ndarray]]:
    """The bands, and which of the labels are in each, by how many training documents these have."""
    tops = [*(least - 1 for least in BANDS[1:]), None]
    for least, most in zip(BANDS, tops, strict=True):
        yield least, most, (trained >= least) & (most is None or trained <= most)


def mean_curves(judged: Judged, labels: np.ndarray) -> tuple[float, float]:
    """Mean AUC and AUPR of the labels that have a curve."""
    n = judged.frequencies[labels]
    labels = labels[(n >= MIN_OCCURRENCES) & (n < judged.n_docs)]
    if not len(labels):
        return float("nan"), float("nan")
    auc, aupr = label_curves(judged, labels)
    return float(auc.mean()), float(aupr.mean())


def label_figures(decided: Judged, trained: np.ndarray) -> list[LabelFigures]:
    """Of each label that documents have or get, the most frequent first."""
    right, given, true = label_counts(decided)
    answers, Y = matrix(decided.predictions, decided.n_labels), widened(decided.Y, decided.n_labels)
    both = answers * Y
    missed, wrong = csr_array(Y - both), csr_array(answers - both)
    missed.eliminate_zeros()
    wrong.eliminate_zeros()
    confused, missed_of, wrong_of = csr_array(missed.T @ wrong), csr_array(missed.T), csr_array(wrong.T)
    present = np.flatnonzero(given + true)
    order = present[np.argsort(-true[present], kind="stable")]
    return [
        LabelFigures(
            number=int(label),
            trained=int(trained[label]),
            support=int(true[label]),
            given=int(given[label]),
            right=int(right[label]),
            confused_with=most(confused, label, CONFUSED),
            missed_in=tuple(row(missed_of, label)[:EXAMPLES].tolist()),
            wrongly_in=tuple(row(wrong_of, label)[:EXAMPLES].tolist()),
        )
        for label in order
    ]


def widened(Y: csr_array, n_labels: int) -> csr_array:
    """Of as many columns as labels are named, as whole numbers."""
    return csr_array((np.ones(len(Y.indices), np.int32), Y.indices, Y.indptr), shape=(Y.shape[0], n_labels))


def row(found: csr_array, number: int) -> np.ndarray:
    return np.sort(found.indices[found.indptr[number] : found.indptr[number + 1]])


def most(found: csr_array, number: int, n: int) -> tuple[tuple[int, int], ...]:
    """The columns with the largest counts in a row, and these."""
    begin, end = found.indptr[number], found.indptr[number + 1]
    columns, values = found.indices[begin:end], found.data[begin:end]
    order = np.lexsort((columns, -values))[:n]
    return tuple((int(columns[each]), int(values[each])) for each in order)


def calibration(judged: Judged) -> list[Bin]:
    """How often scores are right, in bins of equal width, of each document's five best."""
    scores, named = judged.predictions.scores[:, :5], judged.predictions.labels[:, :5] != NO_LABEL
    scores, right = scores[named], judged.hits[:, :5][named]
    bins = bins_of(scores)
    n = np.bincount(bins, minlength=BINS)
    sums = np.bincount(bins, scores, minlength=BINS), np.bincount(bins, right, minlength=BINS)
    return [Bin(float(s / m), float(r / m), int(m)) for s, r, m in zip(*sums, n, strict=True) if m]


def quarters(judged: Judged, words: np.ndarray) -> list[Quarter]:
    """Metrics of the shortest quarter of the documents, the next, and so on; documents of one length stay together."""
    edges = np.unique(np.quantile(words, np.linspace(0, 1, QUARTERS + 1)[1:-1], method="lower"))
    group = np.searchsorted(edges, words, side="left")
    values = {name: parse_metric(name).per_document(judged) for name in BY_LENGTH}
    made = []
    for number in np.unique(group):
        here = group == number
        metrics = {name: float(each[here].mean()) for name, each in values.items()}
        made.append(Quarter(int(words[here].min()), int(words[here].max()), int(here.sum()), metrics))
    return made


def by_branch(decided: Judged, branches: Sequence[str | None]) -> list[Branch]:
    """Of the labels of each branch of a vocabulary, the one with the most true labels first."""
    right, given, true = label_counts(decided)
    names = [name for name in dict.fromkeys(branches) if name is not None]
    made = []
    for name in names:
        here = np.array([label for label, branch in enumerate(branches) if branch == name and label < len(true)], int)
        if true[here].sum() or given[here].sum():
            of_all = triple(right[here].sum(), given[here].sum(), true[here].sum())
            made.append(Branch(name, int(true[here].sum()), *of_all))
    return sorted(made, key=lambda branch: -branch.n_true)


def worst(judged: Judged) -> list[int]:
    """Documents of which it ranks nothing right, by how sure it was; then those with the lowest nDCG@5."""
    value = parse_metric("nDCG@5").per_document(judged)
    surest = judged.predictions.scores.max(axis=1, initial=0) if judged.predictions.k else np.zeros(judged.n_docs)
    wanted = judged.n_true > 0
    order = np.lexsort((-surest, value))
    return [int(doc) for doc in order if wanted[doc] and value[doc] < 1][:WORST]
