"""AttentionXML: a bidirectional LSTM with one attention per label, and a shallow, wide label tree for label sets too
large for that. You, Zhang, Wang, Dai, Mamitsuka, Zhu (NeurIPS 2019), and its first version (arXiv:1811.01727).

Follows the authors' code where the papers are silent: dropout of words and states, gradient clipping relative to recent
norms, averaged weights of which the best nDCG@5 is kept. By default it differs from them in, and with a preset follows
them in: the loss is summed over labels, not averaged; attentions start apart; larger batches and rates; weights are
averaged every 20 steps and looked at after every pass, not every 100 steps. It differs always in: the first fully
connected layer is applied before the average over words, which is the same function; candidates are not filled up with
random labels; training ends at the end of a pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log2
from typing import Any, ClassVar

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import Presets, param
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.labels.tree import LabelTree, build_balanced_trees, compress_tree
from xmtc.labels.vectors import LabelVectors
from xmtc.methods.attention.base import RecurrentMethod
from xmtc.methods.attention.model import ATTENTION, OWN_OUTPUT, VIEW, AttentionModel, RecurrentDesign
from xmtc.nn.training import TrainingOptions

MAX_FLAT_LABELS = 20_000  # labels, or nodes of the first level, that all get an attention of their own

# The papers' settings. Word vectors are GloVe's, of 300 numbers (-p vectors=FILE); without any, trained ones begin at
# random. One document in 20 is held out, but no more than 4,000; of the two smallest, the authors' 200.
SHARED_SETTINGS: dict[str, Any] = {
    "dimension": 300, "corpus_dimension": 0, "dropout": 0.5, "rate": 0.001, "decay": 1.0, "loss": "mean",
    "init": "xavier", "own_output": False, "minutes": 0.0, "max_tokens": 500, "max_words": 500_000, "lowercase": True,
    "held_out": 0.05, "whole_word_dropout": 0.0,
}  # fmt: skip
SMALL_NETWORK = {"hidden": 256, "layers": (256,)}
LARGE_NETWORK = {"hidden": 512, "layers": (512, 256)}

# NeurIPS 2019, and what only its authors' code says: dropout of words, clipping, averages and looks, frozen vectors.
WEIGHT_AVERAGING = {"average_every": 100, "average_over": 0, "look_every": 100, "patience": 50}
NEURIPS_2019 = SHARED_SETTINGS | WEIGHT_AVERAGING | {"word_dropout": 0.2, "clips": True}
NEURIPS_2019_SMALL = NEURIPS_2019 | SMALL_NETWORK | {"train_vectors": False, "batch": 40, "epochs": 30, "height": 0}
NEURIPS_2019_LARGE = NEURIPS_2019 | LARGE_NETWORK | {"train_vectors": True, "batch": 200}
NEURIPS_2019_TREE = NEURIPS_2019_LARGE | {"height": 3, "arity": 8, "candidates": 160}

# The first version, arXiv 2018: flat, no averages, and all that stands in its "Experimental Settings"; of how weights
# begin and texts are cut it says nothing, and the later code's ways are taken.
ARXIV_2018 = SHARED_SETTINGS | {
    "train_vectors": True,
    "word_dropout": 0.0,
    "clips": False,
    "batch": 40,
    "height": 0,
    "look_every": 0,
}
ARXIV_2018_SMALL = ARXIV_2018 | SMALL_NETWORK | {"epochs": 50, "average_from": 50, "patience": 5}
ARXIV_2018_LARGE = ARXIV_2018 | LARGE_NETWORK | {"epochs": 10, "average_from": 10, "patience": 5}

PRESETS: Presets = {
    "EUR-Lex": NEURIPS_2019_SMALL | {"average_from": 10, "held_out": 0.01295},
    "Wiki10-31K": NEURIPS_2019_SMALL | {"average_from": 4, "held_out": 0.01414},
    "AmazonCat-13K": NEURIPS_2019_LARGE | {"epochs": 10, "average_from": 2, "height": 0},
    "Amazon-670K": NEURIPS_2019_TREE | {"epochs": 10, "average_from": 6, "average_below": 2},
    "Wiki-500K": NEURIPS_2019_LARGE
    | {"epochs": 5, "average_from": 2, "average_below": 1, "height": 1, "arity": 64, "candidates": 15},
    "Amazon-3M": NEURIPS_2019_TREE | {"epochs": 5, "average_from": 2, "average_below": 1},
    "RCV1": ARXIV_2018_SMALL,
    "EUR-Lex-2018": ARXIV_2018_SMALL,
    "Wiki10-31K-2018": ARXIV_2018_SMALL,
    "WikiLSHTC-325K": ARXIV_2018_LARGE,
    "AmazonCat-13K-2018": ARXIV_2018_LARGE,
}


@dataclass(frozen=True)
class AttentionXML(RecurrentMethod):
    """A bidirectional LSTM with one attention per label (You et al., NeurIPS 2019)."""

    pooling: ClassVar[str] = ATTENTION
    presets: ClassVar[Presets] = PRESETS
    quick_parameters: ClassVar[dict[str, Any]] = {
        "hidden": 16, "layers": (16,), "dimension": 24, "dropout": 0.2, "height": 1, "arity": 4, "candidates": 6,
        "batch": 32, "epochs": 14, "rate": 0.02, "average_from": 5,
    }  # fmt: skip

    height: int = param(-1, "levels of nodes above the labels; 0: no tree; -1: as many as it takes", low=-1)
    arity: int = param(8, "labels of a leaf, and children of a node, at most; a power of 2", low=2)
    candidates: int = param(160, "nodes of a level whose children are looked at", low=1)
    average_below: int = param(2, "pass from which on weights are averaged in levels below the first", low=0)
    own_output: bool = param(False, "give each label an output row of its own beside the layer that all share")
    preset: str = param(
        "", "a data set of the papers, whose settings stand where none are given", choices=("", *PRESETS)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.arity.bit_count() != 1:
            raise XmtcError(f"AttentionXML: arity={self.arity} does not fit; expected a power of 2, such as 8.")

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> AttentionModel:
        return self.train(data, valid, self.build_label_tree, self.candidates, run)

    def count_tree_levels(self, n_labels: int) -> int:
        """Above the labels, so that the first has few enough nodes."""
        height, n_nodes = 0, n_labels
        while n_nodes > MAX_FLAT_LABELS:
            height, n_nodes = height + 1, -(-n_nodes // self.arity)
        return height

    def build_design(self, vectors: np.ndarray, n_labels: int) -> RecurrentDesign:
        return replace(super().build_design(vectors, n_labels), pooling=OWN_OUTPUT if self.own_output else ATTENTION)

    def make_level_options(self, level: int) -> TrainingOptions:
        plan = super().make_level_options(level)
        return plan if level == 0 else replace(plan, average_from=self.average_below)

    def build_label_tree(self, data: Dataset, run: Run) -> LabelTree:
        """Parabel's tree, made shallow and wide (Algorithm 1)."""
        height = self.height if self.height >= 0 else self.count_tree_levels(data.n_labels)
        if height == 0:
            return LabelTree.flat(data.n_labels)
        vectors = LabelVectors.from_words(data.tokens(VIEW), data.Y, run)
        tree = build_balanced_trees(vectors, self.arity, [(self.seed, 0)], run)[0]
        return compress_tree(tree, int(log2(self.arity)), height)
