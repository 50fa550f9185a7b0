"""Base class of SLEEC and AnnexML: nearest neighbours in local embeddings.

Several learners divide the documents into clusters, map the documents of each cluster to embeddings, and let the
nearest documents vote. The methods differ in how clusters and maps are learnt.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.checkpoint import claim_checkpoint
from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.memory import check_fits
from xmtc.core.method import Method
from xmtc.core.run import Run
from xmtc.core.sparse import CompactMatrix, compact
from xmtc.errors import XmtcError
from xmtc.linear.packing import to_offsets
from xmtc.linear.solver import MAX_SCALED_SQUARE, make_random_order
from xmtc.methods.embedding.neighbour_model import (
    MAX_GRAPH_EDGES,
    MAX_SHARPNESS,
    Learner,
    NeighbourModel,
    project_documents,
    quantize_to_int8,
    route_documents,
)
from xmtc.methods.embedding.neighbours import check_usearch_installed

DOCUMENTS_PER_CLUSTER = 6000  # the rule of both papers for the number of clusters
SINGLE_THREAD_RUN = Run(threads=1)  # for work inside a task of a thread pool
LearnerSeed = tuple[int, int]  # seed of the method, and number of the learner


class TrainedCluster(NamedTuple):
    """Embeddings and linear map of one cluster of documents."""

    rows: np.ndarray  # numbers of its documents
    features: np.ndarray  # features that occur in them, ascending
    scales: np.ndarray  # (n_features,), factors of the int8 weights
    weights: np.ndarray  # (n_features, dimension) int8
    embeddings: np.ndarray  # (n_docs, dimension) int8


@dataclass(frozen=True)
class LocalEmbeddings(Method):
    """Embeddings of documents, learnt for each cluster; a subclass learns the clusters and the linear maps."""

    n_learners: int = param(5, "Number of learners, each with its own random seed.", low=1, high=1000)
    n_clusters: int = param(0, "Number of clusters; 0 gives one per 6,000 documents.", low=0, high=100_000)
    n_neighbours: int = param(100, "Number of nearest documents by labels to learn from.", low=1, high=10_000)
    dimension: int = param(100, "Dimension of the embeddings.", low=1, high=4096, search=(25, 200), log=True)
    n_votes: int = param(40, "Number of voting neighbours per learner.", low=1, high=10_000, search=(5, 100), log=True)
    sharpness: float = param(
        20.0,
        "Exponential weight of closer neighbours' votes; 0 gives all votes the same weight.",
        low=0.0,
        high=MAX_SHARPNESS,
        search=(0, 30),
    )
    search: str = param(
        "exact",
        "Neighbour search within a cluster; approximate uses a usearch graph.",
        choices=("exact", "approximate"),
    )
    n_edges: int = param(
        50, "Number of edges per document in the graph of an approximate search.", low=2, high=MAX_GRAPH_EDGES
    )
    seed: int = param(0, "Random seed.", low=0, high=2**32 - 1)

    has_weight_support: ClassVar[bool] = False
    view_defaults: ClassVar[dict[str, Any]] = {"unit_length": True}  # neighbours are compared by cosine
    has_cluster_support: ClassVar[bool] = True

    @abstractmethod
    def learn_clusters(self, data: Dataset, n_clusters: int, run: Run) -> Iterator[np.ndarray]:
        """Yield the cluster weights of each learner, shape (n_features, n_clusters).

        A document belongs to the cluster with the largest product.
        """

    @abstractmethod
    def learn_projection(self, documents: CompactMatrix, Y: csr_array, seed: LearnerSeed) -> np.ndarray:
        """Return the linear map of one cluster's documents, shape (n_features, dimension)."""

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> NeighbourModel:
        if self.search == "approximate":
            check_usearch_installed()
        self.check_size(data)
        claim_checkpoint(run, self, data)
        assert data.Y is not None
        labelled = np.flatnonzero(np.diff(data.Y.indptr))
        # ties are broken by position, so a random order removes the bias towards early documents
        documents = data.select_rows(labelled[make_random_order(len(labelled), self.seed)])
        Y = csr_array(documents.Y)
        return NeighbourModel(
            n_labels=data.n_labels,
            views=data.sizes,
            n_votes=self.n_votes,
            sharpness=self.sharpness,
            edges=self.n_edges if self.search == "approximate" else 0,
            label_ends=Y.indptr.astype(np.int64),
            labels=Y.indices.astype(np.int32),
            learners=tuple(self._train_learners(documents, run)),
        )

    def choose_n_clusters(self, n_docs: int) -> int:
        return min(self.n_clusters or max(1, n_docs // DOCUMENTS_PER_CLUSTER), n_docs)

    @property
    def seeds(self) -> list[LearnerSeed]:
        """Seeds of the learners, which no other value of `seed` shares."""
        return [(self.seed, number) for number in range(self.n_learners)]

    def check_size(self, data: Dataset) -> None:
        """Raise an error if the model does not fit into memory, or feature values are too large to be squared."""
        n_features, n_clusters = data.X.shape[1], self.choose_n_clusters(data.n_docs)
        maps = min(n_features * n_clusters, data.X.nnz) * (self.dimension + 8) + 4 * n_features * n_clusters
        needed = self.n_learners * (maps + data.n_docs * (self.dimension + 8))
        check_fits(needed, f"A model of {self.n_learners} learners", "lower n_learners, dimension or n_clusters")
        largest = float(np.abs(data.X.data).max(initial=0))
        if largest**2 * max(int(np.diff(data.X.indptr).max(initial=0)), 1) > MAX_SCALED_SQUARE**0.5:
            raise XmtcError(
                f"X has values of up to {largest:g}, which is too large for {type(self).__name__}; scale the features, "
                "for example with unit_length=true."
            )

    def _train_learners(self, data: Dataset, run: Run) -> list[Learner]:
        """Load finished learners from the checkpoint and train the others."""
        pieces = [run.checkpoint.load_piece(f"learner-{number}") for number in range(self.n_learners)]
        learners = {number: Learner(**piece) for number, piece in enumerate(pieces) if piece is not None}
        if len(learners) < self.n_learners:
            all_routes = list(self.learn_clusters(data, self.choose_n_clusters(data.n_docs), run))
            missing = {number: routes for number, routes in enumerate(all_routes) if number not in learners}
            learners |= self._train_missing_learners(data, missing, run)
        return [learners[number] for number in range(self.n_learners)]

    def _train_missing_learners(self, data: Dataset, routes: dict[int, np.ndarray], run: Run) -> dict[int, Learner]:
        """Train the clusters of all learners as one stream of tasks, so that no thread is idle between learners."""
        groups = {number: group_by_cluster(data.X, weights) for number, weights in routes.items()}
        tasks = [(rows, self.seeds[number]) for number, (_, clusters) in groups.items() for rows in clusters]

        def work(task: tuple[np.ndarray, LearnerSeed]) -> TrainedCluster:
            return self._train_cluster(data, *task)

        stream = run.map_on_cluster(
            work,
            tasks,
            "learning embeddings",
            size=lambda task: len(task[0]),
            total=sum(len(rows) for rows, _ in tasks),
        )
        learners = {}
        for number, (used_routes, clusters) in groups.items():
            learners[number] = build_learner(used_routes, [next(stream) for _ in clusters])
            run.checkpoint.save_piece(f"learner-{number}", vars(learners[number]))
        next(stream, None)  # exhausts the stream, which ends its progress stage
        return learners

    def _train_cluster(self, data: Dataset, rows: np.ndarray, seed: LearnerSeed) -> TrainedCluster:
        documents = compact(data.X, rows)
        weights, scales = quantize_to_int8(self.learn_projection(documents, data.Y[rows], seed))  # type: ignore[index]
        vectors = np.empty((len(rows), self.dimension), np.float32)
        project_documents(
            documents.indptr, documents.indices.astype(np.int64), documents.data, scales, weights, vectors
        )
        return TrainedCluster(rows, documents.columns, scales, weights, quantize_to_int8(vectors)[0])


def group_by_cluster(X: csr_array, routes: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the cluster weights and the documents of the clusters that are not empty."""
    cluster = route_documents(X, routes)
    used = np.flatnonzero(np.bincount(cluster, minlength=routes.shape[1]))
    return np.ascontiguousarray(routes[:, used]), [np.flatnonzero(cluster == c) for c in used]


def build_learner(routes: np.ndarray, clusters: list[TrainedCluster]) -> Learner:
    embeddings = np.ascontiguousarray(np.vstack([cluster.embeddings for cluster in clusters]).T)
    squares = np.square(embeddings, dtype=np.int32).sum(axis=0)
    return Learner(
        routes=routes,
        feature_ends=to_offsets([len(cluster.features) for cluster in clusters]),
        features=np.concatenate([cluster.features for cluster in clusters]),
        scales=np.concatenate([cluster.scales for cluster in clusters]),
        weights=np.vstack([cluster.weights for cluster in clusters]),
        member_ends=to_offsets([len(cluster.rows) for cluster in clusters]),
        members=np.concatenate([cluster.rows for cluster in clusters]).astype(np.int32),
        embeddings=embeddings,
        lengths=np.sqrt(np.maximum(squares, 1)).astype(np.float32),
    )
