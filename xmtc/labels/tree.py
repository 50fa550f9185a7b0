"""Label trees as chains of sparse matrices, and their construction by clustering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.run import MapFunction, Run
from xmtc.labels.balanced_kmeans import halve
from xmtc.labels.kmeans import cluster_labels
from xmtc.labels.streaming_kmeans import StreamedLabelVectors
from xmtc.labels.vectors import LabelVectors


@dataclass(frozen=True)
class LabelTree:
    """Label tree whose leaves have the same depth.

    levels[i] is the adjacency matrix of the nodes of level i (rows) and of level i + 1 (columns). Level 0 is the root;
    the columns of the last matrix are the labels."""

    levels: tuple[csr_array, ...]

    @classmethod
    def flat(cls, n_labels: int) -> LabelTree:
        """Return a tree with all labels directly below the root."""
        return cls((csr_array(np.ones((1, n_labels), np.float32)),))

    @property
    def n_labels(self) -> int:
        return self.levels[-1].shape[1]

    def memberships(self, Y: csr_array) -> list[csr_array]:
        """Return, for each level below the root, a binary matrix of documents (rows) that have a label below a node
        (columns)."""
        matrices = [as_binary(Y)]
        for level in reversed(self.levels[1:]):
            matrices.append(as_binary(matrices[-1] @ level.T))
        return matrices[::-1]


def as_binary(matrix: csr_array) -> csr_array:
    matrix = csr_array(matrix, dtype=np.float32)
    matrix.data = np.ones_like(matrix.data)
    return matrix


def from_groups(levels: list[list[np.ndarray]]) -> LabelTree:
    """Build a tree from each level's nodes, given as arrays of the numbers of their children."""
    return LabelTree(tuple(build_edges(groups) for groups in levels))


def build_edges(groups: list[np.ndarray]) -> csr_array:
    children = np.concatenate(groups)
    indptr = np.cumsum([0] + [len(group) for group in groups])
    return csr_array((np.ones(len(children), np.float32), children, indptr), shape=(len(groups), children.max() + 1))


SeedKey = tuple[int, ...]
SplitFunction = Callable[[np.ndarray, np.random.SeedSequence, MapFunction], tuple[np.ndarray, ...]]
SplitTask = tuple[np.ndarray, SeedKey]  # labels to split, and the seed
MAX_CONCURRENT_PARTS = 16  # large parts that all threads split at a time; each needs memory for its sums
UNLIMITED_DEPTH = 64


def build_balanced_trees(
    labels: LabelVectors | StreamedLabelVectors, max_leaf: int, seeds: Sequence[SeedKey], run: Run = Run()
) -> list[LabelTree]:
    """Build a tree per seed by balanced 2-means until no part has more than max_leaf labels (Parabel)."""
    split = labels.halve if isinstance(labels, StreamedLabelVectors) else partial(halve, labels)
    return grow_trees(labels.n_labels, max_leaf, seeds, split, run)


def build_wide_trees(
    vectors: LabelVectors, max_leaf: int, arity: int, max_depth: int, seeds: Sequence[SeedKey], run: Run = Run()
) -> list[LabelTree]:
    """Build a tree per seed by k-means with K = `arity` clusters, applied again to clusters of more than max_leaf
    labels, up to max_depth levels including the labels (Bonsai)."""
    split = partial(cluster_labels, vectors, n_clusters=arity)
    return grow_trees(vectors.n_labels, max_leaf, seeds, split, run, max_depth)


def grow_trees(
    n_labels: int,
    max_leaf: int,
    seeds: Sequence[SeedKey],
    split: SplitFunction,
    run: Run,
    max_depth: int = UNLIMITED_DEPTH,
) -> list[LabelTree]:
    """Grow all trees level by level. A part of at most max_leaf labels becomes a node with one child, so that all
    labels have the same depth."""
    parts = [[np.arange(n_labels)] for _ in seeds]
    levels: list[list[list[np.ndarray]]] = [[] for _ in seeds]
    for depth in range(1, max_depth):
        growing = [t for t in range(len(seeds)) if max(map(len, parts[t])) > max_leaf]
        if not growing:
            break
        tasks = [(part, (*seeds[t], depth, i)) for t in growing for i, part in enumerate(parts[t])]
        splits = iter(split_parts(tasks, max_leaf, split, run))
        for t in growing:
            children = [next(splits) for _ in parts[t]]
            ends = np.cumsum([len(child_parts) for child_parts in children])
            levels[t].append(np.split(np.arange(ends[-1]), ends[:-1]))
            parts[t] = [part for child_parts in children for part in child_parts]
    return [from_groups([*levels[t], parts[t]]) for t in range(len(seeds))]


def split_parts(tasks: list[SplitTask], max_leaf: int, split: SplitFunction, run: Run) -> list[tuple[np.ndarray, ...]]:
    """Split all parts of a level.

    The first splits of a tree are few and long, so all threads work on a part of over half a thread's share. Several
    such parts are split at a time, because none of them keeps all threads busy. Each thread splits the other parts
    alone."""
    n_labels = sum(len(part) for part, _ in tasks)
    splits: dict[int, tuple[np.ndarray, ...]] = {}
    splits |= {i: (part,) for i, (part, _) in enumerate(tasks) if len(part) <= max_leaf}
    remaining = [i for i in range(len(tasks)) if i not in splits]
    is_large = [2 * len(part) * run.n_threads > n_labels for part, _ in tasks]
    large, small = ([i for i in remaining if is_large[i] == wanted] for wanted in (True, False))

    def split_task(i: int, parallel_map: MapFunction = map) -> tuple[np.ndarray, ...]:
        part, seed = tasks[i]
        return split(part, np.random.SeedSequence(seed), parallel_map)

    with run.stage("growing trees", n_labels) as progress, run.open_thread_map() as parallel_map:
        quiet_run = run.without_output()
        few_threads = replace(quiet_run, threads=min(run.n_threads, MAX_CONCURRENT_PARTS))
        large_splits = few_threads.map(partial(split_task, parallel_map=parallel_map), large, "growing trees")
        for i, parts in zip(large, large_splits, strict=True):
            splits[i] = parts
            progress.advance(len(tasks[i][0]))
        for i, parts in zip(small, quiet_run.map_on_cluster(split_task, small, "growing trees"), strict=True):
            splits[i] = parts
            progress.advance(len(tasks[i][0]))
    return [splits[i] for i in range(len(tasks))]


def compress_tree(tree: LabelTree, n_levels: int, height: int = UNLIMITED_DEPTH) -> LabelTree:
    """Merge every n_levels levels above the labels, from the bottom up, to at most `height` levels (AttentionXML,
    Algorithm 1).

    A binary tree gets nodes of 2 ** n_levels children, except for the root, which takes all remaining levels. With
    height 0 all labels are children of the root."""
    *above, labels = tree.levels
    if height == 0:
        return LabelTree.flat(tree.n_labels)
    merged = [labels]
    while above:
        n_taken = n_levels if len(merged) < height else len(above)
        above, taken = above[:-n_taken], above[-n_taken:]
        level = taken[0]
        for next_level in taken[1:]:
            level = csr_array(level @ next_level)
        level.sort_indices()
        merged.insert(0, level)
    return LabelTree(tuple(merged))
