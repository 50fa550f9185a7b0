"""XML-RNN: AttentionXML with max pooling over the LSTM states instead of label-wise attention.

The baseline of You et al. (arXiv:1811.01727). All labels share one representation of a text. A preset has the paper's
settings, which are those of AttentionXML.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import Presets, param
from xmtc.core.run import Run
from xmtc.labels.tree import LabelTree
from xmtc.methods.attention.base import PRESET_HELP, RecurrentMethod
from xmtc.methods.attention.model import MAX
from xmtc.methods.attention.presets import XML_RNN_PRESETS


@dataclass(frozen=True)
class XMLRNN(RecurrentMethod):
    """Bidirectional LSTM with max pooling (the baseline of You et al., 2018).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import XMLRNN
    >>> texts, labels = ["cats purr softly", "dogs bark loudly"] * 30, [["cat"], ["dog"]] * 30
    >>> method = XMLRNN(**XMLRNN.quick_parameters)
    >>> Classifier(method, calibrate=False).fit(texts, labels).predict(["dogs bark"], k=1)
    [['dog']]
    """

    presets: ClassVar[Presets] = XML_RNN_PRESETS
    quick_parameters: ClassVar[dict[str, Any]] = {
        "hidden": 64, "layers": (64,), "dimension": 32, "dropout": 0.3, "word_dropout": 0.0, "batch": 16, "epochs": 20,
        "rate": 0.01, "average_from": 8, "patience": 20,
    }  # fmt: skip

    preset: str = param("", PRESET_HELP, choices=("", *XML_RNN_PRESETS))

    @property
    def head_pooling(self) -> str:
        return MAX

    @property
    def n_candidates(self) -> int:
        return 1  # a flat tree has only the root above the labels

    def build_label_tree(self, data: Dataset, run: Run) -> LabelTree:
        return LabelTree.flat(data.n_labels)
