"""Matrices for all systems: tf-idf and labels of a corpus, as scipy files and as omikuji's text file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, csr_matrix, load_npz, save_npz
from sklearn.datasets import dump_svmlight_file

from xmtc.core.run import Run
from xmtc.data.corpus import open_corpus
from xmtc.data.label_collector import LabelCollector
from xmtc.features.tfidf import Tfidf

TINY = 1e-6  # omikuji rejects documents without features, so they get this value of the first feature


def prepare(source: Path, folder: Path, run: Run) -> dict[str, int]:
    """Write X, Y, X_test, Y_test and train.txt; return the sizes. Labels are numbered by name; labels that are only in
    the test set are the last columns of Y_test."""
    train, test = LabelCollector(), LabelCollector()
    texts = (document.text for document in train.collect(open_corpus(str(source / "train.jsonl.gz"))))
    fitted, bag = Tfidf(sublinear_tf=True, min_df=2).fit(texts, run)
    texts = (document.text for document in test.collect(open_corpus(str(source / "test.jsonl.gz"))))
    names = sorted(train.id_by_label)
    test_bag = fitted.transform(texts, run)
    return write(folder, bag.matrix, train.to_matrix(names), test_bag.matrix, test.to_matrix(names))


def write(folder: Path, X: csr_array, Y: csr_array, X_test: csr_array, Y_test: csr_array) -> dict[str, int]:
    """Write the files; return their sizes. Labels without documents are removed, because peers reject them."""
    folder.mkdir(parents=True, exist_ok=True)
    used = np.flatnonzero(np.bincount(Y.indices, minlength=Y.shape[1]))
    if len(used) < Y.shape[1]:
        unknown = np.setdiff1d(np.unique(Y_test.indices), used)
        Y, Y_test = csr_array(Y[:, used]), csr_array(Y_test[:, np.concatenate([used, unknown])])
    for name, matrix in {"X": X, "Y": Y, "X_test": X_test, "Y_test": Y_test}.items():
        save_npz(folder / f"{name}.npz", csr_matrix(matrix, dtype=np.float32), compressed=False)
    n_tiny = write_text(folder / "train.txt", X, Y)
    return {
        "n_train": X.shape[0],
        "n_test": X_test.shape[0],
        "n_features": X.shape[1],
        "n_labels": Y.shape[1],
        "n_nonzeros": int(X.nnz),
        "n_train_without_features": n_tiny,
    }


def write_text(path: Path, X: csr_array, Y: csr_array) -> int:
    """Write the sparse format of the XMC repository; return the number of documents without features."""
    empty = np.flatnonzero(np.diff(X.indptr) == 0)
    tiny = csr_matrix((np.full(len(empty), TINY, np.float32), (empty, np.zeros(len(empty), np.int32))), shape=X.shape)
    with path.open("wb") as file:
        file.write(f"{X.shape[0]} {X.shape[1]} {Y.shape[1]}\n".encode())
        dump_svmlight_file(csr_matrix(X) + tiny, csr_matrix(Y), file, zero_based=True, multilabel=True)
    return len(empty)


def load_truth(folder: Path) -> tuple[csr_array, np.ndarray, int]:
    """Return Y_test, the training frequency of each label, and the number of training documents."""
    Y = load_npz(folder / "Y.npz")
    return csr_array(load_npz(folder / "Y_test.npz")), np.bincount(Y.indices, minlength=Y.shape[1]), Y.shape[0]
