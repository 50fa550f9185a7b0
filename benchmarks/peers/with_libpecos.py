"""PECOS XR-Linear: label vectors from documents (PIFA), hierarchical k-means, linear rankers trained level by level."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel
from scipy.sparse import csr_matrix, load_npz

PACKAGES = ("libpecos", "numpy", "scipy")


class System:
    def __init__(self, kind: str, parameters: dict, threads: int, seed: int) -> None:
        self.threads, self.seed = threads, seed
        self.beam = parameters["beam_size"]
        self.clustering = {name: parameters[name] for name in ("nr_splits", "max_leaf_size")}
        self.training = {name: parameters[name] for name in ("nr_splits", "threshold", "Cp", "Cn")}

    def warm_up(self, folder: Path) -> None:
        """Do nothing: it is compiled ahead of time."""

    def read(self, folder: Path) -> tuple:
        X, Y = (load_npz(folder / name) for name in ("X.npz", "Y.npz"))
        return csr_matrix(X), csr_matrix(Y).tocsc()

    def train(self, data: tuple, model_folder: Path) -> XLinearModel:
        X, Y = data
        vectors = LabelEmbeddingFactory.create(Y, X, method="pifa", threads=self.threads)
        chain = Indexer.gen(
            vectors, indexer_type="hierarchicalkmeans", seed=self.seed, threads=self.threads, **self.clustering
        )
        return XLinearModel.train(X, Y, C=chain, threads=self.threads, beam_size=self.beam, **self.training)

    def save(self, model: XLinearModel, model_folder: Path) -> None:
        model.save(str(model_folder))

    def load(self, model_folder: Path) -> XLinearModel:
        """Convert to the format for prediction that its documentation calls the fastest."""
        return XLinearModel.load(str(model_folder), is_predict_only=True)

    def batch(self, X) -> csr_matrix:
        return csr_matrix(X)

    def predict_batch(self, model: XLinearModel, batch: csr_matrix, k: int) -> csr_matrix:
        return model.predict(batch, beam_size=self.beam, only_topk=k, threads=self.threads)

    def prepare_singles(self, model) -> None:
        """Do nothing: the call has a parameter for threads."""

    def single(self, row) -> csr_matrix:
        return csr_matrix(row)

    def predict_single(self, model: XLinearModel, document: csr_matrix, k: int) -> csr_matrix:
        return model.predict(document, beam_size=self.beam, only_topk=k, threads=1)

    def arrays(self, found: csr_matrix, k: int) -> tuple[np.ndarray, np.ndarray]:
        labels, scores = np.full((found.shape[0], k), -1, np.int32), np.zeros((found.shape[0], k), np.float32)
        for row in range(found.shape[0]):
            values = slice(found.indptr[row], found.indptr[row + 1])
            order = np.argsort(-found.data[values], kind="stable")[:k]
            labels[row, : len(order)] = found.indices[values][order]
            scores[row, : len(order)] = found.data[values][order]
        return labels, scores
