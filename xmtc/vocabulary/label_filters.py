"""Label filters: lists of allowed and denied labels.

An entry is a label, `scheme:NAME`, `collection:NAME`, `branch:CONCEPT` (a concept and all narrower ones), `deprecated`,
`unknown` (labels outside the vocabulary) or `file:PATH` with one entry per line. An empty list of allowed entries
allows all labels; denied labels are removed from the allowed ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from xmtc.data.file_streams import read_lines
from xmtc.errors import XmtcError, find_similar_names, truncate_text
from xmtc.text.string_index import NOT_FOUND, StringIndex
from xmtc.vocabulary.label_concepts import LabelConcepts
from xmtc.vocabulary.vocabulary import COLLECTION, NO_CONCEPT, SCHEME, Vocabulary

GROUP_KINDS = {"scheme": SCHEME, "collection": COLLECTION}
BRANCH_ENTRY, FILE_ENTRY, DEPRECATED_ENTRY, UNKNOWN_ENTRY = "branch", "file", "deprecated", "unknown"


def select_allowed_labels(
    labels: StringIndex, concepts: LabelConcepts | None, allow: Sequence[str] = (), deny: Sequence[str] = ()
) -> np.ndarray:
    """Return which labels may be predicted, shape (n_labels,).

    An entry that matches no label of the model is an error, except in a file, which may list more labels than the model
    has."""
    allowed = np.full(len(labels), not allow)
    for entry in allow:
        allowed |= select_entry_labels(entry, labels, concepts)
    for entry in deny:
        allowed &= ~select_entry_labels(entry, labels, concepts)
    if not allowed.any():
        raise XmtcError("The filter excludes all labels; allow more labels, or deny fewer.")
    return allowed


def select_entry_labels(entry: str, labels: StringIndex, concepts: LabelConcepts | None) -> np.ndarray:
    """Return which labels an entry matches, shape (n_labels,)."""
    kind, colon, name = entry.strip().partition(":")
    if colon and kind == FILE_ENTRY and labels.find(entry) == NOT_FOUND:
        return select_labels_in_file(name.strip(), labels, concepts)
    if is_set_entry(entry) and labels.find(entry) == NOT_FOUND:
        if concepts is None:
            raise XmtcError(
                f"{truncate_text(entry)} needs a vocabulary, but the model has none; add one with `xmtc vocab attach`."
            )
        chosen = select_concepts(entry, kind, name.strip(), concepts.vocabulary)
        return np.append(chosen, entry == UNKNOWN_ENTRY)[concepts.concepts]  # NO_CONCEPT, -1, is the last element
    selected = select_label(entry, labels, concepts)
    if not selected.any():
        raise unknown_label_error(entry, labels)
    return selected


def find_empty_entries(entries: Sequence[str], labels: StringIndex, concepts: LabelConcepts | None) -> list[str]:
    """Return the entries that match no label of the model, for example a branch without labels."""
    return [entry for entry in entries if not select_entry_labels(entry, labels, concepts).any()]


def find_unknown_file_entries(
    entries: Sequence[str], labels: StringIndex, concepts: LabelConcepts | None
) -> dict[str, list[str]]:
    """Return the lines of each file of a filter that match no label of the model, such as those with a typo."""
    paths = [
        path.strip() for kind, _, path in (entry.strip().partition(":") for entry in entries) if kind == FILE_ENTRY
    ]
    return {
        path: [line for line in read_filter_lines(path) if not select_line_labels(line, labels, concepts).any()]
        for path in paths
    }


def read_filter_lines(path: str) -> Iterator[str]:
    """Yield the entries of a file: the first column of a table, without comments."""
    for line in read_lines(path):
        entry = line.decode("utf-8-sig", "replace").partition("\t")[0].strip()
        if entry and not entry.startswith("#"):
            yield entry


def select_line_labels(entry: str, labels: StringIndex, concepts: LabelConcepts | None) -> np.ndarray:
    return (select_entry_labels if is_set_entry(entry) else select_label)(entry, labels, concepts)


def is_set_entry(entry: str) -> bool:
    kind, colon, _ = entry.partition(":")
    return bool(colon and kind in (*GROUP_KINDS, BRANCH_ENTRY)) or entry in (DEPRECATED_ENTRY, UNKNOWN_ENTRY)


def select_labels_in_file(path: str, labels: StringIndex, concepts: LabelConcepts | None) -> np.ndarray:
    """Return which labels the lines of a file match; only the first column of a table is read."""
    selected = np.zeros(len(labels), bool)
    for entry in read_filter_lines(path):
        selected |= select_line_labels(entry, labels, concepts)
    if not selected.any():
        raise XmtcError(f"{path} names no label of the model; expected an id, URI or name in each line.")
    return selected


def select_label(entry: str, labels: StringIndex, concepts: LabelConcepts | None) -> np.ndarray:
    """Return a mask of the label or, with a vocabulary, of the best match by name."""
    selected = np.zeros(len(labels), bool)
    number = labels.find(entry)
    if number != NOT_FOUND:
        selected[number] = True
    elif concepts is not None:
        selected[concepts.find_labels(entry)[:1]] = True
    return selected


def select_concepts(entry: str, kind: str, name: str, vocabulary: Vocabulary) -> np.ndarray:
    """Return which concepts a group, branch or state contains, shape (n_concepts,)."""
    selected = np.zeros(len(vocabulary), bool)
    if entry == DEPRECATED_ENTRY:
        return np.array(vocabulary.deprecated)
    if kind == BRANCH_ENTRY:
        top = vocabulary.find(name)
        if top == NO_CONCEPT:
            problem = f"the vocabulary has no concept {truncate_text(name)!r}"
            raise XmtcError(f"{truncate_text(entry)}: {problem}; search with `xmtc vocab find`.")
        if vocabulary.is_flat:
            raise XmtcError(
                f"{truncate_text(entry)}: no concept of the vocabulary has a broader one, so it has no branches; name "
                "the labels themselves, or list them in a file and give file:PATH."
            )
        selected[[top, *vocabulary.descendants(top)]] = True
    elif kind in GROUP_KINDS:
        group = vocabulary.find_group(name)
        if group == NO_CONCEPT or vocabulary.group_kinds[group] != GROUP_KINDS[kind]:
            problem = f"the vocabulary has no {kind} {truncate_text(name)!r}"
            raise XmtcError(f"{truncate_text(entry)}: {problem}; `xmtc vocab stats` lists all.")
        selected[vocabulary.members[group]] = True
    return selected


def select_concept_mask(entry: str, vocabulary: Vocabulary) -> np.ndarray:
    """Return which concepts of a vocabulary an entry matches, also those that no label stands for; shape (n_concepts,).
    Files are not read."""
    kind, _, name = entry.strip().partition(":")
    if is_set_entry(entry) and entry != UNKNOWN_ENTRY:
        return select_concepts(entry, kind, name.strip(), vocabulary)
    selected = np.zeros(len(vocabulary), bool)
    selected[vocabulary.find_all(entry)[:1]] = True
    return selected


def unknown_label_error(entry: str, labels: StringIndex) -> XmtcError:
    similar = find_similar_names(entry, labels.words())
    hint = (
        f"did you mean {similar[0]!r}?" if similar else "expected a label, scheme:…, collection:…, branch:… or file:…."
    )
    return XmtcError(f"The model has no label {truncate_text(entry)!r} to allow or to deny; {hint}")
