"""The bidirectional LSTM of a batch: PyTorch's own, or on GPUs with bf16 the kernels of `lstm_kernels`, which compute
the same several times faster."""

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

KERNEL_HIDDEN_SIZES = (64, 128, 256)  # of hidden layers for which the kernels are faster; at 512 cuDNN is


def compute_states(lstm: nn.LSTM, words: Tensor, first: Tensor, batch: TokenBatch) -> Tensor:
    """(n_words, 2 · hidden) of a batch's word vectors, (n_words, d); first: (h or c, direction, 1, hidden)."""
    if (
        words.is_cuda
        and torch.is_autocast_enabled("cuda")
        and lstm.hidden_size in KERNEL_HIDDEN_SIZES
        and has_kernels()
    ):
        return compute_states_with_kernels(lstm, words, first, batch)
    first = first.expand(-1, -1, batch.n_docs, -1).contiguous()
    if int(batch.step_sizes[-1]) == batch.n_docs:  # all equally long
        return lstm(words.view(batch.max_length, batch.n_docs, -1), (first[0], first[1]))[0].flatten(0, 1)
    return lstm(PackedSequence(words, batch.step_sizes), (first[0], first[1]))[0].data


@cache
def has_kernels() -> bool:
    """Whether Triton is there and can build them: it also needs a C compiler, which not every machine has."""
    if find_spec("triton") is None:
        return False
    try:
        device = torch.device("cuda", torch.cuda.current_device())
        batch = TokenLoader(Tokens(np.zeros(2, np.int32), np.array([0, 2]), 1), device).load_batch(np.array([0]))
        lstm, first = (
            nn.LSTM(1, KERNEL_HIDDEN_SIZES[0], bidirectional=True).to(device),
            torch.zeros(2, 2, 1, KERNEL_HIDDEN_SIZES[0], device=device),
        )
        compute_states_with_kernels(lstm, torch.zeros(2, 1, device=device), first, batch, torch.bfloat16)
    except Exception as error:  # of any kind: building fails in many ways, and PyTorch's LSTM does as well, slower
        warnings.warn(f"The LSTM runs on cuDNN, since its own kernels cannot be built here: {error}", stacklevel=2)
        return False
    return True


def compute_states_with_kernels(
    lstm: nn.LSTM, words: Tensor, first: Tensor, batch: TokenBatch, kind: torch.dtype | None = None
) -> Tensor:
    kind = kind or torch.get_autocast_dtype("cuda")
    both = [getattr(lstm, f"{name}_l0{direction}") for direction in ("", "_reverse") for name in
            ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]  # fmt: skip
    from_words, from_states = torch.stack(both[::4]).to(kind), torch.stack(both[1::4]).to(kind)
    bias = torch.stack(both[2::4]) + torch.stack(both[3::4])
    with torch.autocast(words.device.type, enabled=False):
        gates = torch.addmm(bias.flatten().to(kind), words.to(kind), from_words.flatten(0, 1).T)
        return Recurrence.apply(gates, from_states, first, TokenPositions(batch, words.device))


def use_cuda_device(device: torch.device) -> AbstractContextManager:
    """Triton takes the present GPU, which need not be the one that holds the arrays."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


class TokenPositions:
    """Where the tokens of a batch stand, on the GPU."""

    def __init__(self, batch: TokenBatch, device: torch.device):
        sizes, numbers = batch.step_sizes, torch.arange(batch.n_docs)
        lengths = torch.searchsorted(-sizes, -numbers, right=False)  # steps with more documents than this one's number
        both = move_to_device(torch.cat([lengths, sizes.cumsum(0) - sizes]).to(torch.int32), device)
        self.n_docs = batch.n_docs
        self.lengths, self.offsets = both[: batch.n_docs], both[batch.n_docs :]
        self.doc, self.step = batch.positions // batch.width, batch.positions % batch.width

    def previous_states(self, states: Tensor, first: Tensor) -> Tensor:
        """(n_words, 2, hidden): the state that each word's step began with, in both directions."""
        last = self.lengths[self.doc] - 1
        earlier = self.offsets[(self.step - 1).clamp(min=0)] + self.doc
        later = self.offsets[torch.minimum(self.step + 1, last)] + self.doc
        first = first.to(states.dtype)
        forward = torch.where((self.step == 0)[:, None], first[0], states[earlier, 0])
        return torch.stack([forward, torch.where((self.step == last)[:, None], first[1], states[later, 1])], 1)


class Recurrence(torch.autograd.Function):
    """States from what the words add to the gates, (n_words, 8 · hidden), which is overwritten."""

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
            raise RuntimeError(
                "The gates of this LSTM were overwritten by its first backward pass; run it forward again."
            )
        d_first = torch.empty(positions.n_docs, 2, 2, hidden, device=gates.device)
        grid = (-(-positions.n_docs // kernels.DOCUMENTS_PER_PROGRAM), 2)
        with use_cuda_device(gates.device):
            kernels.backward_kernel[grid](
                gates, from_states.contiguous(), first, cells, d_states.contiguous(), d_first, positions.lengths,
                positions.offsets, positions.n_docs, hidden, **kernels.KERNEL_OPTIONS,
            )  # fmt: skip
        ctx.positions = None
        before = positions.before(states, first[0])
        d_gates = gates.view(-1, 2, 4 * hidden)  # by now
        d_from_states = torch.bmm(d_gates.permute(1, 2, 0), before.transpose(0, 1))
        return gates, d_from_states, d_first.sum(0)[:, :, None], None


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
