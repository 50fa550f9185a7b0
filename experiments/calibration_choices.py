"""Compare choices of calibration by ECE on test documents: which held-out documents, how many, and whether the rank of
a label is used.

python experiments/calibration_choices.py parabel cve-libraries delicious
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from common import CORPORA
from scipy.sparse import csr_array

from xmtc import features
from xmtc.core.dataset import Dataset
from xmtc.core.method import Method
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.data.corpus import open_corpus
from xmtc.data.label_collector import LabelCollector
from xmtc.data.splits import drop_rows, sample_labelled_rows, sample_rows_keeping_labels
from xmtc.evaluation import evaluate
from xmtc.methods.ensemble.calibrated_model import RAW_SCORE_WEIGHT, apply_isotonic_curve, fit_isotonic_curve
from xmtc.methods.ensemble.members import fit_on_seen_labels
from xmtc.methods.ensemble.model import MIN_MEMBER_LABELS
from xmtc.pipeline import Pipeline
from xmtc.scores.calibration import HELD_OUT_FRACTION, MAX_HELD_OUT_DOCUMENTS

RUN = Run(threads=2)
MEASURES = ["ECE@1", "ECE@5", "ECE@20"]
SIZES, DRAWS = (50, 100, 200, 500), 5
BANDS = ((0, 1, MIN_MEMBER_LABELS), (0, 1, 5, MIN_MEMBER_LABELS))  # ranks at which a curve begins and ends


def calibrate_by_rank(found: Predictions, held_out: Predictions, Y: csr_array, edges: tuple[int, ...]) -> Predictions:
    """Fit a curve for each band of ranks; scores do not increase with the rank."""
    height = np.zeros(found.scores.shape)
    for first, last in pairwise(edges):
        part = Predictions.from_valid_arrays(held_out.labels[:, first:last], held_out.scores[:, first:last])
        height[:, first:last] = np.interp(found.scores[:, first:last], *fit_isotonic_curve(part, Y))
    height = (1 - RAW_SCORE_WEIGHT) * np.minimum.accumulate(height, axis=1) + RAW_SCORE_WEIGHT * found.scores
    return Predictions.from_valid_arrays(found.labels, np.where(found.labels == NO_LABEL, 0, height).astype(np.float32))


def select_rows(found: Predictions, rows: np.ndarray) -> Predictions:
    return Predictions.from_valid_arrays(found.labels[rows], found.scores[rows])


def predict_held_out(method: Method, data: Dataset, rows: np.ndarray, k: int) -> tuple[Predictions, csr_array]:
    held_out = data.select_rows(rows)
    return fit_on_seen_labels(method, drop_rows(data, rows), None, RUN).predict(held_out, k, RUN), held_out.Y


def compare_choices(method: str, corpus: str) -> Iterator[tuple[str, dict[str, Any]]]:
    train, test = (open_corpus(str(CORPORA / corpus / f"{part}.jsonl.gz")) for part in ("train", "test"))
    pipeline = Pipeline.from_parameters(method)
    prepared = pipeline.prepare(train, RUN)
    data, k = prepared.data, min(MIN_MEMBER_LABELS, prepared.data.n_labels)
    collector = LabelCollector()
    documents = features.transform(prepared.fitted_views, collector.collect(test), RUN)
    truth = collector.to_matrix(prepared.labels.words())
    known = features.mark_known_documents(prepared.fitted_views, documents)
    raw = pipeline.method.fit(data, None, RUN).predict(documents, k, RUN).mask_documents(known)

    def compute_errors(found: Predictions) -> dict[str, float]:
        return {name: round(100 * value, 2) for name, value in evaluate(found, truth, MEASURES).items()}

    yield "raw", compute_errors(raw)
    kept = sample_rows_keeping_labels(data, 0, min(MAX_HELD_OUT_DOCUMENTS, int(HELD_OUT_FRACTION * data.n_docs)))
    yield (
        "no label loses its last document",
        compute_errors(
            apply_isotonic_curve(raw, *fit_isotonic_curve(*predict_held_out(pipeline.method, data, kept, k)))
        ),
    )
    held_out, Y = predict_held_out(
        pipeline.method, data, sample_labelled_rows(data, 0, HELD_OUT_FRACTION, MAX_HELD_OUT_DOCUMENTS), k
    )
    yield "a random tenth", compute_errors(apply_isotonic_curve(raw, *fit_isotonic_curve(held_out, Y)))
    for edges in BANDS:
        yield (
            f"curves by rank, from {', '.join(str(first + 1) for first in edges[:-1])} on",
            compute_errors(calibrate_by_rank(raw, held_out, Y, edges)),
        )
    for n_docs in SIZES:
        drawn = (np.random.default_rng(seed).permutation(Y.shape[0])[:n_docs] for seed in range(DRAWS))
        found = [
            compute_errors(apply_isotonic_curve(raw, *fit_isotonic_curve(select_rows(held_out, rows), Y[rows])))[
                "ECE@20"
            ]
            for rows in drawn
        ]
        yield f"only {n_docs} documents", {"ECE@20": found}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method")
    parser.add_argument("corpora", nargs="+")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results" / "calibration-choices.json")
    given = parser.parse_args()
    kept = json.loads(given.results.read_text()) if given.results.exists() else {}
    for corpus in given.corpora:
        for name, figures in compare_choices(given.method, corpus):
            print(given.method, corpus, name, figures, flush=True)
            kept.setdefault(f"{given.method}, {corpus}", {})[name] = figures
    given.results.write_text(json.dumps(kept, indent=1) + "\n")
