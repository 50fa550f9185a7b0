"""XML-RNN: AttentionXML without attention, the largest of each unit's states over the words instead (the baseline of
You et al., arXiv:1811.01727). One representation of a text serves all labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from xmtc.core.dataset import Dataset
from xmtc.core.run import Run
from xmtc.labels.tree import LabelTree
from xmtc.methods.attention.base import RecurrentMethod
from xmtc.methods.attention.model import AttentionModel


@dataclass(frozen=True)
class XMLRNN(RecurrentMethod):
    """A bidirectional LSTM with max pooling (the baseline of You et al., 2018)."""

    pooling: ClassVar[str] = "max"
    quick_parameters: ClassVar[dict[str, Any]] = {
        "hidden": 64, "layers": (64,), "dimension": 32, "dropout": 0.3, "word_dropout": 0.0, "batch": 16, "epochs": 20,
        "rate": 0.01, "average_from": 8, "patience": 20,
    }  # fmt: skip

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> AttentionModel:
        return self.train(data, valid, lambda data, run: LabelTree.flat(data.n_labels), 1, run)
