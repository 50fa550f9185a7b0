"""Documents as bags of features on a device: the features end to end, without padding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from xmtc.nn.devices import move_to_device
from xmtc.nn.token_batches import split_chunks


@dataclass(frozen=True)
class BagBatch:
    """Some documents: their features end to end, and where each document begins."""

    docs: np.ndarray  # (n_docs,) their numbers
    features: Tensor  # (n,) columns of X
    values: Tensor  # (n,) what X has there
    offsets: Tensor  # (n_docs,)
    rows: Tensor  # (n,) the document of each feature, counted from 0
    counts: Tensor  # (n_docs, 1) how many features each has, and 1 for those without

    @property
    def n_docs(self) -> int:
        return len(self.docs)


class BagLoader:
    """The documents of a data set: their features on the device, if they fit there, else in memory."""

    def __init__(self, X: csr_array, device: torch.device, max_device_bytes: float = 16e9):
        self.device, self.offsets, self.n_docs = device, X.indptr.astype(np.int64), X.shape[0]
        home = device if X.indices.nbytes + X.data.nbytes <= max_device_bytes else torch.device("cpu")
        self.features = torch.from_numpy(X.indices.astype(np.int32)).to(home)
        self.values = torch.from_numpy(X.data.astype(np.float32)).to(home)

    @property
    def max_length(self) -> int:
        """Features of a document, at most."""
        return max(1, int(np.diff(self.offsets).max(initial=0)))

    def load_batch(self, docs: np.ndarray) -> BagBatch:
        begins, counts = self.offsets[docs], self.offsets[docs + 1] - self.offsets[docs]
        offsets = np.cumsum(counts) - counts
        rows = np.repeat(np.arange(len(docs)), counts)
        at = move_to_device(np.arange(len(rows)) + np.repeat(begins - offsets, counts), self.features.device)
        per_document = move_to_device(np.stack([offsets, np.maximum(counts, 1)]), self.device)
        return BagBatch(
            docs,
            self.features[at].to(self.device).long(),
            self.values[at].to(self.device),
            per_document[0],
            move_to_device(rows, self.device),
            per_document[1][:, None],
        )

    def shuffled_batches(self, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Every document once, in random batches."""
        return split_chunks(rng.permutation(self.n_docs), size)

    def batches_by_length(self, size: int) -> Iterator[np.ndarray]:
        """Every document once; nothing is padded, so that their lengths do not matter."""
        return split_chunks(np.arange(self.n_docs), size)
