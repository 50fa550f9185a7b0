"""Shared functions of experiments: corpora, and trainings that print progress."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

from scipy.sparse import csr_array

CORPORA = Path(__file__).parents[2] / "shared" / "data"
PARTS = ("train", "dev", "test")


def read_texts(folder: Path) -> Iterator[tuple[str, list[str], csr_array]]:
    """Yield the texts and labels of each existing part of a corpus. Labels are numbered as in training; labels that are
    only in other parts come last."""
    from xmtc.data.corpus import open_corpus
    from xmtc.data.label_collector import LabelCollector

    parts = [part for part in PARTS if (folder / f"{part}.jsonl.gz").exists()]
    if not parts:
        raise SystemExit(
            f"{folder} has no train.jsonl.gz, dev.jsonl.gz or test.jsonl.gz; name another folder of corpora."
        )
    names: list[str] = []
    for part in parts:
        collector = LabelCollector()
        texts = [document.text for document in collector.collect(open_corpus(str(folder / f"{part}.jsonl.gz")))]
        names = names or sorted(collector.id_by_label)
        yield part, texts, collector.to_matrix(names)


class TrainingLog:
    """Progress that prints each status with the seconds since the start."""

    def __init__(self, name: str) -> None:
        self.name, self.begin, self.statuses = name, time.perf_counter(), []

    def __call__(self, title: str, total: float | None = None):
        return nullcontext(self)

    def advance(self, steps: float = 1) -> None:
        return None

    def set_status(self, status: str) -> None:
        self.statuses.append((round(time.perf_counter() - self.begin, 3), status))
        print(f"{self.name} {self.statuses[-1][0]:7.1f} s  {status}", flush=True)
