"""Score bands of models that `xmtc train` calibrates on samples, counted on the test documents.

A band of ten points with at least 30 labels is off as in calibration_bands_table.py. The bound is the same count if the
curve is fitted on half of the test documents and counted on the other half, twice: no calibration of these models on as
many documents has better evidence.

python experiments/calibration_commands.py /tmp/cal cve-libraries makupalat-fi
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from calibration_bands import read_parts
from calibration_bands_table import Band, find_bands
from sklearn.isotonic import IsotonicRegression

from xmtc.data.corpus import open_corpus_writer
from xmtc.data.document import Document

SIZES = (1000, 2000, 3000)
MODELS = {"parabel": [], "dismec": [], "plt": [], "consensus": ["-p", "members=dismec,parabel"]}
XMTC = [sys.executable, "-m", "xmtc"]


class ScoredLabels(NamedTuple):
    """Predicted labels: score, whether it is correct, and number of the document."""

    scores: np.ndarray
    hits: np.ndarray
    documents: np.ndarray

    def select(self, rows: np.ndarray) -> ScoredLabels:
        return ScoredLabels(*(each[rows] for each in self))


def write_documents(path: Path, documents: list[Document]) -> None:
    with open_corpus_writer(path) as add:
        for document in documents:
            add(document)


def train_and_predict(folder: Path, name: str, method: str, test: list[Document]) -> ScoredLabels:
    """Run both commands, and return the 100 best labels of each test document."""
    train = ["train", folder / "train.jsonl", "-m", method, *MODELS[method], "-o", folder / name, "--threads", "1"]
    predict = ["predict", folder / name, folder / "test.jsonl", "-k", "100", "-o", folder / "found.jsonl"]
    for words in (train, predict):
        subprocess.run([*XMTC, *map(str, words), "--quiet"], check=True)
    lines = (folder / "found.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [
        (label["score"], label["label"] in document.labels, number)
        for number, (document, line) in enumerate(zip(test, lines, strict=True))
        for label in json.loads(line)["labels"]
    ]
    return ScoredLabels(*map(np.array, zip(*rows, strict=True)))


def count_halves(labels: ScoredLabels, n_docs: int) -> list[Band]:
    """Return the bands of each half of the documents with a curve that is fitted on the other half."""
    is_first, bands = np.random.default_rng(0).permutation(n_docs) < n_docs // 2, []
    for is_fitted in (is_first[labels.documents], ~is_first[labels.documents]):
        fitted, measured = labels.select(is_fitted), labels.select(~is_fitted)
        curve = IsotonicRegression(out_of_bounds="clip").fit(fitted.scores, fitted.hits)
        probabilities = np.clip(curve.predict(measured.scores), 0, 0.9999)
        bands += find_bands(probabilities, measured.hits, measured.documents)
    return bands


def describe(bands: list[Band]) -> str:
    n_off, n_clustered = sum(band.is_off for band in bands), sum(band.is_off_clustered for band in bands)
    return f"{n_off} of {len(bands)} off, {n_clustered} if clustered"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for corpus in sys.argv[2:]:
        bands, bound = [], []
        for size in SIZES:
            parts = read_parts(corpus, size)
            write_documents(folder / "train.jsonl", parts["train"])
            write_documents(folder / "test.jsonl", parts["test"])
            for method in MODELS:
                labels = train_and_predict(folder, f"{corpus}-{size}-{method}", method, parts["test"])
                bands += find_bands(labels.scores, labels.hits.astype(float), labels.documents)
                bound += count_halves(labels, len(parts["test"]))
                print(corpus, size, method, describe(bands), "so far", flush=True)
        print(corpus, "commands:", describe(bands), "| bound:", describe(bound), flush=True)
