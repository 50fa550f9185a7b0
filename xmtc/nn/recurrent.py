"""Words to states: word vectors and a bidirectional LSTM."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from xmtc.nn.lstm import compute_states
from xmtc.nn.token_batches import TokenBatch


class RecurrentEncoder(nn.Module):
    """Words to states, eqs. 1–3: one bidirectional LSTM layer with a learned initial state."""

    def __init__(
        self,
        n_words: int,
        dimension: int,
        hidden: int,
        word_dropout: float,
        dropout: float,
        whole_word_dropout: float = 0.0,
    ):
        super().__init__()
        self.embedding = nn.Embedding(n_words, dimension)
        self.lstm = nn.LSTM(dimension, hidden, bidirectional=True)
        self.first_state = nn.Parameter(torch.zeros(2, 2, 1, hidden))  # (h or c, direction, any document, unit)
        self.word_dropout, self.dropout, self.whole_word_dropout = word_dropout, dropout, whole_word_dropout

    def set_vectors(self, vectors: np.ndarray, is_trained: bool = True) -> None:
        """The word vectors to start from, and whether training moves them."""
        self.embedding.weight.data = torch.from_numpy(np.array(vectors, np.float32))
        self.embedding.weight.requires_grad = is_trained

    def forward(self, batch: TokenBatch) -> Tensor:
        """(n_docs, width, 2 · hidden)"""
        words = dropout(self.embedding(batch.ids), self.word_dropout, self.training)
        states = compute_states(self.lstm, self.drop_words(words), self.first_state, batch)
        return dropout(batch.pad_states(states), self.dropout, self.training)

    def drop_words(self, words: Tensor) -> Tensor:
        """In training, some words are left out whole, as zeros in their place: no label may rest on a single word."""
        if not (self.training and self.whole_word_dropout):
            return words
        stays = torch.rand(len(words), 1, device=words.device) >= self.whole_word_dropout
        return words * stays
