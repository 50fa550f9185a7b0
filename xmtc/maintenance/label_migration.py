"""Migration of a Tagger to a newer version of its vocabulary, without training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from xmtc.core.method import Model
from xmtc.core.predictions import NO_LABEL
from xmtc.errors import XmtcError, truncate_text
from xmtc.methods.ensemble.merged_labels import MergedLabelModel
from xmtc.scores import LabelSelector
from xmtc.scores.thresholds import SCOPE_LABEL
from xmtc.tagger import Tagger
from xmtc.text.string_index import StringIndex
from xmtc.vocabulary import Vocabulary
from xmtc.vocabulary.changes import LabelChange, LabelMigration


class MigratedTagger(NamedTuple):
    """Tagger with the labels of a newer vocabulary, and what became of each former label."""

    tagger: Tagger
    changes: list[LabelChange]


def migrate_tagger(
    tagger: Tagger,
    vocabulary: Vocabulary,
    old: Vocabulary | None = None,
    mapping: Mapping[str, tuple[str, ...]] = {},
    language: str | None = None,
) -> MigratedTagger:
    """Rewrite the labels of a tagger for a newer vocabulary, which is attached.

    Scores of merged labels are those of their union, labels without a successor are no longer predicted, and the label
    filter and thresholds follow. Undecided splits keep their label.

    Parameters
    ----------
    tagger : Tagger
        Trained tagger.
    vocabulary : Vocabulary
        Newer version.
    old : Vocabulary, optional
        Older version; by default the one that is attached to the tagger.
    mapping : mapping of str to tuple of str
        New URI or label of old ones, which override those of the vocabularies.
    language : str, optional
        Default language of label names; by default that of the tagger.

    Raises
    ------
    XmtcError
        If no label has a successor, or the mapping gives several labels for one.
    """
    tagger.check()
    attached = tagger.concepts
    if attached is not None:
        old, language = old or attached.vocabulary, language or attached.language or None
    labels = tagger.labels.words()
    changes = LabelMigration(vocabulary, old, mapping).migrate(labels)
    for change in changes:
        if len(change.new) > 1:
            raise XmtcError(
                f"The mapping splits {truncate_text(change.label)!r} into {len(change.new)} labels, but a model cannot "
                "tell them apart without training; give one of them, or migrate the corpus and train again."
            )
    kept = list(dict.fromkeys(new for change in changes for new in change.new))
    if not kept:
        raise XmtcError("The mapping drops all labels of the model; keep at least one.")
    new_labels = sorted(kept) if labels == sorted(labels) else kept
    numbers = {label: number for number, label in enumerate(new_labels)}
    targets = np.array([numbers[change.new[0]] if change.new else NO_LABEL for change in changes], np.int32)
    renamed = rename_labels(tagger, new_labels, targets, {change.label: change.new for change in changes})
    return MigratedTagger(renamed.with_vocabulary(vocabulary, language), changes)


def rename_labels(
    tagger: Tagger, labels: list[str], targets: np.ndarray, new_labels: Mapping[str, tuple[str, ...]]
) -> Tagger:
    """Return a tagger with other labels; `targets` has the new number of each former label."""
    is_kept = targets != NO_LABEL
    frequencies = np.bincount(targets[is_kept], tagger.frequencies[is_kept], len(labels)).astype(np.int64)
    allowed, about = None, tagger.about | {"n_labels": len(labels)}
    if tagger.allowed is not None:
        allowed = np.zeros(len(labels), bool)
        allowed[targets[is_kept & tagger.allowed]] = True
        if not allowed.any():
            raise XmtcError("The filter of the model excludes all labels that are left; remove it with --clear first.")
    if "filter" in about:
        about["filter"] = {
            kind: [new for entry in entries for new in new_labels.get(entry, (entry,))]
            for kind, entries in about["filter"].items()
        }
    renamed = replace(
        tagger.with_model(merge_labels(tagger.model, targets, len(labels))),
        labels=StringIndex.from_strings(labels),
        frequencies=frequencies,
        allowed=allowed,
        concepts=None,
        reference=None if tagger.reference is None else tagger.reference.with_labels(targets),
        training=None if tagger.training is None else tagger.training.with_labels(targets, len(labels)),
    )
    renamed = replace(renamed, about={name: value for name, value in about.items() if name != "decision"})
    if tagger.decision is None:
        return renamed
    decision = {name: value for name, value in about["decision"].items() if name == "documents"}
    thresholds = merge_thresholds(tagger.decision, targets, len(labels))
    return renamed.with_decision(replace(thresholds, gate=()), **decision)  # its promise is for the former labels


def merge_labels(model: Model, targets: np.ndarray, n_labels: int) -> Model:
    """Return a model whose label i became targets[i]."""
    if n_labels == len(targets) and np.array_equal(targets, np.arange(n_labels)):
        return model
    if isinstance(model, MergedLabelModel):
        targets, model = np.append(targets, np.int32(NO_LABEL))[model.targets], model.model
    return MergedLabelModel(n_labels=n_labels, views=model.views, model=model, targets=targets)


def merge_thresholds(decision: LabelSelector, targets: np.ndarray, n_labels: int) -> LabelSelector:
    """Return thresholds of merged labels, the highest of their former ones."""
    if decision.by != SCOPE_LABEL:
        return decision
    thresholds = np.zeros(n_labels, np.float32)
    is_kept = targets != NO_LABEL
    np.maximum.at(thresholds, targets[is_kept], decision.thresholds[is_kept])
    return replace(decision, thresholds=thresholds)
