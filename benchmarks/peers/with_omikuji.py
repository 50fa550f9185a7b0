"""omikuji: Parabel and Bonsai in Rust. It trains from a text file; its Python API predicts one document per call."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

import numpy as np
import omikuji
from omikuji import ffi, lib

PACKAGES = ("omikuji", "numpy", "scipy")
MAX_SPARSE_DENSITY = 0.1  # omikuji's command line also makes weights dense before prediction
PARTS = 16  # batch size per thread
N_TRIES, N_TRIED = 6, 1000  # number of repeats and of documents for choosing the number of threads


def seconds(work, *arguments) -> float:
    started = perf_counter()
    work(*arguments)
    return perf_counter() - started


class System:
    def __init__(self, kind: str, parameters: dict, threads: int, seed: int) -> None:
        """Ignore the seed: omikuji has none."""
        self.threads, self.callers = threads, 0
        self.pool = omikuji._ThreadPoolHandle(threads, initialize=True)
        self.hyper_param = omikuji.Model.default_hyper_param()
        for name, value in parameters.items():
            setattr(self.hyper_param, name, value)

    def warm_up(self, folder: Path) -> None:
        """Do nothing: it is compiled ahead of time."""

    def read(self, folder: Path):
        """Run the first of the two calls of Model.train_on_data."""
        pointer = lib.load_omikuji_data_set(ffi.new("char[]", str(folder / "train.txt").encode()), self.pool.ptr)
        if pointer == ffi.NULL:
            raise RuntimeError("omikuji could not read the training file")
        return ffi.gc(pointer, lib.free_omikuji_data_set)

    def train(self, data, model_folder: Path) -> omikuji.Model:
        """Run the second call."""
        pointer = lib.train_omikuji_model(data, self.hyper_param, self.pool.ptr)
        if pointer == ffi.NULL:
            raise RuntimeError("omikuji could not train")
        return omikuji.Model(pointer)

    def save(self, model: omikuji.Model, model_folder: Path) -> None:
        model.save(str(model_folder))

    def load(self, model_folder: Path) -> omikuji.Model:
        model = omikuji.Model.load(str(model_folder))
        model.init_prediction_thread_pool(self.threads)
        model.densify_weights(MAX_SPARSE_DENSITY)
        return model

    def batch(self, X) -> list:
        return [self.single(X[i]) for i in range(X.shape[0])]

    def predict_batch(self, model: omikuji.Model, batch: list, k: int) -> list:
        """Predict many documents with one call per document, from one or several Python threads, whichever is faster
        for the first documents.

        The package has no call for many documents. It releases the GIL, except while it reads its input.
        """
        if not self.callers:
            tries = [(1, self.threads)[i % 2] for i in range(N_TRIES)]
            self.callers = min(tries, key=lambda callers: seconds(self.call, model, batch[:N_TRIED], k, callers))
        return self.call(model, batch, k, self.callers)

    def call(self, model: omikuji.Model, batch: list, k: int, callers: int) -> list:
        if callers == 1:
            return [model.predict(document, top_k=k) for document in batch]
        size = -(-len(batch) // (PARTS * callers))
        parts = [batch[i : i + size] for i in range(0, len(batch), size)]
        with ThreadPoolExecutor(callers) as pool:
            return [found for part in pool.map(lambda part: self.call(model, part, k, 1), parts) for found in part]

    def prepare_singles(self, model) -> None:
        """Do nothing: a single document takes the same time with any number of threads."""

    def single(self, row) -> list:
        return list(zip(row.indices.tolist(), row.data.tolist(), strict=True))

    def predict_single(self, model: omikuji.Model, document: list, k: int) -> list:
        return model.predict(document, top_k=k)

    def arrays(self, found: list, k: int) -> tuple[np.ndarray, np.ndarray]:
        labels, scores = np.full((len(found), k), -1, np.int32), np.zeros((len(found), k), np.float32)
        for row, pairs in enumerate(found):
            for place, (label, score) in enumerate(pairs[:k]):
                labels[row, place], scores[row, place] = label, score
        return labels, scores
