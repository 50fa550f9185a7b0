"""Shared functions of experiments: packed corpora, trainings that print progress, and stored predictions."""

from __future__ import annotations

import io
import lzma
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.dataset import Dataset, Tokens
from xmtc.core.method import Method
from xmtc.core.predictions import Predictions
from xmtc.core.run import Run
from xmtc.evaluation import evaluate

CORPORA = Path(__file__).parents[2] / "shared" / "data"
PARTS = ("train", "dev", "test")
KEPT = 50  # labels per document that are stored for ensembles and consensus
NAMES = ("P@1", "P@3", "P@5", "nDCG@3", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")


def pack(path: Path, arrays: dict[str, Any]) -> None:
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    path.write_bytes(lzma.compress(packed.getvalue(), preset=3))
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


def unpack(path: Path) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(lzma.decompress(path.read_bytes()))) as arrays:
        return dict(arrays)


def read_texts(folder: Path) -> Iterator[tuple[str, list[str], csr_array]]:
    """Yield the texts and labels of each existing part of a corpus. Labels are numbered as in training; labels that are
    only in other parts come last."""
    from xmtc.data.corpus import open_corpus
    from xmtc.data.label_collector import LabelCollector

    names: list[str] = []
    for part in PARTS:
        if (folder / f"{part}.jsonl.gz").exists():
            collector = LabelCollector()
            texts = [document.text for document in collector.collect(open_corpus(str(folder / f"{part}.jsonl.gz")))]
            names = names or sorted(collector.id_by_label)
            yield part, texts, collector.to_matrix(names)


def numbers_of(part: str, tokens: Tokens, Y: csr_array) -> dict[str, Any]:
    """Packed part of a corpus."""
    kind = np.uint16 if tokens.size < 2**16 else np.int32
    print(f"{part}: {tokens.n_docs} documents, {len(tokens.ids)} words, {Y.shape[1]} labels", flush=True)
    found = {"ids": tokens.ids.astype(kind), "offsets": tokens.offsets.astype(np.int32), "width": Y.shape[1]}
    found |= {"Y_indptr": Y.indptr, "Y_indices": Y.indices}
    return {f"{part}_{name}": value for name, value in found.items()} | {"size": tokens.size}


def from_numbers(part: str, found: dict[str, np.ndarray]) -> tuple[Tokens, csr_array]:
    ids, offsets = found[f"{part}_ids"].astype(np.int32), found[f"{part}_offsets"].astype(np.int64)
    tokens, indices = Tokens(ids, offsets, int(found["size"])), found[f"{part}_Y_indices"]
    shape = tokens.n_docs, int(found[f"{part}_width"])
    return tokens, csr_array((np.ones(len(indices), np.float32), indices, found[f"{part}_Y_indptr"]), shape=shape)


def first_words(tokens: Tokens, most: int) -> Tokens:
    """Truncate documents to their first words."""
    kept = np.minimum(tokens.lengths, most)
    offsets = np.concatenate([[0], np.cumsum(kept)])
    ids = tokens.ids[np.repeat(tokens.offsets[:-1] - offsets[:-1], kept) + np.arange(offsets[-1])]
    return replace(tokens, ids=ids, offsets=offsets)


class Log:
    """Print training events with the seconds since the start."""

    def __init__(self, name: str) -> None:
        self.name, self.begin, self.news = name, time.perf_counter(), []

    def __call__(self, title: str, total: float | None = None):
        return nullcontext(self)

    def advance(self, steps: float = 1) -> None:
        return None

    def tell(self, news: str) -> None:
        self.news.append((round(time.perf_counter() - self.begin, 3), news))
        print(f"{self.name} {self.news[-1][0]:7.1f} s  {news}", flush=True)


def learn(
    method: Method, name: str, parts: dict[str, Dataset], keep: Path | None = None, judged: tuple[str, ...] = PARTS[1:]
) -> dict[str, Any]:
    """Train one method; dev is used for early stopping, test for the final metrics."""
    n_labels, log = parts["train"].n_labels, Log(name)
    valid = replace(parts["dev"], Y=parts["dev"].Y[:, :n_labels])
    model = method.fit(parts["train"], valid, Run(progress=log))
    seconds = round(time.perf_counter() - log.begin, 1)
    result: dict[str, Any] = {"name": name, "method": asdict(method), "training_s": seconds, "log": log.news}
    frequencies = np.bincount(parts["train"].Y.indices, minlength=n_labels)
    for part in judged:
        begin = time.perf_counter()
        found = model.predict(parts[part], 100)
        took = time.perf_counter() - begin
        figures = evaluate(found, parts[part].Y, NAMES, frequencies, n_train=parts["train"].n_docs)
        result[part] = {metric: round(100 * value, 2) for metric, value in figures.items()}
        result[part]["docs_per_s"] = round(parts[part].n_docs / took)
        if keep:
            kept = {"labels": found.labels[:, :KEPT], "scores": found.scores[:, :KEPT]}
            np.savez_compressed(keep / f"{name}-{part}.npz", **kept)
        print(name, part, result[part], flush=True)
    return result


def kept_predictions(path: Path) -> Predictions:
    with np.load(path) as arrays:
        return Predictions(arrays["labels"], arrays["scores"].astype(np.float32))
