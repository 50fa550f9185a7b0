"""The figures of a comparison on one corpus, from the answers of each candidate and the true labels alone.

Every candidate answers the same documents, and the bootstrap draws the same documents for all of them: differences stay
paired. Where a method was trained with several seeds, a document's value is the mean over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from xmtc.analysis.compare.ground_truth import GroundTruth
from xmtc.analysis.compare.saved_predictions import N_COMPARED_LABELS, SavedPredictions
from xmtc.analysis.report.statistics import compute_mean_curves, iter_bands
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.evaluation import parse_metric
from xmtc.evaluation.metric_values import compute_overlap
from xmtc.evaluation.metrics.propensity_scored import compute_gains
from xmtc.evaluation.ranked_results import RankedResults
from xmtc.evaluation.significance import BOOTSTRAP_RESAMPLES, ConfidenceInterval, resample_means

COMPARISON_METRICS = ("P@1", "P@3", "P@5", "nDCG@3", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")
MAX_DISAGREEMENTS, SNIPPET_CHARACTERS = 10, 400  # documents that are shown, and characters of each
TAIL_PROBABILITY = 0.025  # on each side of an interval of 95 %


@dataclass(frozen=True)
class Cost:
    """What a training and its answers took, as a mean over the runs; None where it is not known."""

    train_s: float | None = None
    train_cpu_s: float | None = None
    peak_mb: float | None = None
    model_mb: float | None = None
    predict_ms: float | None = None  # for each document, after everything was read


@dataclass(frozen=True)
class Candidate:
    """A model, or the models of a method with several seeds: what it answers, and what it took."""

    name: str
    loaders: tuple[Callable[[], SavedPredictions], ...]  # one of each run; none where it failed
    cost: Cost = Cost()
    failed: str = ""
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class BandCurves:
    """Labels with about as many training documents, and how well they are found."""

    least: int
    most: int | None
    n_labels: int
    auc: float  # nan where no label occurs often enough for a curve
    aupr: float


@dataclass(frozen=True)
class ComparisonEntry:
    """A candidate's figures."""

    name: str
    metrics: dict[str, ConfidenceInterval] = field(default_factory=dict)  # none where it failed
    behind: dict[str, ConfidenceInterval] = field(default_factory=dict)  # the best of each metric: what it lacks to it
    deviation: dict[str, float] = field(default_factory=dict)  # between seeds, where there are several
    groups: list[BandCurves] = field(default_factory=list)
    cost: Cost = Cost()
    n_runs: int = 0
    failed: str = ""
    commands: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Disagreement:
    """A document to which the candidates answer differently."""

    id: str
    text: str
    true: list[str]
    answers: dict[str, list[str]]  # the first labels of each


@dataclass(frozen=True)
class Comparison:
    """All candidates on one corpus."""

    data: str
    n_docs: int
    n_labels: int
    n_train: int
    entries: list[ComparisonEntry]  # as they were asked for
    overlap: dict[str, dict[str, float]] = field(default_factory=dict)  # of each two: of their first five labels
    disagreements: list[Disagreement] = field(default_factory=list)
    about: dict[str, str] = field(default_factory=dict)

    @property
    def successful_entries(self) -> list[ComparisonEntry]:
        return [entry for entry in self.entries if entry.metrics]


@dataclass(frozen=True)
class CandidateResults:
    """What remains of a candidate's answers once they were looked at."""

    document_gains: np.ndarray  # (n_docs, n_metrics), a mean over runs
    run_metrics: np.ndarray  # (n_runs, n_metrics)
    top_predictions: Predictions  # of the first run, FIRST labels
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
    """Look at the candidates one after the other, and then at what they have in common. `called` is what a label is
    called on a page."""
    reached: np.ndarray | None = None
    seen: dict[str, CandidateResults] = {}
    for each in candidates:
        if each.loaders:
            seen[each.name], reached = evaluate_candidate(each, truth)
    entries = [
        ComparisonEntry(
            each.name, cost=each.cost, n_runs=len(each.loaders), failed=each.failed, commands=list(each.commands)
        )
        for each in candidates
    ]
    if reached is not None:
        entries = add_metrics(entries, seen, reached, n_resamples, seed)
    first = {name: each.top_predictions for name, each in seen.items()}
    used = int((truth.frequencies > 0).sum())
    shown = find_disagreements(
        first, {name: each.document_gains for name, each in seen.items()}, truth, format_label_name
    )
    return Comparison(
        data, len(truth.documents), used, truth.n_train, entries, compute_overlaps(first), shown, dict(about or {})
    )


def evaluate_candidate(candidate: Candidate, truth: GroundTruth) -> tuple[CandidateResults, np.ndarray]:
    """A candidate's figures, and what is reachable, (n_docs, n_metrics), which is the same for all."""
    runs, seconds, first, groups = [], [], None, []
    for load in candidate.loaders:
        answers = load()
        found, deep = truth.renumber_predictions(answers)
        gained, reachable = compute_document_gains(truth.match_predictions(found))
        runs.append(gained)
        groups.append(compute_band_curves(truth.match_predictions(deep), truth.frequencies))
        seconds += [] if answers.seconds is None else [answers.seconds]
        first = first or found
    assert first is not None
    by_run = np.array([gained.sum(axis=0) / reachable.sum(axis=0).clip(1e-300) for gained in runs])
    return CandidateResults(np.mean(runs, axis=0), by_run, first, average_band_curves(groups), seconds), reachable


def compute_document_gains(judged: RankedResults) -> tuple[np.ndarray, np.ndarray]:
    """(n_docs, n_metrics) twice: what each document gains, and what it could; a metric is the one sum over the other.
    Of most metrics that is a mean over documents."""
    gained, reachable = [], []
    for name in COMPARISON_METRICS:
        kind, _, k = name.partition("@")
        if kind == "PSP":
            got, best = compute_gains(judged, np.ones(int(k)), np.ones(1))
        else:
            got, best = parse_metric(name).compute_per_document(judged), np.ones(judged.n_docs)
        gained.append(got)
        reachable.append(best)
    return np.column_stack(gained), np.column_stack(reachable)


def compute_band_curves(judged: RankedResults, trained: np.ndarray) -> list[BandCurves]:
    """AUC and AUPR of labels with about as many training documents."""
    found = []
    for least, most, here in iter_bands(trained):
        labels = np.flatnonzero(here & (judged.frequencies > 0))
        if len(labels):
            found.append(BandCurves(least, most, len(labels), *compute_mean_curves(judged, labels)))
    return found


def average_band_curves(runs: list[list[BandCurves]]) -> list[BandCurves]:
    return [
        replace(
            same[0], auc=float(np.mean([each.auc for each in same])), aupr=float(np.mean([each.aupr for each in same]))
        )
        for same in zip(*runs, strict=True)
    ]


def add_metrics(
    entries: Sequence[ComparisonEntry], seen: dict[str, CandidateResults], reachable: np.ndarray, n: int, seed: int
) -> list[ComparisonEntry]:
    """Every metric with its interval, and how far each candidate is behind the best."""
    columns = np.column_stack([*(each.document_gains for each in seen.values()), reachable])
    shape = (len(seen) + 1, len(COMPARISON_METRICS))
    values = compute_ratios(columns.mean(axis=0).reshape(shape))
    samples = compute_ratios(resample_means(columns, n, seed).reshape(n, *shape))
    best = values.argmax(axis=0)  # of each metric
    columns_of = range(len(COMPARISON_METRICS))
    figures = {
        name: (
            {COMPARISON_METRICS[c]: make_interval(values[row, c], samples[:, row, c]) for c in columns_of},
            {
                COMPARISON_METRICS[c]: make_interval(
                    values[row, c] - values[best[c], c], samples[:, row, c] - samples[:, best[c], c]
                )
                for c in columns_of
            },
        )
        for row, name in enumerate(seen)
    }
    return [
        complete_entry(entry, seen[entry.name], *figures[entry.name], len(reachable)) if entry.name in seen else entry
        for entry in entries
    ]


def complete_entry(
    entry: ComparisonEntry,
    seen: CandidateResults,
    metrics: dict[str, ConfidenceInterval],
    behind: dict[str, ConfidenceInterval],
    n_docs: int,
) -> ComparisonEntry:
    n_runs = len(seen.run_metrics)
    deviation = (
        dict(zip(COMPARISON_METRICS, seen.run_metrics.std(axis=0, ddof=1).tolist(), strict=True)) if n_runs > 1 else {}
    )
    predict = 1000 * float(np.mean(seen.seconds)) / n_docs if seen.seconds else None
    cost = replace(entry.cost, predict_ms=predict)
    return replace(entry, metrics=metrics, behind=behind, deviation=deviation, groups=seen.groups, cost=cost)


def compute_ratios(means: np.ndarray) -> np.ndarray:
    """(…, n_candidates, n_metrics) metrics, of (…, n_candidates + 1, n_metrics) gains and, last, what was reachable."""
    return means[..., :-1, :] / np.maximum(means[..., -1:, :], 1e-300)


def make_interval(value: float, samples: np.ndarray) -> ConfidenceInterval:
    low, high = np.quantile(samples, [TAIL_PROBABILITY, 1 - TAIL_PROBABILITY])
    return ConfidenceInterval(float(value), float(low), float(high))


def compute_overlaps(first: dict[str, Predictions]) -> dict[str, dict[str, float]]:
    """The share of first labels that each two candidates have in common."""
    found: dict[str, dict[str, float]] = {name: {} for name in first}
    for one, other in combinations(first, 2):
        found[one][other] = found[other][one] = compute_overlap(first[one], first[other], N_COMPARED_LABELS)
    return found


def find_disagreements(
    first: dict[str, Predictions], gained: dict[str, np.ndarray], truth: GroundTruth, called: Callable[[str], str]
) -> list[Disagreement]:
    """The documents whose first labels differ most between candidates; of those that differ as much, the ones that some
    candidates get right and others wrong."""
    if len(first) < 2:
        return []
    shared = compute_document_overlap([each.labels for each in first.values()])
    column = COMPARISON_METRICS.index("nDCG@5")
    spread = np.std([each[:, column] for each in gained.values()], axis=0)
    order = np.lexsort((-spread, shared))
    chosen = [int(doc) for doc in order if shared[doc] < 1 and spread[doc] > 0][:MAX_DISAGREEMENTS]
    return [make_disagreement(doc, first, truth, called) for doc in chosen]


def compute_document_overlap(answers: Sequence[np.ndarray]) -> np.ndarray:
    """(n_docs,) the share of first labels that two candidates have in common, as a mean over all pairs."""
    pairs = list(combinations(answers, 2))
    total = np.zeros(len(answers[0]))
    for one, other in pairs:
        total += ((one[:, :, None] == other[:, None, :]) & (one[:, :, None] != NO_LABEL)).sum(
            axis=(1, 2)
        ) / N_COMPARED_LABELS
    return total / len(pairs)


def make_disagreement(
    doc: int, first: dict[str, Predictions], truth: GroundTruth, called: Callable[[str], str]
) -> Disagreement:
    document = truth.documents[doc]
    text = document.text[:SNIPPET_CHARACTERS] + ("…" if len(document.text) > SNIPPET_CHARACTERS else "")
    answers = {
        name: [called(truth.names[label]) for label in each.labels[doc].tolist() if label != NO_LABEL]
        for name, each in first.items()
    }
    return Disagreement(document.id, text, [called(label) for label in document.labels], answers)
