"""Extreme multi-label text classification under one roof: `Classifier("parabel").fit(texts, tags).predict(texts)`."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from xmtc.classifier import Classifier as Classifier
    from xmtc.data.corpus import open_corpus as open_corpus
    from xmtc.methods import METHODS as METHODS
    from xmtc.tagger import Tagger as Tagger

_HOMES = {
    "Classifier": "xmtc.classifier",
    "METHODS": "xmtc.methods",
    "Tagger": "xmtc.tagger",
    "XmtcError": "xmtc.errors",
    "open_corpus": "xmtc.data.corpus",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import xmtc` and `xmtc --help` stay quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'xmtc' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
