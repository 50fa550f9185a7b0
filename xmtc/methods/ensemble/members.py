"""Base class of combinations of several members, and the training of their members.

A member may have view parameters of its own, such as `dismec-2.analyzer=chars`. Members with equal ones share a view;
the views of the others are numbered, tfidf, tfidf-2, in the order of the members. Every member is trained on views
without a number, and its model is mapped to the numbered ones."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from typing import Any

import numpy as np

from xmtc.core.checkpoint import claim_checkpoint
from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.method import LabelName, Method, Model
from xmtc.core.run import Run
from xmtc.data.splits import train_valid_split
from xmtc.errors import XmtcError
from xmtc.features import VIEWS, get_view_kind, number_view, sort_views, view_class
from xmtc.methods import method_name
from xmtc.methods.ensemble.calibrated_model import calibrate_combination
from xmtc.methods.ensemble.model import CombinedModel, RemappedModel, remap_labels

MEMBER_VIEWS_PARAM: Any = param(
    (),
    "View parameters of single members; set them as `dismec-2.analyzer=chars`, where dismec-2 is a member.",
    kind=str,
)
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
    def member_views(self) -> tuple[str, ...]:
        """View parameters of single members, such as "dismec-2.analyzer=chars"."""
        return ()

    @property
    def view_names(self) -> list[dict[str, str]]:
        """Name of each view of each member in the combination."""
        return name_member_views(self.members, parse_member_views(self.members, self.member_views))

    @property
    def own_view_parameters(self) -> dict[str, dict[str, str]]:  # type: ignore[override]
        own = parse_member_views(self.members, self.member_views)
        pairs = zip(name_members(self.members), self.view_names, strict=True)
        return {
            view: select_view_parameters(kind, own.get(member, {}))
            for member, names in pairs
            for kind, view in names.items()
        }

    @property
    def required_views(self) -> tuple[str, ...]:  # type: ignore[override]
        return sort_views(view for names in self.view_names for view in names.values())

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
        for member, names in zip(self.members, self.view_names, strict=True):
            rows = member.select_held_out_rows(select_member_views(data, find_member_views(names, data)))
            if rows is not None:
                return rows
        return None

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> Model:
        if self.calibrated:
            data, valid = train_valid_split(data, valid, SPLIT_SEED)
        claim_checkpoint(run, self, data)
        models = []
        for training in iterate_member_trainings(self, data, run):
            member_valid = None if valid is None else training.select(valid)
            model = training.method.fit(training.select(data), member_valid, training.run)
            models.append(training.to_combination(model))
        combination = combine_models(self, data, models)
        return calibrate_combination(combination, valid, run) if valid is not None and self.calibrated else combination


@dataclass(frozen=True)
class MemberTraining:
    """Method, views, labels and part of the run of one member."""

    method: Method
    names: dict[str, str]  # name in the combination of each view of the member
    labels: np.ndarray | None  # labels to train on, or None for all
    n_labels: int  # number of all labels
    run: Run

    def select(self, data: Dataset) -> Dataset:
        """Return the views and labels of a data set that the member reads."""
        selected = select_member_views(data, self.names)
        return selected if self.labels is None else selected.select_label_columns(self.labels)

    def to_combination(self, model: Model) -> Model:
        """Return the member's model with the views and the label numbers of the combination."""
        if all(name == own for own, name in self.names.items()):
            return model if self.labels is None else remap_labels(model, self.labels, self.n_labels)
        return RemappedModel(
            n_labels=self.n_labels,
            views={self.names[name]: size for name, size in model.views.items()},
            model=model,
            names={name: self.names[name] for name in model.views},
            numbers=np.arange(self.n_labels, dtype=np.int32) if self.labels is None else self.labels,
        )


def iterate_member_trainings(method: CombinedMethod, data: Dataset, run: Run) -> Iterator[MemberTraining]:
    """Yield the training of each member, with its own folder in the checkpoint.

    If the data set has label names, it may have labels without documents. Members that do not read names train on the
    labels that have documents, or names as documents.
    """
    for number, (member, view_names) in enumerate(zip(method.members, method.view_names, strict=True)):
        reads_all_labels = member.has_label_name_input or (data.names is None and data.is_name is None)
        labels = None if reads_all_labels else find_seen_labels(member, data)
        names = find_member_views(view_names, data)
        yield MemberTraining(member, names, labels, data.n_labels, run.for_part(f"member-{number}"))


def combine_models(method: CombinedMethod, data: Dataset, models: Sequence[Model]) -> CombinedModel:
    return CombinedModel(n_labels=data.n_labels, views=data.sizes, rule=method.rule, models=tuple(models))


def find_member_views(names: Mapping[str, str], data: Dataset) -> dict[str, str]:
    """Return the name in a data set of each view that a member reads.

    A corpus of features has views of its own, which replace those of texts and have the same numbers.
    """
    found = {kind: name for kind, name in names.items() if name in data.views}
    numbers = {name.removeprefix(kind) for kind, name in names.items()}
    views = [view for view in data.views if view.removeprefix(get_view_kind(view)) in numbers]
    return found or {get_view_kind(view): view for view in views or data.views}


def select_member_views(data: Dataset, names: Mapping[str, str]) -> Dataset:
    """Return a copy with the views of a member, under the names that the member knows."""
    return data.copy_with(views={kind: data.views[name] for kind, name in names.items()})


def name_members(members: Iterable[Any]) -> list[str]:
    """Return the name of each member; the second member of the same name gets the suffix -2."""
    seen: Counter[str] = Counter()
    names = []
    for member in members:
        name = member if isinstance(member, str) else method_name(member)
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return names


def name_member_views(members: Sequence[Method], own: Mapping[str, Mapping[str, str]]) -> list[dict[str, str]]:
    """Return the name in the combination of each view of each member; views with equal parameters share one."""
    seen: dict[str, list[Mapping[str, str]]] = {}
    names: list[dict[str, str]] = [{} for _ in members]
    for number, (name, member) in enumerate(zip(name_members(members), members, strict=True)):
        for kind in member.required_views:
            parameters = seen.setdefault(kind, [])
            values = select_view_parameters(kind, own.get(name, {}))
            if values not in parameters:
                parameters.append(values)
            names[number][kind] = number_view(kind, 1 + parameters.index(values))
    return names


def list_view_fields(kind: str) -> dict[str, Field]:
    """Return the parameters of a view and of the views that replace it, by name."""
    replacements = [name for name in VIEWS if view_class(name).replaced_view == get_view_kind(kind)]
    return {field.name: field for name in (*replacements, kind) for field in fields(view_class(name))}


def list_member_view_fields(member: Method) -> dict[str, Field]:
    """Return the view parameters of a member, by name."""
    own = {field.name for field in fields(member)}
    found = {name: field for kind in member.required_views for name, field in list_view_fields(kind).items()}
    return {name: field for name, field in found.items() if name not in own}


def select_view_parameters(kind: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the parameters of a view."""
    known = list_view_fields(kind)
    return {name: value for name, value in sorted(values.items()) if name in known}


def parse_member_views(members: Sequence[Method], texts: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the values of view parameters by member and name; raise XmtcError for those that do not exist."""
    by_name = dict(zip(name_members(members), members, strict=True))
    own: dict[str, dict[str, str]] = {}
    for text in texts:
        qualified, equals, value = text.partition("=")
        name, _, parameter = qualified.rpartition(".")
        if not equals or name not in by_name:
            raise XmtcError(
                f"The view parameter {text!r:.200} is invalid; expected MEMBER.NAME=VALUE with one of the members "
                f"{', '.join(by_name)}."
            )
        check_view_parameter(name, by_name[name], parameter)
        own.setdefault(name, {})[parameter] = value
    return own


def check_view_parameter(name: str, member: Method, parameter: str) -> None:
    if isinstance(member, CombinedMethod) and member.member_views:
        raise XmtcError(f"The member {name} has members with views of their own; set {parameter} for those.")
    known = list_member_view_fields(member)
    if parameter not in known:
        raise XmtcError(f"The member {name} has no view parameter {parameter!r:.200}; it has {', '.join(known)}.")


def find_seen_labels(method: Method, data: Dataset) -> np.ndarray:
    """Return the labels that have documents, among them names of labels if the method trains on these."""
    assert data.Y is not None
    Y = data.Y if method.has_name_documents else data.document_labels
    return np.unique(Y.indices).astype(np.int32)


def fit_on_seen_labels(method: Method, data: Dataset, valid: Dataset | None, run: Run) -> Model:
    """Train a method on the labels that have documents; the model has the numbers of all labels."""
    names = {view: view for view in data.views}
    training = MemberTraining(method, names, find_seen_labels(method, data), data.n_labels, run)
    model = method.fit(training.select(data), None if valid is None else training.select(valid), run)
    return training.to_combination(model)
