"""Extreme multi-label text classification under one roof: `Classifier("parabel").fit(texts, tags).predict(texts)`."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from xmtc.base.dataset import Dataset as Dataset
    from xmtc.base.events import Pass as Pass
    from xmtc.base.events import Stage as Stage
    from xmtc.base.form import Form as Form
    from xmtc.base.form import array as array
    from xmtc.base.history import plot_history as plot_history
    from xmtc.base.method import Explanation as Explanation
    from xmtc.base.method import Method as Method
    from xmtc.base.method import Model as Model
    from xmtc.base.params import param as param
    from xmtc.base.predictions import Predictions as Predictions
    from xmtc.base.run import Run as Run
    from xmtc.classifier import Classifier as Classifier
    from xmtc.data.corpus import open_corpus as open_corpus
    from xmtc.errors import XmtcError as XmtcError
    from xmtc.methods import METHODS as METHODS
    from xmtc.pipeline import train as train
    from xmtc.tagger import Tagger as Tagger

_HOMES = {
    # to use
    "Classifier": "xmtc.classifier",
    "METHODS": "xmtc.methods",
    "Pass": "xmtc.base.events",
    "Run": "xmtc.base.run",
    "Stage": "xmtc.base.events",
    "Tagger": "xmtc.tagger",
    "XmtcError": "xmtc.errors",
    "open_corpus": "xmtc.data.corpus",
    "plot_history": "xmtc.base.history",
    "train": "xmtc.pipeline",
    # to write methods of one's own with
    "Dataset": "xmtc.base.dataset",
    "Explanation": "xmtc.base.method",
    "Form": "xmtc.base.form",
    "Method": "xmtc.base.method",
    "Model": "xmtc.base.method",
    "Predictions": "xmtc.base.predictions",
    "array": "xmtc.base.form",
    "param": "xmtc.base.params",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import xmtc` and `xmtc --help` stay quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'xmtc' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
