"""AttentionXML: a bidirectional LSTM with one attention per label, and a shallow, wide label tree for large label sets.

You, Zhang, Wang, Dai, Mamitsuka, Zhu: AttentionXML: Label Tree-based Attention-Aware Deep Model for High-Performance
Extreme Multi-Label Text Classification (NeurIPS 2019), and its first version (arXiv:1811.01727).

Word vectors → bidirectional LSTM (eqs. 1–3) → attention α_j of each label j (eq. 4) → fully connected layers shared by
all labels (eq. 5) → binary cross-entropy (eq. 6). For large label sets, a label tree of height H with up to K children
per node (Algorithm 1) has one network per level; a level scores only the children of the C best nodes of the level
above (training: Algorithm 3, prediction: Algorithm 4).

Where the papers are silent, this module follows the authors' code: dropout of words and states, gradient clipping
relative to recent norms, and averaged weights. The weights with the best nDCG@5 are kept.

Differences from the papers by default; a preset removes them:

- The loss is the sum over labels, not the mean.
- The initial attentions are separated, see ATTENTION_INIT_RANGE.
- Batches and learning rates are larger.
- Weights are averaged every 20 steps and validated after every epoch, not every 100 steps.

Differences in all cases:

- The first fully connected layer is applied before the attention average, which gives the same result.
- Candidates are not padded with random labels.
- Training stops only at the end of an epoch.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from math import log2
from typing import Any, ClassVar

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import Presets, param
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.labels.tree import LabelTree, build_balanced_trees, compress_tree
from xmtc.labels.vectors import LabelVectors
from xmtc.methods.attention.base import PRESET_HELP, RecurrentMethod
from xmtc.methods.attention.model import ATTENTION, OWN_OUTPUT, VIEW
from xmtc.methods.attention.presets import ATTENTION_XML_PRESETS
from xmtc.nn.training import TrainingOptions

MAX_FLAT_LABELS = 20_000  # maximum number of nodes in the first level; each has its own attention


@dataclass(frozen=True)
class AttentionXML(RecurrentMethod):
    """Bidirectional LSTM with one attention per label (You et al., NeurIPS 2019).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import AttentionXML
    >>> texts, labels = ["cats purr softly", "dogs bark loudly"] * 30, [["cat"], ["dog"]] * 30
    >>> method = AttentionXML(**AttentionXML.quick_parameters)
    >>> Classifier(method, calibrate=False).fit(texts, labels).predict(["dogs bark"], k=1)
    [['dog']]
    """

    presets: ClassVar[Presets] = ATTENTION_XML_PRESETS
    quick_parameters: ClassVar[dict[str, Any]] = {
        "hidden": 16, "layers": (16,), "dimension": 24, "dropout": 0.2, "height": 1, "arity": 4, "candidates": 6,
        "batch": 32, "epochs": 14, "rate": 0.02, "average_from": 5,
    }  # fmt: skip

    height: int = param(-1, "Height of the label tree (H); 0 uses no tree, -1 chooses by the number of labels.", low=-1)
    arity: int = param(8, "Maximum number of children per node (K), a power of 2.", low=2)
    candidates: int = param(160, "Nodes of a level whose children are candidates in the next level (C).", low=1)
    average_below: int = param(2, "Epoch from which weights are averaged in levels below the first.", low=0)
    own_output: bool = param(False, "Add output weights for each label to the output layer that all labels share.")
    preset: str = param("", PRESET_HELP, choices=("", *ATTENTION_XML_PRESETS))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.arity.bit_count() != 1:
            raise XmtcError(f"AttentionXML: arity={self.arity} is invalid; expected a power of 2, such as 8.")

    @property
    def head_pooling(self) -> str:
        return OWN_OUTPUT if self.own_output else ATTENTION

    @property
    def n_candidates(self) -> int:
        return self.candidates

    def choose_tree_height(self, n_labels: int) -> int:
        """Return the smallest height with at most MAX_FLAT_LABELS nodes in the first level."""
        height, n_nodes = 0, n_labels
        while n_nodes > MAX_FLAT_LABELS:
            height, n_nodes = height + 1, -(-n_nodes // self.arity)
        return height

    def make_level_options(self, level: int) -> TrainingOptions:
        options = super().make_level_options(level)
        return options if level == 0 else replace(options, average_from=self.average_below)

    def build_label_tree(self, data: Dataset, run: Run) -> LabelTree:
        """Return Parabel's label tree, compressed to height H (Algorithm 1)."""
        height = self.height if self.height >= 0 else self.choose_tree_height(data.n_labels)
        if height == 0:
            return LabelTree.flat(data.n_labels)
        vectors = LabelVectors.from_words(data.tokens(VIEW), data.Y, run)
        tree = build_balanced_trees(vectors, self.arity, [(self.seed, 0)], run)[0]
        n_merged = int(log2(self.arity))
        self.check_height(height, max_height=-(-(len(tree.levels) - 1) // n_merged), n_labels=data.n_labels)
        return compress_tree(tree, n_merged, height)

    def check_height(self, height: int, max_height: int, n_labels: int) -> None:
        """Raise an error for an explicit height that the tree cannot have.

        Log a warning if a preset sets it, or if there are so few labels that all are children of the root.
        """
        if height <= max_height:
            return
        problem = (
            f"a tree of {n_labels:,} labels and arity={self.arity} has a height of at most {max_height}, not {height}"
        )
        if max_height > 0 and "height" in self._explicit_names():
            raise XmtcError(f"AttentionXML: {problem}. Set height from 0 to {max_height}, or a smaller arity.")
        logging.getLogger("xmtc").warning("%s; trained with height=%s.", problem.capitalize(), max_height)
