"""Matcher: labels whose names or training documents have sentence vectors similar to that of the text.

Papers: the idea of a joint memory of label names and training documents follows Chien et al.: RAE-XMC (Retrieval-
augmented Encoders for Extreme Multi-label Text Classification, 2025); the dual encoder of texts and names follows
DEXML (Gupta et al.: Dual-Encoders for Extreme Multi-label Classification, ICLR 2024), NGAME (Dahiya et al., WSDM 2023)
and MACLR (Xiong et al., NAACL 2022).

Idea: a frozen pretrained encoder gives vectors of the text, of all label names and of all training documents. A linear
map of the vectors, trained with the decoupled softmax of DEXML, makes texts similar to the names of their labels. The
candidates of a text are the labels of the most similar names, and those of the nearest documents, which vote with
exp(similarity / temperature). Logistic regression combines both to a probability. It is learnt from held-out documents,
where labels without documents have weights of their own. If held-out documents have too few such labels, a random tenth
of the labels is removed from the other documents.

Differs from these papers in that the encoder is not trained by default: only the map and the weights of the regression
are. So training takes little more than encoding the texts. With `fine_tune`, the encoder is trained before, with the
same loss on the names of a batch and on hard negatives (see `fine_tuning`). A new label always needs only a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array, diags_array
from threadpoolctl import threadpool_limits

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.method import LabelName, Method, Model
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.methods.lexical.lexical import Lexical
from xmtc.methods.lexical.match_classifier import fit_logistic_regression
from xmtc.methods.matcher.candidates import N_FEATURES, MatchIndex, VectorSearch, project
from xmtc.methods.matcher.model import MatcherModel, choose_batch_size
from xmtc.methods.matcher.projection import train_projection
from xmtc.text.analyzers import AUTO

HELD_OUT_PART = 5  # one in so many documents is held out to learn the regression
MAX_HELD_OUT_TEXTS = 2000  # enough for a dozen weights
MIN_UNSEEN_ASSIGNMENTS = 100  # of labels without other documents, enough for their weights
HIDDEN_SHARE = 0.1  # of the labels, where there are fewer


@dataclass(frozen=True)
class Matcher(Method):
    """Labels whose names or training documents are similar to the text, by a frozen encoder (after RAE-XMC).

    Examples
    --------
    >>> from xmtc.methods import Matcher
    >>> Matcher(vocabulary="names.tsv").has_label_name_input
    True
    """

    view_defaults: ClassVar[dict[str, Any]] = {"encoder": "minilm-l6", "max_subwords": 128}
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
        0.03,
        "Difference of similarity at which the vote of a document falls by the factor e.",
        low=0.001,
        high=10.0,
        search=(0.01, 0.2),
        log=True,
    )
    candidates: int = param(
        50, "Number of labels with the most similar names that are scored.", low=1, high=100_000, search=(20, 200)
    )
    epochs: int = param(
        3,
        "Number of passes over the documents that train the projection; 0 keeps the encoder's vectors.",
        low=0,
        high=1000,
    )
    fine_tune: int = param(
        0,
        "Number of passes over the documents that train the encoder; 0 keeps it. The encoder is then `encoder`, with "
        "`max_subwords`.",
        low=0,
        high=1000,
    )
    encoder_rate: float = param(
        5e-5, "Learning rate of the encoder.", low=1e-8, high=1.0, search=(1e-5, 2e-4), log=True
    )
    batch: int = param(32, "Number of documents per step of the encoder's training.", low=1)
    hard_negatives: int = param(
        3, "Number of wrong names per document in a step, drawn from those that are most similar.", low=0, high=1000
    )
    seed: int = param(0, "Random seed of the held-out documents and of the training.", low=0, high=2**32 - 1)

    @property
    def required_views(self) -> tuple[str, ...]:  # type: ignore[override]
        """Sentence vectors of a frozen encoder, or subwords of one that is trained."""
        return ("subwords",) if self.fine_tune else ("dense",)

    def list_label_names(self, labels: Sequence[str], language: str | None = None) -> Iterable[LabelName]:
        """Return the names that `lexical` reads."""
        reader = Lexical(vocabulary=self.vocabulary, name_language=self.name_language)
        return reader.list_label_names(labels, language)

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> Model:
        if not self.fine_tune:
            return self.fit_vectors(data, run)
        from xmtc.methods.matcher.fine_tuning import fit_fine_tuned  # needs PyTorch

        return fit_fine_tuned(self, data, run)

    def fit_vectors(self, data: Dataset, run: Run) -> MatcherModel:
        """Train the projection and the regression on sentence vectors."""
        names, name_labels = read_names(data)
        held_out, rest = self.split(data)
        with threadpool_limits(1, "blas"):  # batches of texts run in parallel
            index = self.build_index(rest, names, name_labels, run.for_part("held-out"))
            weights = self.fit_weights(index, held_out, run)
            return MatcherModel(
                n_labels=data.n_labels,
                views=data.sizes,
                n_candidates=self.candidates,
                index=self.build_index(data, names, name_labels, run),
                weights=weights,
            )

    def split(self, data: Dataset) -> tuple[Dataset, Dataset]:
        """Return held-out documents, and the others. If the held-out documents have few labels that the others do not
        have, a random share of the labels is removed from the others."""
        assert data.Y is not None
        if data.n_docs == 1:
            return data, data
        rng = np.random.default_rng(self.seed)
        order, n_held_out = rng.permutation(data.n_docs), min(MAX_HELD_OUT_TEXTS, ceil(data.n_docs / HELD_OUT_PART))
        held_out, rest = data.select_rows(order[:n_held_out]), data.select_rows(order[n_held_out:])
        assert held_out.Y is not None
        assert rest.Y is not None
        is_seen = np.bincount(rest.Y.indices, minlength=data.n_labels) > 0
        if (~is_seen[held_out.Y.indices]).sum() < MIN_UNSEEN_ASSIGNMENTS:
            is_kept = rng.random(data.n_labels) >= HIDDEN_SHARE
            Y = csr_array(rest.Y @ diags_array(is_kept.astype(np.float32)))
            Y.eliminate_zeros()
            rest = rest.copy_with(Y=Y)
        return held_out, rest

    def build_index(self, data: Dataset, names: np.ndarray, name_labels: np.ndarray, run: Run) -> MatchIndex:
        """Train the projection and return the index of all label names and of these documents."""
        assert data.Y is not None
        Y, documents = csr_array(data.Y), data.X.toarray()
        matrix = train_projection(documents, Y, names, name_labels, self.epochs, self.seed, run)
        return MatchIndex(
            n_labels=data.n_labels,
            n_neighbours=self.neighbours,
            temperature=self.temperature,
            projection=matrix,
            names=project(names, matrix).astype(np.float16),
            name_labels=name_labels,
            documents=project(documents, matrix).astype(np.float16),
            offsets=Y.indptr.astype(np.int64),
            labels=Y.indices.astype(np.int32),
        )

    def fit_weights(self, index: MatchIndex, held_out: Dataset, run: Run) -> np.ndarray:
        """Return the weights of the regression, learnt from the candidates of held-out documents."""
        X, Y, search = held_out.X, csr_array(held_out.Y), VectorSearch(index)
        size = choose_batch_size(search, self.candidates)

        def match(batch: slice) -> tuple[np.ndarray, np.ndarray]:
            texts, labels, features = search.find_candidates(X[batch].toarray(), self.candidates)
            return features, np.asarray(Y[batch].toarray()[texts, labels]) > 0

        batches = [slice(i, i + size) for i in range(0, held_out.n_docs, size)]
        parts = list(run.map(match, batches, "matching held-out texts", total=len(batches)))
        features = np.concatenate([np.zeros((0, N_FEATURES)), *(part[0] for part in parts)])
        is_right = np.concatenate([np.zeros(0, bool), *(part[1] for part in parts)])
        return fit_logistic_regression(features, is_right)


def read_names(data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of the label names and their labels, in ascending order of the labels."""
    if data.names is None or data.names.vectors is None:
        raise XmtcError(
            "The data set has no vectors of label names, which matcher needs; train from texts: "
            "Classifier('matcher').fit(texts, labels)."
        )
    order = np.argsort(data.names.labels, kind="stable")
    return data.names.vectors.matrix.toarray()[order], data.names.labels[order]
