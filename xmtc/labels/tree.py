"""Label trees: chained sparse matrices, root first, and the ways of growing one."""

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
    """levels[i] is (nodes of level i) × (nodes of level i + 1), a one for each edge; level 0 is the root alone, and
    the last level's columns are the labels. All labels lie equally deep."""

    levels: tuple[csr_array, ...]

    @classmethod
    def flat(cls, n_labels: int) -> LabelTree:
        """All labels under the root."""
        return cls((csr_array(np.ones((1, n_labels), np.float32)),))

    @property
    def n_labels(self) -> int:
        return self.levels[-1].shape[1]

    def memberships(self, Y: csr_array) -> list[csr_array]:
        """For every level below the root: which documents (rows) hold a label under which node (columns)."""
        below = [as_binary(Y)]
        for level in reversed(self.levels[1:]):
            below.append(as_binary(below[-1] @ level.T))
        return below[::-1]


def as_binary(matrix: csr_array) -> csr_array:
    matrix = csr_array(matrix, dtype=np.float32)
    matrix.data = np.ones_like(matrix.data)
    return matrix


def from_groups(levels: list[list[np.ndarray]]) -> LabelTree:
    """A tree from each level's nodes, given as lists of their children's numbers."""
    return LabelTree(tuple(build_edges(groups) for groups in levels))


def build_edges(groups: list[np.ndarray]) -> csr_array:
    children = np.concatenate(groups)
    indptr = np.cumsum([0] + [len(group) for group in groups])
    return csr_array((np.ones(len(children), np.float32), children, indptr), shape=(len(groups), children.max() + 1))


SeedKey = tuple[int, ...]
SplitFunction = Callable[[np.ndarray, np.random.SeedSequence, MapFunction], tuple[np.ndarray, ...]]
SplitTask = tuple[np.ndarray, SeedKey]  # a part that is to be divided
MAX_CONCURRENT_PARTS = 16  # parts that all threads divide together, at a time: each holds sums of its own


def build_balanced_trees(
    labels: LabelVectors | StreamedLabelVectors, max_leaf: int, seeds: Sequence[SeedKey], run: Run = Run()
) -> list[LabelTree]:
    """A tree for each seed: labels halved by 2-means until no part holds more than max_leaf of them (Parabel)."""
    in_two = labels.halve if isinstance(labels, StreamedLabelVectors) else partial(halve, labels)
    return grow_trees(labels.n_labels, max_leaf, seeds, in_two, run)


def build_wide_trees(
    vectors: LabelVectors, max_leaf: int, arity: int, max_depth: int, seeds: Sequence[SeedKey], run: Run = Run()
) -> list[LabelTree]:
    """A tree for each seed: labels divided by k-means into `arity` groups, and those of more than max_leaf again, down
    to max_depth levels, the labels' own included (Bonsai)."""
    return grow_trees(
        vectors.n_labels, max_leaf, seeds, partial(cluster_labels, vectors, n_clusters=arity), run, max_depth
    )


def grow_trees(
    n_labels: int, max_leaf: int, seeds: Sequence[SeedKey], split: SplitFunction, run: Run, max_depth: int = 64
) -> list[LabelTree]:
    """Trees grown side by side, level by level. A part of at most max_leaf labels stays as it is: a node with one
    child, so that all labels lie equally deep."""
    parts = [[np.arange(n_labels)] for _ in seeds]
    levels: list[list[list[np.ndarray]]] = [[] for _ in seeds]
    for depth in range(1, max_depth):
        growing = [t for t in range(len(seeds)) if max(map(len, parts[t])) > max_leaf]
        if not growing:
            break
        jobs = [(part, (*seeds[t], depth, i)) for t in growing for i, part in enumerate(parts[t])]
        divided = iter(split_parts(jobs, max_leaf, split, run))
        for t in growing:
            divisions = [next(divided) for _ in parts[t]]
            ends = np.cumsum([len(division) for division in divisions])
            levels[t].append(np.split(np.arange(ends[-1]), ends[:-1]))
            parts[t] = [part for division in divisions for part in division]
    return [from_groups([*levels[t], parts[t]]) for t in range(len(seeds))]


def split_parts(tasks: list[SplitTask], max_leaf: int, split: SplitFunction, run: Run) -> list[tuple[np.ndarray, ...]]:
    """All parts of a level. The first divisions of a tree are few and long: a part of over half a thread's share is
    divided by all threads, a few of them at a time, since none has work for all threads all the time; the others one by
    each thread."""
    n_labels = sum(len(part) for part, _ in tasks)
    divided: dict[int, tuple[np.ndarray, ...]] = {}
    divided |= {i: (part,) for i, (part, _) in enumerate(tasks) if len(part) <= max_leaf}
    waiting = [i for i in range(len(tasks)) if i not in divided]
    is_large = [2 * len(part) * run.n_threads > n_labels for part, _ in tasks]
    large, small = ([i for i in waiting if is_large[i] == wanted] for wanted in (True, False))

    def work(i: int, each: MapFunction = map) -> tuple[np.ndarray, ...]:
        part, seed = tasks[i]
        return split(part, np.random.SeedSequence(seed), each)

    with run.stage("growing trees", n_labels) as progress, run.open_thread_map() as each:
        beside = replace(run.without_output(), threads=min(run.n_threads, MAX_CONCURRENT_PARTS))
        for i, parts in zip(large, beside.map(partial(work, each=each), large, "growing trees"), strict=True):
            divided[i] = parts
            progress.advance(len(tasks[i][0]))
        for i, parts in zip(small, run.without_output().map_on_cluster(work, small, "growing trees"), strict=True):
            divided[i] = parts
            progress.advance(len(tasks[i][0]))
    return [divided[i] for i in range(len(tasks))]


def compress_tree(tree: LabelTree, n_levels: int, height: int = 64) -> LabelTree:
    """The tree with every n_levels levels above the labels made one, from the bottom up, until `height` of them are
    left: a binary tree becomes one of 2 ** n_levels children a node, but for the root, which takes what is left
    (AttentionXML, Algorithm 1; with height 0 the root has all labels)."""
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
