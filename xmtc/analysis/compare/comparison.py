"""Comparison on one corpus, computed from the predictions of each candidate and the true labels.

All candidates predict the same documents, and the bootstrap draws the same documents for all of them: differences are
paired. If a method was trained with several seeds, the value of a document is the mean over seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from xmtc.analysis.compare.ground_truth import GroundTruth
from xmtc.analysis.compare.saved_predictions import N_COMPARED_LABELS, SavedPredictions
from xmtc.analysis.report.build import make_snippet
from xmtc.analysis.report.statistics import compute_mean_curves, iter_bands
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.evaluation import parse_metric
from xmtc.evaluation.metric_values import compute_overlap
from xmtc.evaluation.metrics.propensity_scored import compute_gains
from xmtc.evaluation.metrics.rare_labels import FREQUENCY_BANDS, compute_band_recalls
from xmtc.evaluation.ranked_results import RankedResults
from xmtc.evaluation.significance import BOOTSTRAP_RESAMPLES, ConfidenceInterval, resample_means

COMPARISON_METRICS = (
    "P@1", "P@3", "P@5", "nDCG@3", "nDCG@5", "PSP@1", "PSP@3", "PSP@5", "rare@5", "unseen@5",
)  # fmt: skip
MAX_DISAGREEMENTS = 10
TAIL_PROBABILITY = 0.025  # on each side of a 95 % interval


@dataclass(frozen=True)
class Cost:
    """Cost of training and prediction, as a mean over runs; None where unknown."""

    train_s: float | None = None
    train_cpu_s: float | None = None
    peak_mb: float | None = None
    model_mb: float | None = None
    predict_ms: float | None = None  # per document, without loading


@dataclass(frozen=True)
class Candidate:
    """Model, or models of a method with several seeds."""

    name: str
    loaders: tuple[Callable[[], SavedPredictions], ...]  # of the predictions of each run; empty after a failure
    cost: Cost = Cost()
    failed: str = ""
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class BandCurves:
    """Mean AUC and AUPR of the labels with a similar number of training documents."""

    least: int
    most: int | None
    n_labels: int
    auc: float  # nan if no label occurs often enough
    aupr: float


@dataclass(frozen=True)
class ComparisonEntry:
    """Results of a candidate."""

    name: str
    metrics: dict[str, ConfidenceInterval] = field(default_factory=dict)  # empty after a failure
    behind: dict[str, ConfidenceInterval] = field(default_factory=dict)  # difference from the best of each metric
    deviation: dict[str, float] = field(default_factory=dict)  # between seeds
    groups: list[BandCurves] = field(default_factory=list)
    cost: Cost = Cost()
    n_runs: int = 0
    failed: str = ""
    commands: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Disagreement:
    """Document for which the candidates predict different labels."""

    id: str
    text: str
    true: list[str]
    answers: dict[str, list[str]]  # first labels by candidate


@dataclass(frozen=True)
class Comparison:
    """Results of all candidates on one corpus."""

    data: str
    n_docs: int
    n_labels: int
    n_train: int
    entries: list[ComparisonEntry]
    overlap: dict[str, dict[str, float]] = field(default_factory=dict)  # of the first five labels of two candidates
    disagreements: list[Disagreement] = field(default_factory=list)
    about: dict[str, str] = field(default_factory=dict)

    @property
    def successful_entries(self) -> list[ComparisonEntry]:
        return [entry for entry in self.entries if entry.metrics]


@dataclass(frozen=True)
class CandidateResults:
    """Intermediate results of a candidate."""

    document_gains: np.ndarray  # (n_docs, n_metrics), mean over runs
    run_metrics: np.ndarray  # (n_runs, n_metrics)
    top_predictions: Predictions  # of the first run
    groups: list[BandCurves]
    seconds: list[float]


def compare_candidates(
    candidates: Sequence[Candidate],
    truth: GroundTruth,
    data: str,
    about: dict[str, str] | None = None,
    *,
    format_label_name: Callable[[str], str] = str,
    n_resamples: int = BOOTSTRAP_RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """Compare candidates; `format_label_name` formats the labels of disagreements."""
    max_gains: np.ndarray | None = None
    results: dict[str, CandidateResults] = {}
    for candidate in candidates:  # one by one, so that the predictions of one are in memory
        if candidate.loaders:
            results[candidate.name], max_gains = evaluate_candidate(candidate, truth)
    entries = [
        ComparisonEntry(c.name, cost=c.cost, n_runs=len(c.loaders), failed=c.failed, commands=list(c.commands))
        for c in candidates
    ]
    if max_gains is not None:
        entries = add_metrics(entries, results, max_gains, n_resamples, seed)
    first = {name: result.top_predictions for name, result in results.items()}
    gains = {name: result.document_gains for name, result in results.items()}
    return Comparison(
        data,
        n_docs=len(truth.documents),
        n_labels=int((truth.frequencies > 0).sum()),
        n_train=truth.n_train,
        entries=entries,
        overlap=compute_overlaps(first),
        disagreements=find_disagreements(first, gains, truth, format_label_name),
        about=dict(about or {}),
    )


def evaluate_candidate(candidate: Candidate, truth: GroundTruth) -> tuple[CandidateResults, np.ndarray]:
    """Return the results of a candidate and the maximum gains, which are the same for all candidates."""
    runs, seconds, top, bands = [], [], None, []
    for load in candidate.loaders:
        saved = load()
        first, deep = truth.renumber_predictions(saved)
        gains, max_gains = compute_document_gains(truth.match_predictions(first))
        runs.append(gains)
        bands.append(compute_band_curves(truth.match_predictions(deep), truth.frequencies))
        seconds += [] if saved.seconds is None else [saved.seconds]
        top = top or first
    assert top is not None
    metrics = np.array([gains.sum(axis=0) / max_gains.sum(axis=0).clip(1e-300) for gains in runs])
    return CandidateResults(np.mean(runs, axis=0), metrics, top, average_band_curves(bands), seconds), max_gains


def compute_document_gains(ranking: RankedResults) -> tuple[np.ndarray, np.ndarray]:
    """Return gains and maximum gains of each document, each of shape (n_docs, n_metrics).

    A metric is the sum of gains over the sum of maximum gains; for most metrics that is a mean over documents.
    """
    gains, max_gains = [], []
    for name in COMPARISON_METRICS:
        kind, _, k = name.partition("@")
        if kind == "PSP":
            gain, max_gain = compute_gains(ranking, np.ones(int(k)), np.ones(1))
        elif kind in FREQUENCY_BANDS:
            gain, max_gain = compute_band_recalls(ranking, int(k), kind)
        else:
            gain, max_gain = parse_metric(name).compute_per_document(ranking), np.ones(ranking.n_docs)
        gains.append(gain)
        max_gains.append(max_gain)
    return np.column_stack(gains), np.column_stack(max_gains)


def compute_band_curves(ranking: RankedResults, trained: np.ndarray) -> list[BandCurves]:
    """Return AUC and AUPR of labels by number of training documents."""
    bands = []
    for least, most, in_band in iter_bands(trained):
        labels = np.flatnonzero(in_band & (ranking.frequencies > 0))
        if len(labels):
            bands.append(BandCurves(least, most, len(labels), *compute_mean_curves(ranking, labels)))
    return bands


def average_band_curves(runs: list[list[BandCurves]]) -> list[BandCurves]:
    return [
        replace(
            same[0], auc=float(np.mean([each.auc for each in same])), aupr=float(np.mean([each.aupr for each in same]))
        )
        for same in zip(*runs, strict=True)
    ]


def add_metrics(
    entries: Sequence[ComparisonEntry], results: dict[str, CandidateResults], max_gains: np.ndarray, n: int, seed: int
) -> list[ComparisonEntry]:
    """Return the entries with metrics, their intervals and the differences from the best candidate. Metrics that no
    document counts for are left out."""
    columns = np.column_stack([*(result.document_gains for result in results.values()), max_gains])
    shape = (len(results) + 1, len(COMPARISON_METRICS))
    values = compute_ratios(columns.mean(axis=0).reshape(shape))
    samples = compute_ratios(resample_means(columns, n, seed).reshape(n, *shape))
    best = values.argmax(axis=0)  # candidate of each metric
    rows = {name: row for row, name in enumerate(results)}
    completed = []
    for entry in entries:
        if entry.name in rows:
            row = rows[entry.name]
            metrics, behind = {}, {}
            for c, metric in enumerate(COMPARISON_METRICS):
                if not max_gains[:, c].any():  # no document has such labels
                    continue
                metrics[metric] = make_interval(values[row, c], samples[:, row, c])
                difference = values[row, c] - values[best[c], c]
                behind[metric] = make_interval(difference, samples[:, row, c] - samples[:, best[c], c])
            entry = replace(complete_entry(entry, results[entry.name], len(max_gains)), metrics=metrics, behind=behind)
        completed.append(entry)
    return completed


def complete_entry(entry: ComparisonEntry, result: CandidateResults, n_docs: int) -> ComparisonEntry:
    """Return the entry with deviation, bands and prediction time."""
    deviation = {}
    if len(result.run_metrics) > 1:
        deviations = result.run_metrics.std(axis=0, ddof=1).tolist()
        deviation = dict(zip(COMPARISON_METRICS, deviations, strict=True))
    predict_ms = 1000 * float(np.mean(result.seconds)) / n_docs if result.seconds else None
    cost = replace(entry.cost, predict_ms=predict_ms)
    return replace(entry, deviation=deviation, groups=result.groups, cost=cost)


def compute_ratios(means: np.ndarray) -> np.ndarray:
    """Return metrics (…, n_candidates, n_metrics) from gains (…, n_candidates + 1, n_metrics); maximum gains last."""
    return means[..., :-1, :] / np.maximum(means[..., -1:, :], 1e-300)


def make_interval(value: float, samples: np.ndarray) -> ConfidenceInterval:
    low, high = np.quantile(samples, [TAIL_PROBABILITY, 1 - TAIL_PROBABILITY])
    return ConfidenceInterval(float(value), float(low), float(high))


def compute_overlaps(first: dict[str, Predictions]) -> dict[str, dict[str, float]]:
    """Return the share of first labels that two candidates have in common, for all pairs."""
    overlaps: dict[str, dict[str, float]] = {name: {} for name in first}
    for one, other in combinations(first, 2):
        overlaps[one][other] = overlaps[other][one] = compute_overlap(first[one], first[other], N_COMPARED_LABELS)
    return overlaps


def find_disagreements(
    first: dict[str, Predictions],
    gains: dict[str, np.ndarray],
    truth: GroundTruth,
    format_label_name: Callable[[str], str],
) -> list[Disagreement]:
    """Return the documents whose first labels differ most; of equals, those with the largest spread of nDCG@5."""
    if len(first) < 2:
        return []
    overlap = compute_document_overlap([predictions.labels for predictions in first.values()])
    column = COMPARISON_METRICS.index("nDCG@5")
    spread = np.std([each[:, column] for each in gains.values()], axis=0)
    order = np.lexsort((-spread, overlap))
    chosen = [int(doc) for doc in order if overlap[doc] < 1 and spread[doc] > 0][:MAX_DISAGREEMENTS]
    return [make_disagreement(doc, first, truth, format_label_name) for doc in chosen]


def compute_document_overlap(labels: Sequence[np.ndarray]) -> np.ndarray:
    """Return the share of first labels that two candidates have in common, as a mean over pairs, shape (n_docs,)."""
    pairs = list(combinations(labels, 2))
    total = np.zeros(len(labels[0]))
    for one, other in pairs:
        total += ((one[:, :, None] == other[:, None, :]) & (one[:, :, None] != NO_LABEL)).sum(
            axis=(1, 2)
        ) / N_COMPARED_LABELS
    return total / len(pairs)


def make_disagreement(
    doc: int, first: dict[str, Predictions], truth: GroundTruth, format_label_name: Callable[[str], str]
) -> Disagreement:
    document = truth.documents[doc]
    labels = {
        name: [format_label_name(truth.names[label]) for label in predictions.labels[doc].tolist() if label != NO_LABEL]
        for name, predictions in first.items()
    }
    true = [format_label_name(label) for label in document.labels]
    return Disagreement(document.id, make_snippet(document.text), true, labels)
