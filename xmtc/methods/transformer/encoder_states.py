"""Batches of document states of a frozen encoder, which are computed once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from xmtc.nn.batches import TokenBatch, TokenLoader, split_chunks
from xmtc.nn.devices import move_to_device


@dataclass(frozen=True)
class StateBatch:
    """Encoder states of documents."""

    docs: np.ndarray  # (n_docs,) document numbers
    states: Tensor  # (n_docs, width)


EncoderBatch = TokenBatch | StateBatch


class StateLoader:
    """Loader of encoder states, with the interface of TokenLoader."""

    def __init__(self, states: Tensor):
        self.states = states

    @property
    def n_docs(self) -> int:
        return len(self.states)

    def load_batch(self, docs: np.ndarray) -> StateBatch:
        return StateBatch(docs, self.states[move_to_device(docs, self.states.device)])

    def shuffled_batches(self, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Yield every document once, in random batches."""
        return split_chunks(rng.permutation(self.n_docs), size)

    def batches_by_length(self, size: int) -> Iterator[np.ndarray]:
        """Yield batches in the order of the documents, because states have no length."""
        return split_chunks(np.arange(self.n_docs), size)


EncoderLoader = TokenLoader | StateLoader
