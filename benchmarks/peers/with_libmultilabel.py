"""LibMultiLabel: label trees of LIBLINEAR models, predicted with scipy."""

from __future__ import annotations

from pathlib import Path

import libmultilabel.linear as linear
import numpy as np
from scipy.sparse import csr_matrix, load_npz
from sparsekmeans import sparse_kmeans

PACKAGES = ("libmultilabel", "liblinear-multicore", "sparsekmeans", "numpy", "scipy")
BATCH = 256  # number of documents per batch: the default of its linear_test, whose results are dense
N_WARM = 1000  # documents

check_centroids_density = sparse_kmeans.check_centroids_density


def check_evaluated_centroids(centroids):
    """Fix sparsekmeans 0.3.1: with fewer distinct labels than clusters (cve-libraries), filling its centroids with
    zeros has no effect, and training fails."""
    return check_centroids_density(centroids if isinstance(centroids, sparse_kmeans.Matrix) else centroids.new())


sparse_kmeans.check_centroids_density = check_evaluated_centroids


class System:
    def __init__(self, kind: str, parameters: dict, threads: int, seed: int) -> None:
        """Do nothing: it always uses one thread per core."""
        self.parameters = parameters
        np.random.seed(seed)  # noqa: NPY002 - where it takes its seed from

    def warm_up(self, folder: Path) -> None:
        """Prepare its k-means, which otherwise happens on first use."""
        X, Y = self.read(folder)
        Y = Y[:N_WARM]
        linear.train_tree(Y[:, np.unique(Y.indices)], X[:N_WARM], verbose=False, **self.parameters)

    def read(self, folder: Path) -> tuple:
        return tuple(csr_matrix(load_npz(folder / name)) for name in ("X.npz", "Y.npz"))

    def train(self, data: tuple, model_folder: Path):
        X, Y = data
        return linear.train_tree(Y, X, verbose=False, **self.parameters)

    def save(self, model, model_folder: Path) -> None:
        linear.save_pipeline(str(model_folder), None, model)

    def load(self, model_folder: Path):
        _, model = linear.load_pipeline(str(model_folder / "linear_pipeline.pickle"))
        self.label_mapping = np.arange(len(model.root.label_map))
        return model

    def batch(self, X) -> list:
        return [csr_matrix(X[i : i + BATCH]) for i in range(0, X.shape[0], BATCH)]

    def predict_batch(self, model, batch: list, k: int) -> list:
        return [self.predict_single(model, documents, k) for documents in batch]

    def prepare_singles(self, model) -> None:
        """Do nothing: it has no threads here."""

    def single(self, row) -> csr_matrix:
        return csr_matrix(row)

    def predict_single(self, model, document: csr_matrix, k: int) -> tuple:
        return linear.get_topk_labels(model.predict_values(document), self.label_mapping, k)

    def arrays(self, found: list, k: int) -> tuple[np.ndarray, np.ndarray]:
        labels, scores = zip(*found, strict=True)
        return np.vstack(labels).astype(np.int32), np.vstack(scores).astype(np.float32)
