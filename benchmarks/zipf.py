"""Measure the growth of time and memory with the number of labels, on synthetic corpora with Zipf's law:

    python benchmarks/zipf.py 10000 100000 1000000
    python benchmarks/zipf.py 2000 8000 32000 --method fastxml --method sleec -o growth.json
    python benchmarks/zipf.py 10000 100000 2812281 --shop --workdir FOLDER

Every label has a few words of its own; a document has one to five labels, drawn by Zipf's law, some of each label's
words, and common words. With --shop documents have 36 labels, which lie near each other, and 49 words, and there are as
many documents and words for each label as in Amazon-3M (1,717,899 documents, 2,812,281 labels, 337,067 words). The
same seed makes the same corpus.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.dataset import Dataset
from xmtc.core.method import Method, Model
from xmtc.core.run import Run
from xmtc.core.sparse import narrow_indptr, normalise_rows
from xmtc.evaluation import evaluate
from xmtc.methods import method_class
from xmtc.storage.folder import encode_value

LABELS_A_DOC, WORDS_A_LABEL, COMMON_WORDS, COMMON_A_DOC = 5, 6, 2000, 6
LABELS_IN_A_BASKET, WORDS_IN_A_BASKET, NEIGHBOURS, DOCS_IN_A_SHOP, WORDS_IN_A_SHOP = 36, 49, 60, 0.611, 0.12
A_SHELF, WORDS_A_SHELF = 20, 15  # number of labels that share words
N_TEST = 5000
ONE_TREE = ("parabel", "bonsai", "plt")  # default
Corpus = Callable[..., Dataset]  # numbers of documents and labels, and seed
COLUMNS = ("method", "labels", "documents", "features", "training s", "processor s", "data GiB", "peak GiB")
COLUMNS += ("model MB", "ms/document", "P@1", "P@5")


def make_corpus(n_docs: int, n_labels: int, seed: int) -> Dataset:
    rng = np.random.default_rng(seed)
    weights = 1 / (np.arange(n_labels) + 10.0)
    shares = np.cumsum(weights / weights.sum())
    labels = np.searchsorted(shares, rng.random((n_docs, LABELS_A_DOC))).clip(max=n_labels - 1)
    labels[rng.random(labels.shape) < 0.3] = -1  # documents have fewer than five labels
    labels[:, 0] = np.where(labels[:, 0] < 0, rng.integers(n_labels, size=n_docs), labels[:, 0])
    own = np.random.default_rng(0).integers(n_labels // 2 + 1000, size=(n_labels, WORDS_A_LABEL)) + COMMON_WORDS
    words = own[labels][:, :, :].reshape(n_docs, -1)
    absent = np.repeat(labels < 0, WORDS_A_LABEL, axis=1) | (rng.random(words.shape) < 0.5)
    common = rng.integers(COMMON_WORDS, size=(n_docs, COMMON_A_DOC))
    n_words = COMMON_WORDS + n_labels // 2 + 1000
    X = make_matrix(np.hstack([words, common]), np.hstack([absent, np.zeros_like(common, bool)]), n_words)
    return Dataset.from_matrix(normalise_rows(X), make_matrix(labels, labels < 0, n_labels))


def make_shop_corpus(n_docs: int, n_labels: int, seed: int) -> Dataset:
    """Return a corpus like Amazon-3M: products bought together have adjacent labels, and higher labels are rarer."""
    rng, n_words = np.random.default_rng(seed), int(n_labels * WORDS_IN_A_SHOP) + COMMON_WORDS
    centres = (n_labels * rng.random((n_docs, 1)) ** 2).astype(np.int64)
    distances = rng.laplace(scale=NEIGHBOURS, size=(n_docs, LABELS_IN_A_BASKET)).astype(np.int64)
    labels = np.abs(centres + distances) % n_labels
    shelves = -(-n_labels // A_SHELF), WORDS_A_SHELF
    own = np.random.default_rng(0).integers(COMMON_WORDS, n_words, size=shelves, dtype=np.int32)
    named = labels[:, : WORDS_IN_A_BASKET // 2]
    words = own[named // A_SHELF, rng.integers(WORDS_A_SHELF, size=named.shape)]
    common = (COMMON_WORDS * rng.random((n_docs, WORDS_IN_A_BASKET - named.shape[1])) ** 3).astype(np.int32)
    X = make_matrix(np.hstack([words, common]), np.zeros((1, 1), bool), n_words)
    del words, common, named, own
    return Dataset.from_matrix(
        normalise_rows(X), make_matrix(labels.astype(np.int32), np.zeros((1, 1), bool), n_labels)
    )


def make_matrix(columns: np.ndarray, absent: np.ndarray, n_columns: int) -> csr_array:
    """Return a matrix of ones at the valid columns of each row."""
    there = np.broadcast_to(~absent, columns.shape)
    indptr = narrow_indptr(np.append(0, np.cumsum(there.sum(axis=1))))
    indices = columns[there].astype(np.int32, copy=False)
    found = csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(len(columns), n_columns))
    found.sum_duplicates()
    found.data[:] = 1
    return found


def measure(recipe: Method, make: Corpus, n_labels: int, n_docs: int, run: Run) -> dict[str, Any]:
    """Measure one size in this process. A small training before it compiles all kernels."""
    recipe.fit(make_corpus(600, 300, seed=3), run=run)
    train, test = make(n_docs, n_labels, seed=1), make(N_TEST, n_labels, seed=2)
    held, start, processor = read_peak_gib(), time.perf_counter(), time.process_time()
    model = recipe.fit(train, run=run)
    trained, computed, peak = time.perf_counter() - start, time.process_time() - processor, read_peak_gib()
    model.predict(Dataset.from_matrix(test.X[:10]))
    start = time.perf_counter()
    answer = model.predict(Dataset.from_matrix(test.X), k=5)
    each = 1000 * (time.perf_counter() - start) / test.n_docs
    scores = evaluate(answer, test.Y, ["P@1", "P@5"])
    return {
        "features": train.bag.size,
        "training s": round(trained, 2),
        "processor s": round(computed, 2),
        "data GiB": round(held, 2),
        "peak GiB": round(peak, 2),
        "model MB": round(measure_size_mb(model), 1),
        "ms/document": round(each, 4),
        "P@1": round(100 * scores["P@1"], 1),
        "P@5": round(100 * scores["P@5"], 1),
    }


def read_peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure_size_mb(model: Model) -> float:
    """Return the bytes of the arrays in the model folder."""
    arrays: dict[str, np.ndarray] = {}
    encode_value(model, "model", arrays)
    return sum(array.nbytes for array in arrays.values()) / 1e6


def measure_in_process(method: str, n_labels: int, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one size in its own process, whose peak memory then belongs to this size."""
    words = [str(n_labels), "--method", method, "--trees", str(options.trees), "--here"]
    words += ["--docs", str(options.docs)] if options.docs else []
    words += ["--shop"] if options.shop else []
    words += ["--workdir", str(options.workdir)] if options.workdir else []
    done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout)
    except ValueError:
        said = done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"]
        return {"failed": said[-1]}


def n_docs(n_labels: int, options: argparse.Namespace) -> int:
    return options.docs or (round(n_labels * DOCS_IN_A_SHOP) if options.shop else n_labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labels", type=int, nargs="+")
    parser.add_argument("--docs", type=int, help="documents; as many as labels unless given")
    parser.add_argument("--shop", action="store_true", help="documents and labels as in Amazon-3M")
    parser.add_argument("--workdir", type=Path, help="folder that models are written to while they are trained")
    parser.add_argument("--trees", type=int, default=1, help="of label trees")
    parser.add_argument("--method", action="append", help="parabel unless given; repeatable")
    parser.add_argument("-o", "--output", type=Path, help="JSON to write")
    parser.add_argument("--here", action="store_true", help="measure in this process (used by the script itself)")
    options = parser.parse_args()
    methods = options.method or ["parabel"]
    if options.here:
        (method,), (n_labels,) = methods, options.labels
        recipe = method_class(method)(**({"n_trees": options.trees} if method in ONE_TREE else {}))
        make, run = make_shop_corpus if options.shop else make_corpus, Run(workdir=options.workdir)
        return print(json.dumps(measure(recipe, make, n_labels, n_docs(n_labels, options), run)))
    about = {"threads": Run().n_threads, "python": platform.python_version(), "numpy": np.__version__}
    print(f"{about}\n\n| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    rows = []
    for method in methods:
        for n_labels in options.labels:
            size = {"method": method, "labels": n_labels, "documents": n_docs(n_labels, options)}
            rows.append(size | measure_in_process(method, n_labels, options))
            print(f"| {' | '.join(str(rows[-1].get(column, '')) for column in COLUMNS)} | {rows[-1].get('failed', '')}")
            sys.stdout.flush()
            if options.output:
                options.output.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
