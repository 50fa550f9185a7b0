"""Count score bands whose predicted and true share differ, from the files of calibration_bands.py.

A band of ten points with at least 30 labels is off if the shares differ by 2 standard errors + 0.03 or more. The
standard error is that of a share of independent labels, or clustered by document, as labels of one document are often
right or wrong together.

python experiments/calibration_bands_table.py /tmp/cal test
"""

from __future__ import annotations

import sys
from math import ceil
from pathlib import Path
from typing import NamedTuple

import numpy as np
from calibration_bands import FOLDS
from scipy.sparse import csr_array

from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.methods.ensemble import calibrated_model
from xmtc.scores.calibration import MAX_HELD_OUT_DOCUMENTS

PSEUDO_LABELS = {"one fold": 0, "folds": calibrated_model.TOP_PSEUDO_LABELS}


def read_part(file: np.lib.npyio.NpzFile, part: str) -> tuple[Predictions, np.ndarray]:
    scores, hits = file[f"{part} scores"], file[f"{part} hits"]
    labels = np.where(np.isnan(scores), NO_LABEL, np.arange(scores.shape[1])).astype(np.int32)
    return Predictions.from_valid_arrays(labels, np.nan_to_num(scores)), hits


class Band(NamedTuple):
    """Band of scores with at least 30 labels."""

    number: int
    is_off: bool
    is_off_clustered: bool  # with the standard error clustered by document


def find_bands(scores: np.ndarray, hits: np.ndarray, documents: np.ndarray) -> list[Band]:
    numbers, bands = np.minimum((scores * 10).astype(int), 9), []
    for number in range(10):
        is_inside = numbers == number
        if (n := is_inside.sum()) >= 30:
            share = hits[is_inside].mean()
            excess = scores[is_inside] - hits[is_inside]
            difference = excess.mean()
            error = np.sqrt(max(share * (1 - share), 1 / n) / n)
            by_document = np.bincount(documents[is_inside], excess - difference)
            clustered = max(error, np.sqrt(np.square(by_document).sum()) / n)
            bands.append(Band(number, *(bool(abs(difference) >= 2 * each + 0.03) for each in (error, clustered))))
    return bands


def measure(path: Path, part: str, kind: str) -> list[Band]:
    file = np.load(path)
    predictions, hits = read_part(file, "held-out")
    n_rows = int((file["folds"] == 0).sum())
    n_folds = 1 if kind == "one fold" else min(FOLDS, ceil(MAX_HELD_OUT_DOCUMENTS / n_rows))
    rows = file["folds"] < n_folds
    calibrated_model.TOP_PSEUDO_LABELS = PSEUDO_LABELS[kind]
    curve = calibrated_model.fit_isotonic_curve(
        calibrated_model.select_prediction_rows(predictions, rows), csr_array(hits[rows].astype(np.float32))
    )
    others, truth = read_part(file, part)
    calibrated = calibrated_model.apply_isotonic_curve(others, *curve).scores
    is_predicted = others.labels != NO_LABEL
    return find_bands(calibrated[is_predicted], truth[is_predicted], np.nonzero(is_predicted)[0])


if __name__ == "__main__":
    folder, part = Path(sys.argv[1]), sys.argv[2]
    for corpus in ("makupalat-fi", "cve-libraries", "eurlex57k", "tibkat-gnd-en"):
        for group, sizes in (("samples", ("1000", "2000", "3000")), ("whole", ("0",))):
            for kind in PSEUDO_LABELS:
                paths = [path for size in sizes for path in sorted(folder.glob(f"{corpus}-{size}-*.npz"))]
                bands = [band for path in paths for band in measure(path, part, kind)]
                n_off, n_top = (sum(band.is_off for band in bands if band.number >= low) for low in (0, 9))
                n_clustered = sum(band.is_off_clustered for band in bands)
                counts = f"{n_off} of {len(bands)} off, {n_top} in the top band, {n_clustered} off if clustered"
                print(corpus, group, kind, counts, flush=True)
