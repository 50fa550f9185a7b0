"""The figures of a report, computed from answers and true labels alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.evaluation import parse_metric, to_ranked_results
from xmtc.evaluation.assignment_metrics import (
    AssignmentMetrics,
    compute_assignment_metrics,
    compute_precision_recall_f1,
    count_by_label,
)
from xmtc.evaluation.metrics.calibration import BINS, assign_bins
from xmtc.evaluation.metrics.curves import MIN_OCCURRENCES, compute_label_curves
from xmtc.evaluation.metrics.propensity_scored import compute_gains
from xmtc.evaluation.ranked_results import RankedResults
from xmtc.evaluation.significance import ConfidenceInterval, bootstrap_interval, bootstrap_ratio_interval

REPORT_METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "R@5")
LENGTH_METRICS = ("P@1", "P@5", "nDCG@5")
BAND_MIN_DOCUMENTS = (0, 1, 5, 20, 100, 1000)  # training documents that a label has at least
N_LENGTH_GROUPS = 4
MAX_CONFUSED_LABELS, MAX_EXAMPLE_DOCUMENTS, MAX_WORST_DOCUMENTS = 3, 3, 10  # how many of each are named


@dataclass(frozen=True)
class FrequencyBand:
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
class LabelStatistics:
    label_id: int
    n_training_documents: int
    support: int
    n_assigned: int
    n_correct: int
    confused_with: tuple[tuple[int, int], ...]  # labels that were given where it was missed, and how often
    missed_in: tuple[int, ...]  # documents
    wrongly_in: tuple[int, ...]

    @property
    def precision(self) -> float:
        return self.n_correct / self.n_assigned if self.n_assigned else float("nan")

    @property
    def recall(self) -> float:
        return self.n_correct / self.support if self.support else float("nan")

    @property
    def f1(self) -> float:
        return 2 * self.n_correct / max(1, self.n_assigned + self.support)

    @property
    def n_missed(self) -> int:
        return self.support - self.n_correct

    @property
    def n_wrong(self) -> int:
        return self.n_assigned - self.n_correct


@dataclass(frozen=True)
class CalibrationBin:
    """Scores that are about the same: their mean, how often they are right, and how many they are."""

    score: float
    right: float
    n: int


@dataclass(frozen=True)
class LengthGroup:
    """Documents of about the same length."""

    least: int  # words
    most: int
    n_docs: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class BranchStatistics:
    name: str
    n_true: int
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class Report:
    n_docs: int
    metrics: dict[str, ConfidenceInterval]
    decided: AssignmentMetrics
    bands: list[FrequencyBand]
    labels: list[LabelStatistics]  # that documents have or get, the most frequent first
    calibration: list[CalibrationBin]
    calibration_error: float
    lengths: list[LengthGroup]
    branches: list[BranchStatistics]
    worst: list[int]  # documents, the ones that it is surest and most wrong about first
    unknown: list[tuple[int, int]]  # labels that it does not know, and how many documents have them


def compute_report(
    ranked: Predictions,
    assigned: Predictions,
    Y: csr_array,
    frequencies: np.ndarray,
    n_train: int,
    *,
    document_lengths: np.ndarray | None = None,
    branches: Sequence[str | None] | None = None,
    seed: int = 0,
) -> Report:
    """Of a model's ranked answers, and of those that it was decided to give. Columns of Y beyond the frequencies are
    labels that the model does not know. `words` are the documents' lengths, `branches` the names of the labels' own."""
    judged = to_ranked_results(ranked, Y, train_frequencies=frequencies, n_train=n_train)
    decided = to_ranked_results(assigned, judged.Y)
    trained = np.append(frequencies, np.zeros(max(0, judged.n_labels - len(frequencies)), np.int64))
    return Report(
        n_docs=judged.n_docs,
        metrics=compute_report_metrics(judged, seed),
        decided=compute_assignment_metrics(decided),
        bands=compute_bands(judged, decided, trained),
        labels=compute_label_statistics(decided, trained),
        calibration=compute_calibration_bins(judged),
        calibration_error=parse_metric("ECE@5").compute(judged),
        lengths=[] if document_lengths is None else compute_length_groups(judged, document_lengths),
        branches=[] if branches is None else compute_branch_statistics(decided, branches),
        worst=find_worst_documents(judged),
        unknown=[
            (int(label), int(judged.frequencies[label]))
            for label in np.argsort(-judged.frequencies, kind="stable")
            if label >= len(frequencies) and judged.frequencies[label]
        ],
    )


def compute_report_metrics(judged: RankedResults, seed: int) -> dict[str, ConfidenceInterval]:
    found = {
        name: bootstrap_interval(parse_metric(name).compute_per_document(judged), seed=seed) for name in REPORT_METRICS
    }
    return found | {"PSP@5": bootstrap_ratio_interval(*compute_gains(judged, np.ones(5), np.ones(1)), seed=seed)}


def as_prediction_matrix(found: Predictions, n_labels: int) -> csr_array:
    """(n_docs, n_labels) ones at the answers."""
    named = found.labels != NO_LABEL
    rows = np.repeat(np.arange(found.n_docs), named.sum(axis=1))
    return csr_array((np.ones(len(rows), np.int32), (rows, found.labels[named])), shape=(found.n_docs, n_labels))


def compute_bands(judged: RankedResults, decided: RankedResults, trained: np.ndarray) -> list[FrequencyBand]:
    """By how many training documents labels have; bands without a true label are left out."""
    right, given, true = count_by_label(decided)
    first = judged.predictions.labels[:, :5][judged.hits[:, :5]]
    found = np.bincount(first, minlength=len(true))
    made = []
    for least, most, here in iter_bands(trained[: len(true)]):
        if true[here].sum():
            auc, aupr = compute_mean_curves(judged, np.flatnonzero(here))
            precision, recall, f = compute_precision_recall_f1(right[here].sum(), given[here].sum(), true[here].sum())
            n_true = int(true[here].sum())
            share = float(found[here].sum() / n_true)
            made.append(
                FrequencyBand(least, most, int((true[here] > 0).sum()), n_true, share, precision, recall, f, auc, aupr)
            )
    return made


def iter_bands(trained: np.ndarray) -> Iterator[tuple[int, int | None, np.ndarray]]:
    """The bands, and which of the labels are in each, by how many training documents these have."""
    tops = [*(least - 1 for least in BAND_MIN_DOCUMENTS[1:]), None]
    for least, most in zip(BAND_MIN_DOCUMENTS, tops, strict=True):
        yield least, most, (trained >= least) & (most is None or trained <= most)


def compute_mean_curves(judged: RankedResults, labels: np.ndarray) -> tuple[float, float]:
    """Mean AUC and AUPR of the labels that have a curve."""
    n = judged.frequencies[labels]
    labels = labels[(n >= MIN_OCCURRENCES) & (n < judged.n_docs)]
    if not len(labels):
        return float("nan"), float("nan")
    auc, aupr = compute_label_curves(judged, labels)
    return float(auc.mean()), float(aupr.mean())


def compute_label_statistics(decided: RankedResults, trained: np.ndarray) -> list[LabelStatistics]:
    """Of each label that documents have or get, the most frequent first."""
    right, given, true = count_by_label(decided)
    answers, Y = (
        as_prediction_matrix(decided.predictions, decided.n_labels),
        widen_label_matrix(decided.Y, decided.n_labels),
    )
    both = answers * Y
    missed, wrong = csr_array(Y - both), csr_array(answers - both)
    missed.eliminate_zeros()
    wrong.eliminate_zeros()
    confused, missed_of, wrong_of = csr_array(missed.T @ wrong), csr_array(missed.T), csr_array(wrong.T)
    present = np.flatnonzero(given + true)
    order = present[np.argsort(-true[present], kind="stable")]
    return [
        LabelStatistics(
            label_id=int(label),
            n_training_documents=int(trained[label]),
            support=int(true[label]),
            n_assigned=int(given[label]),
            n_correct=int(right[label]),
            confused_with=get_largest_columns(confused, label, MAX_CONFUSED_LABELS),
            missed_in=tuple(get_row_columns(missed_of, label)[:MAX_EXAMPLE_DOCUMENTS].tolist()),
            wrongly_in=tuple(get_row_columns(wrong_of, label)[:MAX_EXAMPLE_DOCUMENTS].tolist()),
        )
        for label in order
    ]


def widen_label_matrix(Y: csr_array, n_labels: int) -> csr_array:
    """Of as many columns as labels are named, as whole numbers."""
    return csr_array((np.ones(len(Y.indices), np.int32), Y.indices, Y.indptr), shape=(Y.shape[0], n_labels))


def get_row_columns(found: csr_array, number: int) -> np.ndarray:
    return np.sort(found.indices[found.indptr[number] : found.indptr[number + 1]])


def get_largest_columns(found: csr_array, number: int, n: int) -> tuple[tuple[int, int], ...]:
    """The columns with the largest counts in a row, and these."""
    begin, end = found.indptr[number], found.indptr[number + 1]
    columns, values = found.indices[begin:end], found.data[begin:end]
    order = np.lexsort((columns, -values))[:n]
    return tuple((int(columns[each]), int(values[each])) for each in order)


def compute_calibration_bins(judged: RankedResults) -> list[CalibrationBin]:
    """How often scores are right, in bins of equal width, of each document's five best."""
    scores, named = judged.predictions.scores[:, :5], judged.predictions.labels[:, :5] != NO_LABEL
    scores, right = scores[named], judged.hits[:, :5][named]
    bins = assign_bins(scores)
    n = np.bincount(bins, minlength=BINS)
    sums = np.bincount(bins, scores, minlength=BINS), np.bincount(bins, right, minlength=BINS)
    return [CalibrationBin(float(s / m), float(r / m), int(m)) for s, r, m in zip(*sums, n, strict=True) if m]


def compute_length_groups(judged: RankedResults, words: np.ndarray) -> list[LengthGroup]:
    """Metrics of the shortest quarter of the documents, the next, and so on; documents of one length stay together."""
    edges = np.unique(np.quantile(words, np.linspace(0, 1, N_LENGTH_GROUPS + 1)[1:-1], method="lower"))
    group = np.searchsorted(edges, words, side="left")
    values = {name: parse_metric(name).compute_per_document(judged) for name in LENGTH_METRICS}
    made = []
    for number in np.unique(group):
        here = group == number
        metrics = {name: float(each[here].mean()) for name, each in values.items()}
        made.append(LengthGroup(int(words[here].min()), int(words[here].max()), int(here.sum()), metrics))
    return made


def compute_branch_statistics(decided: RankedResults, branches: Sequence[str | None]) -> list[BranchStatistics]:
    """Of the labels of each branch of a vocabulary, the one with the most true labels first."""
    right, given, true = count_by_label(decided)
    names = [name for name in dict.fromkeys(branches) if name is not None]
    made = []
    for name in names:
        here = np.array([label for label, branch in enumerate(branches) if branch == name and label < len(true)], int)
        if true[here].sum() or given[here].sum():
            of_all = compute_precision_recall_f1(right[here].sum(), given[here].sum(), true[here].sum())
            made.append(BranchStatistics(name, int(true[here].sum()), *of_all))
    return sorted(made, key=lambda branch: -branch.n_true)


def find_worst_documents(judged: RankedResults) -> list[int]:
    """Documents of which it ranks nothing right, by how sure it was; then those with the lowest nDCG@5."""
    value = parse_metric("nDCG@5").compute_per_document(judged)
    surest = judged.predictions.scores.max(axis=1, initial=0) if judged.predictions.k else np.zeros(judged.n_docs)
    wanted = judged.n_true > 0
    order = np.lexsort((-surest, value))
    return [int(doc) for doc in order if wanted[doc] and value[doc] < 1][:MAX_WORST_DOCUMENTS]
