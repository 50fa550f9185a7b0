"""Matcher: labels whose names or training documents have sentence vectors similar to that of the text.

Papers: the idea of a joint memory of label names and training documents follows Chien et al.: RAE-XMC (Retrieval-
augmented Encoders for Extreme Multi-label Text Classification, 2025); the dual encoder of texts and names follows
DEXML (Gupta et al.: Dual-Encoders for Extreme Multi-label Classification, ICLR 2024), NGAME (Dahiya et al., WSDM 2023)
and MACLR (Xiong et al., NAACL 2022).

Idea: a frozen pretrained encoder gives vectors of the text, of all label names and of all training documents.
Candidates are the labels of the most similar names and the labels of the nearest documents, which vote with
exp(similarity / temperature). Logistic regression combines both similarities to a probability. It is learnt by
cross-fitting: each fifth of the training documents is matched with the other four, where labels that occur only in this
fifth are unseen. Labels without training documents have weights of their own. If the corpus has too few such labels to
learn these weights, a random tenth of the labels is hidden from each fold.

Differs from these papers in that the encoder is not trained: only the weights of the regression are. So training takes
little more than encoding the texts, and a new label needs only a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.method import LabelName, Method
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.methods.lexical.lexical import Lexical
from xmtc.methods.lexical.match_classifier import fit_logistic_regression
from xmtc.methods.matcher.candidates import N_FEATURES, MatchIndex, VectorSearch, mark_unseen
from xmtc.methods.matcher.model import MatcherModel, choose_batch_size
from xmtc.text.analyzers import AUTO

N_FOLDS = 5  # folds for cross-fitting
MIN_UNSEEN_MATCHES = 100  # correct candidates without training documents that are enough for their weights
HIDDEN_SHARE = 0.1  # of the labels, where there are fewer
MAX_TRAINING_TEXTS = 2000  # texts whose candidates train the regression, as enough for a dozen weights


@dataclass(frozen=True)
class Matcher(Method):
    """Labels whose names or training documents are similar to the text, by a frozen encoder (after RAE-XMC)."""

    required_views: ClassVar[tuple[str, ...]] = ("dense",)
    has_label_name_input: ClassVar[bool] = True
    is_exact: ClassVar[bool] = False
    quick_parameters: ClassVar[dict[str, Any]] = {}

    vocabulary: str = param(
        "",
        "Vocabulary with the names of labels: folder of `xmtc vocab import`, SKOS file or table; if empty, labels are "
        "their own names.",
    )
    name_language: str = param(
        AUTO,
        "Language of the vocabulary's names to match, for example en; auto: the language of the texts, where a concept "
        "has names in it; if empty, names in all languages are used.",
    )
    neighbours: int = param(
        30, "Number of nearest training documents that vote for labels.", low=1, high=10_000, search=(5, 200), log=True
    )
    temperature: float = param(
        0.05,
        "Difference of similarity at which the vote of a document falls by the factor e.",
        low=0.001,
        high=10.0,
        search=(0.01, 0.2),
        log=True,
    )
    candidates: int = param(
        50, "Number of labels with the most similar names that are scored.", low=1, high=100_000, search=(20, 200)
    )
    seed: int = param(0, "Random seed of the folds.", low=0, high=2**32 - 1)

    def list_label_names(self, labels: Sequence[str], language: str | None = None) -> Iterable[LabelName]:
        """Return the names that `lexical` reads."""
        reader = Lexical(vocabulary=self.vocabulary, name_language=self.name_language)
        return reader.list_label_names(labels, language)

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> MatcherModel:
        index = self.build_index(data)
        with threadpool_limits(1, "blas"):  # the folds run in parallel
            features, is_right = self.cross_fit(index, data, 0.0, run)
            if (is_right & mark_unseen(features)).sum() < MIN_UNSEEN_MATCHES:
                features, is_right = self.cross_fit(index, data, HIDDEN_SHARE, run)
        return MatcherModel(
            n_labels=data.n_labels,
            views=data.sizes,
            n_candidates=self.candidates,
            index=index,
            weights=fit_logistic_regression(features, is_right),
        )

    def build_index(self, data: Dataset) -> MatchIndex:
        """Return the index of all label names and training documents."""
        if data.names is None or data.names.vectors is None:
            raise XmtcError(
                "The data set has no vectors of label names, which matcher needs; train from texts: "
                "Classifier('matcher').fit(texts, labels)."
            )
        assert data.Y is not None
        order = np.argsort(data.names.labels, kind="stable")
        return MatchIndex(
            n_labels=data.n_labels,
            n_neighbours=self.neighbours,
            temperature=self.temperature,
            names=data.names.vectors.matrix.toarray()[order].astype(np.float16),
            name_labels=data.names.labels[order],
            documents=data.X.toarray().astype(np.float16),
            offsets=data.Y.indptr.astype(np.int64),
            labels=data.Y.indices.astype(np.int32),
        )

    def cross_fit(
        self, index: MatchIndex, data: Dataset, hidden_share: float, run: Run
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the features of the candidates of training texts, and whether each candidate is correct. The texts of
        a fold are matched with the documents of the other folds, without a random share of the labels."""
        assert data.Y is not None
        X, Y, n_labels = data.X, csr_array(data.Y), data.n_labels
        folds = np.array_split(np.random.default_rng(self.seed).permutation(data.n_docs), N_FOLDS)
        max_texts = MAX_TRAINING_TEXTS // N_FOLDS

        def match(fold: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            others = np.setdiff1d(np.arange(data.n_docs), fold)
            is_hidden = np.random.default_rng((self.seed, len(fold), int(fold[0]))).random(n_labels) < hidden_share
            search = VectorSearch(index.select_documents(others).hide_labels(is_hidden))
            rows = fold[:max_texts]
            size = choose_batch_size(search, self.candidates)
            parts = []
            for batch in np.split(rows, range(size, len(rows), size)):
                texts, labels, features = search.find_candidates(X[batch].toarray(), self.candidates)
                parts.append((features, np.asarray(Y[batch].toarray()[texts, labels]) > 0))
            return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

        found = list(run.map(match, [fold for fold in folds if len(fold)], "matching training texts", total=N_FOLDS))
        features = np.concatenate([np.zeros((0, N_FEATURES)), *(part[0] for part in found)])
        return features, np.concatenate([np.zeros(0, bool), *(part[1] for part in found)])
