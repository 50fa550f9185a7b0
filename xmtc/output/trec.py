"""Predictions and true labels as TREC run and qrels, which trec_eval, ir_measures and others read.

A document of the corpus is a query, numbered from 1, and a label is a document of the run. Labels are percent-encoded,
because fields are separated by spaces. trec_eval orders by score, so that equal scores become distinct ones."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from urllib.parse import quote

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.data.file_streams import check_output_path, open_output
from xmtc.errors import XmtcError

RUN_EXTENSION, QRELS_EXTENSION = ".run", ".qrels"
SAFE_CHARACTERS = ":/?#[]@!$&'()*+,;=~|"  # besides letters and digits of ASCII


def write_trec_files(prefix: str, predictions: Predictions, Y: csr_array, labels: Sequence[str]) -> tuple[str, str]:
    """Write PREFIX.run and PREFIX.qrels and return their paths.

    Parameters
    ----------
    prefix : str
        Path without extension.
    predictions : Predictions
        Ranked labels of each document.
    Y : csr_array of shape (n_docs, n_labels)
        True labels.
    labels : sequence of str
        Names of the columns of Y.
    """
    names = [encode_name(label) for label in labels]
    paths = list_paths(prefix)
    for path, lines in zip(paths, (iter_run(predictions, names), iter_qrels(Y, names)), strict=True):
        with open_output(path) as stream:
            stream.writelines(line.encode() for line in lines)
    return paths


def list_paths(prefix: str) -> tuple[str, str]:
    return f"{prefix}{RUN_EXTENSION}", f"{prefix}{QRELS_EXTENSION}"


def check_trec_files(prefix: str) -> None:
    """Raise XmtcError, before long work, if the files cannot be written."""
    if not os.path.basename(prefix):
        raise XmtcError(f"--trec {prefix!r} does not end with a name; expected a prefix, such as results/parabel.")
    for path in list_paths(prefix):
        check_output_path(path)


def encode_name(label: str) -> str:
    """Return a label without white space."""
    return quote(label, safe=SAFE_CHARACTERS)


def iter_run(predictions: Predictions, names: Sequence[str]) -> Iterator[str]:
    for number, (labels, scores) in enumerate(zip(predictions.labels, predictions.scores, strict=True), 1):
        last = np.float32(np.inf)
        for rank, (label, score) in enumerate(zip(labels.tolist(), scores, strict=True), 1):
            if label != NO_LABEL:
                last = min(score, np.nextafter(last, np.float32(-np.inf)))
                yield f"{number} Q0 {names[label]} {rank} {float(last):.9g} xmtc\n"


def iter_qrels(Y: csr_array, names: Sequence[str]) -> Iterator[str]:
    for number, (begin, end) in enumerate(zip(Y.indptr[:-1], Y.indptr[1:], strict=True), 1):
        for label in Y.indices[begin:end].tolist():
            yield f"{number} 0 {names[label]} 1\n"
