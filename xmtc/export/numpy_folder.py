"""Folder of NumPy arrays with a reader that needs nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from xmtc.errors import XmtcError
from xmtc.export.linear_arrays import LinearArrays
from xmtc.export.text_features import TextFeatures
from xmtc.storage.atomic import atomic_folder
from xmtc.text.analyzers import DENSE_SCRIPT_RANGES

READER_SOURCE = Path(__file__).with_name("numpy_reader.py")
READER_FILE, ABOUT_FILE, TERMS_FILE = "reader.py", "model.json", "terms.json"
EXPORT_FORMAT = 1


def write_numpy_folder(features: TextFeatures, arrays: LinearArrays, output: Path) -> None:
    """Write the arrays, the description and the reader; an earlier export is replaced."""
    about = {
        "format": EXPORT_FORMAT,
        "parts": features.parts,
        "link": arrays.link,
        "dense": DENSE_SCRIPT_RANGES,
        "labels": arrays.labels,
        "names": arrays.names,
    }
    files = {
        "starts": arrays.weights.indptr.astype(np.int64),
        "slots": arrays.weights.indices.astype(np.int32),
        "weights": arrays.weights.data,
        "bias": arrays.bias,
        "parents": arrays.parents,
        "slot_labels": arrays.slot_labels,
        "trees": arrays.tree_starts,
        "knots": arrays.knots,
        "probabilities": arrays.probabilities,
        "idf": features.idf,
    }
    check_replaceable(output, {ABOUT_FILE, TERMS_FILE, READER_FILE, *(f"{name}.npy" for name in files)})
    output.parent.mkdir(parents=True, exist_ok=True)
    with atomic_folder(output) as folder:
        for name, values in files.items():
            np.save(folder / f"{name}.npy", values, allow_pickle=False)
        (folder / ABOUT_FILE).write_text(json.dumps(about), encoding="utf-8")
        (folder / TERMS_FILE).write_text(json.dumps(features.terms), encoding="utf-8")
        shutil.copyfile(READER_SOURCE, folder / READER_FILE)


def check_replaceable(output: Path, names: set[str]) -> None:
    """Raise XmtcError if something is at the path that is neither an earlier export nor an empty folder."""
    if output.is_dir():
        found = {path.name for path in output.iterdir()} - {"__pycache__"}  # of an imported reader
        if found in (set(), names):
            return
    if output.exists():
        raise XmtcError(f"{output} exists and is no earlier export; choose another folder, or remove it.")
