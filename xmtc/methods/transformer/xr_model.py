"""Model of XR-Transformer: a fine-tuned encoder, and a label tree of linear classifiers on terms and its vectors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack

from xmtc.core.dataset import Bag, Dataset, Tokens
from xmtc.core.method import Explanation, Model
from xmtc.core.predictions import Predictions
from xmtc.core.run import Run
from xmtc.features.encoders.sentence_vectors import (
    StoredEncoder,
    check_encoder,
    check_encoding,
    encode_tokens,
    restore_encoder,
)
from xmtc.linear.model import TreeModel

TERMS, SUBWORDS, JOINED = "tfidf", "subwords", "joined"  # views of the texts, and the view of the linear classifiers
TRIAL_SUBWORDS = 8  # length of the text that checks a loaded encoder


@dataclass(frozen=True, kw_only=True)
class XRTransformerModel(Model):
    """Label tree of linear classifiers that read terms and the vectors of an encoder side by side."""

    encoder: StoredEncoder
    share: float  # of the vector in the squared length of a row
    ranker: TreeModel

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        return self.ranker.predict(self._join_views(data, run), k, run)

    def _join_views(self, data: Dataset, run: Run) -> Dataset:
        vectors = encode_tokens(self._text_encoder, get_subwords(data), run)
        return join_terms_and_vectors(data, vectors, self.share)

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """Return the contribution of each term; that of the vector is part of the bias."""
        terms = find_terms_view(self.views)
        whole = self.ranker.explain(self._join_views(document, Run(threads=1, device="cpu")), label)
        is_term = whole.ids < self.views[terms]
        bias = float(whole.bias or 0) + float(whole.weights[~is_term].sum())
        return Explanation.from_occurrences(terms, whole.ids[is_term], whole.weights[is_term], bias=bias)

    def to_exhaustive(self) -> XRTransformerModel:
        return replace(self, ranker=self.ranker.to_exhaustive())

    def max_lengths(self) -> dict[str, int]:
        longest = self._text_encoder.max_length
        return {} if longest is None else {SUBWORDS: longest}

    @cached_property
    def _text_encoder(self) -> Any:
        return restore_encoder(self.encoder)

    def check(self) -> None:
        terms = find_terms_view(self.views)
        if len(self.views) != 2 or SUBWORDS not in self.views or not 0 < self.share < 1:
            raise ValueError(f"it reads the views {', '.join(self.views)} with the share {self.share}")
        check_encoder(self.encoder, self.views[SUBWORDS])
        check_encoding(self._text_encoder, TRIAL_SUBWORDS)
        expected = {JOINED: self.views[terms] + self.encoder.width}
        if self.ranker.views != expected or self.ranker.n_labels != self.n_labels:
            raise ValueError(f"its classifiers read {self.ranker.views}; expected {expected}")
        self.ranker.check()


def find_terms_view(views: dict[str, int]) -> str:
    """Return the name of the view of terms."""
    return next((name for name in views if name != SUBWORDS), TERMS)


def get_subwords(data: Dataset) -> Tokens:
    return data.tokens(SUBWORDS)


def join_terms_and_vectors(data: Dataset, vectors: np.ndarray, share: float) -> Dataset:
    """Return documents with terms and vectors side by side, so that rows have unit length; labels stay."""
    terms = data.X * np.float32((1 - share) ** 0.5)
    matrix = hstack([terms, csr_array(vectors * np.float32(share**0.5))], format="csr", dtype=np.float32)
    bag = Bag(csr_array(matrix), n_cluster_columns=data.bag.size)
    return data.copy_with(views={JOINED: bag}, names=None)
