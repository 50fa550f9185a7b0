"""How good predictions are. A metric is its published name, the same everywhere: `P@5`, `nDCG@5`, `macro-F1@0.5`.

Ranked metrics (P, R, nDCG, PSP, PSnDCG) are means over documents; the others look at the whole test set, and F1 and
curves see the WIDE best predictions of each document in it, whatever the threshold. A document without labels counts 0
and stays in the mean, a missing prediction is a wrong one, and a label unseen in training is a miss nobody can avoid:
it stays in every denominator. docs/metrics.md has the formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from xmtc.base.predictions import NO_LABEL, Predictions
from xmtc.errors import XmtcError
from xmtc.labels.propensity import Propensity

DEFAULT = ("P@1", "P@3", "P@5", "nDCG@1", "nDCG@3", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")
GROUPS = ("frequent", "medium", "rare")
FEWEST_OCCURRENCES = 5  # of a label in the test set to have a curve (AttentionXML, Table 6)
WIDE = 100  # predictions a document that thresholds and curves ask for; AttentionXML's authors keep as many


@dataclass(frozen=True)
class Metric:
    """A parsed name: what is measured, and at which k, score threshold or group of labels."""

    kind: str
    at: Any

    @property
    def name(self) -> str:
        return f"{self.kind}@{self.at:g}" if isinstance(self.at, float) else f"{self.kind}@{self.at}"


@dataclass(frozen=True)
class Judged:
    """Predictions beside the truth, and what several metrics share."""

    predictions: Predictions
    Y: csr_array  # (n_docs, n_labels), column ids sorted, no stored zeros
    inverse_propensities: np.ndarray | None  # (n_labels,) float64

    @cached_property
    def hits(self) -> np.ndarray:
        """(n_docs, k) bool: is the prediction right? Looked up as (document, label) among the sorted true ones."""
        labels, width = self.predictions.labels, self.width
        truth = np.append(self.true_rows * width + self.Y.indices, -1)
        asked = np.arange(len(labels))[:, None] * width + labels
        return (truth[np.searchsorted(truth[:-1], asked)] == asked) & (labels != NO_LABEL)

    @cached_property
    def width(self) -> int:
        """One more than the largest label id of truth and predictions."""
        return max(self.Y.shape[1], int(self.predictions.labels.max(initial=0)) + 1)

    @cached_property
    def true_rows(self) -> np.ndarray:
        """(nnz,) int64: the document of every true label."""
        return np.repeat(np.arange(self.Y.shape[0]), np.diff(self.Y.indptr))

    @cached_property
    def frequencies(self) -> np.ndarray:
        """(width,) how many test documents carry each label."""
        return np.bincount(self.Y.indices, minlength=self.width)

    @cached_property
    def curves(self) -> dict[str, np.ndarray]:
        """(3,) twice: mean AUC and AUPR of each frequency group; nan for a group without labels."""
        countable = (self.frequencies >= FEWEST_OCCURRENCES) & (self.frequencies < self.predictions.n_docs)
        labels = np.flatnonzero(countable)
        if len(labels) == 0:
            return dict.fromkeys(("AUC", "AUPR"), np.full(3, np.nan))
        members = frequency_groups(self.frequencies[labels]) == np.arange(3)[:, None]  # (3, n) bool
        means = [[of[m].mean() if m.any() else np.nan for m in members] for of in label_curves(self, labels)]
        return dict(zip(("AUC", "AUPR"), np.array(means), strict=True))


def precision(judged: Judged, k: int) -> np.ndarray:
    return judged.hits[:, :k].sum(axis=1) / k


def recall(judged: Judged, k: int) -> np.ndarray:
    return judged.hits[:, :k].sum(axis=1) / np.maximum(np.diff(judged.Y.indptr), 1)


def ndcg(judged: Judged, k: int) -> np.ndarray:
    return (judged.hits[:, :k] @ discounts(k)[: judged.predictions.k]) / ideal_dcg(judged, k)


def psp(judged: Judged, k: int) -> np.ndarray:
    return propensity_scored(judged, np.ones(k), np.ones(1))


def psndcg(judged: Judged, k: int) -> np.ndarray:
    return propensity_scored(judged, discounts(k), ideal_dcg(judged, k))


def discounts(k: int) -> np.ndarray:
    return 1 / np.log2(np.arange(2, k + 2))


def ideal_dcg(judged: Judged, k: int) -> np.ndarray:
    """(n_docs,) what a perfect ranking reaches; 1 for a document without labels, whose gain is 0 anyway."""
    reachable = np.append(1.0, np.cumsum(discounts(k)))
    return reachable[np.minimum(np.diff(judged.Y.indptr), k)]


def propensity_scored(judged: Judged, rank_weights: np.ndarray, ideal: np.ndarray) -> np.ndarray:
    """(n_docs,) inverse propensities of the right predictions, over what each document's best true labels would give on
    the mean of the test set: the mean of these values is sum(gained) / sum(best)."""
    inverse, predictions, k = judged.inverse_propensities, judged.predictions, len(rank_weights)
    if inverse is None:
        raise XmtcError("PSP and PSnDCG need train_frequencies and n_train, the label counts of the training set.")
    hits = judged.hits[:, :k]
    gained = np.where(hits, inverse[np.where(hits, predictions.labels[:, :k], 0)], 0.0) @ rank_weights[: predictions.k]

    rows, values = judged.true_rows, inverse[judged.Y.indices]
    values = values[np.lexsort((-values, rows))]
    rank = np.arange(len(rows)) - judged.Y.indptr[rows]
    weights = np.append(rank_weights, 0.0)[np.minimum(rank, k)]
    best = np.bincount(rows, values * weights, minlength=predictions.n_docs) / ideal
    return gained / ideal / best.mean() if best.any() else np.zeros(predictions.n_docs)


def coverage(judged: Judged, k: int) -> float:
    found = np.unique(judged.predictions.labels[:, :k][judged.hits[:, :k]])
    return len(found) / max(int(np.count_nonzero(judged.frequencies)), 1)


def micro_f1(judged: Judged, threshold: float) -> float:
    right, given = label_counts(judged, threshold)
    return float(2 * right.sum() / max(given.sum() + judged.frequencies.sum(), 1))


def macro_f1(judged: Judged, threshold: float) -> float:
    right, given = label_counts(judged, threshold)
    total = given + judged.frequencies
    present = total > 0
    return float(np.mean(2 * right[present] / total[present])) if present.any() else 0.0


def label_counts(judged: Judged, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """(width,) twice: how often each label scores at least the threshold and is right, and how often at all."""
    labels = judged.predictions.above(threshold).labels
    given = labels != NO_LABEL
    right = np.bincount(labels[given & judged.hits], minlength=judged.width)
    return right, np.bincount(labels[given], minlength=judged.width)


def frequency_groups(frequencies: np.ndarray) -> np.ndarray:
    """(n,) group of each label, 0 the most frequent, so that the three groups' total occurrences differ least. Labels
    of equal frequency stay together, as the thresholds of AttentionXML's Table 6 keep them."""
    values, step, size = np.unique(-frequencies, return_inverse=True, return_counts=True)
    mass = np.cumsum(-values * size, dtype=np.float64)  # of the most frequent labels down to each frequency
    half_of_rest = (mass + mass[-1]) / 2
    second = np.searchsorted(mass, half_of_rest)
    before = np.maximum(second - 1, 0)
    second = np.where(half_of_rest - mass[before] <= mass[second] - half_of_rest, before, second)
    unevenness = mass**2 + (mass[second] - mass) ** 2 + (mass[-1] - mass[second]) ** 2
    first = int(np.argmin(unevenness))
    return (step > first).astype(np.int64) + (step > second[first])


def label_curves(judged: Judged, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n,) twice: AUC and average precision of each label over all documents, ties exact as in scikit-learn."""
    label, score, right, wrong = scored_documents(judged, labels)
    order = np.lexsort((-score, label))
    label, score = label[order], score[order]
    # A curve has one point for each run of equal scores, at its last document.
    ends = np.append(np.flatnonzero((label[1:] != label[:-1]) | (score[1:] != score[:-1])), len(label) - 1)
    of = label[ends]
    n_right = judged.frequencies[labels].astype(np.float64)
    n_wrong = judged.predictions.n_docs - n_right
    all_right, all_wrong = np.cumsum(right[order])[ends], np.cumsum(wrong[order])[ends]
    new_right, new_wrong = np.diff(all_right, prepend=0), np.diff(all_wrong, prepend=0)
    right_so_far = all_right - (np.cumsum(n_right) - n_right)[of]
    wrong_so_far = all_wrong - (np.cumsum(n_wrong) - n_wrong)[of]
    area = np.bincount(of, new_wrong * (right_so_far - new_right / 2))
    steps = np.bincount(of, new_right * right_so_far / (right_so_far + wrong_so_far))
    return area / (n_right * n_wrong), steps / n_right


def scored_documents(judged: Judged, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Label (as its place among the given ones), score, and how many right and wrong documents have that score. The
    documents that were not given the label follow as one entry a label, tied below all that were."""
    place = np.full(judged.width, -1)
    place[labels] = np.arange(len(labels))
    given = (judged.predictions.labels != NO_LABEL) & (place[judged.predictions.labels] >= 0)
    label, hit = place[judged.predictions.labels[given]], judged.hits[given]
    n_given, n_found = np.bincount(label, minlength=len(labels)), np.bincount(label[hit], minlength=len(labels))
    right_left = judged.frequencies[labels] - n_found
    wrong_left = judged.predictions.n_docs - n_given - right_left
    return (
        np.append(label, np.arange(len(labels))),
        np.append(judged.predictions.scores[given], np.full(len(labels), -np.inf, dtype=np.float32)),
        np.append(hit, right_left),
        np.append(~hit, wrong_left),
    )


RANKED: dict[str, Callable[[Judged, int], np.ndarray]]
RANKED = {"P": precision, "R": recall, "nDCG": ndcg, "PSP": psp, "PSnDCG": psndcg}
OVERALL: dict[str, Callable[[Judged, Any], float]] = {
    "coverage": coverage,
    "micro-F1": micro_f1,
    "macro-F1": macro_f1,
    "AUC": lambda judged, group: judged.curves["AUC"][GROUPS.index(group)],
    "AUPR": lambda judged, group: judged.curves["AUPR"][GROUPS.index(group)],
}
MEASURES: dict[str, Callable[[Judged, Any], np.ndarray | float]] = {**RANKED, **OVERALL}
SPELLING = {kind.lower(): kind for kind in MEASURES}


def parse_metric(name: str) -> Metric:
    """A metric by its name, upper or lower case."""
    kind, _, at = name.strip().partition("@")
    metric = metric_at(SPELLING.get(kind.lower(), ""), at)
    if metric is not None:
        return metric
    near = get_close_matches(kind.lower(), SPELLING, n=1, cutoff=0.4)
    examples = [metric_at(SPELLING[kind], text) for kind in near for text in (at, "rare", "0.5", "5")]
    hint = next((f" (did you mean {metric.name}?)" for metric in examples if metric is not None), "")
    counts, groups = ", ".join(f"{kind}@k" for kind in (*RANKED, "coverage")), "|".join(GROUPS)
    raise XmtcError(
        f"{name!r} is not a metric{hint}; the metrics are {counts} with k from 1, micro-F1@score, macro-F1@score, "
        f"AUC@{groups} and AUPR@{groups}."
    )


def metric_at(kind: str, at: str) -> Metric | None:
    """The metric of a kind at a k, threshold or group given as text; None where the two do not fit."""
    if kind in RANKED or kind == "coverage":
        return Metric(kind, int(at)) if at.isdecimal() and int(at) > 0 else None
    if kind in ("AUC", "AUPR"):
        return Metric(kind, at.lower()) if at.lower() in GROUPS else None
    try:
        return Metric(kind, float(at)) if kind and isfinite(float(at)) else None
    except ValueError:
        return None


def max_k(metrics: Sequence[str]) -> int:
    """How many predictions a document the metrics need."""
    return max((metric.at if isinstance(metric.at, int) else WIDE for metric in map(parse_metric, metrics)), default=1)


def evaluate(
    predictions: Predictions,
    Y: csr_array,
    metrics: Sequence[str],
    train_frequencies: np.ndarray | None = None,
    propensity: Propensity = Propensity(),
    n_train: int | None = None,
) -> dict[str, float]:
    """Each metric by its name, as a fraction from 0 to 1; nan for a frequency group without labels.

    Y may have more columns than the model has labels: those labels were unseen in training. The propensity-scored
    metrics need train_frequencies, how many of the n_train training documents carry each label (0 where it ends).
    """
    judged = judge(predictions, Y, train_frequencies, propensity, n_train)
    values = {metric.name: MEASURES[metric.kind](judged, metric.at) for metric in map(parse_metric, metrics)}
    return {name: float(np.mean(value)) for name, value in values.items()}


def per_document(
    predictions: Predictions,
    Y: csr_array,
    metrics: Sequence[str],
    train_frequencies: np.ndarray | None = None,
    propensity: Propensity = Propensity(),
    n_train: int | None = None,
) -> dict[str, np.ndarray]:
    """(n_docs,) values of each ranked metric, whose mean is what `evaluate` gives."""
    judged, parsed = judge(predictions, Y, train_frequencies, propensity, n_train), list(map(parse_metric, metrics))
    for metric in parsed:
        if metric.kind not in RANKED:
            raise XmtcError(f"{metric.name} has no value for a single document; only {', '.join(RANKED)} have one.")
    return {metric.name: RANKED[metric.kind](judged, metric.at) for metric in parsed}


def judge(
    predictions: Predictions, Y: csr_array, frequencies: np.ndarray | None, propensity: Propensity, n_train: int | None
) -> Judged:
    """Predictions beside the truth, and the weights of its labels where the training set's counts are known."""
    if predictions.n_docs != Y.shape[0] or Y.shape[0] == 0:
        raise XmtcError(f"Metrics need predictions for every document; got {predictions.n_docs} for {Y.shape[0]}.")
    Y = csr_array(Y, copy=True)
    Y.sum_duplicates()
    Y.eliminate_zeros()
    if frequencies is None or n_train is None:
        return Judged(predictions, Y, None)
    unseen = np.zeros(max(Y.shape[1] - len(frequencies), 1))
    return Judged(predictions, Y, propensity.inverse(np.append(frequencies, unseen), n_train))
