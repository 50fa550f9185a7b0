"""Names of labels in an update of a method that reads them: the stored ones, and those of new labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from xmtc.core.dataset import LabelNames
from xmtc.core.method import LabelName, Method
from xmtc.core.run import Run
from xmtc.core.training_store import NAME_VIEWS
from xmtc.features import FittedViews
from xmtc.maintenance.document_changes import ChangedDocument, stack_views
from xmtc.methods.ensemble.members import CombinedMethod
from xmtc.pipeline import build_label_names
from xmtc.tagger import Tagger
from xmtc.vocabulary.label_names import expand_name, iterate_names_of_labels
from xmtc.vocabulary.vocabulary import NO_CONCEPT


def list_new_names(tagger: Tagger, changes: Sequence[ChangedDocument]) -> list[LabelName]:
    """Return the names of labels that the model does not have: those of the attached vocabulary, or the labels."""
    known = set(tagger.labels.words())
    new = sorted({label for change in changes for label in change.labels} - known)
    if tagger.concepts is None:
        return [name for label in new for name in expand_name(label, label)]
    vocabulary, language = tagger.concepts.vocabulary, tagger.concepts.language or None
    concepts = vocabulary.match(new).tolist()
    return list(iterate_names_of_labels(vocabulary, new, concepts, language, should_fall_back=True))


def mark_named_labels(tagger: Tagger, method: Method) -> np.ndarray:
    """Return which labels a method knows by names of a vocabulary, without documents, shape (n_labels,)."""
    members = method.members if isinstance(method, CombinedMethod) else (method,)
    if not any(member.has_label_name_input and getattr(member, "vocabulary", "") for member in members):
        return np.zeros(len(tagger.labels), bool)
    concepts = tagger.concepts
    return np.ones(len(tagger.labels), bool) if concepts is None else concepts.concepts != NO_CONCEPT


def merge_label_names(
    stored: LabelNames, new: list[LabelName], views: FittedViews, labels: list[str], targets: np.ndarray, run: Run
) -> LabelNames:
    """Return the names of the labels after an update; `targets` has the new number of each old label, or NO_LABEL."""
    kept, known = stored.with_labels(targets), set(labels)
    added = build_label_names([name for name in new if name.label in known], views, labels, run)
    if added is None or not len(added.labels):
        return kept
    stacked: dict[str, Any] = {
        name: stack_views(getattr(kept, name), getattr(added, name))
        for name in NAME_VIEWS
        if getattr(kept, name) is not None
    }
    label_numbers = np.concatenate([kept.labels, added.labels])
    return replace(kept, labels=label_numbers, preferred=np.concatenate([kept.preferred, added.preferred]), **stacked)
