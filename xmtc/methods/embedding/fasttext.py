"""fastText: the mean of the vectors of a text's words and n-grams, and a linear layer over it. Joulin, Grave,
Bojanowski, Mikolov: Bag of Tricks for Efficient Text Classification (EACL 2017), and the authors' code where it is
silent: one label of a document, drawn anew in each pass, for all losses but one against the rest; rates that fall to 0.

Differs from the code in: documents come in random order, one after the other by one thread, so that the same seed gives
the same bytes, while theirs work on each other's numbers (Hogwild); words are read once, and a word that a document has
several times is looked up once; n-grams that training has not seen have no vector. It has no n-grams of letters:
a model here knows words by their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.memory import check_fits
from xmtc.core.method import Method
from xmtc.core.run import Run
from xmtc.methods.embedding.fasttext_model import (
    HIERARCHICAL,
    LOSSES,
    MAX_BUCKETS,
    MAX_NGRAM_WORDS,
    VIEW,
    FastTextModel,
    compute_term_shares,
    hash_all_word_ngrams,
)
from xmtc.methods.embedding.fasttext_training import FastTextTrainer


@dataclass(frozen=True)
class FastText(Method):
    """The mean of the vectors of words and n-grams, and a linear layer (Joulin et al., EACL 2017)."""

    required_views: ClassVar[tuple[str, ...]] = (VIEW,)
    quick_parameters: ClassVar[dict[str, Any]] = {"dimension": 32, "loss": "ova", "rate": 0.5, "epochs": 60}

    dimension: int = param(100, "length of a vector", low=1, search=(50, 300), log=True)
    loss: str = param(
        HIERARCHICAL,
        "hs: softmax down a tree; softmax; ova: one against the rest; ns: some others, drawn at random",
        choices=LOSSES,
    )
    rate: float = param(
        0.5, "learning rate at the beginning, from where it falls to 0", low=1e-6, high=1e3, search=(0.1, 2.0), log=True
    )
    epochs: int = param(25, "passes over the documents", low=1, search=(5, 50), log=True)
    word_ngrams: int = param(
        1, "words of the longest n-grams that have vectors of their own", low=1, high=MAX_NGRAM_WORDS, search=(1, 2)
    )
    buckets: int = param(2_000_000, "numbers that n-grams are hashed to", low=1, high=MAX_BUCKETS)
    negatives: int = param(5, "with loss=ns, labels drawn at random in each step", low=1, high=10_000)
    seed: int = param(0, "seed of the first vectors, the order of documents and what is drawn", low=0, high=2**32 - 1)

    def fit(self, data: Dataset, valid: Dataset | None = None, run: Run = Run()) -> FastTextModel:
        if run.checkpoint.folder:
            run.checkpoint.claim(f"{self} {data.fingerprint()}")
        assert data.Y is not None
        tokens = data.tokens(VIEW)
        begins, _, buckets = hash_all_word_ngrams(tokens, self.word_ngrams, self.buckets)
        seen, which = np.unique(buckets, return_inverse=True)
        X = compute_term_shares(tokens, begins, tokens.size + which, tokens.size + len(seen))
        self.check_room(X.shape[1], data.n_labels)
        training = FastTextTrainer(self, X, data.Y)
        training.train(tokens.lengths, run)
        return FastTextModel(
            n_labels=data.n_labels,
            views=data.sizes,
            loss=self.loss,
            ngrams=self.word_ngrams,
            n_buckets=self.buckets,
            buckets=seen,
            vectors=training.vectors,
            outputs=training.transpose_outputs(),
            children=training.children,
        )

    def check_room(self, n_rows: int, n_labels: int) -> None:
        """Refuse, before it begins, a training that memory cannot hold."""
        numbers = (n_rows + 2 * n_labels) * self.dimension
        what = f"{n_rows:,} vectors of words and n-grams, and {n_labels:,} of labels"
        check_fits(4 * numbers, what, "give them fewer numbers, or hash n-grams to fewer buckets")
