"""Measure the validation of a Dataset of 10⁶ documents with about 45 features, relative to training Parabel on a part
of them: `python benchmarks/checks.py`"""

from __future__ import annotations

import time

import numpy as np
from scipy.sparse import csr_array

from xmtc import Dataset, Run
from xmtc.core.sparse import normalise_rows
from xmtc.methods import Parabel

N_DOCS, N_COLUMNS, N_LABELS = 1_000_000, 100_000, 10_000
PARTS = (10_000, 20_000, 40_000)


def make_zipf_matrix(n_docs: int, per_document: int, n_columns: int, rng: np.random.Generator) -> csr_array:
    """Return a matrix of ones whose columns follow Zipf's law."""
    drawn = np.exp(rng.random(n_docs * per_document, np.float32) * np.log(n_columns)).astype(np.int32) - 1
    ends = np.arange(0, len(drawn) + 1, per_document, dtype=np.int32)
    matrix = csr_array((np.ones(len(drawn), np.float32), np.minimum(drawn, n_columns - 1), ends), (n_docs, n_columns))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def make_corpus(n_docs: int) -> tuple[csr_array, csr_array]:
    rng = np.random.default_rng(0)
    return normalise_rows(make_zipf_matrix(n_docs, 50, N_COLUMNS, rng)), make_zipf_matrix(n_docs, 3, N_LABELS, rng)


def main() -> None:
    X, Y = make_corpus(N_DOCS)
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        Dataset.from_matrix(X, Y)
        seconds.append(time.perf_counter() - begin)
    print(f"check of {N_DOCS:,} documents, {X.nnz:,} numbers: {min(seconds):.3f} s (best of 5)")

    Parabel(n_trees=1).fit(Dataset.from_matrix(*make_corpus(500)), run=Run(threads=1))  # compile first
    for n_docs in PARTS:
        data, begin = Dataset.from_matrix(*make_corpus(n_docs)), time.perf_counter()
        Parabel(n_trees=1).fit(data, run=Run(threads=1))
        trained = time.perf_counter() - begin
        share = min(seconds) * n_docs / N_DOCS / trained
        print(f"one tree, one thread, {n_docs:,} documents: {trained:.2f} s; their check is {100 * share:.3f} % of it")


if __name__ == "__main__":
    main()
