"""What a method trains on and a model predicts from: arrays only, no text and no names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from xmtc.sparse import narrow


@dataclass(frozen=True)
class Tokens:
    """Documents as sequences of words: ids end to end, and where each document begins and ends. 0 is the unknown
    word. Or of subwords, whose numbers are those of a pretrained encoder."""

    ids: np.ndarray  # (n,) int32, in [0, n_words)
    starts: np.ndarray  # (n_docs + 1,) int64, document i is ids[starts[i]:starts[i + 1]]
    n_words: int  # of the vocabulary, and the unknown word
    vectors: np.ndarray | None = None  # (n_words, d) float32: where word vectors start from in training; None elsewhere
    encoder: str = ""  # of subwords, the folder or hub name of the encoder that training starts from; empty elsewhere

    @property
    def n_docs(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> np.ndarray:
        """(n_docs,) int64, how many words each document has."""
        return np.diff(self.starts)

    def rows(self, index: np.ndarray | slice) -> Tokens:
        """The documents at the given rows."""
        begins, lengths = self.starts[:-1][index], self.lengths[index]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(begins - starts[:-1], lengths) + np.arange(starts[-1])
        return replace(self, ids=self.ids[places], starts=starts)

    def counts(self) -> csr_array:
        """(n_docs, n_words) float32: how often each word occurs in each document; the unknown word is left out."""
        known = self.ids != 0
        ends = np.concatenate([[0], np.cumsum(known)])[self.starts]
        ids = self.ids[known]
        counted = csr_array((np.ones(len(ids), np.float32), ids, narrow(ends)), shape=(self.n_docs, self.n_words))
        counted.sum_duplicates()
        return counted

    def parts(self) -> Iterator[np.ndarray]:
        """Every number, and the shapes that tell where one array ends and the next begins."""
        yield from (np.array([self.n_docs, self.n_words]), self.starts, self.ids)
        if self.vectors is not None:
            yield from (np.array(self.vectors.shape), self.vectors)
        if self.encoder:
            yield np.frombuffer(self.encoder.encode(errors="replace"), np.uint8)


@dataclass(frozen=True)
class Dataset:
    """Documents as rows: features X, the labels Y where they are known, sequences of words or subwords for methods that
    read them. For a method that does not read X, X has no columns."""

    X: csr_array  # (n_docs, n_features) float32
    Y: csr_array | None = None  # (n_docs, n_labels) float32, ones at the labels
    tokens: Tokens | None = None
    vectors: np.ndarray | None = None  # (n_features, d) float32: where vectors of X's columns start from in training
    subwords: Tokens | None = None

    @classmethod
    def of_tokens(cls, tokens: Tokens) -> Dataset:
        """Sequences of words alone."""
        return cls(csr_array((tokens.n_docs, 0), dtype=np.float32), tokens=tokens)

    @classmethod
    def of_subwords(cls, subwords: Tokens) -> Dataset:
        """Sequences of subwords alone."""
        return cls(csr_array((subwords.n_docs, 0), dtype=np.float32), subwords=subwords)

    @property
    def n_docs(self) -> int:
        return self.X.shape[0]

    @property
    def n_features(self) -> int:
        return self.X.shape[1]

    @property
    def n_labels(self) -> int:
        return 0 if self.Y is None else self.Y.shape[1]

    @property
    def n_words(self) -> int:
        return 0 if self.tokens is None else self.tokens.n_words

    @property
    def n_subwords(self) -> int:
        return 0 if self.subwords is None else self.subwords.n_words

    def fingerprint(self) -> str:
        """The same for the same numbers alone."""
        found = hashlib.blake2b(digest_size=16)
        for part in self._parts():
            found.update(np.ascontiguousarray(part).data)
        return found.hexdigest()

    def _parts(self) -> Iterator[np.ndarray]:
        """Every array, and the shapes that tell where one ends and the next begins."""
        for matrix in (self.X, self.Y):
            if matrix is not None:
                yield from (np.array(matrix.shape), matrix.indptr, matrix.indices, matrix.data)
        for tokens in (self.tokens, self.subwords):
            if tokens is not None:
                yield from tokens.parts()
        if self.vectors is not None:
            yield from (np.array(self.vectors.shape), self.vectors)

    def rows(self, index: np.ndarray | slice) -> Dataset:
        """The documents at the given rows."""
        Y = None if self.Y is None else self.Y[index]
        tokens, subwords = (part and part.rows(index) for part in (self.tokens, self.subwords))
        return Dataset(self.X[index], Y, tokens, self.vectors, subwords)
