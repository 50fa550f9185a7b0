"""Calibration of scores by isotonic regression on held-out documents, so that labels with score 0.7 are correct in 7 of
10 cases (`methods/ensemble/calibrated_model.py`).

The held-out documents are the validation documents of the user; those that a network holds out for early stopping; or
a random tenth, at most 2,000. In the last case a second model (held-out twin) is trained without them for the
calibration curve, and the model itself is trained on all documents, as in scikit-learn's
CalibratedClassifierCV(ensemble=False). If they are few among many, the model is trained once without them, and every
label keeps a training document.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import ParameterSet, param
from xmtc.core.method import Method, Model
from xmtc.core.run import Run
from xmtc.data.document import Document
from xmtc.data.splits import drop_rows, find_labelled_rows, sample_labelled_rows, sample_rows_keeping_labels
from xmtc.errors import XmtcError
from xmtc.methods.ensemble.calibrated_model import (
    CalibratedModel,
    build_calibrated_model,
    fit_isotonic_curve,
    select_prediction_rows,
    strip_calibration,
)
from xmtc.methods.ensemble.holdout_model import HOLDOUT_RUN_NAME, fit_with_holdout_model
from xmtc.methods.ensemble.members import CombinedMethod
from xmtc.methods.ensemble.model import MIN_MEMBER_LABELS
from xmtc.tagger import Tagger

HELD_OUT_FRACTION = 0.1  # of the labelled documents, if the method does not hold out documents itself
MAX_HELD_OUT_DOCUMENTS = 2000
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
        return CalibrationResult(method.fit(data, valid, run), None, "calibrated=true")
    if valid is not None:
        return fit_with_validation(method, data, valid, run)

    rows, is_single_training = choose_held_out_rows(method, data)
    if len(rows) < MIN_CALIBRATION_DOCUMENTS:
        reason = f"calibration needs {MIN_CALIBRATION_DOCUMENTS} held-out documents, and {len(rows):,} are available"
        return CalibrationResult(method.fit(data, None, run), None, reason)
    if is_single_training:
        model = twin = method.fit(drop_rows(data, rows), None, run)
    else:
        model, twin = fit_with_holdout_model(method, data, rows, run)
    return fit_calibration_curve(model, twin, data.select_rows(rows), "held-out", run)


def fit_with_validation(method: Method, data: Dataset, valid: Dataset, run: Run) -> CalibrationResult:
    """Train a method and calibrate it on the validation documents."""
    model, n_valid = method.fit(data, valid, run), len(find_labelled_rows(valid))
    if n_valid < MIN_CALIBRATION_DOCUMENTS:
        reason = (
            f"calibration needs {MIN_CALIBRATION_DOCUMENTS} validation documents with a label, and {n_valid:,} are "
            "available"
        )
        return CalibrationResult(model, None, reason)
    return fit_calibration_curve(model, model, valid, "validation", run)


def fit_calibration_curve(model: Model, twin: Model, held_out: Dataset, kind: str, run: Run) -> CalibrationResult:
    """Return a model with the calibration curve of its held-out twin. Predictions for documents that have only labels
    unseen in training count as incorrect."""
    assert held_out.Y is not None
    predictions = twin.predict(
        held_out.keep_views(twin.views), min(MIN_MEMBER_LABELS, twin.n_labels), run.for_part(HOLDOUT_RUN_NAME)
    )
    curve = fit_isotonic_curve(predictions, held_out.Y, held_out.weights)
    return CalibrationResult(model, curve, f"calibrated on {held_out.n_docs:,} {kind} documents", held_out.n_docs)


def choose_held_out_rows(method: Method, data: Dataset) -> tuple[np.ndarray, bool]:
    """Return the documents to calibrate on, and True if the model is trained once, without them.

    They are those that the method holds out itself, or a random sample, which has rare labels as new documents do. If
    the model is trained once, every label keeps a training document.
    """
    own_rows = method.select_held_out_rows(data)
    if own_rows is not None:
        return own_rows, False
    seed, n_rows = getattr(method, "seed", 0), count_held_out_rows(len(find_labelled_rows(data)))
    if n_rows < MIN_CALIBRATION_DOCUMENTS:
        return np.arange(n_rows), False
    if n_rows <= MAX_SINGLE_TRAINING_FRACTION * data.n_docs:
        return sample_rows_keeping_labels(data, seed, n_rows), True
    return sample_labelled_rows(data, seed, HELD_OUT_FRACTION, MAX_HELD_OUT_DOCUMENTS), False


def count_held_out_rows(n_labelled: int) -> int:
    return min(MAX_HELD_OUT_DOCUMENTS, int(HELD_OUT_FRACTION * n_labelled))


def count_trainings(method: Method, n_docs: int) -> int:
    """Return how often `fit_calibrated` trains a method on n_docs labelled documents: 1, or 2 with a held-out twin.

    It is an upper bound for a combination, whose members may hold out documents themselves.
    """
    n_rows = count_held_out_rows(n_docs)
    if method.has_own_calibration or n_rows < MIN_CALIBRATION_DOCUMENTS:
        return 1
    if isinstance(method, CombinedMethod):
        return 2
    has_own_rows = type(method).select_held_out_rows is not Method.select_held_out_rows
    return 1 if has_own_rows or n_rows <= MAX_SINGLE_TRAINING_FRACTION * n_docs else 2


def calibrate_tagger(tagger: Tagger, documents: Iterable[Document], run: Run = Run()) -> Tagger:
    """Return a tagger calibrated on labelled documents that it was not trained on.

    Tuned thresholds are dropped, because they are for the scores before.
    """
    raw_tagger = tagger.with_model(strip_calibration(tagger.model))
    data, Y, _ = raw_tagger.transform_labelled(documents, run)
    predictions = raw_tagger.predict(data, min(MIN_MEMBER_LABELS, len(tagger.labels)), run)
    has_labels = np.diff(Y.indptr) > 0
    n_docs = int(has_labels.sum())
    if n_docs < MIN_CALIBRATION_DOCUMENTS:
        raise XmtcError(
            f"Calibration needs at least {MIN_CALIBRATION_DOCUMENTS} documents with labels; got {n_docs:,}."
        )
    curve = fit_isotonic_curve(select_prediction_rows(predictions, has_labels), Y[has_labels])
    result = CalibrationResult(raw_tagger.model, curve, f"calibrated on {n_docs:,} documents", n_docs)
    return replace(
        raw_tagger, model=result.apply_to(raw_tagger.model), about=raw_tagger.about | {"scores": result.as_json()}
    )
