"""Predictions of a model in a file, with label names and prediction time.

Methods can thus be compared without having their models in memory at the same time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from xmtc.core.predictions import Predictions
from xmtc.core.run import Run
from xmtc.data.document import Document
from xmtc.evaluation import EVALUATION_DEPTH
from xmtc.storage.atomic import atomic_file
from xmtc.tagger import Tagger

N_COMPARED_LABELS = 5
PREDICTION_FIELDS, ARRAY_FIELDS = ("first", "deep"), ("labels", "scores")


@dataclass(frozen=True)
class TrainingStatistics:
    """Labels and numbers of documents that a model was trained on."""

    names: list[str]  # of labels, by label id
    frequencies: list[int]  # documents of each label
    n_docs: int

    @classmethod
    def from_tagger(cls, tagger: Tagger) -> TrainingStatistics:
        return cls(list(tagger.labels.words()), tagger.frequencies.tolist(), tagger.about["n_docs"])

    @classmethod
    def load(cls, path: Path) -> TrainingStatistics:
        """Load the statistics from a file of SavedPredictions."""
        with np.load(path, allow_pickle=False) as file:
            return cls(**read_metadata(file)["trained"])


@dataclass(frozen=True)
class SavedPredictions:
    """Predictions of a model for test documents."""

    first: Predictions  # of N_COMPARED_LABELS labels
    deep: Predictions  # of as many labels as AUC and AUPR need; a separate search, which may find other labels
    trained: TrainingStatistics
    seconds: float | None = None  # to predict `first`, without loading

    @classmethod
    def from_tagger(
        cls, tagger: Tagger, documents: Sequence[Document], depth: int = EVALUATION_DEPTH, run: Run = Run()
    ) -> SavedPredictions:
        tagger.predict(documents[:1], N_COMPARED_LABELS, run)  # excludes one-time work from the time
        start = perf_counter()
        first = tagger.predict(documents, N_COMPARED_LABELS, run)
        seconds = perf_counter() - start
        deep = tagger.predict(documents, depth, run) if depth > N_COMPARED_LABELS else first
        return cls(first, deep, TrainingStatistics.from_tagger(tagger), seconds)

    def save(self, path: Path) -> None:
        about = json.dumps({"trained": asdict(self.trained), "seconds": self.seconds}).encode()
        arrays = {
            f"{name}_{part}": getattr(getattr(self, name), part) for name in PREDICTION_FIELDS for part in ARRAY_FIELDS
        }
        with atomic_file(path) as file:
            np.savez_compressed(file, **arrays, about=np.frombuffer(about, np.uint8))

    @classmethod
    def load(cls, path: Path) -> SavedPredictions:
        with np.load(path, allow_pickle=False) as file:
            about = read_metadata(file)
            first, deep = (
                Predictions(*(file[f"{name}_{part}"] for part in ARRAY_FIELDS)) for name in PREDICTION_FIELDS
            )
            return cls(first, deep, TrainingStatistics(**about["trained"]), about["seconds"])


def read_metadata(file: Any) -> dict[str, Any]:
    return json.loads(file["about"].tobytes())
