"""Slice: linear classifiers on dense vectors, trained on the documents for which a search finds the label.

Paper: Jain, Balasubramanian, Chunduri, Varma: Slice - Scalable Linear Extreme Classifiers Trained on 100 Million Labels
for Related Searches (WSDM 2019).

Idea: a label is represented by the mean of its documents' vectors (generative model). The labels whose means are
nearest to a document are its candidates, found in a graph index (HNSW). The linear classifier of a label is trained on
its own documents and on those for which it is a wrong candidate (negatives), so training and prediction do not depend
on the number of labels. A prediction ranks the candidates by both models.

Follows the authors' code where the paper leaves it open: the squared hinge loss, C = 1, at most 20 iterations, and the
sum of both probabilities, where the cosine is scaled by the mean length of the classifiers' weights. M, ef and the
number of candidates are those of the code.

Differs from the authors' code in the solver (Newton's method in the primal), in that the search is exact up to 50,000
labels, and in that the sum of the probabilities is halved, which makes it a probability.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csc_array, csr_array
from threadpoolctl import threadpool_limits

from xmtc.core.checkpoint import claim_checkpoint
from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.method import Method
from xmtc.core.run import Run
from xmtc.core.sparse import normalise_rows
from xmtc.linear.newton import NewtonProblem, solve_by_newton
from xmtc.linear.solver import Solver
from xmtc.methods.embedding.neighbours import check_usearch_installed
from xmtc.methods.one_vs_all.slice_model import EXACT_SEARCH, MAX_BATCH_TEXTS, CentroidSearch, SliceModel

SEARCHES = AUTO, EXACT, APPROXIMATE = "auto", "exact", "approximate"
MAX_EXACT_LABELS = 50_000  # an exact search of more labels takes longer than one in an index
BLOCK_LABELS = 256  # labels that a thread trains at a time


@dataclass(frozen=True)
class Slice(Method):
    """Linear classifiers on sentence vectors with negatives from a nearest-neighbour index (Jain et al., WSDM 2019).

    Examples
    --------
    >>> import numpy as np
    >>> from xmtc import Dataset
    >>> from xmtc.methods import Slice
    >>> data = Dataset.from_matrix(np.eye(2), np.eye(2))
    >>> Slice().fit(data).predict(data, k=1).labels.tolist()
    [[0], [1]]
    """

    required_views: ClassVar[tuple[str, ...]] = ("dense",)
    is_exact: ClassVar[bool] = False
    has_cluster_support: ClassVar[bool] = True
    quick_parameters: ClassVar[dict[str, Any]] = {}

    candidates: int = param(
        300, "Number of labels with the nearest centroids, whose classifiers see a document.", low=1, search=(50, 600)
    )
    search: str = param(
        AUTO, "Search for the nearest centroids: exact, approximate with a usearch graph, or auto.", choices=SEARCHES
    )
    edges: int = param(100, "Edges of a label in the graph of an approximate search (M).", low=2, high=1000)
    ef: int = param(300, "Candidates of an approximate search in the graph (ef).", low=1, high=100_000)
    C: float = param(
        1.0, "Weight C of the loss against the regulariser.", low=1e-6, high=1e9, search=(0.1, 30), log=True
    )
    eps: float = param(0.1, "Relative tolerance of the solver.", low=0.0, high=1e6)
    max_passes: int = param(20, "Maximum number of Newton steps.", low=1, high=10_000)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.search == APPROXIMATE:
            check_usearch_installed()

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> SliceModel:
        claim_checkpoint(run, self, data)
        Solver(C=self.C).check_feature_scale(data.X)
        Y, X = csr_array(data.Y), data.X.toarray()
        edges = self.edges if self.should_use_index(data.n_labels) else EXACT_SEARCH
        with threadpool_limits(1, "blas"):  # documents and labels run in parallel
            centroids = normalise_rows(csr_array(Y.T @ data.X)).toarray().astype(np.float16)
            confused = find_confused_documents(X, CentroidSearch(centroids, edges, self.ef), self.candidates, run)
            train = self.build_trainer(X, csc_array(Y), csc_array(confused))
            blocks = [slice(i, min(i + BLOCK_LABELS, data.n_labels)) for i in range(0, data.n_labels, BLOCK_LABELS)]
            name: Callable[[slice], str] = lambda block: f"labels-{block.start}"  # noqa: E731
            pieces = list(run.map_with_checkpoint(train, blocks, name, "training"))
        weights = np.vstack([piece["weights"] for piece in pieces])
        has_documents = centroids.any(axis=1)
        lengths = np.linalg.norm(weights[has_documents], axis=1)
        return SliceModel(
            n_labels=data.n_labels,
            views=data.sizes,
            n_candidates=self.candidates,
            edges=edges,
            ef=self.ef,
            scale=float(lengths.mean()) if len(lengths) else 1.0,
            centroids=centroids,
            weights=weights[:, :-1].astype(np.float16),
            biases=weights[:, -1].astype(np.float32),
        )

    def should_use_index(self, n_labels: int) -> bool:
        is_large = n_labels > MAX_EXACT_LABELS and find_spec("usearch") is not None
        return self.search == APPROXIMATE or (self.search == AUTO and is_large)

    def build_trainer(
        self, X: np.ndarray, positives: csc_array, confused: csc_array
    ) -> Callable[[slice], dict[str, np.ndarray]]:
        """Return a function that trains the classifiers of a block of labels; the last weight is the bias."""
        documents = np.hstack([X, np.ones((len(X), 1), np.float32)])
        C, eps, max_passes = self.C, self.eps, self.max_passes

        def train(block: slice) -> dict[str, np.ndarray]:
            weights = np.zeros((block.stop - block.start, documents.shape[1]), np.float32)
            for number, label in enumerate(range(block.start, block.stop)):
                own = positives.indices[positives.indptr[label] : positives.indptr[label + 1]]
                others = confused.indices[confused.indptr[label] : confused.indptr[label + 1]]
                if len(own):
                    rows = np.union1d(own, others)
                    signs = np.where(np.isin(rows, own), 1.0, -1.0)[:, None]
                    problem = NewtonProblem(documents[rows].astype(np.float64), signs, np.full(signs.shape, C), False)
                    weights[number] = solve_by_newton(problem, eps, max_passes)[0][:, 0]
            return {"weights": weights}

        return train


def find_confused_documents(X: np.ndarray, search: CentroidSearch, n_candidates: int, run: Run) -> csr_array:
    """Return ones at the candidates of each document: the labels with the nearest centroids, right or wrong."""
    batches = [slice(i, i + MAX_BATCH_TEXTS) for i in range(0, len(X), MAX_BATCH_TEXTS)]
    parts = run.map(lambda batch: search.find(X[batch], n_candidates)[0], batches, "searching", total=len(batches))
    labels = np.vstack(list(parts))
    rows, places = np.nonzero(labels >= 0)
    ones, shape = np.ones(len(rows), np.float32), (len(X), len(search.centroids))
    return csr_array((ones, (rows, labels[rows, places])), shape=shape)
