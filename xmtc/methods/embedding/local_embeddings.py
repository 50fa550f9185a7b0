"""What SLEEC and AnnexML have in common: learners that each divide the documents into clusters, map each cluster's
documents to short vectors, and let the nearest ones vote. They differ in how clusters and maps are learnt."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.sparse import csr_array

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

DOCUMENTS_PER_CLUSTER = 6000  # documents, where the number of clusters is not given: the rule of both papers
SINGLE_THREAD_RUN = Run(threads=1)  # for work within work
LearnerSeed = tuple[int, int]  # the method's, and the number of the learner


class TrainedCluster(NamedTuple):
    """What is learnt of one cluster of documents."""

    rows: np.ndarray  # its documents
    features: np.ndarray  # those that occur in them, ascending
    scales: np.ndarray
    weights: np.ndarray  # (n_features, dimension) int8
    embeddings: np.ndarray  # (n_docs, dimension) int8


@dataclass(frozen=True)
class LocalEmbeddings(Method):
    """Embeddings of documents, learnt cluster by cluster. A subclass says how documents are divided (`divide`), and how
    those of a cluster are mapped (`learn`)."""

    n_learners: int = param(5, "learners, each from its own random start", low=1, high=1000)
    n_clusters: int = param(0, "clusters of documents; 0: one for every 6,000", low=0, high=100_000)
    n_neighbours: int = param(100, "documents nearest by labels that each is to be near to", low=1, high=10_000)
    dimension: int = param(100, "length of the vectors", low=1, high=4096, search=(25, 200), log=True)
    n_votes: int = param(40, "neighbours that vote, of each learner", low=1, high=10_000, search=(5, 100), log=True)
    sharpness: float = param(
        20.0,
        "how much more a nearer neighbour's vote counts; 0: not at all",
        low=0.0,
        high=MAX_SHARPNESS,
        search=(0, 30),
    )
    search: str = param(
        "exact",
        "look at all documents of a cluster, or have usearch follow a graph",
        choices=("exact", "approximate"),
    )
    n_edges: int = param(50, "of each document in the graph of an approximate search", low=2, high=MAX_GRAPH_EDGES)
    seed: int = param(0, "seed of everything random", low=0, high=2**32 - 1)

    has_weight_support: ClassVar[bool] = False
    has_cluster_support: ClassVar[bool] = True

    @abstractmethod
    def learn_clusters(self, data: Dataset, n_clusters: int, run: Run) -> Iterator[np.ndarray]:
        """Of each learner (n_features, n_clusters): a document belongs where its product is largest."""

    @abstractmethod
    def learn_projection(self, documents: CompactMatrix, Y: csr_array, seed: LearnerSeed) -> np.ndarray:
        """(n_features, dimension): the map of the documents of one cluster, given their labels."""

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> NeighbourModel:
        if self.search == "approximate":
            check_usearch_installed()
        self.check_size(data)
        if run.checkpoint.folder:
            run.checkpoint.claim(f"{self} {data.fingerprint()}")
        assert data.Y is not None
        labelled = np.flatnonzero(np.diff(data.Y.indptr))
        documents = data.select_rows(
            labelled[make_random_order(len(labelled), self.seed)]
        )  # so that equals rank in no order
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
        """One for each learner, none of which another seed shares."""
        return [(self.seed, number) for number in range(self.n_learners)]

    def check_size(self, data: Dataset) -> None:
        """Refuse, before the training, what no memory holds, and features too large to be squared."""
        n_features, n_clusters = data.X.shape[1], self.choose_n_clusters(data.n_docs)
        maps = min(n_features * n_clusters, data.X.nnz) * (self.dimension + 8) + 4 * n_features * n_clusters
        needed = self.n_learners * (maps + data.n_docs * (self.dimension + 8))
        check_fits(needed, f"A model of {self.n_learners} learners", "lower n_learners, dimension or n_clusters")
        largest = float(np.abs(data.X.data).max(initial=0))
        if largest**2 * max(int(np.diff(data.X.indptr).max(initial=0)), 1) > MAX_SCALED_SQUARE**0.5:
            raise XmtcError(f"X has values of up to {largest:g}, too large here; scale them (unit_length=true does).")

    def _train_learners(self, data: Dataset, run: Run) -> Iterator[Learner]:
        """All clusters of all learners that are not finished yet in one stream, so that no thread ever waits."""
        finished = [run.checkpoint.load_piece(f"learner-{number}") for number in range(self.n_learners)]
        all_kept = all(kept is not None for kept in finished)
        routes = [] if all_kept else list(self.learn_clusters(data, self.choose_n_clusters(data.n_docs), run))
        divided = [None if kept else group_by_cluster(data.X, way) for kept, way in zip(finished, routes, strict=False)]
        jobs = [(rows, seed) for each, seed in zip(divided, self.seeds, strict=False) if each for rows in each[1]]

        def work(job: tuple[np.ndarray, LearnerSeed]) -> TrainedCluster:
            return self._train_cluster(data, *job)

        stream = run.map_on_cluster(
            work, jobs, "learning embeddings", size=lambda job: len(job[0]), total=self._count_documents(jobs)
        )
        for number, kept in enumerate(finished):
            if kept is not None:
                yield Learner(**kept)
                continue
            way, groups = divided[number]  # type: ignore[misc]
            learner = build_learner(way, [next(stream) for _ in groups])
            run.checkpoint.save_piece(f"learner-{number}", vars(learner))
            yield learner
        next(stream, None)  # there is none left: this ends the stream, and with it the stage

    @staticmethod
    def _count_documents(jobs: list[tuple[np.ndarray, LearnerSeed]]) -> int:
        return sum(len(rows) for rows, _ in jobs)

    def _train_cluster(self, data: Dataset, rows: np.ndarray, seed: LearnerSeed) -> TrainedCluster:
        documents = compact(data.X, rows)
        weights, scales = quantize_to_int8(self.learn_projection(documents, data.Y[rows], seed))  # type: ignore[index]
        vectors = np.empty((len(rows), self.dimension), np.float32)
        project_documents(
            documents.indptr, documents.indices.astype(np.int64), documents.data, scales, weights, vectors
        )
        return TrainedCluster(rows, documents.columns, scales, weights, quantize_to_int8(vectors)[0])


def group_by_cluster(X: csr_array, routes: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """The documents of each cluster, and the routes to those that have any."""
    cluster = route_documents(X, routes)
    used = np.flatnonzero(np.bincount(cluster, minlength=routes.shape[1]))
    return np.ascontiguousarray(routes[:, used]), [np.flatnonzero(cluster == c) for c in used]


def build_learner(routes: np.ndarray, clusters: list[TrainedCluster]) -> Learner:
    embeddings = np.ascontiguousarray(np.vstack([each.embeddings for each in clusters]).T)
    squares = np.square(embeddings, dtype=np.int32).sum(axis=0)
    return Learner(
        routes=routes,
        feature_ends=to_offsets([len(each.features) for each in clusters]),
        features=np.concatenate([each.features for each in clusters]),
        scales=np.concatenate([each.scales for each in clusters]),
        weights=np.vstack([each.weights for each in clusters]),
        member_ends=to_offsets([len(each.rows) for each in clusters]),
        members=np.concatenate([each.rows for each in clusters]).astype(np.int32),
        embeddings=embeddings,
        lengths=np.sqrt(np.maximum(squares, 1)).astype(np.float32),
    )
