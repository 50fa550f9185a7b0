"""A pair of scipy sparse matrices, features `X.npz` and labels `Y.npz` with a row per document, as PECOS keeps them.

The path is that of the features; the labels are found beside it by the name (X.trn.npz → Y.trn.npz, train_X.npz →
train_Y.npz, features.npz → labels.npz) or named too, as in "X.npz,Y.npz". Nothing is unpickled. Both are held in
memory: a compressed matrix cannot be streamed."""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Iterator

import numpy as np
from scipy import sparse

from xmtc.data.document import Document
from xmtc.data.formats import Dimensions, Format
from xmtc.data.source import Source
from xmtc.errors import XmtcError

NAMES = (("X", "Y"), ("x", "y"), ("features", "labels"))
UNREADABLE = (ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile, zlib.error, NotImplementedError)


def read(source: Source) -> Iterator[Document]:
    features_path, labels_path = pair(source.path)
    X = _matrix(features_path)
    Y = _labels(labels_path, features_path, source)
    if Y is not None and Y.shape[0] != X.shape[0]:
        raise XmtcError(
            f"{features_path} has {X.shape[0]} rows and {labels_path} has {Y.shape[0]}, expected one row per document "
            f"in both; check that they belong together."
        )

    for row in range(X.shape[0]):
        columns, values = _row(X, row)
        if not np.isfinite(values).all():
            raw = " ".join(f"{column}:{value}" for column, value in zip(columns, values, strict=True))
            reason = "found a value that is no finite number, expected finite ones"
            source.refuse(row + 1, reason, raw=raw.encode(), unit="row")
            continue

        labels = [] if Y is None else [str(label) for label in _row(Y, row)[0]]
        yield Document(str(row + 1), "", labels, (columns.astype(np.int32), values.astype(np.float32)))


def dimensions(source: Source) -> Dimensions:
    features_path, labels_path = pair(source.path)
    has_labels = source.reads_labels and labels_path is not None and os.path.exists(labels_path)

    return Dimensions(
        n_features=_n_columns(features_path),
        n_labels=_n_columns(labels_path) if labels_path and has_labels else None,
    )


def pair(path: str) -> tuple[str, str | None]:
    """The paths of the features and of the labels; None if the labels' path cannot be derived from the features'."""
    features, comma, labels = path.partition(",")
    if comma:
        return features, labels

    folder, name = os.path.split(features)
    for of_features, of_labels in NAMES:
        found = re.search(rf"(?<![A-Za-z]){of_features}(?![A-Za-z])", name)
        if found:
            return features, os.path.join(folder, name[: found.start()] + of_labels + name[found.end() :])

    return features, None


def _labels(path: str | None, features_path: str, source: Source) -> sparse.csr_array | None:
    if not source.reads_labels:
        return None
    if path is not None and os.path.exists(path):
        Y = _matrix(path)
        Y.eliminate_zeros()
        return Y
    if source.labels_required:
        looked_for = f"there is no {path}" if path else "the name of its labels cannot be derived from its name"
        raise XmtcError(
            f"{features_path} holds features and {looked_for}, expected a pair; "
            f"give both as {features_path},LABELS.npz."
        )
    return None


def _matrix(path: str) -> sparse.csr_array:
    try:
        with Source(path).seekable() as file:
            matrix = sparse.csr_array(sparse.load_npz(file))
        matrix.check_format()
        matrix.sum_duplicates()  # sorts the columns, too
        return matrix
    except XmtcError:
        raise
    except UNREADABLE:
        raise _not_a_matrix(path) from None


def _n_columns(path: str) -> int:
    try:
        with Source(path).seekable() as file, np.load(file, allow_pickle=False) as arrays:
            return int(arrays["shape"][1])
    except XmtcError:
        raise
    except (*UNREADABLE, IndexError, AttributeError):
        raise _not_a_matrix(path) from None


def _not_a_matrix(path: str) -> XmtcError:
    return XmtcError(
        f"{path} is no sparse matrix saved by scipy, and pickles are never opened; save it with scipy.sparse.save_npz."
    )


def _row(matrix: sparse.csr_array, row: int) -> tuple[np.ndarray, np.ndarray]:
    begin, end = matrix.indptr[row], matrix.indptr[row + 1]
    return matrix.indices[begin:end], matrix.data[begin:end]


NPZ = Format("npz", read, holds_features=True, dimensions=dimensions, files=pair)
