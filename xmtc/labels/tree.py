"""Label trees: chained sparse matrices, root first, and the ways of growing one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from xmtc.labels.clustering import halve
from xmtc.labels.vectors import LabelVectors
from xmtc.run import Run


@dataclass(frozen=True)
class LabelTree:
    """levels[i] is (nodes of level i) × (nodes of level i + 1), a one for each edge; level 0 is the root alone, and
    the last level's columns are the labels. All labels lie equally deep."""

    levels: tuple[csr_array, ...]

    @property
    def n_labels(self) -> int:
        return self.levels[-1].shape[1]

    def memberships(self, Y: csr_array) -> list[csr_array]:
        """For every level below the root: which documents (rows) hold a label under which node (columns)."""
        below = [as_ones(Y)]
        for level in reversed(self.levels[1:]):
            below.append(as_ones(below[-1] @ level.T))
        return below[::-1]


def as_ones(matrix: csr_array) -> csr_array:
    matrix = csr_array(matrix, dtype=np.float32)
    matrix.data = np.ones_like(matrix.data)
    return matrix


def from_groups(levels: list[list[np.ndarray]]) -> LabelTree:
    """A tree from each level's nodes, given as lists of their children's numbers."""
    return LabelTree(tuple(edges(groups) for groups in levels))


def edges(groups: list[np.ndarray]) -> csr_array:
    children = np.concatenate(groups)
    indptr = np.cumsum([0] + [len(group) for group in groups])
    return csr_array((np.ones(len(children), np.float32), children, indptr), shape=(len(groups), children.max() + 1))


def balanced_binary_trees(
    vectors: LabelVectors, max_leaf: int, seeds: Sequence[tuple[int, ...]], run: Run = Run()
) -> list[LabelTree]:
    """A tree for each seed: the labels halved by spherical 2-means, level by level, until no part holds more than
    max_leaf of them. The trees grow side by side, because the first halvings are few and long."""
    forest = [[np.arange(vectors.n_labels)] for _ in seeds]
    levels: list[list[np.ndarray]] = []
    while max(map(len, forest[0])) > max_leaf:
        jobs = [
            (part, np.random.SeedSequence((*seed, len(levels), i)))
            for seed, parts in zip(seeds, forest, strict=True)
            for i, part in enumerate(parts)
        ]
        halves = run.map(lambda job: halve(vectors, *job), jobs, "growing trees", total=len(jobs))
        divided = [[next(halves) for _ in parts] for parts in forest]
        ends = np.cumsum([len(division) for division in divided[0]])  # alike in all trees, as the sizes are
        levels.append(np.split(np.arange(ends[-1]), ends[:-1]))
        forest = [[part for division in divisions for part in division] for divisions in divided]
    return [from_groups([*levels, parts]) for parts in forest]
