"""Updates of a trained Tagger: new, corrected and forgotten documents, feedback, new and removed labels.

A Tagger that keeps its training documents (`keep_training`) learns changes with its own parameters, vocabulary, filter
and thresholds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from xmtc import model_folder
from xmtc.core.dataset import Bag, Dataset
from xmtc.core.dataset_change import DatasetChange
from xmtc.core.method import LabelName, Method, Model
from xmtc.core.predictions import NO_LABEL
from xmtc.core.run import Run, check_run
from xmtc.core.training_store import TrainingStore
from xmtc.data.document import Document
from xmtc.data.in_memory import LISTS
from xmtc.errors import XmtcError
from xmtc.features import FittedViews
from xmtc.features.encoders.catalogue import find_encoder
from xmtc.features.names import FittedNames
from xmtc.features.subwords import FittedSubwords
from xmtc.features.tfidf_growth import grow_view, refit_view, spread_columns
from xmtc.features.unknown_words import measure_unknown_words
from xmtc.maintenance.document_changes import (
    NEW_ROW,
    ChangedDocument,
    DocumentFinder,
    Feedback,
    MergedDocuments,
    build_label_rows,
    collect_changes,
    merge_documents,
    transform_changes,
)
from xmtc.maintenance.label_names import list_new_names, mark_named_labels, merge_label_names
from xmtc.methods.ensemble.calibrated_model import (
    CalibratedModel,
    build_calibrated_model,
    strip_calibration,
    widen_views,
)
from xmtc.methods.ensemble.merged_labels import MergedLabelModel
from xmtc.methods.ensemble.model import RemappedModel, remap_labels
from xmtc.parameters import method_from_json
from xmtc.scores import LabelSelector
from xmtc.scores.calibration import count_trainings, fit_calibrated
from xmtc.scores.drift import MAX_REFERENCE_DOCUMENTS, DriftReference
from xmtc.scores.thresholds import SCOPE_LABEL
from xmtc.tagger import Tagger
from xmtc.text.string_index import StringIndex
from xmtc.vocabulary.label_concepts import LabelConcepts
from xmtc.vocabulary.label_filters import FILE_ENTRY, select_allowed_labels

THRESHOLDS_REMOVED = " The tuned thresholds are for scores of another kind and were removed; tune them again."
MAX_WARM_SHARE = 0.05  # of the documents, up to which an update trains only some classifiers (docs/how-to/update.md)
MAX_CHANGED_SHARE = 0.5  # of the documents that have changed since the last training of all classifiers
NO_TARGET = {"kind": LISTS, "numbers": False}  # form of labels that are lists of names


@dataclass(frozen=True)
class UpdateReport:
    """Changes that an update has learnt, and the way of its training."""

    n_new: int
    n_corrected: int
    n_forgotten: int
    n_docs: int  # documents of the model now
    new_labels: tuple[str, ...]
    removed_labels: tuple[str, ...]  # by request, or because no document has them any more
    training: str  # how the model was trained

    def __str__(self) -> str:
        counts = [
            f"{self.n_new:,} new, {self.n_corrected:,} corrected and {self.n_forgotten:,} forgotten documents",
            f"{len(self.new_labels):,} new and {len(self.removed_labels):,} removed labels",
        ]
        return f"{', '.join(counts)}. {self.training}"


@dataclass(frozen=True)
class UpdatedTagger:
    """Tagger after an update, and a report."""

    tagger: Tagger
    report: UpdateReport


@dataclass(frozen=True)
class LabelPlan:
    """Labels after an update, and the new number of each old one."""

    labels: list[str]
    targets: np.ndarray


def update_tagger(
    tagger: Tagger,
    documents: Iterable[Document] = (),
    *,
    feedback: Iterable[Feedback] = (),
    forget: Iterable[str] = (),
    remove_labels: Iterable[str] = (),
    rebuild: bool = False,
    keep_training: bool = True,
    run: Run = Run(),
) -> UpdatedTagger:
    """Learn changes of the training documents of a Tagger.

    Parameters
    ----------
    tagger : Tagger
        Tagger that keeps its training documents.
    documents : iterable of Document
        New documents, and new versions of known ones: those with the same id or, without ids, the same content.
    feedback : iterable of Feedback
        Accepted and rejected labels of documents; other labels stay.
    forget : iterable of str
        Ids of documents to leave out.
    remove_labels : iterable of str
        Labels to leave out.
    rebuild : bool, default=False
        Whether to train and calibrate anew on all documents.
    keep_training : bool, default=True
        Whether the result keeps its documents for further updates.
    run : Run
        Threads, device and progress.

    Raises
    ------
    XmtcError
        If the Tagger has not kept its documents, nothing changes, or nothing would be left.
    """
    check_run(run)
    store = require_training(tagger)
    method = read_method(tagger, store)
    changes = collect_changes(store, tagger.labels.words(), documents, feedback)
    forgotten = DocumentFinder(store).find_ids(forget)
    removed = [tagger.labels[number] for number in map(tagger.find_label, remove_labels)]
    if not (changes or len(forgotten) or removed or rebuild):
        raise XmtcError("There is nothing to update: give documents, feedback, ids to forget or labels to remove.")
    names = list_new_names(tagger, changes) if method.has_label_name_input else []
    grown = grow_features(tagger, store.to_dataset(), changes, names)
    changed = transform_changes(grown.views, changes, run)
    plan = plan_labels(tagger, changes, removed)
    merged = merge_documents(store, grown.stored, changes, changed, forgotten, plan.targets, plan.labels)
    plan, merged = drop_empty_labels(tagger, plan, merged, mark_named_labels(tagger, method))
    if grown.stored.names is not None:
        all_names = merge_label_names(grown.stored.names, names, grown.views, plan.labels, plan.targets, run)
        merged = merged._replace(data=merged.data.copy_with(names=all_names))
    n_changed = store.n_changed + len(changes) + len(forgotten)
    n_docs = store.n_docs - int(store.is_name.sum())
    is_small = len(changes) <= MAX_WARM_SHARE * n_docs and n_changed <= MAX_CHANGED_SHARE * n_docs
    should_warm_start = is_small and not rebuild and not len(forgotten)
    extended = extend_reference(tagger, changes, grown.views, merged.data, run)
    trained = train_model(tagger, method, merged, grown, plan if should_warm_start else None, rebuild, run)
    merged = merged._replace(data=trained.data)
    model = widen_views(trained.model, merged.data.sizes) if keep_training else trained.model
    views = {name: view for name, view in trained.views.items() if name in model.views}
    reference = renew_reference(extended, trained, plan)
    renewed = replace(tagger, views=views, reference=reference)
    updated = rename_parts(renewed, plan, merged, model)
    if keep_training:
        n_changed = n_changed if trained.is_warm_start else 0
        kept = merged.data, merged.ids, merged.hashes, merged.rejected
        updated = replace(updated, training=TrainingStore.from_dataset(*kept, n_changed, trained.pending))
    about = updated.about | {"data": chain_fingerprints(tagger, changes, changed, forgotten, plan)}
    about |= {} if trained.scores is None else {"scores": trained.scores}
    updated = replace(updated, about=about)
    return UpdatedTagger(updated, build_report(tagger, updated, changes, forgotten, trained.description))


def build_report(
    before: Tagger, after: Tagger, changes: Sequence[ChangedDocument], forgotten: np.ndarray, description: str
) -> UpdateReport:
    """Return the report of an update; `description` is a sentence about the training."""
    rows_to_forget = set(forgotten.tolist())
    kept_rows = [change.row for change in changes if change.row not in rows_to_forget]
    has_lost_thresholds = before.decision is not None and after.decision is None
    old, new = set(before.labels.words()), set(after.labels.words())
    return UpdateReport(
        n_new=kept_rows.count(NEW_ROW),
        n_corrected=len(kept_rows) - kept_rows.count(NEW_ROW),
        n_forgotten=len(forgotten),
        n_docs=after.about["n_docs"],
        new_labels=tuple(sorted(new - old)),
        removed_labels=tuple(sorted(old - new)),
        training=description + (THRESHOLDS_REMOVED if has_lost_thresholds else ""),
    )


def require_training(tagger: Tagger) -> TrainingStore:
    """Return the validated training documents of a Tagger."""
    tagger.check()
    if tagger.training is None:
        raise XmtcError(
            "The model has not kept its training documents, so it cannot be updated; train it with --keep-training "
            "(keep_training=True), or train again on the old and the new documents."
        )
    try:
        tagger.training.check()
        sizes = {name: view.size for name, view in tagger.training.to_dataset().views.items()}
        if sizes != tagger.about["sizes"] or tagger.training.n_labels != len(tagger.labels):
            raise ValueError("its training documents are not those of its views and labels")
    except model_folder.STRUCTURE_ERRORS as error:
        raise XmtcError(
            f"The training documents of the model are damaged: {error}; copy the model again, or train again."
        ) from None
    return tagger.training


def read_method(tagger: Tagger, store: TrainingStore) -> Method:
    """Return the method of a Tagger with its parameters."""
    try:
        method = method_from_json(tagger.about)
    except (ValueError, KeyError, TypeError) as error:
        raise XmtcError(f"The parameters of the model are damaged: {error}; train it again.") from None
    if method.has_label_name_input and not store.names:
        raise XmtcError(
            f"The model has not kept the label names that {tagger.about['method']} reads, because an earlier version "
            "of xmtc trained it, so it cannot be updated; train it again on the old and the new documents."
        )
    return method


def plan_labels(tagger: Tagger, changes: Sequence[ChangedDocument], removed: Sequence[str]) -> LabelPlan:
    """Return the labels after an update; sorted if they were."""
    old = tagger.labels.words()
    found = sorted({label for change in changes for label in change.labels} - set(old))
    labels = [label for label in [*old, *found] if label not in set(removed)]
    if not labels:
        raise XmtcError("No label would be left; remove fewer labels.")
    return make_plan(old, sorted(labels) if old == sorted(old) else labels)


def make_plan(old: Sequence[str], labels: list[str]) -> LabelPlan:
    numbers = {label: number for number, label in enumerate(labels)}
    return LabelPlan(labels, np.array([numbers.get(label, NO_LABEL) for label in old], np.int32))


def drop_empty_labels(
    tagger: Tagger, plan: LabelPlan, merged: MergedDocuments, is_named: np.ndarray
) -> tuple[LabelPlan, MergedDocuments]:
    """Leave out labels that have lost their last document, with their names; labels that a vocabulary names, classes
    that never had a document and columns of an indicator stay. `is_named` marks the old labels that a method knows by
    their names in a vocabulary."""
    data = merged.data
    assert data.Y is not None
    kept = np.bincount(data.document_labels.indices, minlength=len(plan.labels)) > 0
    if not kept.any():
        raise XmtcError("No document with a label would be left; forget fewer documents.")
    if tagger.about.get("names", {}).get("vocabulary"):
        kept[data.Y.indices] = True
    is_old = plan.targets != NO_LABEL
    is_fixed = tagger.frequencies == 0 if tagger.about.get("target", NO_TARGET) == NO_TARGET else is_old
    kept[plan.targets[is_old & (is_fixed | is_named)]] = True
    if kept.all():
        return plan, merged
    columns = np.flatnonzero(kept)
    smaller = make_plan(tagger.labels.words(), [plan.labels[i] for i in columns.tolist()])
    data = data.select_label_columns(columns)
    assert data.Y is not None
    merged = merged._replace(data=data, rejected=merged.rejected[:, columns])
    if data.is_name is None:
        return smaller, merged
    return smaller, merged.select_rows(np.flatnonzero(~data.is_name | (np.diff(data.Y.indptr) > 0)))


class GrownFeatures(NamedTuple):
    """Views with the words of changed documents, and the stored documents in them."""

    views: FittedViews
    stored: Dataset
    columns: np.ndarray  # new number of each old column of the only bag


def grow_features(
    tagger: Tagger, stored: Dataset, changes: Sequence[ChangedDocument], names: Sequence[LabelName]
) -> GrownFeatures:
    """Add the words of changed documents, and of the names of new labels, to the views."""
    texts = [change.document.text for change in changes if change.document.features is None]
    n_docs = stored.n_docs + sum(change.row == NEW_ROW for change in changes)
    views, data, columns = dict(tagger.views), dict(stored.views), np.arange(0)
    for name, view in tagger.views.items():
        bag = stored.views[name]
        if isinstance(bag, Bag):
            views[name], columns = grow_view(view, texts, n_docs)
            data[name] = spread_columns(bag, columns, views[name].size)
        elif isinstance(view, FittedNames):
            views[name] = view.with_names([label_name.text for label_name in names])
        elif isinstance(view, FittedSubwords):  # a training reads the encoder that the parameters name
            data[name] = bag.copy_with(encoder=find_encoder(tagger.about["views"][name]["encoder"]))
    return GrownFeatures(views, stored.copy_with(views=data), columns)


def refit_features(views: FittedViews, data: Dataset) -> tuple[FittedViews, Dataset]:
    """Weigh the words of all documents anew."""
    fitted, documents = dict(views), dict(data.views)
    for name, view in views.items():
        bag = data.views[name]
        if isinstance(bag, Bag):
            fitted[name], refitted = refit_view(view, bag)
            documents[name] = refitted if data.is_name is None else keep_lengths(refitted, bag, data.is_name)
    return fitted, data.copy_with(views=documents)


def keep_lengths(bag: Bag, before: Bag, rows: np.ndarray) -> Bag:
    """Return a bag whose marked rows have the lengths that they had before; names of labels are not of length 1."""
    squares = [np.asarray(part.matrix.multiply(part.matrix).sum(axis=1)).ravel() for part in (before, bag)]
    factors = np.where(rows & (squares[1] > 0), np.sqrt(squares[0] / np.maximum(squares[1], 1e-30)), 1.0)
    matrix = bag.matrix.copy()
    matrix.data *= np.repeat(factors, np.diff(matrix.indptr)).astype(np.float32)
    return bag.copy_with(matrix=matrix)


class TrainedUpdate(NamedTuple):
    """Model after an update, with its views and documents."""

    model: Model
    views: FittedViews
    data: Dataset
    description: str  # a sentence about the training
    scores: dict[str, Any] | None = None  # entry of about.json, if it changes
    is_warm_start: bool = False
    pending: np.ndarray | None = None  # `ModelUpdate.pending`
    reference: DriftReference | None = None  # of new scores


def train_model(
    tagger: Tagger,
    method: Method,
    merged: MergedDocuments,
    grown: GrownFeatures,
    plan: LabelPlan | None,
    rebuild: bool,
    run: Run,
) -> TrainedUpdate:
    """Train the model after an update; with a `plan`, only what the update affects if the method can."""
    data, views = merged.data, grown.views
    assert data.Y is not None
    columns = np.flatnonzero(np.bincount(data.Y.indices, minlength=data.n_labels))
    columns = columns if data.names is None else np.arange(data.n_labels)  # names make labels known without documents
    curve, should_calibrate = find_calibrated(tagger.model), tagger.about.get("calibrate", True)
    sentence = "" if curve is None else " The calibration is that of the model before."
    gate = " The gate was removed; `xmtc thresholds` with --publish tests a new one." if tagger.has_gate else ""
    needs_curve = curve is None and should_calibrate and count_trainings(method, data.document_labels.shape[0]) > 1

    def finish(model: Model) -> Model:
        model = model if len(columns) == data.n_labels else remap_labels(model, columns.astype(np.int32), data.n_labels)
        if curve is None or find_calibrated(model) is not None:
            return model
        return build_calibrated_model(model, curve.scores, curve.probabilities)

    if plan is not None and not needs_curve:
        change = describe_change(tagger, merged, grown, plan, columns)
        updated = None if change is None else method.update(change[0], change[1], run)
        if updated is not None:
            share = updated.n_trained / max(1, updated.n_classifiers)
            how = f"{updated.n_trained:,} of {updated.n_classifiers:,} classifiers ({share:.0%}) were trained again."
            return TrainedUpdate(finish(updated.model), views, data, how + sentence + gate, None, True, updated.pending)
    views, data = refit_features(views, data)
    own = data.select_label_columns(columns).copy_with(names=data.names)
    if rebuild or needs_curve or method.has_own_calibration:
        fitted = fit_calibrated(method, own, None, run, should_calibrate)
        calibrated = fitted.apply_to(fitted.model)
        curve = calibrated if isinstance(calibrated, CalibratedModel) else None
        description = f"Trained again on all documents; {fitted.reason}.{gate}"
        reference = None if fitted.reference is None else fitted.reference.with_labels(columns)
        return TrainedUpdate(finish(fitted.model), views, data, description, fitted.as_json(), reference=reference)
    model = finish(method.fit(own, None, run))
    return TrainedUpdate(model, views, data, f"Trained again on the stored documents.{sentence}{gate}")


def extend_reference(
    tagger: Tagger, changes: Sequence[ChangedDocument], views: FittedViews, data: Dataset, run: Run
) -> DriftReference | None:
    """Return the reference with new documents, which the model before the update was not trained on.

    Documents of feedback are left out, because queues select unusual texts for reviews. `views` and `data` are those of
    the update: words that other documents have now are known, and the shares of earlier documents fall as much as
    those of the new ones."""
    new = [c for c in changes if c.row == NEW_ROW and c.labels and not c.is_feedback][-MAX_REFERENCE_DOCUMENTS:]
    before = tagger.reference
    if before is None or not new:
        return before
    numbers = {label: number for number, label in enumerate(tagger.labels.words())}
    documents = [change.document for change in new]
    added = tagger.observe(documents, run).to_reference(build_label_rows([change.labels for change in new], numbers))
    unknown = measure_unknown_words(views, [document.text for document in documents], run, data)
    if unknown is not None and added.unknown.any():
        factor = unknown.sum() / added.unknown.sum()
        before = replace(before, unknown=(factor * before.unknown).astype(np.float32))
        added = replace(added, unknown=unknown.astype(np.float32))
    return before.with_newer(added)


def renew_reference(before: DriftReference | None, trained: TrainedUpdate, plan: LabelPlan) -> DriftReference | None:
    """Return the reference of the scores after an update. New scores have the shares of unknown words of the reference
    before, because the texts are not stored."""
    if trained.scores is None:
        return None if before is None else before.with_labels(plan.targets)
    if trained.reference is None or before is None:
        return trained.reference
    return replace(trained.reference, unknown=before.unknown)


def describe_change(
    tagger: Tagger, merged: MergedDocuments, grown: GrownFeatures, plan: LabelPlan, columns: np.ndarray
) -> tuple[Model, DatasetChange] | None:
    """Return the trained model inside calibration and renumbering, and the change of its training data; None if labels
    have been merged since its training."""
    assert tagger.training is not None
    model, numbers = strip_calibration(tagger.model), np.arange(len(tagger.labels))
    if isinstance(model, RemappedModel):
        numbers = model.numbers
        model = model.model
    if isinstance(model, MergedLabelModel) or model.n_labels != len(numbers):
        return None
    stored = grown.stored
    old = stored if len(numbers) == stored.n_labels else stored.select_label_columns(numbers)
    places = np.full(len(plan.labels) + 1, NO_LABEL, np.int32)
    places[columns] = np.arange(len(columns))
    return model, DatasetChange(
        old=old,
        new=merged.data.select_label_columns(columns),
        rejected=merged.rejected[:, columns],
        stored_rows=merged.stored_rows,
        targets=places[plan.targets[numbers]],
        columns=grown.columns,
        pending=tagger.training.pending,
    )


def find_calibrated(model: Model) -> CalibratedModel | None:
    """Return the calibrated model, also one inside models with renumbered labels."""
    while not isinstance(model, CalibratedModel):
        inner = getattr(model, "model", None)
        if not isinstance(inner, Model):
            return None
        model = inner
    return model


def rename_parts(tagger: Tagger, plan: LabelPlan, merged: MergedDocuments, model: Model) -> Tagger:
    """Return a Tagger with the labels and the model after an update, without training documents."""
    data, index = merged.data, StringIndex.from_strings(plan.labels)
    assert data.Y is not None
    about = {name: value for name, value in tagger.about.items() if name != "decision"}
    about |= {"n_docs": data.document_labels.shape[0], "n_labels": len(plan.labels), "sizes": model.views}
    concepts = tagger.concepts
    if concepts is not None:
        concepts = LabelConcepts.from_labels(concepts.vocabulary, plan.labels, concepts.language or None)
        about["vocabulary"] = concepts.about()
    renamed = replace(
        tagger,
        labels=index,
        frequencies=np.bincount(data.document_labels.indices, minlength=len(plan.labels)).astype(np.int64),
        model=model,
        about=about,
        concepts=concepts,
        allowed=None if tagger.allowed is None else extend_filter(tagger, plan, index, concepts),
        decision=None,
        training=None,
    )
    was_calibrated, is_calibrated = (find_calibrated(each) is not None for each in (tagger.model, model))
    if tagger.decision is None or was_calibrated != is_calibrated:
        return renamed
    description = {key: value for key, value in tagger.about["decision"].items() if key == "documents"}
    return renamed.with_decision(replace(extend_thresholds(tagger.decision, plan), gate=()), **description)


def extend_filter(tagger: Tagger, plan: LabelPlan, index: StringIndex, concepts: LabelConcepts | None) -> np.ndarray:
    """Return which labels may be predicted: old ones as before, new ones by the entries of the filter. Files of the
    filter are not read again."""
    assert tagger.allowed is not None
    described: Mapping[str, list[str]] = tagger.about.get("filter", {"allow": [], "deny": []})
    entries = {
        kind: [entry for entry in described[kind] if not entry.startswith(f"{FILE_ENTRY}:")]
        for kind in ("allow", "deny")
    }
    try:
        allowed = select_allowed_labels(index, concepts, entries["allow"], entries["deny"])
    except XmtcError:  # an entry is a label that has been removed
        allowed = np.zeros(len(plan.labels), bool)
    if described["allow"] and not entries["allow"]:
        allowed[:] = False
    is_old = plan.targets != NO_LABEL
    allowed[plan.targets[is_old]] = tagger.allowed[is_old]
    if not allowed.any():
        raise XmtcError("The filter of the model excludes all labels that are left; change it by `xmtc vocab filter`.")
    return allowed


def extend_thresholds(decision: LabelSelector, plan: LabelPlan) -> LabelSelector:
    """Return thresholds of the labels after an update; new labels get the median."""
    if decision.by != SCOPE_LABEL:
        return decision
    thresholds = np.full(len(plan.labels), np.median(decision.thresholds), np.float32)
    is_old = plan.targets != NO_LABEL
    thresholds[plan.targets[is_old]] = decision.thresholds[is_old]
    return replace(decision, thresholds=thresholds)


def chain_fingerprints(
    tagger: Tagger, changes: Sequence[ChangedDocument], changed: Dataset, forgotten: np.ndarray, plan: LabelPlan
) -> str:
    """Return the fingerprint of the data before and of the update."""
    digest = hashlib.blake2b(tagger.about["data"].encode(), digest_size=16)
    digest.update(changed.fingerprint().encode())
    rows = [(change.row, change.labels, change.rejected) for change in changes]
    digest.update(repr((rows, forgotten.tolist(), plan.labels)).encode("utf-8", "replace"))
    return f"blake2b:{digest.hexdigest()}"
