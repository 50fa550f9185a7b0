"""Training of a model together with its holdout model, for calibration.

The holdout model has the same method, but is trained without some documents. Its scores for these documents show how to
calibrate the model, which is trained on all documents.

A network with early stopping already holds out documents, so it is its own holdout model. In a combination, each member
is trained this way, so slow networks are trained once, and fast linear methods twice.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.method import Method, Model
from xmtc.core.run import Run
from xmtc.data.splits import drop_rows
from xmtc.methods.checkpointing import claim_checkpoint
from xmtc.methods.ensemble.members import CombinedMethod, combine_models, fit_on_seen_labels, iterate_member_trainings
from xmtc.methods.ensemble.model import CombinedModel

HOLDOUT_RUN_NAME = "calibration"  # name of the holdout model's training in progress and checkpoint
CLAIM_PREFIX = "calibrated "  # tells checkpoints of calibrated trainings from others


def fit_with_holdout_model(method: Method, data: Dataset, rows: np.ndarray, run: Run) -> tuple[Model, Model]:
    """Return a model of all documents, and a holdout model that is trained without the given rows."""
    if isinstance(method, CombinedMethod) and not method.has_own_calibration:
        return fit_members_with_holdout_models(method, data, rows, run)

    own_rows = method.select_held_out_rows(data)
    if own_rows is not None:  # the model never trains on held-out documents, so it is its own holdout model
        if np.array_equal(own_rows, rows):
            model = method.fit(data, None, run)
        else:
            model = method.fit(drop_rows(data, rows), data.select_rows(rows), run)
        return model, model

    claim_checkpoint(run, method, data, prefix=CLAIM_PREFIX)
    training, holdout_run = drop_rows(data, rows), run.for_part(HOLDOUT_RUN_NAME)
    if method.has_label_name_input:
        holdout_model = method.fit(training, None, holdout_run)
    else:  # some labels may only occur in the held-out rows
        holdout_model = fit_on_seen_labels(method, training, None, holdout_run)
    model = method.fit(data, None, replace(run, checkpoint=run.checkpoint.sub_checkpoint("model")))
    return model, holdout_model


def fit_members_with_holdout_models(
    method: CombinedMethod, data: Dataset, rows: np.ndarray, run: Run
) -> tuple[CombinedModel, CombinedModel]:
    """Return the combination of the members' models, and the combination of their holdout models."""
    claim_checkpoint(run, method, data, prefix=CLAIM_PREFIX)
    models, holdout_models = [], []
    for training in iterate_member_trainings(method.members, data, run):
        model, holdout_model = fit_with_holdout_model(training.method, training.select(data), rows, training.run)
        models.append(training.to_all_labels(model))
        holdout_models.append(training.to_all_labels(holdout_model))
    return combine_models(method, data, models), combine_models(method, data, holdout_models)
