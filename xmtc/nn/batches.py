"""Batches of documents on a device: token sequences, bags of features, and labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from xmtc.core.dataset import Tokens
from xmtc.nn.devices import move_to_device

POOL_BATCHES = 32  # batches whose documents are shuffled, then sorted by length to reduce padding


@dataclass(frozen=True)
class TokenBatch:
    """Token sequences, longest document first, stored time step by time step without padding (as cuDNN expects)."""

    docs: np.ndarray  # (n_docs,) document numbers
    ids: Tensor  # (n_tokens,) all first tokens, then all second tokens …
    step_sizes: Tensor  # (max_length,) on the CPU: number of documents that have a first token, a second token …
    positions: Tensor  # (n_tokens,) position of each token in the flattened (n_docs, width) array
    width: int  # length of a padded document

    @property
    def n_docs(self) -> int:
        return len(self.docs)

    @property
    def max_length(self) -> int:
        return len(self.step_sizes)

    def pad_states(self, states: Tensor) -> Tensor:
        """Return token states (n_tokens, d) as (n_docs, width, d), padded with zeros."""
        padded = states.new_zeros(self.n_docs * self.width, states.shape[1])
        return padded.index_copy(0, self.positions, states).view(self.n_docs, self.width, -1)

    def pad_ids(self, padding: int) -> Tensor:
        """Return token ids (n_docs, width), padded with the given id."""
        padded = self.ids.new_full((self.n_docs * self.width,), padding)
        return padded.index_copy(0, self.positions, self.ids).view(self.n_docs, self.width)

    def make_mask(self) -> Tensor:
        """Return a boolean mask (n_docs, width) that is True at tokens and False at padding."""
        mask = torch.zeros(self.n_docs * self.width, dtype=torch.bool, device=self.ids.device)
        return mask.index_fill(0, self.positions, True).view(self.n_docs, self.width)

    def count_tokens(self) -> Tensor:
        """Return the number of tokens of each document, shape (n_docs,)."""
        counts = np.searchsorted(-self.step_sizes.numpy(), -np.arange(1, self.n_docs + 1), side="right")
        return move_to_device(counts, self.ids.device)


def round_up_length(length: int, is_coarse: bool = False) -> int:
    """Round up to a multiple of 8, which is fast in bf16 products.

    With `is_coarse`, the step grows to an eighth of the length, so that few different lengths occur.
    """
    step = max(8, 2 ** ((length - 1).bit_length() - 3)) if is_coarse else 8
    return -(-length // step) * step


class TokenLoader:
    """Loader of token batches; the tokens are on the device if they fit, otherwise in memory."""

    def __init__(
        self, tokens: Tokens, device: torch.device, max_device_bytes: float = 16e9, has_coarse_widths: bool = False
    ):
        self.device, self.offsets, self.lengths = device, tokens.offsets, np.diff(tokens.offsets)
        self.has_coarse_widths = has_coarse_widths
        ids = torch.from_numpy(np.ascontiguousarray(tokens.ids))
        self.ids = ids.to(device) if ids.nbytes <= max_device_bytes else ids

    @property
    def n_docs(self) -> int:
        return len(self.lengths)

    @property
    def max_length(self) -> int:
        """Number of tokens of the longest document, at least 1."""
        return int(self.lengths.max(initial=1))

    def load_batch(self, docs: np.ndarray) -> TokenBatch:
        docs = docs[np.argsort(-self.lengths[docs], kind="stable")]
        offsets, lengths = self.offsets[docs], self.lengths[docs]
        longest = int(lengths[0])
        steps = np.arange(longest)
        sizes = np.searchsorted(-lengths, -steps, side="left")  # number of documents longer than each step

        step = np.repeat(steps, sizes)
        row = np.arange(len(step)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        ids = self.ids[move_to_device(offsets[row] + step, self.ids.device)].to(self.device).long()
        width = round_up_length(longest, self.has_coarse_widths)
        positions = move_to_device(row * width + step, self.device)
        return TokenBatch(docs, ids, torch.from_numpy(sizes), positions, width)

    def shuffled_batches(self, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Yield every document once, in random batches of documents of similar length."""
        order = rng.permutation(self.n_docs)
        batches = []
        for begin in range(0, self.n_docs, POOL_BATCHES * size):
            pool = order[begin : begin + POOL_BATCHES * size]
            pool = pool[np.argsort(self.lengths[pool], kind="stable")]
            batches += list(split_chunks(pool, size))
        for number in rng.permutation(len(batches)):
            yield batches[number]

    def batches_by_length(self, size: int) -> Iterator[np.ndarray]:
        """Yield batches of document numbers, longest documents first."""
        return split_chunks(np.argsort(-self.lengths, kind="stable"), size)


def split_chunks(docs: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Yield consecutive chunks of `size` documents."""
    for begin in range(0, len(docs), size):
        yield docs[begin : begin + size]


class LabelLoader:
    """Loader of the labels of documents."""

    def __init__(self, Y: csr_array, device: torch.device):
        self.offsets, self.n_labels = Y.indptr.astype(np.int64), Y.shape[1]
        self.labels = torch.from_numpy(Y.indices.astype(np.int64)).to(device)
        self.device = device

    def label_pairs(self, docs: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return (rows, labels) of all positive labels; row i is the document docs[i]."""
        offsets, lengths = self.offsets[docs], self.offsets[docs + 1] - self.offsets[docs]
        rows = np.repeat(np.arange(len(docs)), lengths)
        at = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + np.repeat(offsets, lengths)
        index = move_to_device(np.stack([rows, at]), self.device)
        return index[0], self.labels[index[1]]

    def targets(self, docs: np.ndarray) -> Tensor:
        """Return the targets of all labels, zeros and ones of shape (n_docs, n_labels)."""
        rows, labels = self.label_pairs(docs)
        return torch.zeros(len(docs), self.n_labels, device=self.device).index_put_(
            (rows, labels), torch.ones((), device=self.device)
        )

    def candidate_targets(self, docs: np.ndarray, candidates: Tensor) -> Tensor:
        """Return the targets of the candidates, zeros and ones of shape (n_docs, n_candidates)."""
        rows, labels = self.label_pairs(docs)
        keys = (rows * self.n_labels + labels).sort().values
        candidate_keys = torch.arange(len(docs), device=self.device)[:, None] * self.n_labels + candidates
        if not len(keys):
            return torch.zeros_like(candidate_keys, dtype=torch.float32)
        nearest = torch.searchsorted(keys, candidate_keys).clamp_(max=len(keys) - 1)
        return (keys[nearest] == candidate_keys).float()


@dataclass(frozen=True)
class BagBatch:
    """Sparse feature vectors of documents, concatenated."""

    docs: np.ndarray  # (n_docs,) document numbers
    features: Tensor  # (n,) columns of X
    values: Tensor  # (n,) values of X in these columns
    offsets: Tensor  # (n_docs,) position of the first feature of each document
    rows: Tensor  # (n,) document of each feature, counted from 0
    counts: Tensor  # (n_docs, 1) number of features of each document, at least 1

    @property
    def n_docs(self) -> int:
        return len(self.docs)


class BagLoader:
    """Loader of feature batches; the features are on the device if they fit, otherwise in memory."""

    def __init__(self, X: csr_array, device: torch.device, max_device_bytes: float = 16e9):
        self.device, self.offsets, self.n_docs = device, X.indptr.astype(np.int64), X.shape[0]
        storage_device = device if X.indices.nbytes + X.data.nbytes <= max_device_bytes else torch.device("cpu")
        self.features = torch.from_numpy(X.indices.astype(np.int32)).to(storage_device)
        self.values = torch.from_numpy(X.data.astype(np.float32)).to(storage_device)

    @property
    def max_length(self) -> int:
        """Number of features of the longest document, at least 1."""
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
        """Yield every document once, in random batches."""
        return split_chunks(rng.permutation(self.n_docs), size)

    def batches_by_length(self, size: int) -> Iterator[np.ndarray]:
        """Yield batches in the order of the documents, because bags need no padding."""
        return split_chunks(np.arange(self.n_docs), size)
