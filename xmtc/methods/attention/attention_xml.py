"""AttentionXML: a bidirectional LSTM with one attention per label, and a shallow, wide label tree for label sets too
large for that. You, Zhang, Wang, Dai, Mamitsuka, Zhu (NeurIPS 2019), and its first version (arXiv:1811.01727).

Follows the authors' code where the papers are silent: dropout of words and states, relative gradient clipping, averaged
weights of which the best nDCG@5 is kept. Differs from it in: larger batches and rates; the first fully connected layer
is applied before the average over words, which is the same function; candidates are not filled up with random labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from xmtc.data.dataset import Dataset
from xmtc.errors import XmtcError
from xmtc.labels.tree import LabelTree, balanced_binary_trees, compressed
from xmtc.labels.vectors import LabelVectors
from xmtc.methods.attention.family import RecurrentNetwork
from xmtc.methods.attention.model import AttentionModel
from xmtc.params import param
from xmtc.run import Run
from xmtc.sparse import with_unit_rows

MOST_FLAT = 20_000  # labels that get an attention of their own in a single network, where height is auto


@dataclass(frozen=True)
class AttentionXML(RecurrentNetwork):
    """A bidirectional LSTM with one attention per label (You et al., NeurIPS 2019)."""

    pooling = "attention"

    height: int = param(-1, "levels of nodes above the labels; 0: no tree; -1: one, if there are many labels", low=-1)
    arity: int = param(8, "labels of a leaf, and children of a node, at most; a power of 2", low=2)
    candidates: int = param(160, "nodes of a level whose children are looked at", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.arity.bit_count() != 1:
            raise XmtcError(f"AttentionXML: arity={self.arity} does not fit; expected a power of 2, such as 8.")

    def fit(self, data: Dataset, valid: Dataset | None = None, run: Run = Run()) -> AttentionModel:
        data, valid = self.split(data, valid)
        return self.train(data, valid, self.label_tree(data, run), self.candidates, run)

    def label_tree(self, data: Dataset, run: Run) -> LabelTree:
        """Parabel's tree, made shallow and wide (Algorithm 1)."""
        height = self.height if self.height >= 0 else int(data.n_labels > MOST_FLAT)
        if height == 0:
            return LabelTree.flat(data.n_labels)
        assert data.tokens is not None
        words = Dataset(with_unit_rows(data.tokens.counts()), data.Y)
        vectors = LabelVectors.from_documents(words, run)
        tree = balanced_binary_trees(vectors, self.arity, [(self.seed, 0)], run)[0]
        return compressed(tree, int(log2(self.arity)), height)
