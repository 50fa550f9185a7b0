"""Every method by name. One line here and one file are all a new method needs."""

from __future__ import annotations

import difflib
from importlib import import_module

from xmtc.base.method import Method
from xmtc.errors import MissingExtra, XmtcError

METHODS = {
    "parabel": "xmtc.methods.label_tree.parabel:Parabel",
    "bonsai": "xmtc.methods.label_tree.bonsai:Bonsai",
    "plt": "xmtc.methods.label_tree.plt:PLT",
    "dismec": "xmtc.methods.one_vs_all.dismec:DiSMEC",
    "attention_xml": "xmtc.methods.attention.attention_xml:AttentionXML",
    "xml_rnn": "xmtc.methods.attention.xml_rnn:XMLRNN",
    "rank_ae": "xmtc.methods.autoencoder.rank_ae:RankAE",
    "bce_ae": "xmtc.methods.autoencoder.bce_ae:BCEAE",
    "c2ae": "xmtc.methods.autoencoder.c2ae:C2AE",
    "aplc_xlnet": "xmtc.methods.transformer.aplc_xlnet:APLCXLNet",
    "ensemble": "xmtc.methods.ensemble.ensemble:Ensemble",
    "consensus": "xmtc.methods.ensemble.consensus:Consensus",
}

# Packages that a plain installation leaves out: what people call them, and the extra of pyproject.toml they come with.
EXTRAS = {
    "torch": ("PyTorch", "neural"),
    "transformers": ("transformers", "neural"),
    "tokenizers": ("tokenizers", "neural"),
    "ray": ("Ray", "cluster"),
    "optuna": ("Optuna", "tune"),
}


def method_class(name: str) -> type[Method]:
    """The class of a method by its name in METHODS, imported only now."""
    if not isinstance(name, str) or name not in METHODS:
        near = difflib.get_close_matches(str(name), METHODS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise XmtcError(f"There is no method {name!r}.{hint} `xmtc methods` lists them: {', '.join(METHODS)}.")
    module, _, attribute = METHODS[name].partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ImportError as error:
        raise missing_extra(name, error) from None


def missing_extra(name: str, error: ImportError) -> ImportError:
    """What to install for a method or command that lacks a package; the error itself if it is another."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return error
    title, extra = EXTRAS[package]
    return MissingExtra(f"{name} needs {title}: pip install 'xmtc[{extra}]'")


def method_name(method: Method) -> str:
    """The name in METHODS of a method; imports nothing."""
    home = f"{type(method).__module__}:{type(method).__qualname__}"
    return next(name for name, place in METHODS.items() if place == home)
