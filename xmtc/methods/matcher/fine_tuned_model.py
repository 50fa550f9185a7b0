"""Model of Matcher with a trained encoder: the encoder, and the matcher of its vectors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from xmtc.core.dataset import Bag, Dataset
from xmtc.core.method import Explanation, Model
from xmtc.core.predictions import Predictions
from xmtc.core.run import Run
from xmtc.features.encoders.sentence_vectors import (
    StoredEncoder,
    check_encoder,
    check_encoding,
    divide_vector,
    encode_tokens,
    restore_encoder,
)
from xmtc.methods.matcher.model import MatcherModel
from xmtc.nn.text_encoder import TextEncoder

SUBWORDS, VECTORS = "subwords", "dense"  # view of the texts, and view that the matcher reads
TRIAL_SUBWORDS = 8  # length of the text that checks a loaded encoder


@dataclass(frozen=True, kw_only=True)
class FineTunedMatcherModel(Model):
    """Matcher that reads the vectors of its own encoder."""

    encoder: StoredEncoder
    matcher: MatcherModel

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        vectors = encode_tokens(self._text_encoder, data.tokens(SUBWORDS), run)
        return self.matcher.predict(Dataset({VECTORS: Bag(vectors)}), k, run)

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """Return each subword's part of the text's vector times the derivative of the label's log odds."""
        ids = document.tokens(SUBWORDS).ids
        parts = divide_vector(self._text_encoder, ids)
        vector = encode_tokens(self._text_encoder, document.tokens(SUBWORDS), Run(threads=1, device="cpu"))[0]
        weights = parts @ self.matcher.differentiate_by_vector(vector, label)
        return Explanation.from_occurrences(SUBWORDS, ids, weights, per_token=True)

    def to_exhaustive(self) -> FineTunedMatcherModel:
        return replace(self, matcher=self.matcher.to_exhaustive())

    def max_lengths(self) -> dict[str, int]:
        longest = self._text_encoder.max_length
        return {} if longest is None else {SUBWORDS: longest}

    @cached_property
    def _text_encoder(self) -> TextEncoder:
        return restore_encoder(self.encoder)

    def check(self) -> None:
        if list(self.views) != [SUBWORDS]:
            raise ValueError(f"it reads the views {', '.join(self.views)}; expected {SUBWORDS}")
        check_encoder(self.encoder, self.views[SUBWORDS])
        check_encoding(self._text_encoder, TRIAL_SUBWORDS)
        expected = {VECTORS: self.encoder.width}
        if self.matcher.views != expected or self.matcher.n_labels != self.n_labels:
            raise ValueError(f"its matcher reads {self.matcher.views}; expected {expected}")
        self.matcher.check()


def encode_names_and_documents(encoder: TextEncoder, data: Dataset, run: Run) -> Dataset:
    """Return the documents and the names of labels as sentence vectors."""
    assert data.names is not None
    assert data.names.subwords is not None
    documents = encode_tokens(encoder, data.tokens(SUBWORDS), run)
    names = replace(data.names, subwords=None, vectors=Bag(encode_tokens(encoder, data.names.subwords, run)))
    return data.copy_with(views={VECTORS: Bag(np.asarray(documents))}, names=names)
