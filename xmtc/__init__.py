"""Extreme multi-label text classification: `Classifier("parabel").fit(texts, labels).predict(texts)`."""

from typing import TYPE_CHECKING, Any

__version__ = "1.0.0rc1"

if TYPE_CHECKING:
    from xmtc.classifier import Classifier
    from xmtc.core.dataset import Dataset
    from xmtc.core.events import Pass, Stage
    from xmtc.core.history import plot_history
    from xmtc.core.hyperparameters import param
    from xmtc.core.method import Explanation, Method, Model
    from xmtc.core.predictions import Predictions
    from xmtc.core.run import Run
    from xmtc.data.corpus import open_corpus
    from xmtc.data.document import Document
    from xmtc.errors import XmtcError
    from xmtc.evaluation import evaluate
    from xmtc.methods import METHODS
    from xmtc.pipeline import train
    from xmtc.storage.form import Form, array
    from xmtc.tagger import Tag, Tagger
    from xmtc.vocabulary import Vocabulary

# Type checkers read the imports above and `__all__`, Python reads the table below; test_public_names.py compares them.
# lazy_loader imports as fast, but would replace only this table, and needs a stub file and a dependency.
# No public name may equal the name of a module in this package: importing the module would hide it.
__all__ = [
    "METHODS",
    "Classifier",
    "Dataset",
    "Document",
    "Explanation",
    "Form",
    "Method",
    "Model",
    "Pass",
    "Predictions",
    "Run",
    "Stage",
    "Tag",
    "Tagger",
    "Vocabulary",
    "XmtcError",
    "array",
    "evaluate",
    "open_corpus",
    "param",
    "plot_history",
    "train",
]

_MODULE_BY_NAME = {
    # for users
    "Classifier": "xmtc.classifier",
    "Document": "xmtc.data.document",
    "METHODS": "xmtc.methods",
    "Pass": "xmtc.core.events",
    "Run": "xmtc.core.run",
    "Stage": "xmtc.core.events",
    "Tag": "xmtc.tagger",
    "Tagger": "xmtc.tagger",
    "Vocabulary": "xmtc.vocabulary",
    "XmtcError": "xmtc.errors",
    "evaluate": "xmtc.evaluation",
    "open_corpus": "xmtc.data.corpus",
    "plot_history": "xmtc.core.history",
    "train": "xmtc.pipeline",
    # for authors of methods
    "Dataset": "xmtc.core.dataset",
    "Explanation": "xmtc.core.method",
    "Form": "xmtc.storage.form",
    "Method": "xmtc.core.method",
    "Model": "xmtc.core.method",
    "Predictions": "xmtc.core.predictions",
    "array": "xmtc.storage.form",
    "param": "xmtc.core.hyperparameters",
}


if not TYPE_CHECKING:  # otherwise any misspelt name would have the type Any

    def __getattr__(name: str) -> Any:
        """Import a public name on first use, so that `import xmtc` stays quick."""
        if name not in _MODULE_BY_NAME:
            raise AttributeError(f"module 'xmtc' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_MODULE_BY_NAME[name]), name)


def __dir__() -> list[str]:
    """Return the public names, without submodules that happen to be imported."""
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
