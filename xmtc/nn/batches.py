"""Documents as sequences of words on a device, in batches of documents about equally long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from xmtc.base.dataset import Tokens
from xmtc.nn.devices import moved

POOL = 32  # batches whose documents are drawn at random together, then sorted by length


@dataclass(frozen=True)
class Batch:
    """Some documents, longest first. Words lie time step by time step, without padding, as cuDNN takes them."""

    docs: np.ndarray  # (n_docs,) their numbers
    words: Tensor  # (n_words,) ids, all first words, all second words ...
    sizes: Tensor  # (longest,) on the CPU: how many documents have a first word, a second word ...
    places: Tensor  # (n_words,) where each word stands in (n_docs, width)
    width: int  # places of a document

    @property
    def n_docs(self) -> int:
        return len(self.docs)

    @property
    def longest(self) -> int:
        return len(self.sizes)

    def padded(self, states: Tensor) -> Tensor:
        """States of the words, (n_words, d), as (n_docs, width, d) with zeros where a document has ended."""
        empty = states.new_zeros(self.n_docs * self.width, states.shape[1])
        return empty.index_copy(0, self.places, states).view(self.n_docs, self.width, -1)

    def ids(self, padding: int) -> Tensor:
        """(n_docs, width) the words, and another where a document has ended."""
        empty = self.words.new_full((self.n_docs * self.width,), padding)
        return empty.index_copy(0, self.places, self.words).view(self.n_docs, self.width)

    def is_word(self) -> Tensor:
        """(n_docs, width) where words stand."""
        mask = torch.zeros(self.n_docs * self.width, dtype=torch.bool, device=self.words.device)
        return mask.index_fill(0, self.places, True).view(self.n_docs, self.width)


def rounded_up(length: int, few: bool = False) -> int:
    """A length that is fast in bf16 products: a multiple of 8, or of up to an eighth of it, so that few occur."""
    step = max(8, 2 ** ((length - 1).bit_length() - 3)) if few else 8
    return -(-length // step) * step


class Corpus:
    """The documents of a data set: their words on the device, if they fit there, else in memory."""

    def __init__(self, tokens: Tokens, device: torch.device, most_bytes: float = 16e9, few_widths: bool = False):
        self.device, self.starts, self.lengths = device, tokens.starts, np.diff(tokens.starts)
        self.few_widths = few_widths
        words = torch.from_numpy(np.ascontiguousarray(tokens.ids))
        self.words = words.to(device) if words.nbytes <= most_bytes else words

    @property
    def n_docs(self) -> int:
        return len(self.lengths)

    @property
    def longest(self) -> int:
        """Words of a document, at most."""
        return int(self.lengths.max(initial=1))

    def batch(self, docs: np.ndarray) -> Batch:
        docs = docs[np.argsort(-self.lengths[docs], kind="stable")]
        starts, lengths = self.starts[docs], self.lengths[docs]
        longest = int(lengths[0])
        steps = np.arange(longest)
        sizes = np.searchsorted(-lengths, -steps, side="left")  # documents longer than each step
        at = np.repeat(steps, sizes)
        row = np.arange(len(at)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        words = self.words[moved(starts[row] + at, self.words.device)].to(self.device).long()
        width = rounded_up(longest, self.few_widths)
        places = moved(row * width + at, self.device)
        return Batch(docs, words, torch.from_numpy(sizes), places, width)

    def shuffled(self, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Every document once, in random batches of documents about equally long."""
        order = rng.permutation(self.n_docs)
        batches = []
        for begin in range(0, self.n_docs, POOL * size):
            pool = order[begin : begin + POOL * size]
            pool = pool[np.argsort(self.lengths[pool], kind="stable")]
            batches += [pool[i : i + size] for i in range(0, len(pool), size)]
        for number in rng.permutation(len(batches)):
            yield batches[number]

    def by_length(self, size: int) -> Iterator[np.ndarray]:
        """Every document once, longest first."""
        order = np.argsort(-self.lengths, kind="stable")
        for begin in range(0, len(order), size):
            yield order[begin : begin + size]


class LabelRows:
    """The labels of documents on a device."""

    def __init__(self, Y: csr_array, device: torch.device):
        self.starts, self.n_labels = Y.indptr.astype(np.int64), Y.shape[1]
        self.labels = torch.from_numpy(Y.indices.astype(np.int64)).to(device)
        self.device = device

    def pairs(self, docs: np.ndarray) -> tuple[Tensor, Tensor]:
        """(row, label) of every label of the documents; rows are numbered as the documents are given."""
        starts, lengths = self.starts[docs], self.starts[docs + 1] - self.starts[docs]
        rows = np.repeat(np.arange(len(docs)), lengths)
        at = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + np.repeat(starts, lengths)
        index = moved(np.stack([rows, at]), self.device)
        return index[0], self.labels[index[1]]

    def targets(self, docs: np.ndarray) -> Tensor:
        """(n_docs, n_labels) zeros and ones."""
        rows, labels = self.pairs(docs)
        return torch.zeros(len(docs), self.n_labels, device=self.device).index_put_(
            (rows, labels), torch.ones((), device=self.device)
        )

    def targets_among(self, docs: np.ndarray, candidates: Tensor) -> Tensor:
        """(n_docs, n_candidates) ones where a candidate is a label of its document."""
        rows, labels = self.pairs(docs)
        keys = (rows * self.n_labels + labels).sort().values
        wanted = torch.arange(len(docs), device=self.device)[:, None] * self.n_labels + candidates
        place = torch.searchsorted(keys, wanted).clamp_(max=len(keys) - 1) if len(keys) else None
        return torch.zeros_like(wanted, dtype=torch.float32) if place is None else (keys[place] == wanted).float()
