"""The members of an ensemble or a consensus: what they read together, and their training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.method import LabelName, Method, Model
from xmtc.core.run import Run
from xmtc.data.splits import train_valid_split
from xmtc.errors import XmtcError
from xmtc.features import sort_views
from xmtc.methods.ensemble.calibrated_model import calibrate_combination
from xmtc.methods.ensemble.model import CombinedModel, remap_labels

SPLIT_SEED = 0  # of which documents are held out for a calibration, where none are given


def collect_views(members: Iterable[Method]) -> tuple[str, ...]:
    """The union of the views that the members read."""
    return sort_views(view for method in members for view in method.required_views)


def merge_label_names(members: Sequence[Method], labels: Sequence[str]) -> list[LabelName]:
    """What labels are called by the members that read names: they share a Dataset, and so the names."""
    found = [list(member.list_label_names(labels)) for member in members if member.has_label_name_input]
    if any(names != found[0] for names in found):
        raise XmtcError(
            "The members that look for names have different ones; train each by itself, and combine them: xmtc combine."
        )
    return found[0] if found else []


def find_held_out_rows(members: Iterable[Method], data: Dataset) -> np.ndarray | None:
    """The rows that members hold out of their training by themselves; where they differ, those of the first."""
    found = (member.select_held_out_rows(data.keep_views(select_method_views(member, data))) for member in members)
    return next((rows for rows in found if rows is not None), None)


def fit_members(
    owner: Method,
    members: Sequence[Method],
    rule: str,
    data: Dataset,
    valid: Dataset | None,
    run: Run,
    is_calibrated: bool,
) -> Model:
    """Train the members one after the other, each with a folder of its own in the checkpoint."""
    if is_calibrated:
        data, valid = train_valid_split(data, valid, SPLIT_SEED)
    if run.checkpoint.folder:
        run.checkpoint.claim(f"{owner} {data.fingerprint()}")

    def trained(number: int, method: Method) -> Model:
        views, part_of_run = select_method_views(method, data), run.for_part(f"member-{number}")
        own, checked = data.keep_views(views), None if valid is None else valid.keep_views(views)
        if data.names is None or method.has_label_name_input:
            return method.fit(own, checked, part_of_run)
        return fit_on_seen_labels(method, own, checked, part_of_run)

    models = tuple(trained(number, method) for number, method in enumerate(members))
    together = CombinedModel(n_labels=data.n_labels, views=data.sizes, rule=rule, models=models)
    return together if valid is None or not is_calibrated else calibrate_combination(together, valid, run)


def select_method_views(method: Method, data: Dataset) -> list[str]:
    """The views of data that a method reads; of a corpus of features there is only one, which stands for it."""
    return [view for view in data.views if view in method.required_views] or list(data.views)


def fit_on_seen_labels(method: Method, data: Dataset, valid: Dataset | None, run: Run) -> Model:
    """Train a method that learns labels from their documents alone, where others know more labels by their names."""
    assert data.Y is not None
    seen = np.unique(data.Y.indices)
    model = method.fit(
        data.select_label_columns(seen), None if valid is None else valid.select_label_columns(seen), run
    )
    return remap_labels(model, seen.astype(np.int32), data.n_labels)
