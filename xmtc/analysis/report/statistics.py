"""Statistics of a report, computed from predictions and true labels."""

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
from xmtc.evaluation.metrics.rare_labels import FREQUENCY_BANDS, compute_band_recalls
from xmtc.evaluation.ranked_results import RankedResults
from xmtc.evaluation.significance import ConfidenceInterval, bootstrap_interval, bootstrap_ratio_interval

REPORT_METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "R@5")
LENGTH_METRICS = ("P@1", "P@5", "nDCG@5")
BAND_MIN_DOCUMENTS = (0, 1, 5, 20, 100, 1000)  # lower bounds of the bands, in training documents per label
N_LENGTH_GROUPS = 4
MAX_CONFUSED_LABELS, MAX_EXAMPLE_DOCUMENTS, MAX_WORST_DOCUMENTS = 3, 3, 10


@dataclass(frozen=True)
class FrequencyBand:
    """Statistics of the labels with a similar number of training documents."""

    least: int
    most: int | None
    n_labels: int  # of the test documents
    n_true: int
    found_at_5: float  # share of the true labels that are among the first five
    precision: float
    recall: float
    f1: float
    auc: float  # nan if no label occurs often enough
    aupr: float


@dataclass(frozen=True)
class LabelStatistics:
    """Statistics of one label."""

    label_id: int
    n_training_documents: int
    support: int
    n_assigned: int
    n_correct: int
    confused_with: tuple[tuple[int, int], ...]  # (label, count) that were assigned where this one was missed
    missed_in: tuple[int, ...]  # example documents
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
    """Scores of one bin: their mean, the share of correct ones, and their number."""

    score: float
    right: float
    n: int


@dataclass(frozen=True)
class LengthGroup:
    """Metrics of documents of similar length."""

    least: int  # words
    most: int
    n_docs: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class BranchStatistics:
    """Statistics of the labels below one top concept of a vocabulary."""

    name: str
    n_true: int
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class Report:
    """Statistics of the predictions for labelled documents."""

    n_docs: int
    metrics: dict[str, ConfidenceInterval]
    decided: AssignmentMetrics
    bands: list[FrequencyBand]
    labels: list[LabelStatistics]  # true or assigned ones, the most frequent first
    calibration: list[CalibrationBin]
    calibration_error: float
    lengths: list[LengthGroup]
    branches: list[BranchStatistics]
    worst: list[int]  # documents with the worst rankings
    unknown: list[tuple[int, int]]  # (label, n_docs) of labels that the model does not know


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
    """Compute the statistics of ranked predictions and of the labels assigned from them.

    Columns of Y beyond the frequencies are labels that the model does not know. `document_lengths` are in words,
    `branches` the names of the labels' top concepts.
    """
    results = to_ranked_results(ranked, Y, train_frequencies=frequencies, n_train=n_train)
    decided = to_ranked_results(assigned, results.Y)
    trained = np.append(frequencies, np.zeros(max(0, results.n_labels - len(frequencies)), np.int64))
    return Report(
        n_docs=results.n_docs,
        metrics=compute_report_metrics(results, seed),
        decided=compute_assignment_metrics(decided),
        bands=compute_bands(results, decided, trained),
        labels=compute_label_statistics(decided, trained),
        calibration=compute_calibration_bins(results),
        calibration_error=parse_metric("ECE@5").compute(results),
        lengths=[] if document_lengths is None else compute_length_groups(results, document_lengths),
        branches=[] if branches is None else compute_branch_statistics(decided, branches),
        worst=find_worst_documents(results),
        unknown=[
            (int(label), int(results.frequencies[label]))
            for label in np.argsort(-results.frequencies, kind="stable")
            if label >= len(frequencies) and results.frequencies[label]
        ],
    )


def compute_report_metrics(ranking: RankedResults, seed: int) -> dict[str, ConfidenceInterval]:
    intervals = {
        name: bootstrap_interval(parse_metric(name).compute_per_document(ranking), seed=seed) for name in REPORT_METRICS
    }
    ratios = {"PSP@5": compute_gains(ranking, np.ones(5), np.ones(1))}
    ratios |= {f"{metric}@5": compute_band_recalls(ranking, 5, metric) for metric in FREQUENCY_BANDS}
    return intervals | {
        name: bootstrap_ratio_interval(*ratio, seed=seed) for name, ratio in ratios.items() if ratio[1].any()
    }


def as_prediction_matrix(found: Predictions, n_labels: int) -> csr_array:
    """Return ones at the predicted labels, shape (n_docs, n_labels)."""
    named = found.labels != NO_LABEL
    rows = np.repeat(np.arange(found.n_docs), named.sum(axis=1))
    return csr_array((np.ones(len(rows), np.int32), (rows, found.labels[named])), shape=(found.n_docs, n_labels))


def compute_bands(ranking: RankedResults, decided: RankedResults, trained: np.ndarray) -> list[FrequencyBand]:
    """Return the bands of labels by number of training documents; bands without a true label are omitted."""
    right, given, true = count_by_label(decided)
    first = ranking.predictions.labels[:, :5][ranking.hits[:, :5]]
    found = np.bincount(first, minlength=len(true))
    statistics = []
    for least, most, here in iter_bands(trained[: len(true)]):
        if true[here].sum():
            auc, aupr = compute_mean_curves(ranking, np.flatnonzero(here))
            precision, recall, f = compute_precision_recall_f1(right[here].sum(), given[here].sum(), true[here].sum())
            n_true = int(true[here].sum())
            share = float(found[here].sum() / n_true)
            statistics.append(
                FrequencyBand(least, most, int((true[here] > 0).sum()), n_true, share, precision, recall, f, auc, aupr)
            )
    return statistics


def iter_bands(trained: np.ndarray) -> Iterator[tuple[int, int | None, np.ndarray]]:
    """Yield lower bound, upper bound and label mask of each band."""
    tops = [*(least - 1 for least in BAND_MIN_DOCUMENTS[1:]), None]
    for least, most in zip(BAND_MIN_DOCUMENTS, tops, strict=True):
        yield least, most, (trained >= least) & (most is None or trained <= most)


def compute_mean_curves(ranking: RankedResults, labels: np.ndarray) -> tuple[float, float]:
    """Return the mean AUC and AUPR of the labels that occur often enough; nan if none does."""
    n = ranking.frequencies[labels]
    labels = labels[(n >= MIN_OCCURRENCES) & (n < ranking.n_docs)]
    if not len(labels):
        return float("nan"), float("nan")
    auc, aupr = compute_label_curves(ranking, labels)
    return float(auc.mean()), float(aupr.mean())


def compute_label_statistics(decided: RankedResults, trained: np.ndarray) -> list[LabelStatistics]:
    """Return the statistics of each label that is true or assigned somewhere, the most frequent first."""
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
    """Return Y as integers, with n_labels columns."""
    return csr_array((np.ones(len(Y.indices), np.int32), Y.indices, Y.indptr), shape=(Y.shape[0], n_labels))


def get_row_columns(found: csr_array, number: int) -> np.ndarray:
    return np.sort(found.indices[found.indptr[number] : found.indptr[number + 1]])


def get_largest_columns(found: csr_array, number: int, n: int) -> tuple[tuple[int, int], ...]:
    """Return the n columns with the largest counts in a row, and their counts."""
    begin, end = found.indptr[number], found.indptr[number + 1]
    columns, values = found.indices[begin:end], found.data[begin:end]
    order = np.lexsort((columns, -values))[:n]
    return tuple((int(columns[each]), int(values[each])) for each in order)


def compute_calibration_bins(ranking: RankedResults) -> list[CalibrationBin]:
    """Return the calibration of the five best scores of each document, in bins of equal width."""
    scores, named = ranking.predictions.scores[:, :5], ranking.predictions.labels[:, :5] != NO_LABEL
    scores, right = scores[named], ranking.hits[:, :5][named]
    bins = assign_bins(scores)
    n = np.bincount(bins, minlength=BINS)
    sums = np.bincount(bins, scores, minlength=BINS), np.bincount(bins, right, minlength=BINS)
    return [CalibrationBin(float(s / m), float(r / m), int(m)) for s, r, m in zip(*sums, n, strict=True) if m]


def compute_length_groups(ranking: RankedResults, words: np.ndarray) -> list[LengthGroup]:
    """Return the metrics by quartile of document length; documents of equal length stay together."""
    edges = np.unique(np.quantile(words, np.linspace(0, 1, N_LENGTH_GROUPS + 1)[1:-1], method="lower"))
    group = np.searchsorted(edges, words, side="left")
    values = {name: parse_metric(name).compute_per_document(ranking) for name in LENGTH_METRICS}
    statistics = []
    for number in np.unique(group):
        here = group == number
        metrics = {name: float(each[here].mean()) for name, each in values.items()}
        statistics.append(LengthGroup(int(words[here].min()), int(words[here].max()), int(here.sum()), metrics))
    return statistics


def compute_branch_statistics(decided: RankedResults, branches: Sequence[str | None]) -> list[BranchStatistics]:
    """Return the statistics of each branch of a vocabulary, the one with the most true labels first."""
    right, given, true = count_by_label(decided)
    names = [name for name in dict.fromkeys(branches) if name is not None]
    statistics = []
    for name in names:
        here = np.array([label for label, branch in enumerate(branches) if branch == name and label < len(true)], int)
        if true[here].sum() or given[here].sum():
            of_all = compute_precision_recall_f1(right[here].sum(), given[here].sum(), true[here].sum())
            statistics.append(BranchStatistics(name, int(true[here].sum()), *of_all))
    return sorted(statistics, key=lambda branch: -branch.n_true)


def find_worst_documents(ranking: RankedResults) -> list[int]:
    """Return the documents with the lowest nDCG@5; of equals, those with the highest score first."""
    value = parse_metric("nDCG@5").compute_per_document(ranking)
    surest = ranking.predictions.scores.max(axis=1, initial=0) if ranking.predictions.k else np.zeros(ranking.n_docs)
    wanted = ranking.n_true > 0
    order = np.lexsort((-surest, value))
    return [int(doc) for doc in order if wanted[doc] and value[doc] < 1][:MAX_WORST_DOCUMENTS]
