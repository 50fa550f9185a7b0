"""Training of a model together with its holdout models, for calibration.

A holdout model has the same method, or a cheaper one with similar scores (`Method.for_holdout`), but is trained without
some documents, a fold. Its scores for these documents show how to calibrate the model, which is trained on all
documents.

A network with early stopping already holds out documents, so it is its own holdout model. In a combination, each member
is trained this way, so slow networks are trained once, and fast linear methods once more for each fold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from xmtc.core.checkpoint import claim_checkpoint
from xmtc.core.dataset import Dataset
from xmtc.core.method import Method, Model
from xmtc.core.run import Run
from xmtc.data.splits import drop_rows
from xmtc.methods.ensemble.members import CombinedMethod, combine_models, fit_on_seen_labels, iterate_member_trainings
from xmtc.methods.ensemble.model import CombinedModel

HOLDOUT_RUN_NAME = "calibration"  # name of the holdout model's training in progress and checkpoint
CLAIM_PREFIX = "calibrated "  # tells checkpoints of calibrated trainings from others


def fit_with_holdout_models(
    method: Method, data: Dataset, folds: Sequence[np.ndarray], run: Run
) -> tuple[Model, list[Model]]:
    """Return a model of all documents, and for each fold a holdout model that is trained without its rows."""
    if isinstance(method, CombinedMethod) and not method.has_own_calibration:
        return fit_members_with_holdout_models(method, data, folds, run)

    own_rows = method.select_held_out_rows(data)
    if own_rows is not None:  # the model never trains on held-out documents, so it is its own holdout model
        (rows,) = folds
        if np.array_equal(own_rows, rows):
            model = method.fit(data, None, run)
        else:
            model = method.fit(drop_rows(data, rows), data.select_rows(rows), run)
        return model, [model]

    claim_checkpoint(run, method, data, prefix=CLAIM_PREFIX)
    holdout_models = [model for _, model in iterate_fold_models(method.for_holdout(), data, folds, run)]
    model = method.fit(data, None, replace(run, checkpoint=run.checkpoint.sub_checkpoint("model")))
    return model, holdout_models


def iterate_fold_models(
    method: Method, data: Dataset, folds: Sequence[np.ndarray], run: Run, valid: Dataset | None = None
) -> Iterator[tuple[np.ndarray, Model]]:
    """Yield the rows of each fold and a model that is trained without them."""
    for number, rows in enumerate(folds, 1):
        training, holdout_run = drop_rows(data, rows), run.for_part(name_holdout_run(number))
        if method.has_label_name_input:
            yield rows, method.fit(training, valid, holdout_run)
        else:  # some labels may only occur in the held-out rows
            yield rows, fit_on_seen_labels(method, training, valid, holdout_run)


def name_holdout_run(number: int) -> str:
    return HOLDOUT_RUN_NAME if number == 1 else f"{HOLDOUT_RUN_NAME}-{number}"


def fit_members_with_holdout_models(
    method: CombinedMethod, data: Dataset, folds: Sequence[np.ndarray], run: Run
) -> tuple[CombinedModel, list[Model]]:
    """Return the combination of the members' models, and for each fold the combination of their holdout models."""
    claim_checkpoint(run, method, data, prefix=CLAIM_PREFIX)
    models, holdout_models = [], []
    for training in iterate_member_trainings(method, data, run):
        model, of_folds = fit_with_holdout_models(training.method, training.select(data), folds, training.run)
        models.append(training.to_combination(model))
        holdout_models.append([training.to_combination(holdout_model) for holdout_model in of_folds])
    combinations = [combine_models(method, data, members) for members in zip(*holdout_models, strict=True)]
    return combine_models(method, data, models), list(combinations)
