"""The members of an ensemble or a consensus: what they read together, and their training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xmtc.base.dataset import Dataset
from xmtc.base.method import Method, Model
from xmtc.base.run import Run
from xmtc.data.splits import train_valid_split
from xmtc.features import in_order
from xmtc.methods.ensemble.calibrated import calibrated_together
from xmtc.methods.ensemble.model import Combination

SEED = 0  # of which documents are held out for a calibration, where none are given


def read_together(members: Iterable[Method]) -> tuple[str, ...]:
    """The union of the views that the members read."""
    return in_order(view for method in members for view in method.reads)


def fit_together(
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
        data, valid = train_valid_split(data, valid, SEED)
    if run.checkpoint.folder:
        run.checkpoint.claim(f"{owner} {data.fingerprint()}")

    def trained(number: int, method: Method) -> Model:
        views = views_of(method, data)
        checked = None if valid is None else valid.only(views)
        return method.fit(data.only(views), checked, run.for_part(f"member-{number}"))

    models = tuple(trained(number, method) for number, method in enumerate(members))
    together = Combination(n_labels=data.n_labels, views=data.sizes, rule=rule, models=models)
    return together if valid is None or not is_calibrated else calibrated_together(together, valid, run)


def views_of(method: Method, data: Dataset) -> list[str]:
    """The views of data that a method reads; of a corpus of features there is only one, which stands for it."""
    return [view for view in data.views if view in method.reads] or list(data.views)
