"""What a model ranks first for each document, by the names of labels, and what it took to say so; kept in a file, so
that methods can be compared that never were in memory together."""

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

N_COMPARED_LABELS = 5  # labels of a document that are compared
PREDICTION_FIELDS, ARRAY_FIELDS = ("first", "deep"), ("labels", "scores")


@dataclass(frozen=True)
class TrainingStatistics:
    """What a model was trained on."""

    names: list[str]  # of its labels, by number
    frequencies: list[int]  # documents of each
    n_docs: int

    @classmethod
    def from_tagger(cls, tagger: Tagger) -> TrainingStatistics:
        return cls(list(tagger.labels.words()), tagger.frequencies.tolist(), tagger.about["n_docs"])

    @classmethod
    def load(cls, path: Path) -> TrainingStatistics:
        """From a file of answers."""
        with np.load(path, allow_pickle=False) as held:
            return cls(**read_metadata(held)["trained"])


@dataclass(frozen=True)
class SavedPredictions:
    first: Predictions  # FIRST labels, as people ask for them
    deep: Predictions  # as many as curves of single labels need; asked for more, a search may look further
    trained: TrainingStatistics
    seconds: float | None = None  # of predicting the first alone, after everything was read

    @classmethod
    def from_tagger(
        cls, tagger: Tagger, documents: Sequence[Document], depth: int = EVALUATION_DEPTH, run: Run = Run()
    ) -> SavedPredictions:
        tagger.predict(documents[:1], N_COMPARED_LABELS, run)  # what is loaded or looked at once is no part of the time
        begin = perf_counter()
        first = tagger.predict(documents, N_COMPARED_LABELS, run)
        seconds = perf_counter() - begin
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
        with np.load(path, allow_pickle=False) as held:
            about = read_metadata(held)
            first, deep = (
                Predictions(*(held[f"{name}_{part}"] for part in ARRAY_FIELDS)) for name in PREDICTION_FIELDS
            )
            return cls(first, deep, TrainingStatistics(**about["trained"]), about["seconds"])


def read_metadata(held: Any) -> dict[str, Any]:
    return json.loads(held["about"].tobytes())
