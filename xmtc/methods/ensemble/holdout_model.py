"""A model and its witness: the same method, trained without some of the documents. What the witness says of these shows
what the scores of the model mean, which has learnt from all of them.

A network that stops by documents that it holds out is its own witness. In a consensus, each member is trained so: what
costs hours is trained once, what costs seconds twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.method import Method, Model
from xmtc.core.run import Run
from xmtc.data.splits import drop_rows
from xmtc.methods.ensemble.consensus import Consensus
from xmtc.methods.ensemble.ensemble import Ensemble
from xmtc.methods.ensemble.members import fit_on_seen_labels, select_method_views
from xmtc.methods.ensemble.model import CombinedModel, remap_labels

HOLDOUT_RUN_NAME = "calibration"  # what the training of a witness is called, in progress and checkpoint


def fit_with_holdout_model(method: Method, data: Dataset, rows: np.ndarray, run: Run) -> tuple[Model, Model]:
    """A model of all documents, and its witness, which has not seen those at these rows."""
    if isinstance(method, Consensus | Ensemble) and not method.has_own_calibration:
        return fit_members_with_holdout_models(method, data, rows, run)
    own = method.select_held_out_rows(data)
    if own is not None:
        is_same = np.array_equal(own, rows)
        model = (
            method.fit(data, None, run) if is_same else method.fit(drop_rows(data, rows), data.select_rows(rows), run)
        )
        return model, model

    if run.checkpoint.folder:
        run.checkpoint.claim(f"calibrated {method} {data.fingerprint()}")
    fit = method.fit if method.has_label_name_input else lambda *given: fit_on_seen_labels(method, *given)
    witness = fit(drop_rows(data, rows), None, run.for_part(HOLDOUT_RUN_NAME))
    return method.fit(data, None, replace(run, checkpoint=run.checkpoint.sub_checkpoint("model"))), witness


def fit_members_with_holdout_models(
    method: Consensus | Ensemble, data: Dataset, rows: np.ndarray, run: Run
) -> tuple[CombinedModel, CombinedModel]:
    """A combination of the members' models, and one of their witnesses."""
    if run.checkpoint.folder:
        run.checkpoint.claim(f"calibrated {method} {data.fingerprint()}")

    def pair(number: int, member: Method) -> tuple[Model, Model]:
        own, part_of_run = data.keep_views(select_method_views(member, data)), run.for_part(f"member-{number}")
        if own.names is None or member.has_label_name_input:
            return fit_with_holdout_model(member, own, rows, part_of_run)
        assert own.Y is not None
        seen = np.unique(own.Y.indices).astype(np.int32)  # others know more labels by their names
        one, two = fit_with_holdout_model(member, own.select_label_columns(seen), rows, part_of_run)
        return remap_labels(one, seen, data.n_labels), remap_labels(two, seen, data.n_labels)

    def together(models: tuple[Model, ...]) -> CombinedModel:
        return CombinedModel(n_labels=data.n_labels, views=data.sizes, rule=method.rule, models=models)

    models, witnesses = zip(*(pair(number, member) for number, member in enumerate(method.members)), strict=True)
    return together(models), together(witnesses)
