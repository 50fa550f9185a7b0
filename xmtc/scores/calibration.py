"""Scores that are probabilities: what scores 0.7 is right in 7 of 10 cases. Isotonic regression, by documents that the
model has not learnt from (`methods/ensemble/calibrated.py`).

Which these are: those that the user gives to validate with; those that a network holds out of its training anyway, to
stop by; or else a random tenth, at most 2,000. Without these, a witness is trained, whose answers draw the curve; the
model itself learns from all. (scikit-learn's CalibratedClassifierCV(ensemble=False) does so, too.) Where they are few
among many, one training is enough, and no label loses its last document to them."""

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
from xmtc.methods.ensemble.consensus import Consensus
from xmtc.methods.ensemble.ensemble import Ensemble
from xmtc.methods.ensemble.holdout_model import HOLDOUT_RUN_NAME, fit_with_holdout_model
from xmtc.methods.ensemble.model import MIN_MEMBER_LABELS
from xmtc.tagger import Tagger

HELD_OUT_FRACTION, MAX_HELD_OUT_DOCUMENTS = 0.1, 2000  # documents held out, where a method holds out none by itself
MIN_CALIBRATION_DOCUMENTS = (
    100  # documents: a curve that fewer have drawn is off by up to 0.06 (docs/results/calibration.md)
)
MAX_SINGLE_TRAINING_FRACTION = 0.02  # a share of the documents that is too small for a second training to matter


@dataclass(frozen=True)
class Calibration(ParameterSet):
    """What scores mean: the probability that a label is right, where enough documents tell, or whatever the method
    computes."""

    title: ClassVar[str] = "Scores"

    calibrate: bool = param(
        True, "make probabilities of scores, by documents held out of training, where these are at least 100"
    )


class CalibrationResult(NamedTuple):
    """A trained model, the curve of its scores, and what is said of them."""

    model: Model
    curve: tuple[np.ndarray, np.ndarray] | None
    reason: str
    n_docs: int = 0  # that the curve was drawn by

    def apply_to(self, model: Model) -> Model:
        """The model, or what it was made into, with the curve, if there is one."""
        return model if self.curve is None else build_calibrated_model(model, *self.curve)

    def as_json(self) -> dict[str, Any]:
        """As about.json says it."""
        is_calibrated = self.curve is not None or isinstance(self.model, CalibratedModel)
        return {
            "are": "probabilities" if is_calibrated else "raw",
            **({"documents": self.n_docs} if self.n_docs else {}),
            "because": self.reason,
        }


def fit_calibrated(
    method: Method, data: Dataset, valid: Dataset | None, run: Run, calibrate: bool = True
) -> CalibrationResult:
    """Train a method, and find out what its scores mean."""
    if not calibrate:
        return CalibrationResult(method.fit(data, valid, run), None, "calibrate=false")
    if method.has_own_calibration:
        return CalibrationResult(method.fit(data, valid, run), None, "calibrated=true")
    if valid is not None:
        return fit_with_validation(method, data, valid, run)

    rows, is_once = choose_held_out_rows(method, data)
    if len(rows) < MIN_CALIBRATION_DOCUMENTS:
        found = (
            f"{len(rows):,} documents can be held out of training, and a calibration needs {MIN_CALIBRATION_DOCUMENTS}"
        )
        return CalibrationResult(method.fit(data, None, run), None, found)
    if is_once:
        model = witness = method.fit(drop_rows(data, rows), None, run)
    else:
        model, witness = fit_with_holdout_model(method, data, rows, run)
    how = "held out of training" if model is witness else "held out of a first training"
    return fit_calibration_curve(model, witness, data.select_rows(rows), f"documents, {how},", run)


def fit_with_validation(method: Method, data: Dataset, valid: Dataset, run: Run) -> CalibrationResult:
    """With the user's own documents."""
    model, n_valid = method.fit(data, valid, run), len(find_labelled_rows(valid))
    if n_valid < MIN_CALIBRATION_DOCUMENTS:
        found = f"{n_valid:,} validation documents have a label, and a calibration needs {MIN_CALIBRATION_DOCUMENTS}"
        return CalibrationResult(model, None, found)
    return fit_calibration_curve(model, model, valid, "validation documents", run)


def fit_calibration_curve(model: Model, witness: Model, held_out: Dataset, what: str, run: Run) -> CalibrationResult:
    """A model with the curve that its witness has drawn. Of documents to validate by, some may have only labels that
    training has not seen: what they are given is wrong."""
    assert held_out.Y is not None
    found = witness.predict(
        held_out.keep_views(witness.views), min(MIN_MEMBER_LABELS, witness.n_labels), run.for_part(HOLDOUT_RUN_NAME)
    )
    because = f"{held_out.n_docs:,} {what} tell what they mean"
    return CalibrationResult(model, fit_isotonic_curve(found, held_out.Y, held_out.weights), because, held_out.n_docs)


def choose_held_out_rows(method: Method, data: Dataset) -> tuple[np.ndarray, bool]:
    """Those that it holds out by itself, or a random sample: new documents have rare labels, too. And whether they are
    too few to train a second time for: then they leave every label a document."""
    own = method.select_held_out_rows(data)
    if own is not None:
        return own, False
    seed, n_rows = (
        getattr(method, "seed", 0),
        min(MAX_HELD_OUT_DOCUMENTS, int(HELD_OUT_FRACTION * len(find_labelled_rows(data)))),
    )
    if n_rows < MIN_CALIBRATION_DOCUMENTS:
        return np.arange(n_rows), False
    if n_rows <= MAX_SINGLE_TRAINING_FRACTION * data.n_docs:
        return sample_rows_keeping_labels(data, seed, n_rows), True
    return sample_labelled_rows(data, seed, HELD_OUT_FRACTION, MAX_HELD_OUT_DOCUMENTS), False


def count_trainings(method: Method, n_docs: int) -> int:
    """How often `fit` trains a method on so many documents with labels, to calibrate it: once, or a witness, too.
    Of members, some may hold out documents by themselves: at most so often."""
    n_rows = min(MAX_HELD_OUT_DOCUMENTS, int(HELD_OUT_FRACTION * n_docs))
    if method.has_own_calibration or n_rows < MIN_CALIBRATION_DOCUMENTS:
        return 1
    if isinstance(method, Consensus | Ensemble):
        return 2
    has_own = type(method).select_held_out_rows is not Method.select_held_out_rows
    return 1 if has_own or n_rows <= MAX_SINGLE_TRAINING_FRACTION * n_docs else 2


def calibrate_tagger(tagger: Tagger, documents: Iterable[Document], run: Run = Run()) -> Tagger:
    """A trained model with scores that are probabilities, by documents that it has not learnt from. A decision that was
    learnt on the scores before is dropped."""
    bare = tagger.with_model(strip_calibration(tagger.model))
    data, Y, _ = bare.transform_labelled(documents, run)
    found = bare.predict(data, min(MIN_MEMBER_LABELS, len(tagger.labels)), run)
    has_labels = np.diff(Y.indptr) > 0
    n_docs = int(has_labels.sum())
    if n_docs < MIN_CALIBRATION_DOCUMENTS:
        raise XmtcError(
            f"Found {n_docs:,} documents with labels to calibrate by; expected at least {MIN_CALIBRATION_DOCUMENTS}."
        )
    its_curve = fit_isotonic_curve(select_prediction_rows(found, has_labels), Y[has_labels])
    fitted = CalibrationResult(bare.model, its_curve, f"{n_docs:,} documents tell what they mean", n_docs)
    return replace(bare, model=fitted.apply_to(bare.model), about=bare.about | {"scores": fitted.as_json()})
