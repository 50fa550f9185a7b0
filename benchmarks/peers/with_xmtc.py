"""xmtc: any method of METHODS, with prediction from the memory-mapped model folder."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, load_npz

from xmtc import model_folder as store
from xmtc.core.dataset import Dataset
from xmtc.core.method import Model
from xmtc.core.predictions import Predictions
from xmtc.core.run import Run
from xmtc.methods import method_class

PACKAGES = ("xmtc", "numba", "numpy", "scipy")
N_WARM = 1000  # batch size


class System:
    def __init__(self, kind: str, parameters: dict, threads: int, seed: int) -> None:
        method = method_class(kind)
        seeded = {"seed": seed} if "seed" in {field.name for field in fields(method)} else {}
        self.method = method(**parameters, **seeded)
        self.run = Run(threads)

    def warm_up(self, folder: Path) -> None:
        """Load the compiled code from its cache, which corresponds to the import of the peers."""
        data = self.read(folder)
        X, Y = data.X[:N_WARM], data.Y[:N_WARM]
        seen = np.unique(Y.indices)
        model = self.method.fit(Dataset.from_matrix(X, csr_array(Y[:, seen])), run=self.run)
        model.predict(Dataset.from_matrix(X), run=self.run)

    def read(self, folder: Path) -> Dataset:
        return Dataset.from_matrix(*(csr_array(load_npz(folder / name)) for name in ("X.npz", "Y.npz")))

    def train(self, data: Dataset, model_folder: Path) -> Model:
        return self.method.fit(data, run=self.run)

    def save(self, model: Model, model_folder: Path) -> None:
        store.save(model_folder, {}, {"model": model})

    def load(self, model_folder: Path) -> Model:
        _, parts = store.load(model_folder)
        parts["model"].check()
        return parts["model"]

    def batch(self, X) -> Dataset:
        return Dataset.from_matrix(csr_array(X))

    def predict_batch(self, model: Model, batch: Dataset, k: int) -> Predictions:
        return model.predict(batch, k=k, run=self.run)

    def prepare_singles(self, model) -> None:
        """Do nothing: the call has a parameter for threads."""

    def single(self, row) -> Dataset:
        return Dataset.from_matrix(csr_array(row))

    def predict_single(self, model: Model, document: Dataset, k: int) -> Predictions:
        return model.predict(document, k=k, run=Run(threads=1))

    def arrays(self, found: Predictions, k: int) -> tuple[np.ndarray, np.ndarray]:
        return found.labels, found.scores
