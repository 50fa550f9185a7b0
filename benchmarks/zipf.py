"""How time and memory grow with the number of labels: a made-up corpus whose words and labels follow Zipf's law.

    python benchmarks/zipf.py 10000 100000 1000000 --trees 1

Every label has a few words of its own; a document has one to five labels, drawn by Zipf's law, some of each label's
words, and common words. The same seed makes the same corpus.
"""

from __future__ import annotations

import argparse
import platform
import resource
import subprocess
import sys
import time

import numpy as np
from scipy.sparse import csr_array

from xmtc.base.dataset import Dataset
from xmtc.base.run import Run
from xmtc.evaluation import evaluate
from xmtc.methods import method_class
from xmtc.sparse import narrow, with_unit_rows

LABELS_A_DOC, WORDS_A_LABEL, COMMON_WORDS, COMMON_A_DOC = 5, 6, 2000, 6


def corpus(n_docs: int, n_labels: int, seed: int) -> Dataset:
    rng = np.random.default_rng(seed)
    weights = 1 / (np.arange(n_labels) + 10.0)
    shares = np.cumsum(weights / weights.sum())
    labels = np.searchsorted(shares, rng.random((n_docs, LABELS_A_DOC))).clip(max=n_labels - 1)
    labels[rng.random(labels.shape) < 0.3] = -1  # documents have fewer labels than five
    labels[:, 0] = np.where(labels[:, 0] < 0, rng.integers(n_labels, size=n_docs), labels[:, 0])
    own = np.random.default_rng(0).integers(n_labels // 2 + 1000, size=(n_labels, WORDS_A_LABEL)) + COMMON_WORDS
    words = own[labels][:, :, :].reshape(n_docs, -1)
    absent = np.repeat(labels < 0, WORDS_A_LABEL, axis=1) | (rng.random(words.shape) < 0.5)
    common = rng.integers(COMMON_WORDS, size=(n_docs, COMMON_A_DOC))
    n_words = COMMON_WORDS + n_labels // 2 + 1000
    X = matrix(np.hstack([words, common]), np.hstack([absent, np.zeros_like(common, bool)]), n_words)
    return Dataset.from_matrix(with_unit_rows(X), matrix(labels, labels < 0, n_labels))


def matrix(columns: np.ndarray, absent: np.ndarray, n_columns: int) -> csr_array:
    """Ones at the columns of each row that are not absent."""
    indptr = narrow(np.append(0, np.cumsum((~absent).sum(axis=1))))
    indices = columns[~absent].astype(np.int32)
    found = csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(len(columns), n_columns))
    found.sum_duplicates()
    found.data[:] = 1
    return found


def measure(n_labels: int, n_docs: int, n_trees: int, method: str) -> None:
    """One size, in this process."""
    train, test = corpus(n_docs, n_labels, seed=1), corpus(5000, n_labels, seed=2)
    held = peak_gib()
    start = time.perf_counter()
    model = method_class(method)(n_trees=n_trees).fit(train, run=Run())
    trained = time.perf_counter() - start
    model.predict(Dataset.from_matrix(test.X[:10]))
    start = time.perf_counter()
    answer = model.predict(Dataset.from_matrix(test.X), k=5)
    each = 1000 * (time.perf_counter() - start) / test.n_docs
    scores = evaluate(answer, test.Y, ["P@1", "P@5"])
    print(
        f"| {n_labels:,} | {n_docs:,} | {train.bag.size:,} | {trained:.1f} | {held:.1f} | {peak_gib():.1f} "
        f"| {each:.3f} | {100 * scores['P@1']:.1f} | {100 * scores['P@5']:.1f} |",
        flush=True,
    )


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labels", type=int, nargs="+")
    parser.add_argument("--docs", type=int, help="documents; as many as labels unless given")
    parser.add_argument("--trees", type=int, default=1)
    parser.add_argument("--method", default="parabel")
    parser.add_argument("--here", action="store_true", help="measure in this process (used by the script itself)")
    options = parser.parse_args()
    if options.here:
        return measure(options.labels[0], options.docs or options.labels[0], options.trees, options.method)
    print(f"{options.method}, {options.trees} tree(s), {Run().n_threads} threads, Python {platform.python_version()}\n")
    print("| labels | documents | features | training s | data GiB | peak GiB | ms/document | P@1 | P@5 |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for n_labels in options.labels:
        words = [str(n_labels), "--trees", str(options.trees), "--method", options.method, "--here"]
        words += ["--docs", str(options.docs)] if options.docs else []
        subprocess.run([sys.executable, __file__, *words], check=True)


if __name__ == "__main__":
    main()
