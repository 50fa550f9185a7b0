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
from xmtc.evaluation import DEPTH
from xmtc.storage.atomic import atomic_file
from xmtc.tagger import Tagger

FIRST = 5  # labels of a document that are compared
PARTS, ARRAYS = ("first", "deep"), ("labels", "scores")


@dataclass(frozen=True)
class Trained:
    """What a model was trained on."""

    names: list[str]  # of its labels, by number
    frequencies: list[int]  # documents of each
    n_docs: int

    @classmethod
    def of(cls, tagger: Tagger) -> Trained:
        return cls(list(tagger.labels.words()), tagger.frequencies.tolist(), tagger.about["n_docs"])

    @classmethod
    def load(cls, path: Path) -> Trained:
        """From a file of answers."""
        with np.load(path, allow_pickle=False) as held:
            return cls(**about_of(held)["trained"])


@dataclass(frozen=True)
class Answers:
    first: Predictions  # FIRST labels, as people ask for them
    deep: Predictions  # as many as curves of single labels need; asked for more, a search may look further
    trained: Trained
    seconds: float | None = None  # of predicting the first alone, after everything was read

    @classmethod
    def of(cls, tagger: Tagger, documents: Sequence[Document], depth: int = DEPTH, run: Run = Run()) -> Answers:
        tagger.rank(documents[:1], FIRST, run)  # what is loaded or looked at once is no part of the time
        begin = perf_counter()
        first = tagger.rank(documents, FIRST, run)
        seconds = perf_counter() - begin
        deep = tagger.rank(documents, depth, run) if depth > FIRST else first
        return cls(first, deep, Trained.of(tagger), seconds)

    def save(self, path: Path) -> None:
        about = json.dumps({"trained": asdict(self.trained), "seconds": self.seconds}).encode()
        arrays = {f"{name}_{part}": getattr(getattr(self, name), part) for name in PARTS for part in ARRAYS}
        with atomic_file(path) as file:
            np.savez_compressed(file, **arrays, about=np.frombuffer(about, np.uint8))

    @classmethod
    def load(cls, path: Path) -> Answers:
        with np.load(path, allow_pickle=False) as held:
            about = about_of(held)
            first, deep = (Predictions(*(held[f"{name}_{part}"] for part in ARRAYS)) for name in PARTS)
            return cls(first, deep, Trained(**about["trained"]), about["seconds"])


def about_of(held: Any) -> dict[str, Any]:
    return json.loads(held["about"].tobytes())
