"""Bidirectional LSTM encoder.

On GPUs with bf16, the Triton kernels of `lstm_kernels` replace PyTorch's LSTM; they are several times faster.
"""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import dropout
from torch.nn.utils.rnn import PackedSequence

from xmtc.core.dataset import Tokens
from xmtc.nn.batches import TokenBatch, TokenLoader
from xmtc.nn.devices import move_to_device

KERNEL_HIDDEN_SIZES = (64, 128, 256)  # sizes for which the kernels are faster than cuDNN; at 512 they are not


def compute_states(lstm: nn.LSTM, words: Tensor, first: Tensor, batch: TokenBatch) -> Tensor:
    """Return the states (n_words, 2 · hidden) of word vectors (n_words, d).

    `first` is the initial state, shape (2 for h and c, 2 directions, 1, hidden).
    """
    if (
        words.is_cuda
        and torch.is_autocast_enabled("cuda")
        and lstm.hidden_size in KERNEL_HIDDEN_SIZES
        and has_kernels()
    ):
        return compute_states_with_kernels(lstm, words, first, batch)
    first = first.expand(-1, -1, batch.n_docs, -1).contiguous()
    if int(batch.step_sizes[-1]) == batch.n_docs:  # all documents have the same length
        return lstm(words.view(batch.max_length, batch.n_docs, -1), (first[0], first[1]))[0].flatten(0, 1)
    return lstm(PackedSequence(words, batch.step_sizes), (first[0], first[1]))[0].data


@cache
def has_kernels() -> bool:
    """Return True if Triton is installed and can compile the kernels (it needs a C compiler)."""
    if find_spec("triton") is None:
        return False
    try:
        device = torch.device("cuda", torch.cuda.current_device())
        batch = TokenLoader(Tokens(np.zeros(2, np.int32), np.array([0, 2]), 1), device).load_batch(np.array([0]))
        lstm = nn.LSTM(1, KERNEL_HIDDEN_SIZES[0], bidirectional=True).to(device)
        first = torch.zeros(2, 2, 1, KERNEL_HIDDEN_SIZES[0], device=device)
        compute_states_with_kernels(lstm, torch.zeros(2, 1, device=device), first, batch, torch.bfloat16)
    except Exception as error:  # compilation can fail in many ways; PyTorch's LSTM is a slower substitute
        warnings.warn(
            f"The LSTM uses cuDNN, which is slower, because its Triton kernels cannot be compiled: {error}",
            stacklevel=2,
        )
        return False
    return True


def compute_states_with_kernels(
    lstm: nn.LSTM, words: Tensor, first: Tensor, batch: TokenBatch, dtype: torch.dtype | None = None
) -> Tensor:
    dtype = dtype or torch.get_autocast_dtype("cuda")
    weights = [getattr(lstm, f"{name}_l0{direction}") for direction in ("", "_reverse") for name in
            ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]  # fmt: skip
    from_words, from_states = torch.stack(weights[::4]).to(dtype), torch.stack(weights[1::4]).to(dtype)
    bias = torch.stack(weights[2::4]) + torch.stack(weights[3::4])
    with torch.autocast(words.device.type, enabled=False):
        gates = torch.addmm(bias.flatten().to(dtype), words.to(dtype), from_words.flatten(0, 1).T)
        return Recurrence.apply(gates, from_states, first, TokenPositions(batch, words.device))


def use_cuda_device(device: torch.device) -> AbstractContextManager:
    """Return a context that makes the device current, because Triton launches on the current GPU."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


class TokenPositions:
    """Document and time step of every token of a batch, on the GPU."""

    def __init__(self, batch: TokenBatch, device: torch.device):
        sizes, numbers = batch.step_sizes, torch.arange(batch.n_docs)
        lengths = torch.searchsorted(
            -sizes, -numbers, right=False
        )  # number of steps with more documents than this one's number
        joined = move_to_device(torch.cat([lengths, sizes.cumsum(0) - sizes]).to(torch.int32), device)
        self.n_docs = batch.n_docs
        self.lengths, self.offsets = joined[: batch.n_docs], joined[batch.n_docs :]
        self.doc, self.step = batch.positions // batch.width, batch.positions % batch.width

    def previous_states(self, states: Tensor, first: Tensor) -> Tensor:
        """Return the state before each word in both directions, shape (n_words, 2, hidden)."""
        last = self.lengths[self.doc] - 1
        earlier = self.offsets[(self.step - 1).clamp(min=0)] + self.doc
        later = self.offsets[torch.minimum(self.step + 1, last)] + self.doc
        first = first.to(states.dtype)
        forward = torch.where((self.step == 0)[:, None], first[0], states[earlier, 0])
        return torch.stack([forward, torch.where((self.step == last)[:, None], first[1], states[later, 1])], 1)


class Recurrence(torch.autograd.Function):
    """Recurrence over the words' gate inputs (n_words, 8 · hidden), which it overwrites."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, from_states: Tensor, first: Tensor, positions: TokenPositions) -> Tensor:
        from xmtc.nn import lstm_kernels as kernels

        hidden = from_states.shape[2]
        first = first.detach().float().view(2, 2, hidden).contiguous()
        states = gates.new_empty(len(gates), 2, hidden)
        cells = torch.empty_like(states, dtype=torch.float32)
        to_gates = from_states.view(2, 4, hidden, hidden).permute(0, 3, 1, 2).contiguous()
        grid = (-(-positions.n_docs // kernels.DOCUMENTS_PER_PROGRAM), 2)
        with use_cuda_device(gates.device):
            kernels.forward_kernel[grid](
                gates, to_gates, first, cells, states, positions.lengths, positions.offsets, positions.n_docs,
                hidden, **kernels.KERNEL_OPTIONS,
            )  # fmt: skip
        ctx.save_for_backward(gates, from_states, first, cells, states)
        ctx.positions = positions
        return states.flatten(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_states: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        from xmtc.nn import lstm_kernels as kernels

        gates, from_states, first, cells, states = ctx.saved_tensors
        hidden, positions = from_states.shape[2], ctx.positions
        if positions is None:
            raise RuntimeError("The first backward pass overwrote the gates of this LSTM; run the forward pass again.")
        d_first = torch.empty(positions.n_docs, 2, 2, hidden, device=gates.device)
        grid = (-(-positions.n_docs // kernels.DOCUMENTS_PER_PROGRAM), 2)
        with use_cuda_device(gates.device):
            kernels.backward_kernel[grid](
                gates, from_states.contiguous(), first, cells, d_states.contiguous(), d_first, positions.lengths,
                positions.offsets, positions.n_docs, hidden, **kernels.KERNEL_OPTIONS,
            )  # fmt: skip
        ctx.positions = None
        previous = positions.previous_states(states, first[0])
        d_gates = gates.view(-1, 2, 4 * hidden)  # the kernel replaced the gates by their gradients
        d_from_states = torch.bmm(d_gates.permute(1, 2, 0), previous.transpose(0, 1))
        return gates, d_from_states, d_first.sum(0)[:, :, None], None


class RecurrentEncoder(nn.Module):
    """One bidirectional LSTM layer with a learned initial state (AttentionXML, eqs. 1–3)."""

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
        self.first_state = nn.Parameter(
            torch.zeros(2, 2, 1, hidden)
        )  # (h or c, direction, broadcast over documents, unit)
        self.word_dropout, self.dropout, self.whole_word_dropout = word_dropout, dropout, whole_word_dropout

    def set_vectors(self, vectors: np.ndarray, is_trained: bool = True) -> None:
        """Set the initial word vectors; `is_trained` makes them trainable."""
        self.embedding.weight.data = torch.from_numpy(np.array(vectors, np.float32))
        self.embedding.weight.requires_grad = is_trained

    def forward(self, batch: TokenBatch) -> Tensor:
        """Return the states H of all words, zero at padding, shape (n_docs, width, 2 · hidden)."""
        words = dropout(self.embedding(batch.ids), self.word_dropout, self.training)
        states = compute_states(self.lstm, self.drop_words(words), self.first_state, batch)
        return dropout(batch.pad_states(states), self.dropout, self.training)

    def drop_words(self, words: Tensor) -> Tensor:
        """Replace random words by zeros in training, so that no label depends on a single word."""
        if not (self.training and self.whole_word_dropout):
            return words
        is_kept = torch.rand(len(words), 1, device=words.device) >= self.whole_word_dropout
        return words * is_kept
