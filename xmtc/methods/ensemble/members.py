"""Base class of Ensemble and Consensus, and the training of their members."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from xmtc.core.checkpoint import claim_checkpoint
from xmtc.core.dataset import Dataset
from xmtc.core.method import LabelName, Method, Model
from xmtc.core.run import Run
from xmtc.data.splits import train_valid_split
from xmtc.errors import XmtcError
from xmtc.features import sort_views
from xmtc.methods.ensemble.calibrated_model import calibrate_combination
from xmtc.methods.ensemble.model import CombinedModel, remap_labels

SPLIT_SEED = 0  # seed of the split that holds out documents for calibration


@dataclass(frozen=True)
class CombinedMethod(Method):
    """Method that trains several members and combines their predictions.

    A subclass has `members`, `rule` and `calibrated` as parameters, class variables or properties.
    """

    @property
    @abstractmethod
    def members(self) -> Sequence[Method]:
        """Methods of the members."""

    @property
    @abstractmethod
    def rule(self) -> str:
        """Rule that combines the predictions, one of RULES."""

    @property
    @abstractmethod
    def calibrated(self) -> bool:
        """True if held-out documents calibrate the combined score."""

    @property
    def required_views(self) -> tuple[str, ...]:  # type: ignore[override]
        return sort_views(view for member in self.members for view in member.required_views)

    @property
    def is_exact(self) -> bool:  # type: ignore[override]
        return all(member.is_exact for member in self.members)

    @property
    def has_cluster_support(self) -> bool:  # type: ignore[override]
        return any(member.has_cluster_support for member in self.members)

    @property
    def has_weight_support(self) -> bool:  # type: ignore[override]
        """True if all members support weights; calibration does not."""
        return all(member.has_weight_support for member in self.members) and not self.calibrated

    @property
    def has_own_calibration(self) -> bool:  # type: ignore[override]
        return self.calibrated

    @property
    def has_label_name_input(self) -> bool:  # type: ignore[override]
        return any(member.has_label_name_input for member in self.members)

    def list_label_names(self, labels: Sequence[str], language: str | None = None) -> list[LabelName]:
        """Return the label names of the members that read names, which share the names of one data set."""
        readers = [member for member in self.members if member.has_label_name_input]
        names = [list(member.list_label_names(labels, language)) for member in readers]
        if any(other != names[0] for other in names):
            raise XmtcError(
                "The members that match label names use different vocabularies; train each member alone and combine "
                "the models with xmtc combine."
            )
        return names[0] if names else []

    def select_held_out_rows(self, data: Dataset) -> np.ndarray | None:
        """Return the rows that the first member with early stopping holds out of its training."""
        for member in self.members:
            rows = member.select_held_out_rows(data.keep_views(select_method_views(member, data)))
            if rows is not None:
                return rows
        return None

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> Model:
        if self.calibrated:
            data, valid = train_valid_split(data, valid, SPLIT_SEED)
        claim_checkpoint(run, self, data)
        models = []
        for training in iterate_member_trainings(self.members, data, run):
            member_valid = None if valid is None else training.select(valid)
            model = training.method.fit(training.select(data), member_valid, training.run)
            models.append(training.to_all_labels(model))
        combination = combine_models(self, data, models)
        return calibrate_combination(combination, valid, run) if valid is not None and self.calibrated else combination


@dataclass(frozen=True)
class MemberTraining:
    """Method, views, labels and part of the run of one member."""

    method: Method
    views: list[str]
    labels: np.ndarray | None  # labels to train on, or None for all
    n_labels: int  # number of all labels
    run: Run

    def select(self, data: Dataset) -> Dataset:
        """Return the views and labels of a data set that the member reads."""
        selected = data.keep_views(self.views)
        return selected if self.labels is None else selected.select_label_columns(self.labels)

    def to_all_labels(self, model: Model) -> Model:
        """Return the member's model with the label numbers of the combination."""
        return model if self.labels is None else remap_labels(model, self.labels, self.n_labels)


def iterate_member_trainings(members: Sequence[Method], data: Dataset, run: Run) -> Iterator[MemberTraining]:
    """Yield the training of each member, with its own folder in the checkpoint.

    If the data set has label names, it may have labels without documents. Members that do not read names train on the
    labels that have documents.
    """
    for number, member in enumerate(members):
        reads_all_labels = data.names is None or member.has_label_name_input
        labels = None if reads_all_labels else find_seen_labels(data)
        views = select_method_views(member, data)
        yield MemberTraining(member, views, labels, data.n_labels, run.for_part(f"member-{number}"))


def combine_models(method: CombinedMethod, data: Dataset, models: Sequence[Model]) -> CombinedModel:
    return CombinedModel(n_labels=data.n_labels, views=data.sizes, rule=method.rule, models=tuple(models))


def select_method_views(method: Method, data: Dataset) -> list[str]:
    """Return the views of a data set that a method reads, or all views if it has none of them.

    A corpus of features has a single view of its own, which replaces the view that the method requires.
    """
    return [view for view in data.views if view in method.required_views] or list(data.views)


def find_seen_labels(data: Dataset) -> np.ndarray:
    """Return the labels that have documents."""
    assert data.Y is not None
    return np.unique(data.Y.indices).astype(np.int32)


def fit_on_seen_labels(method: Method, data: Dataset, valid: Dataset | None, run: Run) -> Model:
    """Train a method on the labels that have documents; the model has the numbers of all labels."""
    training = MemberTraining(method, list(data.views), find_seen_labels(data), data.n_labels, run)
    model = method.fit(training.select(data), None if valid is None else training.select(valid), run)
    return training.to_all_labels(model)
