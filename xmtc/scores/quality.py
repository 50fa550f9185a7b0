"""Estimates of the quality of each document's labels, and a gate that publishes documents without a person.

The estimates are logistic regressions of the precision, recall and F1 of a document on its calibrated scores. The gate
publishes documents whose estimate reaches a threshold. The threshold is selected by learn-then-test: thresholds are
tested from strict to lax on documents that neither tuned the labels nor fitted the estimates, each with a valid p-value
of "the mean metric of the published documents is below the target", until the first one that is not rejected. With the
given confidence, the mean metric of published documents reaches the target, whatever the distribution of the documents
is, if new documents come from the same one.

Papers: Angelopoulos, Bates, Candès, Jordan, Lei: Learn Then Test: Calibrating Predictive Algorithms to Achieve Risk
Control (Annals of Applied Statistics 2025), fixed sequence testing with the order from other documents;
Waudby-Smith, Ramdas: Estimating Means of Bounded Random Variables by Betting (JRSS B 2024), for the p-values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.errors import XmtcError
from xmtc.evaluation.assignment_metrics import count_by_document, f1
from xmtc.evaluation.ranked_results import RankedResults
from xmtc.storage.form import Form, array

QUALITY_METRICS = ("precision", "recall", "f1")
DEFAULT_CONFIDENCE = 0.95
CANDIDATE_SHARES = np.arange(1, 101) / 100  # of the documents that candidate thresholds publish
MIN_GATE_DOCUMENTS = 100  # in each half; with fewer no gate of interest can be certified
LOGIT_MARGIN = 1e-3  # distance of scores from 0 and 1 in logits
REGULARISATION = 1.0  # C of the logistic regressions


class QualityPromise(NamedTuple):
    """Mean metric that published documents reach with a confidence, such as a precision of 0.9."""

    metric: str
    target: float
    confidence: float = DEFAULT_CONFIDENCE


def parse_promise(text: str, confidence: float = DEFAULT_CONFIDENCE) -> QualityPromise:
    """Parse a promise such as "precision=0.9"; raise XmtcError if it or the confidence is not valid."""
    name, _, number = text.strip().lower().partition("=")
    try:
        target = float(number)
    except ValueError:
        target = 0.0
    if name not in QUALITY_METRICS or not 0 < target < 1:
        raise XmtcError(
            f"{text!r} is not a promise for published documents; expected precision, recall or f1 with a value below "
            "1, such as precision=0.9."
        )
    if not 0.5 <= confidence < 1:
        raise XmtcError(f"confidence={confidence:g} is not a confidence; expected 0.5 to less than 1, such as 0.95.")
    return QualityPromise(name, target, confidence)


class QualityEstimates(NamedTuple):
    """Estimated metrics of the labels of each document, shape (n_docs,) each; 0 for documents without labels."""

    precision: np.ndarray
    recall: np.ndarray
    f1: np.ndarray
    is_published: np.ndarray  # bool

    def describe(self, row: int) -> dict[str, Any]:
        """Return the estimates of one document for JSON."""
        values = {name: round(float(getattr(self, name)[row]), 4) for name in QUALITY_METRICS}
        return values | {"publish": bool(self.is_published[row])}


@dataclass(frozen=True)
class QualityGate(Form):
    """Quality estimates of documents, and the estimate from which a document is published without a person."""

    metric: str  # one of QUALITY_METRICS
    target: float  # mean metric of published documents
    confidence: float  # probability that they reach it
    threshold: float  # of the estimate; above 1 if no threshold could be certified
    coverage: float  # share of the documents of the test that it publishes
    n_docs: int  # documents of the test
    centres: np.ndarray = array(np.float64)  # (n_features,)
    scales: np.ndarray = array(np.float64)  # (n_features,)
    weights: np.ndarray = array(np.float64, ndim=2)  # (3, n_features + 1), with the bias last

    def estimate(self, ranked: Predictions, selected: Predictions) -> QualityEstimates:
        """Return the estimates for labels selected from a ranking."""
        values = predict_quality(describe_selection(ranked, selected), self.centres, self.scales, self.weights)
        is_published = values[QUALITY_METRICS.index(self.metric)] >= self.threshold
        precision, recall, f1_estimate = values
        return QualityEstimates(precision, recall, f1_estimate, is_published & has_labels(selected))

    def check(self) -> None:
        """Raise ValueError if the sizes of the arrays differ, or a number is not finite."""
        n_features = len(FEATURE_NAMES)
        if self.metric not in QUALITY_METRICS:
            raise ValueError(f"its gate has the unknown metric {self.metric!r}")
        shapes = self.centres.shape, self.scales.shape, self.weights.shape
        if shapes != ((n_features,), (n_features,), (len(QUALITY_METRICS), n_features + 1)):
            raise ValueError("its gate has arrays of other sizes than its features")
        values = (self.centres, self.scales, self.weights, self.threshold)
        if not all(np.isfinite(value).all() for value in values) or not (self.scales > 0).all():
            raise ValueError("its gate has numbers that are not finite, or scales that are not positive")

    @property
    def is_certified(self) -> bool:
        return self.threshold <= 1

    def __str__(self) -> str:
        promise = f"{self.metric} of {self.target:g} at {100 * self.confidence:g} % confidence"
        if not self.is_certified:
            return f"no documents are published, because {self.n_docs:,} documents do not show a mean {promise}"
        return (
            f"documents with an estimated {self.metric} of at least {self.threshold:.3g} are published, with a mean "
            f"{promise}; they were {100 * self.coverage:.1f} % of {self.n_docs:,} documents"
        )

    def describe(self) -> dict[str, Any]:
        """Return the entry of about.json."""
        return {
            "metric": self.metric,
            "target": self.target,
            "confidence": self.confidence,
            "coverage": self.coverage,
            "documents": self.n_docs,
            "gives": str(self),
        }


FEATURE_NAMES = ("mean", "lowest", "highest", "next", "share", "labels")


def describe_selection(ranked: Predictions, selected: Predictions) -> np.ndarray:
    """Return features of the selected labels of each document, shape (n_docs, n_features)."""
    is_ranked, is_selected = ranked.labels != NO_LABEL, selected.labels != NO_LABEL
    scores = np.where(is_selected, np.clip(selected.scores, 0, 1), 0).astype(np.float64)
    ranked_scores = np.where(is_ranked, np.clip(ranked.scores, 0, 1), 0).astype(np.float64)
    n_selected = is_selected.sum(axis=1)
    mean = scores.sum(axis=1) / np.maximum(n_selected, 1)
    lowest = np.where(is_selected, scores, 1).min(axis=1, initial=1)
    is_rest = is_ranked & ~np.array(
        [np.isin(row, chosen) for row, chosen in zip(ranked.labels, selected.labels, strict=True)]
    ).reshape(is_ranked.shape)
    best_rest = np.where(is_rest, ranked_scores, 0).max(axis=1, initial=0)
    share = scores.sum(axis=1) / np.maximum(ranked_scores.sum(axis=1), 1e-9)
    probabilities = [mean, lowest, scores.max(axis=1, initial=0), best_rest, np.minimum(share, 1)]
    return np.column_stack([*map(to_logit, probabilities), np.log1p(n_selected)])


def to_logit(probabilities: np.ndarray) -> np.ndarray:
    return np.log((probabilities + LOGIT_MARGIN) / (1 - probabilities + LOGIT_MARGIN))


def has_labels(selected: Predictions) -> np.ndarray:
    return (selected.labels != NO_LABEL).any(axis=1)


def predict_quality(features: np.ndarray, centres: np.ndarray, scales: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the estimated metrics, shape (3, n_docs)."""
    margins = weights[:, :-1] @ ((features - centres) / scales).T + weights[:, -1:]
    return 1 / (1 + np.exp(-np.clip(margins, -50, 50)))


def compute_document_metrics(selected: Predictions, true_labels: csr_array) -> np.ndarray:
    """Return precision, recall and F1 of each document, shape (3, n_docs)."""
    n_right, n_assigned, n_true = count_by_document(RankedResults(selected, true_labels))
    return np.array(
        [n_right / np.maximum(n_assigned, 1), n_right / np.maximum(n_true, 1), f1(n_right, n_assigned, n_true)]
    )


def fit_quality(features: np.ndarray, metrics: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return centres and scales of the features, and the weights of one logistic regression per metric."""
    from sklearn.linear_model import LogisticRegression  # imported here, because prediction does not need it

    centres, scales = features.mean(axis=0), np.maximum(features.std(axis=0), 1e-6)
    inputs = np.tile((features - centres) / scales, (2, 1))
    classes = np.repeat([1, 0], len(features))
    rows = []
    for values in metrics:  # a document of precision 0.8 counts as 0.8 good and 0.2 bad documents
        weights = np.concatenate([values, 1 - values]) + 1e-6  # both classes occur
        model = LogisticRegression(C=REGULARISATION).fit(inputs, classes, weights)
        rows.append(np.append(model.coef_[0], model.intercept_[0]))
    return centres, scales, np.array(rows)


class LabelledSelection(NamedTuple):
    """Rankings of documents, the labels selected from them, and the true labels."""

    ranked: Predictions
    selected: Predictions
    true_labels: csr_array


def fit_quality_gate(fitting: LabelledSelection, testing: LabelledSelection, promise: QualityPromise) -> QualityGate:
    """Fit the estimates on some documents, and select the threshold of the gate on others, in random order."""
    metric, risk = QUALITY_METRICS.index(promise.metric), 1 - promise.target
    features, metrics, is_labelled = describe_documents(fitting)
    test_features, test_metrics, is_test_labelled = describe_documents(testing)
    n_fitting, n_testing = int(is_labelled.sum()), len(is_test_labelled)
    if min(n_fitting, n_testing) < MIN_GATE_DOCUMENTS:
        raise XmtcError(
            f"A gate needs {MIN_GATE_DOCUMENTS} documents that get labels in each half of the documents; found "
            f"{len(is_labelled) + n_testing:,} documents, and {n_fitting:,} with labels in the first half."
        )
    recipe = fit_quality(features[is_labelled], metrics[:, is_labelled])
    estimates = predict_quality(features[is_labelled], *recipe)[metric]
    thresholds = np.quantile(estimates, 1 - CANDIDATE_SHARES)
    first = choose_first(thresholds, estimates, 1 - metrics[metric, is_labelled], risk)
    test_estimates = np.where(is_test_labelled, predict_quality(test_features, *recipe)[metric], -1.0)
    losses = 1 - test_metrics[metric]
    threshold = select_threshold(thresholds[first:], test_estimates, losses, risk, 1 - promise.confidence)
    coverage = float((test_estimates >= threshold).mean())
    return QualityGate(*promise, threshold, coverage, n_testing, *recipe)


def describe_documents(part: LabelledSelection) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the features of documents, their metrics, and whether they have selected labels."""
    metrics = compute_document_metrics(part.selected, part.true_labels)
    return describe_selection(part.ranked, part.selected), metrics, has_labels(part.selected)


def choose_first(thresholds: np.ndarray, estimates: np.ndarray, losses: np.ndarray, risk: float) -> int:
    """Return the number of the threshold to test first: the one with the smallest p-value on other documents."""
    return int(np.argmin([compute_p_value(losses[estimates >= threshold], risk) for threshold in thresholds]))


def select_threshold(
    thresholds: np.ndarray, estimates: np.ndarray, losses: np.ndarray, risk: float, error_rate: float
) -> float:
    """Return the last of the thresholds, from strict to lax, before the first whose published documents do not show a
    mean loss of at most `risk`; 2.0 if none do."""
    selected = 2.0
    for threshold in thresholds:
        if compute_p_value(losses[estimates >= threshold], risk, error_rate) > error_rate:
            break
        selected = float(threshold)
    return selected


def compute_p_value(losses: np.ndarray, risk: float, error_rate: float = 1 - DEFAULT_CONFIDENCE) -> float:
    """Return a p-value of the hypothesis that losses from 0 to 1, in random order, have a mean above `risk`.

    It is the inverse of the largest capital of a bet that multiplies by 1 - ν (loss - risk), which does not grow on
    average if the hypothesis is true. ν depends on earlier losses only.
    """
    n = len(losses)
    if n == 0:
        return 1.0
    counts = np.arange(1, n + 1)
    means = (0.5 + np.cumsum(losses)) / (counts + 1)
    variances = (0.25 + np.cumsum((losses - means) ** 2)) / (counts + 1)
    earlier = np.concatenate([[0.25], variances[:-1]])
    bets = np.minimum(1.0, np.sqrt(2 * np.log(1 / error_rate) / (n * earlier)))
    log_capital = np.cumsum(np.log1p(-bets * (losses - risk)))
    return float(min(1.0, np.exp(-max(0.0, log_capital.max()))))
