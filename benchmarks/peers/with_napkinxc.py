"""napkinXC: probabilistic label trees in C++. It writes its model during training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from napkinxc.models import PLT
from scipy.sparse import csr_matrix, load_npz

PACKAGES = ("napkinxc", "numpy", "scipy")


class System:
    def __init__(self, kind: str, parameters: dict, threads: int, seed: int) -> None:
        self.parameters = {**parameters, "seed": seed, "threads": threads}

    def warm_up(self, folder: Path) -> None:
        """Do nothing: it is compiled ahead of time."""

    def read(self, folder: Path) -> tuple:
        return tuple(csr_matrix(load_npz(folder / name)) for name in ("X.npz", "Y.npz"))

    def train(self, data: tuple, model_folder: Path) -> PLT:
        model = PLT(str(model_folder), **self.parameters)
        model.fit(*data)
        return model

    def save(self, model: PLT, model_folder: Path) -> None:
        """Do nothing: the model is already written."""

    def load(self, model_folder: Path) -> PLT:
        model = PLT(str(model_folder), **self.parameters)
        model.load()
        return model

    def batch(self, X) -> csr_matrix:
        return csr_matrix(X)

    def predict_batch(self, model: PLT, batch: csr_matrix, k: int) -> list:
        return model.predict_proba(batch, top_k=k)

    def prepare_singles(self, model: PLT) -> None:
        """Use one thread, which is faster than two for one document."""
        model.set_params(threads=1)

    def single(self, row) -> csr_matrix:
        return csr_matrix(row)

    def predict_single(self, model: PLT, document: csr_matrix, k: int) -> list:
        return model.predict_proba(document, top_k=k)

    def arrays(self, found: list, k: int) -> tuple[np.ndarray, np.ndarray]:
        labels, scores = np.full((len(found), k), -1, np.int32), np.zeros((len(found), k), np.float32)
        for row, pairs in enumerate(found):
            for place, (label, score) in enumerate(pairs[:k]):
                labels[row, place], scores[row, place] = label, score
        return labels, scores
