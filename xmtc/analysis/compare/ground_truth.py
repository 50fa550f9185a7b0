"""The labels that documents have, in the numbering that all answers of a comparison share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from xmtc.analysis.compare.saved_predictions import SavedPredictions, TrainingStatistics
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.data.document import Document
from xmtc.data.label_collector import LabelCollector
from xmtc.errors import XmtcError
from xmtc.evaluation import to_ranked_results
from xmtc.evaluation.ranked_results import RankedResults


@dataclass(frozen=True)
class GroundTruth:
    documents: Sequence[Document]
    names: list[str]  # of the labels, by number: those that models know, and those of the documents
    Y: csr_array  # (n_docs, n_labels)
    frequencies: np.ndarray  # (n_labels,) training documents
    n_train: int

    @classmethod
    def from_documents(cls, documents: Sequence[Document], trained: Iterable[TrainingStatistics]) -> GroundTruth:
        """Where models were trained on different documents, a label counts as in the one that had most of it."""
        collector = LabelCollector()
        n_labelled = sum(bool(document.labels) for document in collector.collect(documents))
        if not n_labelled:
            found = f"None of the {len(documents)} documents to compare on has a label"
            raise XmtcError(f"{found}; give labelled ones, or check the labels field.")
        counts: dict[str, int] = {}
        n_train = 0
        for each in trained:
            n_train = max(n_train, each.n_docs)
            for name, count in zip(each.names, each.frequencies, strict=True):
                counts[name] = max(counts.get(name, 0), count)
        names = sorted(counts.keys() | collector.id_by_label.keys())
        frequencies = np.array([counts.get(name, 0) for name in names], np.int64)
        return cls(documents, names, collector.to_matrix(names), frequencies, n_train)

    @cached_property
    def label_ids(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    def renumber_predictions(self, answers: SavedPredictions) -> tuple[Predictions, Predictions]:
        """The first and the deep ones."""
        numbers = [self.label_ids[name] for name in answers.trained.names]
        table = np.array([*numbers, NO_LABEL], np.int32)  # the last for NO_LABEL itself, which is -1
        first, deep = answers.first, answers.deep
        return Predictions.from_valid_arrays(table[first.labels], first.scores), Predictions.from_valid_arrays(
            table[deep.labels], deep.scores
        )

    def match_predictions(self, found: Predictions) -> RankedResults:
        return to_ranked_results(found, self.Y, train_frequencies=self.frequencies, n_train=self.n_train)
