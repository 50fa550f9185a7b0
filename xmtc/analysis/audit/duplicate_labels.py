"""Duplicate labels: similar spelling, the same documents, or a common name in a vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from unicodedata import category, combining, normalize

import numpy as np
from scipy.sparse import csr_array

from xmtc.analysis.audit.near_duplicates import NO_ROW, find_similar_rows
from xmtc.core.run import Run
from xmtc.text.stemming import strip_plural
from xmtc.vocabulary.label_concepts import LabelConcepts
from xmtc.vocabulary.vocabulary import NO_CONCEPT

MIN_DOCUMENT_OVERLAP = 0.8  # Jaccard similarity of the documents of two labels
MIN_COMPARED_DOCUMENTS = 5  # labels with fewer documents are not compared by documents
SEPARATOR_CATEGORIES = {"Pd", "Pc", "Ps", "Pe", "Pi", "Pf", "Zs", "Cc"}  # dashes, brackets, quotation marks, spaces
SEPARATOR_CHARACTERS = frozenset(".,:;/\\'\"!?·&")  # not + and #, which distinguish C, C++ and C#


class DuplicateLabels(NamedTuple):
    """Pair of label ids, the one with fewer documents first."""

    label: int
    other: int
    score: float  # share of their documents that have both
    reason: str


def find_duplicate_labels(
    labels: Sequence[str], Y: csr_array, concepts: LabelConcepts | None = None, run: Run = Run()
) -> list[DuplicateLabels]:
    """Return pairs of duplicate labels, each label in one pair at most; those with the most common documents first."""
    documents = csr_array(Y.T)
    frequencies = np.diff(documents.indptr)
    found: dict[int, DuplicateLabels] = {}
    for reason, pairs in (
        ("the vocabulary has a name for both", pair_same_names(concepts)),
        ("written alike", pair_same_spellings(labels)),
        ("given to the same documents", pair_same_documents(documents, run)),
    ):
        for one, two in pairs:
            label, other = sorted((one, two), key=lambda each: (frequencies[each], each))
            found.setdefault(
                label, DuplicateLabels(label, other, compute_label_overlap(documents, label, other), reason)
            )
    return sorted(found.values(), key=lambda each: (-each.score, -frequencies[each.label], each.label))


def pair_same_names(concepts: LabelConcepts | None) -> Iterator[tuple[int, int]]:
    """Yield labels that stand for one concept, or for concepts that have a name in common in one language."""
    if concepts is None:
        return
    keys = (
        (key, label)
        for label, concept in enumerate(concepts.concepts.tolist())
        if concept != NO_CONCEPT
        for key in [
            concept,
            *{(name.language, normalise_label(name.text)) for name in concepts.vocabulary.names(concept)},
        ]
    )
    yield from pair_same_keys(keys)


def pair_same_spellings(labels: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield labels that differ only in case, accents, punctuation or a plural s; URIs and numbers are skipped."""
    named = ((normalise_label(label), number) for number, label in enumerate(labels) if "://" not in label)
    yield from pair_same_keys((key, number) for key, number in named if any(map(str.isalpha, key)))


def pair_same_keys(keys: Iterable[tuple[object, int]]) -> Iterator[tuple[int, int]]:
    """Yield pairs of the first number with a key and each later number with the same key."""
    first: dict[object, int] = {}
    for key, number in keys:
        if first.setdefault(key, number) != number:
            yield first[key], number


def normalise_label(name: str) -> str:
    """Return a normal form of a name. A point between digits is kept: 1.1 is not 11."""
    text = normalize("NFKD", name).casefold()
    letters = [letter for letter in text if not combining(letter)]
    around = zip([" ", *letters[:-1]], letters, [*letters[1:], " "], strict=True)
    apart = [" " if is_separator(before, letter, after) else letter for before, letter, after in around]
    return "".join(strip_plural(word) for word in "".join(apart).split())


def is_separator(before: str, letter: str, after: str) -> bool:
    return (letter in SEPARATOR_CHARACTERS or category(letter) in SEPARATOR_CATEGORIES) and not (
        before.isdigit() and after.isdigit()
    )


def pair_same_documents(documents: csr_array, run: Run) -> Iterator[tuple[int, int]]:
    other, _ = find_similar_rows(documents, MIN_DOCUMENT_OVERLAP, MIN_COMPARED_DOCUMENTS, run=run)
    yield from ((int(other[label]), int(label)) for label in np.flatnonzero(other != NO_ROW))


def compute_label_overlap(documents: csr_array, one: int, two: int) -> float:
    first, second = (documents.indices[documents.indptr[i] : documents.indptr[i + 1]] for i in (one, two))
    n_both = len(np.intersect1d(first, second))
    return n_both / max(1, len(first) + len(second) - n_both)
