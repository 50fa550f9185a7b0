"""Which labels may be answered: lists of what is allowed and what is denied.

An entry of a list is a label, or `scheme:NAME`, `collection:NAME`, `branch:CONCEPT` (a concept and all below it),
`deprecated`, `unknown` (labels that the vocabulary does not have) or `file:PATH`, with an entry in each line. What is
allowed is everything where nothing is named, and less what is denied."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xmtc.data.file_streams import read_lines
from xmtc.errors import XmtcError, find_similar_names, truncate_text
from xmtc.text.term_index import Vocabulary as Words
from xmtc.vocabulary.label_concepts import LabelConcepts
from xmtc.vocabulary.vocabulary import ABSENT, COLLECTION, SCHEME, Vocabulary

KINDS = {"scheme": SCHEME, "collection": COLLECTION}
BRANCH, FILE, DEPRECATED, UNKNOWN = "branch", "file", "deprecated", "unknown"


def allowed_labels(
    labels: Words, concepts: LabelConcepts | None, allow: Sequence[str] = (), deny: Sequence[str] = ()
) -> np.ndarray:
    """(n_labels,) bool. An entry that no label of the model answers to is refused where it stands on its own, and
    passed over in a file, which may be about more labels than the model knows."""
    allowed = np.full(len(labels), not allow)
    for entry in allow:
        allowed |= labels_of(entry, labels, concepts)
    for entry in deny:
        allowed &= ~labels_of(entry, labels, concepts)
    if not allowed.any():
        raise XmtcError("No label is left that may be answered; allow more, or deny less.")
    return allowed


def labels_of(entry: str, labels: Words, concepts: LabelConcepts | None) -> np.ndarray:
    """(n_labels,) bool, the labels that an entry of a list stands for."""
    kind, colon, name = entry.strip().partition(":")
    if colon and kind == FILE and labels.number(entry) == ABSENT:
        return labels_in_file(name.strip(), labels, concepts)
    if is_of_several(entry) and labels.number(entry) == ABSENT:
        if concepts is None:
            raise XmtcError(
                f"{truncate_text(entry)} needs a vocabulary, which the model has not; `xmtc vocab attach` gives it one."
            )
        chosen = concepts_of(entry, kind, name.strip(), concepts.vocabulary)
        return np.append(chosen, entry == UNKNOWN)[concepts.concepts]  # ABSENT is the last
    found = one_label(entry, labels, concepts)
    if not found.any():
        raise unknown(entry, labels)
    return found


def empty_entries(entries: Sequence[str], labels: Words, concepts: LabelConcepts | None) -> list[str]:
    """Of the entries, those that stand for no label of the model, such as a branch that it has nothing of."""
    return [entry for entry in entries if not labels_of(entry, labels, concepts).any()]


def is_of_several(entry: str) -> bool:
    kind, colon, _ = entry.partition(":")
    return bool(colon and kind in (*KINDS, BRANCH)) or entry in (DEPRECATED, UNKNOWN)


def labels_in_file(path: str, labels: Words, concepts: LabelConcepts | None) -> np.ndarray:
    """Those that the lines of a file name: only the first column of a table counts."""
    found = np.zeros(len(labels), bool)
    for line in read_lines(path):
        entry = line.decode("utf-8-sig", "replace").partition("\t")[0].strip()
        if entry and not entry.startswith("#"):
            found |= labels_of(entry, labels, concepts) if is_of_several(entry) else one_label(entry, labels, concepts)
    if not found.any():
        raise XmtcError(f"{path} names no label of the model; expected one in each line, by its id, URI or name.")
    return found


def one_label(entry: str, labels: Words, concepts: LabelConcepts | None) -> np.ndarray:
    """The label itself or, with a vocabulary, the first that is called so."""
    found = np.zeros(len(labels), bool)
    called = [labels.number(entry)]
    if called == [ABSENT] and concepts is not None:
        called = concepts.labels_called(entry)[:1]
    found[[number for number in called if number != ABSENT]] = True
    return found


def concepts_of(entry: str, kind: str, name: str, vocabulary: Vocabulary) -> np.ndarray:
    """(n_concepts,) bool, those that a group, a branch or a state stands for."""
    found = np.zeros(len(vocabulary), bool)
    if entry == DEPRECATED:
        return np.array(vocabulary.deprecated)
    if kind == BRANCH:
        top = vocabulary.find(name)
        if top == ABSENT:
            known = f"the vocabulary has no concept {truncate_text(name)!r}"
            raise XmtcError(f"{truncate_text(entry)}: {known}; `xmtc vocab find` looks for one.")
        found[[top, *vocabulary.descendants(top)]] = True
    elif kind in KINDS:
        group = vocabulary.find_group(name)
        if group == ABSENT or vocabulary.group_kinds[group] != KINDS[kind]:
            raise XmtcError(
                f"{truncate_text(entry)}: the vocabulary has no {kind} {truncate_text(name)!r}; `xmtc vocab stats` lists them."
            )
        found[vocabulary.members[group]] = True
    return found


def unknown(entry: str, labels: Words) -> XmtcError:
    near = find_similar_names(entry, labels.words())
    hint = f"did you mean {near[0]!r}?" if near else "expected a label, scheme:…, collection:…, branch:… or file:…."
    return XmtcError(f"The model has no label {truncate_text(entry)!r} to allow or to deny; {hint}")
