"""Documents of which an encoder that learns nothing has said all that it will: its states, computed once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from xmtc.nn.batches import TokenBatch, TokenLoader, split_chunks
from xmtc.nn.devices import move_to_device


@dataclass(frozen=True)
class StateBatch:
    docs: np.ndarray  # (n_docs,) their numbers
    states: Tensor  # (n_docs, width)


EncoderBatch = TokenBatch | StateBatch


class StateLoader:
    """Used as a TokenLoader is."""

    def __init__(self, states: Tensor):
        self.states = states

    @property
    def n_docs(self) -> int:
        return len(self.states)

    def load_batch(self, docs: np.ndarray) -> StateBatch:
        return StateBatch(docs, self.states[move_to_device(docs, self.states.device)])

    def shuffled_batches(self, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Every document once, in random batches."""
        return split_chunks(rng.permutation(self.n_docs), size)

    def batches_by_length(self, size: int) -> Iterator[np.ndarray]:
        """Every document once: here, all are equally long."""
        return split_chunks(np.arange(self.n_docs), size)


EncoderLoader = TokenLoader | StateLoader
