"""View of texts as sentence vectors of a pretrained encoder.

The model folder has the encoder, so that it needs neither the encoder's folder nor the Hugging Face Hub."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.array_validation import construct_unchecked
from xmtc.core.dataset import Bag, Tokens
from xmtc.core.hyperparameters import param
from xmtc.core.run import Run
from xmtc.core.sparse import narrow_indptr
from xmtc.errors import as_missing_extra
from xmtc.features.subwords import FittedSubwords, Subwords
from xmtc.features.view import FittedView, View
from xmtc.storage.atomic import atomic_file
from xmtc.storage.cache import get_cache_folder
from xmtc.storage.form import array
from xmtc.text.word_spans import Span

DEFAULT_ENCODER = "minilm-l6"
SENTENCE_LENGTH_PARAM: Any = param(
    256, "Maximum number of subwords of a text for its sentence vector; at most the encoder's limit.", low=3
)
SENTENCE_TERM = "(sentence vector)"  # term of all columns in explanations
MIN_CACHED_TEXTS = 1000  # vectors of fewer texts are computed again


@dataclass(frozen=True)
class Dense(View):
    """Sentence vectors of a pretrained encoder."""

    title: ClassVar[str] = "Sentence vectors"
    unit: ClassVar[str] = "dimensions"

    sentence_encoder: str = param(
        DEFAULT_ENCODER,
        "Pretrained encoder of sentence vectors: a folder, a name that `xmtc pretrained list` lists, or a name of the "
        "Hugging Face Hub.",
    )
    sentence_length: int = SENTENCE_LENGTH_PARAM

    def fit(self, contents: Iterable[str], run: Run = Run()) -> tuple[FittedDense, Bag]:
        """Return the encoder and the vectors of the texts."""
        fitted = load_sentence_encoder(self.sentence_encoder, self.sentence_length, run)
        return fitted, fitted.transform(contents, run)


def load_sentence_encoder(name: str, max_subwords: int, run: Run = Run()) -> FittedDense:
    """Return the view of an encoder that is given by its folder or name."""
    subwords, tokens = Subwords(encoder=name, max_subwords=max_subwords).fit([], run)
    try:
        from xmtc.features.encoders.sentence_vectors import read_encoder
    except ImportError as error:
        raise as_missing_extra("sentence vectors", error) from None
    return FittedDense(subwords=subwords, **vars(read_encoder(tokens.encoder)))


@dataclass(frozen=True, kw_only=True)
class FittedDense(FittedView):
    """Pretrained encoder with its tokenizer."""

    subwords: FittedSubwords
    config: str  # of transformers, JSON
    pooling: str
    width: int
    weights: dict[str, np.ndarray] = array(np.float16, np.float32, ndim=None)

    @property
    def size(self) -> int:
        return self.width

    def term(self, number: int) -> str:
        return SENTENCE_TERM

    def transform(self, contents: Iterable[str], run: Run = Run()) -> Bag:
        """Return the vectors of texts as a matrix; the row of a text without a known subword is empty."""
        tokens = self.subwords.transform(contents, run)
        vectors = self._read_or_compute(tokens, run)
        is_known = self.subwords.mark_known_documents(tokens)
        return construct_unchecked(Bag, matrix=to_sparse_rows(vectors, is_known))

    def _read_or_compute(self, tokens: Tokens, run: Run) -> np.ndarray:
        """Return the vectors of texts, read from the user's cache or computed. Only large corpora are cached."""
        from xmtc.features.encoders.sentence_vectors import encode_tokens

        if tokens.n_docs < MIN_CACHED_TEXTS:
            return encode_tokens(self._encoder, tokens, run)
        path = get_cache_folder("sentence-vectors") / f"{self._fingerprint(tokens)}.npy"
        with suppress(OSError, ValueError, EOFError):
            vectors = np.load(path, allow_pickle=False)
            if vectors.shape == (tokens.n_docs, self.size) and vectors.dtype == np.float32:
                return vectors
        vectors = encode_tokens(self._encoder, tokens, run)
        with suppress(OSError):  # without the file, the texts are encoded again
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(path) as file:
                np.save(file, vectors)
        return vectors

    def _fingerprint(self, tokens: Tokens) -> str:
        """Return a hash of the encoder and of all subwords."""
        digest = hashlib.sha256(f"{self.config} {self.pooling}".encode())
        for values in (*self.weights.values(), tokens.ids, tokens.offsets):
            digest.update(np.ascontiguousarray(values).data)
        return digest.hexdigest()

    def spans(self, text: str) -> list[Span]:
        """Return the words of the text and, at its end, an empty span.

        All columns belong to each of them. A word has the share of the columns that comes from the states of its
        subwords, if the encoder has mean pooling; the empty span has the rest."""
        from xmtc.features.encoders.sentence_vectors import divide_vector

        parts = divide_vector(self._encoder, self.subwords.transform([text]).ids)
        total = parts.sum(axis=0)
        shares = np.divide(parts, total, out=np.zeros_like(parts), where=total != 0)
        columns, rest, spans = tuple(range(self.size)), np.ones(self.size), []
        for span in self.subwords.spans(text):
            share = shares[list(span.numbers)].sum(axis=0)
            rest -= share
            places = ((span.begin, span.end),) * self.size
            spans.append(Span(span.begin, span.end, span.word.lower(), columns, tuple(share.tolist()), places))
        return [*spans, Span(len(text), len(text), SENTENCE_TERM, columns, tuple(rest.tolist()))]

    def check(self) -> None:
        from xmtc.features.encoders.sentence_vectors import check_encoder, check_encoding

        self.subwords.check()
        check_encoder(self._stored_encoder, self.subwords.size)
        check_encoding(self._encoder, self.subwords.max_subwords)

    @property
    def _stored_encoder(self) -> Any:
        from xmtc.features.encoders.sentence_vectors import StoredEncoder

        return StoredEncoder(self.config, self.pooling, self.width, self.weights)

    @cached_property
    def _encoder(self) -> Any:
        from xmtc.features.encoders.sentence_vectors import restore_encoder

        return restore_encoder(self._stored_encoder)


def to_sparse_rows(vectors: np.ndarray, is_kept: np.ndarray) -> csr_array:
    """Return vectors as rows of a sparse matrix, in which the rows that are not kept are empty."""
    n_docs, width = vectors.shape
    kept = vectors[is_kept]
    indptr = narrow_indptr(np.concatenate([[0], np.cumsum(is_kept * width)]))
    indices = np.tile(np.arange(width, dtype=np.int32), len(kept))
    return csr_array((kept.ravel(), indices, indptr), shape=(n_docs, width))
