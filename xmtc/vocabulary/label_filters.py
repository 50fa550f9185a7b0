"""Which labels may be answered: lists of what is allowed and what is denied.

An entry of a list is a label, or `scheme:NAME`, `collection:NAME`, `branch:CONCEPT` (a concept and all below it),
`deprecated`, `unknown` (labels that the vocabulary does not have) or `file:PATH`, with an entry in each line. What is
allowed is everything where nothing is named, and less what is denied."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xmtc.data.file_streams import read_lines
from xmtc.errors import XmtcError, find_similar_names, truncate_text
from xmtc.text.string_index import StringIndex as Words
from xmtc.vocabulary.label_concepts import LabelConcepts
from xmtc.vocabulary.vocabulary import COLLECTION, NO_CONCEPT, SCHEME, Vocabulary

GROUP_KINDS = {"scheme": SCHEME, "collection": COLLECTION}
BRANCH_ENTRY, FILE_ENTRY, DEPRECATED_ENTRY, UNKNOWN_ENTRY = "branch", "file", "deprecated", "unknown"


def select_allowed_labels(
    labels: Words, concepts: LabelConcepts | None, allow: Sequence[str] = (), deny: Sequence[str] = ()
) -> np.ndarray:
    """(n_labels,) bool. An entry that no label of the model answers to is refused where it stands on its own, and
    passed over in a file, which may be about more labels than the model knows."""
    allowed = np.full(len(labels), not allow)
    for entry in allow:
        allowed |= select_entry_labels(entry, labels, concepts)
    for entry in deny:
        allowed &= ~select_entry_labels(entry, labels, concepts)
    if not allowed.any():
        raise XmtcError("No label is left that may be answered; allow more, or deny less.")
    return allowed


def select_entry_labels(entry: str, labels: Words, concepts: LabelConcepts | None) -> np.ndarray:
    """(n_labels,) bool, the labels that an entry of a list stands for."""
    kind, colon, name = entry.strip().partition(":")
    if colon and kind == FILE_ENTRY and labels.find(entry) == NO_CONCEPT:
        return select_labels_in_file(name.strip(), labels, concepts)
    if is_set_entry(entry) and labels.find(entry) == NO_CONCEPT:
        if concepts is None:
            raise XmtcError(
                f"{truncate_text(entry)} needs a vocabulary, which the model has not; `xmtc vocab attach` gives it one."
            )
        chosen = select_concepts(entry, kind, name.strip(), concepts.vocabulary)
        return np.append(chosen, entry == UNKNOWN_ENTRY)[concepts.concepts]  # ABSENT is the last
    found = select_label(entry, labels, concepts)
    if not found.any():
        raise unknown_label_error(entry, labels)
    return found


def find_empty_entries(entries: Sequence[str], labels: Words, concepts: LabelConcepts | None) -> list[str]:
    """Of the entries, those that stand for no label of the model, such as a branch that it has nothing of."""
    return [entry for entry in entries if not select_entry_labels(entry, labels, concepts).any()]


def is_set_entry(entry: str) -> bool:
    kind, colon, _ = entry.partition(":")
    return bool(colon and kind in (*GROUP_KINDS, BRANCH_ENTRY)) or entry in (DEPRECATED_ENTRY, UNKNOWN_ENTRY)


def select_labels_in_file(path: str, labels: Words, concepts: LabelConcepts | None) -> np.ndarray:
    """Those that the lines of a file name: only the first column of a table counts."""
    found = np.zeros(len(labels), bool)
    for line in read_lines(path):
        entry = line.decode("utf-8-sig", "replace").partition("\t")[0].strip()
        if entry and not entry.startswith("#"):
            found |= (
                select_entry_labels(entry, labels, concepts)
                if is_set_entry(entry)
                else select_label(entry, labels, concepts)
            )
    if not found.any():
        raise XmtcError(f"{path} names no label of the model; expected one in each line, by its id, URI or name.")
    return found


def select_label(entry: str, labels: Words, concepts: LabelConcepts | None) -> np.ndarray:
    """The label itself or, with a vocabulary, the first that is called so."""
    found = np.zeros(len(labels), bool)
    called = [labels.find(entry)]
    if called == [NO_CONCEPT] and concepts is not None:
        called = concepts.find_labels(entry)[:1]
    found[[number for number in called if number != NO_CONCEPT]] = True
    return found


def select_concepts(entry: str, kind: str, name: str, vocabulary: Vocabulary) -> np.ndarray:
    """(n_concepts,) bool, those that a group, a branch or a state stands for."""
    found = np.zeros(len(vocabulary), bool)
    if entry == DEPRECATED_ENTRY:
        return np.array(vocabulary.deprecated)
    if kind == BRANCH_ENTRY:
        top = vocabulary.find(name)
        if top == NO_CONCEPT:
            known = f"the vocabulary has no concept {truncate_text(name)!r}"
            raise XmtcError(f"{truncate_text(entry)}: {known}; `xmtc vocab find` looks for one.")
        found[[top, *vocabulary.descendants(top)]] = True
    elif kind in GROUP_KINDS:
        group = vocabulary.find_group(name)
        if group == NO_CONCEPT or vocabulary.group_kinds[group] != GROUP_KINDS[kind]:
            raise XmtcError(
                f"{truncate_text(entry)}: the vocabulary has no {kind} {truncate_text(name)!r}; `xmtc vocab stats` lists them."
            )
        found[vocabulary.members[group]] = True
    return found


def unknown_label_error(entry: str, labels: Words) -> XmtcError:
    near = find_similar_names(entry, labels.words())
    hint = f"did you mean {near[0]!r}?" if near else "expected a label, scheme:…, collection:…, branch:… or file:…."
    return XmtcError(f"The model has no label {truncate_text(entry)!r} to allow or to deny; {hint}")
