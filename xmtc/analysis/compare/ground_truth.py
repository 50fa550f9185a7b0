"""True labels of the test documents, with label ids that all candidates of a comparison share."""

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
    """Test documents and their true labels."""

    documents: Sequence[Document]
    names: list[str]  # of all labels that the models or the documents have, by label id
    Y: csr_array  # (n_docs, n_labels)
    frequencies: np.ndarray  # (n_labels,) training documents
    n_train: int

    @classmethod
    def from_documents(cls, documents: Sequence[Document], trained: Iterable[TrainingStatistics]) -> GroundTruth:
        """Build the truth; if models have different training documents, use the largest frequency of each label."""
        collector = LabelCollector()
        n_labelled = sum(bool(document.labels) for document in collector.collect(documents))
        if not n_labelled:
            raise XmtcError(
                f"None of the {len(documents)} test documents has a label; give labelled documents, or check --labels."
            )
        counts: dict[str, int] = {}
        n_train = 0
        for statistics in trained:
            n_train = max(n_train, statistics.n_docs)
            for name, count in zip(statistics.names, statistics.frequencies, strict=True):
                counts[name] = max(counts.get(name, 0), count)
        names = sorted(counts.keys() | collector.id_by_label.keys())
        frequencies = np.array([counts.get(name, 0) for name in names], np.int64)
        return cls(documents, names, collector.to_matrix(names), frequencies, n_train)

    @cached_property
    def label_ids(self) -> dict[str, int]:
        return {name: label_id for label_id, name in enumerate(self.names)}

    def renumber_predictions(self, saved: SavedPredictions) -> tuple[Predictions, Predictions]:
        """Return the `first` and the `deep` predictions with the label ids of this object."""
        label_ids = [self.label_ids[name] for name in saved.trained.names]
        table = np.array([*label_ids, NO_LABEL], np.int32)  # NO_LABEL is -1, the last index
        first = Predictions.from_valid_arrays(table[saved.first.labels], saved.first.scores)
        deep = Predictions.from_valid_arrays(table[saved.deep.labels], saved.deep.scores)
        return first, deep

    def match_predictions(self, predictions: Predictions) -> RankedResults:
        return to_ranked_results(predictions, self.Y, train_frequencies=self.frequencies, n_train=self.n_train)
