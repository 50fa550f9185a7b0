"""Mapping of the labels of a model to concepts of a vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xmtc.storage.form import Form, array
from xmtc.vocabulary.vocabulary import NO_CONCEPT, Vocabulary


class LabelProblem(NamedTuple):
    """Label that is missing from the vocabulary or deprecated in it."""

    label: int
    is_deprecated: bool
    replacements: list[int]  # concepts


@dataclass(frozen=True)
class LabelConcepts(Form):
    """Concepts of the labels of a model, matched by URI, id, notation or name."""

    vocabulary: Vocabulary
    language: str  # default language of names; empty for the first language of the vocabulary
    concepts: np.ndarray = array(np.int32)  # (n_labels,); NO_CONCEPT for labels outside the vocabulary

    @classmethod
    def from_labels(cls, vocabulary: Vocabulary, labels: Sequence[str], language: str | None = None) -> LabelConcepts:
        vocabulary.check_language(language)
        return cls(vocabulary, language or "", vocabulary.match(labels))

    def name(self, label: int, language: str | None = None) -> str | None:
        """Return the name of a label, or None if it has no concept or the concept has no name."""
        language = language or self.language or None
        if (label, language) not in self._names:
            concept = int(self.concepts[label])
            name = None if concept == NO_CONCEPT else self.vocabulary.name(concept, language)
            self._names[label, language] = name
        return self._names[label, language]

    def find_name(self, label: str, language: str | None = None) -> str | None:
        """Return the name of a label that the model may not have; None if the vocabulary has no name for it."""
        concept = self.vocabulary.find(label)
        return None if concept == NO_CONCEPT else self.vocabulary.name(concept, language or self.language or None)

    def broader_names(self, label: int, language: str | None = None) -> list[str]:
        """Return the names, or else the URIs, of the broader concepts of a label, the nearest first."""
        concept, language = int(self.concepts[label]), language or self.language or None
        ancestors = [] if concept == NO_CONCEPT else self.vocabulary.ancestors(concept)
        return [self.vocabulary.name(ancestor, language) or self.vocabulary.uri(ancestor) for ancestor in ancestors]

    @cached_property
    def _names(self) -> dict[tuple[int, str | None], str | None]:
        """Cache of `name`: the same few labels are named repeatedly."""
        return {}

    def find_labels(self, name: str) -> list[int]:
        """Return the labels whose concept has a URI, id, notation or name, the best match first."""
        matches = (np.flatnonzero(self.concepts == concept) for concept in self.vocabulary.find_all(name))
        return [int(label) for labels in matches for label in labels]

    def find_same_concept_labels(self) -> list[list[int]]:
        """Return the groups of labels that have the same concept, for example its name and its URI."""
        labels = np.flatnonzero(self.concepts != NO_CONCEPT)
        order = labels[np.argsort(self.concepts[labels], kind="stable")]
        groups = np.split(order, np.flatnonzero(np.diff(self.concepts[order])) + 1)
        return [group.tolist() for group in groups if len(group) > 1]

    def problems(self) -> Iterator[LabelProblem]:
        """Yield the labels that are missing from the vocabulary or deprecated in it."""
        for label, concept in enumerate(self.concepts.tolist()):
            if concept == NO_CONCEPT:
                yield LabelProblem(label, False, [])
            elif self.vocabulary.deprecated[concept]:
                yield LabelProblem(label, True, self.vocabulary.replacements[concept])

    def lineage(self, unseen: Sequence[str] = ()) -> csr_array:
        """Return a binary matrix of the concept and its ancestors for each label, shape (n_labels + n_unseen, n_nodes).
        A label outside the vocabulary is a node of its own."""
        concepts = np.concatenate([self.concepts, self.vocabulary.match(unseen)])
        new_nodes = len(self.vocabulary) + np.cumsum(concepts == NO_CONCEPT) - 1
        rows = [
            [int(node)] if concept == NO_CONCEPT else [concept, *self.vocabulary.ancestors(concept)]
            for concept, node in zip(concepts.tolist(), new_nodes, strict=True)
        ]
        ends = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
        nodes = np.concatenate([np.array(row, np.int64) for row in rows])
        n_nodes = len(self.vocabulary) + int((concepts == NO_CONCEPT).sum())
        return csr_array((np.ones(len(nodes), np.float32), nodes, ends), shape=(len(rows), n_nodes))

    def about(self) -> dict[str, Any]:
        """Return the entry of about.json."""
        n_matched = int((self.concepts != NO_CONCEPT).sum())
        return {**self.vocabulary.about(), "language": self.language, "labels_found": n_matched}

    def check(self) -> None:
        self.vocabulary.check()
        lowest, highest = self.concepts.min(initial=NO_CONCEPT), self.concepts.max(initial=NO_CONCEPT)
        if lowest < NO_CONCEPT or highest >= len(self.vocabulary):
            raise ValueError("its labels stand for concepts that its vocabulary does not have")
