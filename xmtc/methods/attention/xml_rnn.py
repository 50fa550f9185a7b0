"""XML-RNN: AttentionXML without attention, the largest of each unit's states over the words instead (the baseline of
You et al., arXiv:1811.01727). One representation of a text serves all labels."""

from __future__ import annotations

from dataclasses import dataclass

from xmtc.base.dataset import Dataset
from xmtc.base.run import Run
from xmtc.labels.tree import LabelTree
from xmtc.methods.attention.family import RecurrentNetwork
from xmtc.methods.attention.model import AttentionModel


@dataclass(frozen=True)
class XMLRNN(RecurrentNetwork):
    """A bidirectional LSTM with max pooling (the baseline of You et al., 2018)."""

    pooling = "max"

    def fit(self, data: Dataset, valid: Dataset | None = None, run: Run = Run()) -> AttentionModel:
        data, valid = self.split(data, valid)
        return self.train(data, valid, LabelTree.flat(data.n_labels), 1, run)
