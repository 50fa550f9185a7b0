"""A pair of scipy sparse matrices, features `X.npz` and labels `Y.npz` with a row per document, as PECOS keeps them.

The path is that of the features; the labels are found beside it by the name (X.trn.npz → Y.trn.npz, train_X.npz →
train_Y.npz, features.npz → labels.npz) or named too, as in "X.npz,Y.npz". Nothing is unpickled. Both are held in
memory: a compressed matrix cannot be streamed."""

from __future__ import annotations

import math
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from scipy import sparse

from xmtc.core.array_validation import is_offset_array
from xmtc.data.corpus_input import CorpusInput
from xmtc.data.document import Document
from xmtc.data.formats import CorpusFormat, Dimensions
from xmtc.errors import XmtcError

FILE_NAME_PAIRS = (("X", "Y"), ("x", "y"), ("features", "labels"))
HEADER_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
INDEX_ARRAYS = ("indptr", "indices", "row", "col", "offsets")
MAX_MEMBERS = 16  # arrays of a file
NUMERIC_KINDS = "biuf"  # the kinds of types that are numbers
MAX_COLUMNS = int(np.iinfo(np.int32).max)
# Rows that a matrix may have without entries: those of a file that holds none would fill the memory all the same.
MAX_EMPTY_ROWS, MAX_ROWS_PER_ENTRY = 1 << 22, 1000


def read(source: CorpusInput) -> Iterator[Document]:
    features_path, labels_path = find_pair(source.path)
    X = _read_matrix(features_path)
    Y = _read_labels(labels_path, features_path, source)
    if Y is not None and Y.shape[0] != X.shape[0]:
        raise XmtcError(
            f"{features_path} has {X.shape[0]} rows and {labels_path} has {Y.shape[0]}, expected one row per document "
            f"in both; check that they belong together."
        )

    for row in range(X.shape[0]):
        columns, values = _get_row(X, row)
        if not np.isfinite(values).all():
            raw = " ".join(f"{column}:{value}" for column, value in zip(columns, values, strict=True))
            reason = "found a value that is no finite number, expected finite ones"
            source.report_bad_line(row + 1, reason, raw=raw.encode(), unit="row")
            continue

        labels = [] if Y is None else [str(label) for label in _get_row(Y, row)[0]]
        yield Document(str(row + 1), "", labels, (columns.astype(np.int32), values))


def read_dimensions(source: CorpusInput) -> Dimensions:
    features_path, labels_path = find_pair(source.path)
    has_labels = source.should_read_labels and labels_path is not None and os.path.exists(labels_path)

    return Dimensions(
        n_features=_read_column_count(features_path),
        n_labels=_read_column_count(labels_path) if labels_path and has_labels else None,
    )


def find_pair(path: str) -> tuple[str, str | None]:
    """The paths of the features and of the labels; None if the labels' path cannot be derived from the features'."""
    features, comma, labels = path.partition(",")
    if comma:
        return features, labels

    folder, name = os.path.split(features)
    for of_features, of_labels in FILE_NAME_PAIRS:
        found = re.search(rf"(?<![A-Za-z]){of_features}(?![A-Za-z])", name)
        if found:
            return features, os.path.join(folder, name[: found.start()] + of_labels + name[found.end() :])

    return features, None


def _read_labels(path: str | None, features_path: str, source: CorpusInput) -> sparse.csr_array | None:
    if not source.should_read_labels:
        return None
    if path is not None and os.path.exists(path):
        Y = _read_matrix(path)
        Y.eliminate_zeros()
        return Y
    if source.labels_required:
        looked_for = f"there is no {path}" if path else "the name of its labels cannot be derived from its name"
        raise XmtcError(
            f"{features_path} holds features and {looked_for}, expected a pair; "
            f"give both as {features_path},LABELS.npz."
        )
    return None


def _read_matrix(path: str) -> sparse.csr_array:
    with _open_archive(path) as file:
        with np.load(file, allow_pickle=False) as arrays:
            _check_arrays(arrays)
        file.seek(0)
        found = sparse.load_npz(file)
        if hasattr(found, "check_format"):  # before compiled code turns it into rows
            found.check_format()
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused with its row
            matrix = sparse.csr_array(found.astype(np.float32))
        matrix.check_format()
        matrix.sum_duplicates()  # sorts the columns, too
        return matrix


def _read_column_count(path: str) -> int:
    with _open_archive(path) as file, np.load(file, allow_pickle=False) as arrays:
        return _shape(arrays)[1]


@contextmanager
def _open_archive(path: str) -> Iterator[IO[bytes]]:
    """The file, each of whose arrays is as large as it says. Whatever goes wrong with it becomes one sentence: what
    numpy, scipy and zipfile raise has many names."""
    try:
        with CorpusInput(path).open_seekable() as file:
            _check_sizes(file)
            file.seek(0)
            yield file
    except XmtcError:
        raise
    except Exception:
        raise _invalid_matrix_error(path) from None


def _check_sizes(file: IO[bytes]) -> None:
    """Before numpy makes room for what a header declares."""
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if len(members) > MAX_MEMBERS or len({member.filename for member in members}) < len(members):
            raise ValueError("it holds more arrays than a sparse matrix has")  # which may overlap in the file
        for member in members:
            with archive.open(member) as stream:
                read_header = HEADER_READERS[np.lib.format.read_magic(stream)]
                shape, _, dtype = read_header(stream)
                if dtype.hasobject or math.prod(shape) * dtype.itemsize != member.file_size - stream.tell():
                    raise ValueError(f"{member.filename} does not hold the array that it declares")


def _shape(arrays: Any) -> tuple[int, int]:
    shape = arrays["shape"]
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or shape.min() < 0 or shape.max() > MAX_COLUMNS:
        raise ValueError("its shape is none")
    return int(shape[0]), int(shape[1])


def _check_arrays(arrays: Any) -> None:
    """Refuse arrays that are no numbers, and rows by the million that hold nothing."""
    n_rows, _ = _shape(arrays)
    parts = [arrays[name] for name in arrays.files if name not in ("shape", "format", "_is_array")]
    if any(part.dtype.kind not in NUMERIC_KINDS for part in parts):
        raise ValueError("its arrays hold no numbers")
    places = {name: arrays[name] for name in INDEX_ARRAYS if name in arrays.files}
    if any(part.dtype.kind not in "iu" for part in places.values()):
        raise ValueError("its entries have no places")
    if "indptr" in places:
        check_row_offsets(places["indptr"], len(places.get("indices", ())))
    if n_rows > max(MAX_EMPTY_ROWS, MAX_ROWS_PER_ENTRY * arrays["data"].size, *(len(part) for part in parts)):
        raise ValueError("it has millions of rows without entries")


def check_row_offsets(indptr: np.ndarray, n_entries: int) -> None:
    """Refuse row ends that lead out of the arrays: scipy checks them too late, or not at all."""
    if indptr.ndim != 1 or not is_offset_array(indptr, len(indptr) - 1, int(indptr[-1]) if len(indptr) else 0):
        raise ValueError("its rows end before they begin")
    if indptr[-1] > n_entries:
        raise ValueError("its rows end before they begin")


def _invalid_matrix_error(path: str) -> XmtcError:
    return XmtcError(
        f"{path} is no sparse matrix saved by scipy, and pickles are never opened; save it with scipy.sparse.save_npz."
    )


def _get_row(matrix: sparse.csr_array, row: int) -> tuple[np.ndarray, np.ndarray]:
    begin, end = matrix.indptr[row], matrix.indptr[row + 1]
    return matrix.indices[begin:end], matrix.data[begin:end]


NPZ = CorpusFormat("npz", read, has_features=True, read_dimensions=read_dimensions, resolve_files=find_pair)
