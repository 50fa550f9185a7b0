"""The concepts that the labels of a model stand for."""

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
    """A label that a vocabulary does not have, or has deprecated."""

    label: int
    is_deprecated: bool
    replacements: list[int]  # concepts


@dataclass(frozen=True)
class LabelConcepts(Form):
    """A vocabulary beside the labels of a model, which may be URIs, ids, notations or names of its concepts."""

    vocabulary: Vocabulary
    language: str  # that labels are named in where none is asked for; empty: the vocabulary's first
    concepts: np.ndarray = array(np.int32)  # (n_labels,) ABSENT where the vocabulary has none

    @classmethod
    def from_labels(cls, vocabulary: Vocabulary, labels: Sequence[str], language: str | None = None) -> LabelConcepts:
        vocabulary.check_language(language)
        return cls(vocabulary, language or "", vocabulary.match(labels))

    def name(self, label: int, language: str | None = None) -> str | None:
        """What a label is called; None where its concept is not there or has no name."""
        asked = label, language or self.language or None
        if asked not in self._names:
            concept = int(self.concepts[label])
            self._names[asked] = None if concept == NO_CONCEPT else self.vocabulary.name(concept, asked[1])
        return self._names[asked]

    def broader_names(self, label: int, language: str | None = None) -> list[str]:
        """What the concepts above a label's are called, the nearest first; by their URIs, where they have no names."""
        concept, language = int(self.concepts[label]), language or self.language or None
        above = [] if concept == NO_CONCEPT else self.vocabulary.ancestors(concept)
        return [self.vocabulary.name(each, language) or self.vocabulary.uri(each) for each in above]

    @cached_property
    def _names(self) -> dict[tuple[int, str | None], str | None]:
        """Those that were asked for: the same few are asked for again and again."""
        return {}

    def find_labels(self, name: str) -> list[int]:
        """The labels whose concept has this URI, id, notation or name, the closest first."""
        found = (np.flatnonzero(self.concepts == concept) for concept in self.vocabulary.find_all(name))
        return [int(label) for labels in found for label in labels]

    def problems(self) -> Iterator[LabelProblem]:
        """Labels that the vocabulary does not have, and those that it has deprecated."""
        for label, concept in enumerate(self.concepts.tolist()):
            if concept == NO_CONCEPT:
                yield LabelProblem(label, False, [])
            elif self.vocabulary.deprecated[concept]:
                yield LabelProblem(label, True, self.vocabulary.replacements[concept])

    def lineage(self, unseen: Sequence[str] = ()) -> csr_array:
        """(n_labels + n_unseen, n_nodes) float32, ones at what each label is and at everything above it. A label that
        the vocabulary does not have is a node of its own."""
        concepts = np.concatenate([self.concepts, self.vocabulary.match(unseen)])
        own = len(self.vocabulary) + np.cumsum(concepts == NO_CONCEPT) - 1
        rows = [
            [int(node)] if concept == NO_CONCEPT else [concept, *self.vocabulary.ancestors(concept)]
            for concept, node in zip(concepts.tolist(), own, strict=True)
        ]
        ends = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
        nodes = np.concatenate([np.array(row, np.int64) for row in rows])
        n_nodes = len(self.vocabulary) + int((concepts == NO_CONCEPT).sum())
        return csr_array((np.ones(len(nodes), np.float32), nodes, ends), shape=(len(rows), n_nodes))

    def about(self) -> dict[str, Any]:
        """For about.json."""
        found = int((self.concepts != NO_CONCEPT).sum())
        return {**self.vocabulary.about(), "language": self.language, "labels_found": found}

    def check(self) -> None:
        self.vocabulary.check()
        if self.concepts.min(initial=NO_CONCEPT) < NO_CONCEPT or self.concepts.max(initial=NO_CONCEPT) >= len(
            self.vocabulary
        ):
            raise ValueError("its labels stand for concepts that its vocabulary does not have")
