"""Calibration of scores by isotonic regression on held-out documents, so that labels with score 0.7 are correct in 7 of
10 cases (`methods/ensemble/calibrated_model.py`).

The held-out documents are the validation documents of the user; those that a network holds out for early stopping; or
folds of random documents. In the last case one more model (held-out twin) is trained without each fold for the
calibration curve, and the model itself is trained on all documents, as in scikit-learn's
CalibratedClassifierCV(ensemble=False). A twin may be cheaper than the model (`Method.for_holdout`). From 5,000
documents on, a fold has a tenth of the documents or 2,000, whichever is more, but at most a fifth, and there are one or
two folds. Smaller corpora have up to ten folds of a tenth, because their probabilities are as good as the number of
held-out documents, and large folds take the documents of rare labels (docs/results/calibration.md). If 2,000 documents
are few among many, the model is trained once without them, and every label keeps a training document.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, ClassVar, NamedTuple

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import ParameterSet, param
from xmtc.core.method import Method, Model
from xmtc.core.predictions import Predictions
from xmtc.core.run import Run
from xmtc.data.document import Document
from xmtc.data.splits import drop_rows, find_labelled_rows, sample_folds, sample_rows_keeping_labels
from xmtc.errors import XmtcError
from xmtc.features.unknown_words import measure_unknown_words
from xmtc.methods.ensemble.calibrated_model import (
    CalibratedModel,
    apply_isotonic_curve,
    build_calibrated_model,
    fit_isotonic_curve,
    select_prediction_rows,
    strip_calibration,
)
from xmtc.methods.ensemble.holdout_model import HOLDOUT_RUN_NAME, fit_with_holdout_models
from xmtc.methods.ensemble.members import CombinedMethod
from xmtc.methods.ensemble.model import MIN_MEMBER_LABELS
from xmtc.scores.drift import DriftReference
from xmtc.tagger import Tagger

HELD_OUT_FRACTION = 0.1  # of the labelled documents in a fold, if the method does not hold out documents itself
MAX_HELD_OUT_FRACTION = 0.2  # with larger folds, probabilities are too low (docs/results/calibration.md)
MIN_LARGE_FOLD_DOCUMENTS = 5000  # of the corpus, for folds of more than a tenth
MAX_FOLDS = 10
MAX_HELD_OUT_DOCUMENTS = 2000  # folds are added until they have this many documents
FEW_CALIBRATION_DOCUMENTS = 1000  # fewer are reported (docs/results/calibration.md)
MIN_CALIBRATION_DOCUMENTS = 100  # with fewer, probabilities are off by up to 0.06 (docs/results/calibration.md)
MAX_SINGLE_TRAINING_FRACTION = 0.02  # held-out documents up to this fraction are not worth a second training


@dataclass(frozen=True)
class Calibration(ParameterSet):
    """Parameters of the scores: calibrated probabilities, or the raw scores of the method."""

    title: ClassVar[str] = "Scores"

    calibrate: bool = param(True, "Calibration of scores to probabilities; needs at least 100 held-out documents.")


class CalibrationResult(NamedTuple):
    """Trained model, its calibration curve and the reason for it or for its absence."""

    model: Model
    curve: tuple[np.ndarray, np.ndarray] | None
    reason: str
    n_docs: int = 0  # documents of the calibration curve
    reference: DriftReference | None = None  # calibrated predictions for these documents

    def apply_to(self, model: Model) -> Model:
        """Return the model, or a model made from it, with the calibration curve if there is one."""
        return model if self.curve is None else build_calibrated_model(model, *self.curve)

    def as_json(self) -> dict[str, Any]:
        """Return the entry of about.json."""
        is_calibrated = self.curve is not None or isinstance(self.model, CalibratedModel)
        return {
            "are": "probabilities" if is_calibrated else "raw",
            **({"documents": self.n_docs} if self.n_docs else {}),
            "because": self.reason,
        }


def fit_calibrated(
    method: Method, data: Dataset, valid: Dataset | None, run: Run, calibrate: bool = True
) -> CalibrationResult:
    """Train a method and fit the calibration curve of its scores, if there are enough documents."""
    if not calibrate:
        return CalibrationResult(method.fit(data, valid, run), None, "calibrate=false")
    if method.has_own_calibration:
        model = method.fit(data, valid, run)
        return CalibrationResult(model, None, describe_own_calibration(model))
    if valid is not None:
        return fit_with_validation(method, data, valid, run)

    folds, is_single_training = choose_folds(method, data)
    if len(folds[0]) < MIN_CALIBRATION_DOCUMENTS:
        reason = (
            f"calibration needs {MIN_CALIBRATION_DOCUMENTS} held-out documents, and {len(folds[0]):,} are available"
        )
        return CalibrationResult(method.fit(data, None, run), None, reason)
    if is_single_training:
        model = method.fit(drop_rows(data, folds[0]), None, run)
        twins = [model]
    else:
        model, twins = fit_with_holdout_models(method, data, folds, run)
    predictions = [predict_held_out(twin, data.select_rows(rows), run) for twin, rows in zip(twins, folds, strict=True)]
    held_out = data.select_rows(np.concatenate(folds))
    n_twins = sum(twin is not model for twin in twins)
    return fit_calibration_curve(model, Predictions.stack(predictions), held_out, "held-out ", n_twins)


def describe_own_calibration(model: Model) -> str:
    """Return the reason for the scores of a method that calibrates its models itself."""
    if not isinstance(model, CalibratedModel):
        return "the documents are too few to compare the members, so the model is the first member alone"
    return model.description or "calibrated=true"


def fit_with_validation(method: Method, data: Dataset, valid: Dataset, run: Run) -> CalibrationResult:
    """Train a method and calibrate it on the validation documents."""
    model, n_valid = method.fit(data, valid, run), len(find_labelled_rows(valid))
    if n_valid < MIN_CALIBRATION_DOCUMENTS:
        reason = (
            f"calibration needs {MIN_CALIBRATION_DOCUMENTS} validation documents with a label, and {n_valid:,} are "
            "available"
        )
        return CalibrationResult(model, None, reason)
    return fit_calibration_curve(model, predict_held_out(model, valid, run), valid, "validation ")


def predict_held_out(twin: Model, held_out: Dataset, run: Run) -> Predictions:
    n_predictions = min(MIN_MEMBER_LABELS, twin.n_labels)
    return twin.predict(held_out.keep_views(twin.views), n_predictions, run.for_part(HOLDOUT_RUN_NAME))


def fit_calibration_curve(
    model: Model, predictions: Predictions, held_out: Dataset, kind: str, n_twins: int = 0
) -> CalibrationResult:
    """Return a model with the calibration curve of predictions for held-out documents. Predictions for documents that
    have only labels unseen in training count as incorrect."""
    assert held_out.Y is not None
    curve = fit_isotonic_curve(predictions, held_out.Y, held_out.weights)
    reference = DriftReference.from_predictions(apply_isotonic_curve(predictions, *curve), held_out.Y)
    reason = describe_calibration(held_out.n_docs, kind, n_twins)
    return CalibrationResult(model, curve, reason, held_out.n_docs, reference)


def describe_calibration(n_docs: int, kind: str = "", n_twins: int = 0) -> str:
    """Return the numbers of documents and further trainings of a calibration, and a warning if documents are few."""
    text = f"calibrated on {n_docs:,} {kind}documents"
    if n_twins:
        text = f"{text} with {n_twins} further {'training' if n_twins == 1 else 'trainings'}"
    if n_docs >= FEW_CALIBRATION_DOCUMENTS:
        return text
    return f"{text}; with fewer than {FEW_CALIBRATION_DOCUMENTS:,}, probabilities are rough estimates"


def choose_folds(method: Method, data: Dataset) -> tuple[list[np.ndarray], bool]:
    """Return the documents to calibrate on in folds, and True if the model is trained once, without them.

    They are those that the method holds out itself, or random samples, which have rare labels as new documents do. If
    the model is trained once, every label keeps a training document.
    """
    own_rows = method.select_held_out_rows(data)
    if own_rows is not None:
        return [own_rows], False
    seed, n_labelled = getattr(method, "seed", 0), len(find_labelled_rows(data))
    plan = plan_folds(method, n_labelled, data.document_labels.shape[0])
    if plan.is_single_training:
        return [sample_rows_keeping_labels(data, seed, plan.n_rows)], True
    if plan.n_rows < MIN_CALIBRATION_DOCUMENTS:
        return [np.arange(plan.n_rows)], False
    return sample_folds(data, seed, plan.n_rows, plan.n_folds), False


class FoldPlan(NamedTuple):
    """Number and size of the folds, and whether the model is trained once, without its only fold."""

    n_folds: int
    n_rows: int
    is_single_training: bool = False


def plan_folds(method: Method, n_labelled: int, n_docs: int) -> FoldPlan:
    """Return the folds for some labelled documents among all documents.

    Methods with early stopping, whose further trainings are expensive, have one fold of a tenth.
    """
    n_tenth = int(HELD_OUT_FRACTION * n_labelled)
    n_rows = min(MAX_HELD_OUT_DOCUMENTS, n_tenth)
    if n_rows < MIN_CALIBRATION_DOCUMENTS:
        return FoldPlan(1, n_rows)
    if n_rows <= MAX_SINGLE_TRAINING_FRACTION * n_docs:
        return FoldPlan(1, n_rows, True)
    members = method.members if isinstance(method, CombinedMethod) else [method]
    if any(has_early_stopping(member) for member in members):
        return FoldPlan(1, n_rows)
    if n_labelled < MIN_LARGE_FOLD_DOCUMENTS:
        return FoldPlan(min(MAX_FOLDS, ceil(MAX_HELD_OUT_DOCUMENTS / n_rows)), n_rows)
    n_rows = min(max(MAX_HELD_OUT_DOCUMENTS, n_tenth), int(MAX_HELD_OUT_FRACTION * n_labelled))
    return FoldPlan(max(1, round(MAX_HELD_OUT_DOCUMENTS / n_rows)), n_rows)


def has_early_stopping(method: Method) -> bool:
    return type(method).select_held_out_rows is not Method.select_held_out_rows


def count_trainings(method: Method, n_docs: int) -> int:
    """Return how often `fit_calibrated` trains a method on n_docs labelled documents: once, and once for each fold.

    It is an upper bound for a combination, whose members may hold out documents themselves.
    """
    plan = plan_folds(method, n_docs, n_docs)
    if method.has_own_calibration or plan.n_rows < MIN_CALIBRATION_DOCUMENTS:
        return 1
    is_single_training = has_early_stopping(method) or plan.is_single_training
    return 1 if is_single_training and not isinstance(method, CombinedMethod) else 1 + plan.n_folds


def calibrate_tagger(tagger: Tagger, documents: Iterable[Document], run: Run = Run()) -> Tagger:
    """Return a tagger calibrated on labelled documents that it was not trained on.

    Tuned thresholds are dropped, because they are for the scores before.
    """
    raw_tagger = tagger.with_model(strip_calibration(tagger.model))
    documents = list(documents)
    data, Y, _ = raw_tagger.transform_labelled(documents, run)
    predictions = raw_tagger.predict(data, min(MIN_MEMBER_LABELS, len(tagger.labels)), run)
    has_labels = np.diff(Y.indptr) > 0
    n_docs = int(has_labels.sum())
    if n_docs < MIN_CALIBRATION_DOCUMENTS:
        raise XmtcError(
            f"Calibration needs at least {MIN_CALIBRATION_DOCUMENTS} documents with labels; got {n_docs:,}."
        )
    labelled, true_labels = select_prediction_rows(predictions, has_labels), Y[has_labels]
    curve = fit_isotonic_curve(labelled, true_labels)
    result = CalibrationResult(raw_tagger.model, curve, describe_calibration(n_docs), n_docs)
    unknown = measure_unknown_words(tagger.views, [document.text for document in documents], run)
    return replace(
        raw_tagger,
        model=result.apply_to(raw_tagger.model),
        about=raw_tagger.about | {"scores": result.as_json()},
        reference=DriftReference.from_predictions(apply_isotonic_curve(labelled, *curve), true_labels, unknown),
    )
