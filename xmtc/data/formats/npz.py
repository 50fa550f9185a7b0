"""A pair of SciPy sparse matrices with a row per document, features `X.npz` and labels `Y.npz` (as PECOS has).

The path names the features, or both files as in "X.npz,Y.npz". The name of the label file is derived from that of the
features (X.trn.npz → Y.trn.npz, train_X.npz → train_Y.npz, features.npz → labels.npz). Pickles are never loaded. Both
matrices are held in memory, because a compressed matrix cannot be streamed. The id of a document is its row number
from 1."""

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

from xmtc.core.array_validation import NUMERIC_KINDS, is_offset_array
from xmtc.data.corpus_input import CorpusInput
from xmtc.data.document import Document
from xmtc.data.formats import CorpusFormat, Dimensions
from xmtc.errors import XmtcError

FILE_NAME_PAIRS = (("X", "Y"), ("x", "y"), ("features", "labels"))
HEADER_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
INDEX_ARRAYS = ("indptr", "indices", "row", "col", "offsets")
MAX_MEMBERS = 16  # arrays in a file
MAX_COLUMNS = int(np.iinfo(np.int32).max)
# Limits on rows without entries: a small file could declare enough of them to fill the memory.
MAX_EMPTY_ROWS, MAX_ROWS_PER_ENTRY = 1 << 22, 1000


def read(source: CorpusInput) -> Iterator[Document]:
    features_path, labels_path = find_pair(source.path)
    X = _read_matrix(features_path)
    Y = _read_labels(labels_path, features_path, source)
    if Y is not None and Y.shape[0] != X.shape[0]:
        raise XmtcError(
            f"{features_path} has {X.shape[0]} rows and {labels_path} has {Y.shape[0]}, expected one row per document "
            f"in both; check that they are a pair."
        )

    for row in range(X.shape[0]):
        columns, values = _get_row(X, row)
        if not np.isfinite(values).all():
            raw = " ".join(f"{column}:{value}" for column, value in zip(columns, values, strict=True))
            reason = "found a value that is not finite, expected finite numbers"
            source.report_bad_line(row + 1, reason, raw=raw.encode(), unit="row")
            continue

        labels = [] if Y is None else [str(label) for label in _get_row(Y, row)[0]]
        yield Document(source.make_id(row + 1), "", labels, (columns.astype(np.int32), values))


def read_dimensions(source: CorpusInput) -> Dimensions:
    features_path, labels_path = find_pair(source.path)
    has_labels = source.should_read_labels and labels_path is not None and os.path.exists(labels_path)

    return Dimensions(
        n_features=_read_column_count(features_path),
        n_labels=_read_column_count(labels_path) if labels_path and has_labels else None,
    )


def find_pair(path: str) -> tuple[str, str | None]:
    """Return the paths of the features and of the labels; None if the label path cannot be derived."""
    features, comma, labels = path.partition(",")
    if comma:
        return features, labels

    folder, name = os.path.split(features)
    for features_word, labels_word in FILE_NAME_PAIRS:
        match = re.search(rf"(?<![A-Za-z]){features_word}(?![A-Za-z])", name)
        if match:
            return features, os.path.join(folder, name[: match.start()] + labels_word + name[match.end() :])

    return features, None


def _read_labels(path: str | None, features_path: str, source: CorpusInput) -> sparse.csr_array | None:
    if not source.should_read_labels:
        return None
    if path is not None and os.path.exists(path):
        Y = _read_matrix(path)
        Y.eliminate_zeros()
        return Y
    if source.labels_required:
        problem = f"there is no {path}" if path else "the name of the label file cannot be derived from its name"
        raise XmtcError(
            f"{features_path} contains features and {problem}, expected a pair; "
            f"pass both as {features_path},LABELS.npz."
        )
    return None


def _read_matrix(path: str) -> sparse.csr_array:
    with _open_archive(path) as file:
        with np.load(file, allow_pickle=False) as arrays:
            _check_arrays(arrays)
        file.seek(0)
        loaded = sparse.load_npz(file)
        if hasattr(loaded, "check_format"):  # before compiled code converts it to rows
            loaded.check_format()
        with np.errstate(over="ignore"):  # too large values become infinite, and their rows are refused
            matrix = sparse.csr_array(loaded.astype(np.float32))
        matrix.check_format()
        matrix.sum_duplicates()  # also sorts the columns
        return matrix


def _read_column_count(path: str) -> int:
    with _open_archive(path) as file, np.load(file, allow_pickle=False) as arrays:
        return _get_shape(arrays)[1]


@contextmanager
def _open_archive(path: str) -> Iterator[IO[bytes]]:
    """Open a file whose arrays have the sizes that they declare; any exception becomes one XmtcError.

    NumPy, SciPy and zipfile raise many types of exceptions for damaged files."""
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
    """Raise ValueError if a header declares another size than the file has, before NumPy allocates it."""
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if len(members) > MAX_MEMBERS or len({member.filename for member in members}) < len(members):
            raise ValueError("it has more arrays than a sparse matrix")  # members of a zip file may overlap
        for member in members:
            with archive.open(member) as stream:
                read_header = HEADER_READERS[np.lib.format.read_magic(stream)]
                shape, _, dtype = read_header(stream)
                if dtype.hasobject or math.prod(shape) * dtype.itemsize != member.file_size - stream.tell():
                    raise ValueError(f"{member.filename} has another size than it declares")


def _get_shape(arrays: Any) -> tuple[int, int]:
    shape = arrays["shape"]
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or shape.min() < 0 or shape.max() > MAX_COLUMNS:
        raise ValueError("its shape is invalid")
    return int(shape[0]), int(shape[1])


def _check_arrays(arrays: Any) -> None:
    """Raise ValueError for arrays that are not numeric, invalid row offsets, and millions of empty rows."""
    n_rows, _ = _get_shape(arrays)
    parts = [arrays[name] for name in arrays.files if name not in ("shape", "format", "_is_array")]
    if any(part.dtype.kind not in NUMERIC_KINDS for part in parts):
        raise ValueError("its arrays are not numeric")
    indices = {name: arrays[name] for name in INDEX_ARRAYS if name in arrays.files}
    if any(part.dtype.kind not in "iu" for part in indices.values()):
        raise ValueError("its indices are not whole numbers")
    if "indptr" in indices:
        check_row_offsets(indices["indptr"], len(indices.get("indices", ())))
    if n_rows > max(MAX_EMPTY_ROWS, MAX_ROWS_PER_ENTRY * arrays["data"].size, *(len(part) for part in parts)):
        raise ValueError("it has millions of rows without entries")


def check_row_offsets(indptr: np.ndarray, n_entries: int) -> None:
    """Raise ValueError for row offsets outside the arrays, which SciPy checks too late or not at all."""
    if indptr.ndim != 1 or not is_offset_array(indptr, len(indptr) - 1, int(indptr[-1]) if len(indptr) else 0):
        raise ValueError("its row offsets do not ascend")
    if indptr[-1] > n_entries:
        raise ValueError("its row offsets exceed its entries")


def _invalid_matrix_error(path: str) -> XmtcError:
    return XmtcError(
        f"{path} is not a sparse matrix saved by scipy, and pickles are not loaded; save it with scipy.sparse.save_npz."
    )


def _get_row(matrix: sparse.csr_array, row: int) -> tuple[np.ndarray, np.ndarray]:
    begin, end = matrix.indptr[row], matrix.indptr[row + 1]
    return matrix.indices[begin:end], matrix.data[begin:end]


NPZ = CorpusFormat("npz", read, has_features=True, read_dimensions=read_dimensions, resolve_files=find_pair)
