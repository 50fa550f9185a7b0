"""Every method by name: `from xmtc.methods import Parabel`, which is imported only then. One line in the table and one
file are all a new method needs; other packages add theirs through the entry point group `xmtc.methods`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_type_hints

from xmtc.core.method import Method, Model
from xmtc.core.registry import Registry
from xmtc.errors import XmtcError
from xmtc.storage.form import Form, check_form

if TYPE_CHECKING:  # the same methods as in the table, which type checkers cannot read
    from xmtc.methods.attention.attention_xml import AttentionXML as AttentionXML
    from xmtc.methods.attention.xml_rnn import XMLRNN as XMLRNN
    from xmtc.methods.autoencoder.bce_ae import BCEAE as BCEAE
    from xmtc.methods.autoencoder.c2ae import C2AE as C2AE
    from xmtc.methods.autoencoder.rank_ae import RankAE as RankAE
    from xmtc.methods.convolution.bow_cnn import BowCNN as BowCNN
    from xmtc.methods.convolution.xml_cnn import XMLCNN as XMLCNN
    from xmtc.methods.embedding.annexml import AnnexML as AnnexML
    from xmtc.methods.embedding.fasttext import FastText as FastText
    from xmtc.methods.embedding.sleec import SLEEC as SLEEC
    from xmtc.methods.ensemble.consensus import Consensus as Consensus
    from xmtc.methods.ensemble.ensemble import Ensemble as Ensemble
    from xmtc.methods.instance_tree.fastxml import FastXML as FastXML
    from xmtc.methods.instance_tree.pfastrexml import PfastreXML as PfastreXML
    from xmtc.methods.label_tree.bonsai import Bonsai as Bonsai
    from xmtc.methods.label_tree.parabel import Parabel as Parabel
    from xmtc.methods.label_tree.plt import PLT as PLT
    from xmtc.methods.lexical.lexical import Lexical as Lexical
    from xmtc.methods.one_vs_all.dismec import DiSMEC as DiSMEC
    from xmtc.methods.one_vs_all.pd_sparse import PDSparse as PDSparse
    from xmtc.methods.one_vs_all.ppd_sparse import PPDSparse as PPDSparse
    from xmtc.methods.one_vs_all.proxml import ProXML as ProXML
    from xmtc.methods.transformer.aplc_xlnet import APLCXLNet as APLCXLNet

METHODS = {
    "parabel": "xmtc.methods.label_tree.parabel:Parabel",
    "bonsai": "xmtc.methods.label_tree.bonsai:Bonsai",
    "plt": "xmtc.methods.label_tree.plt:PLT",
    "dismec": "xmtc.methods.one_vs_all.dismec:DiSMEC",
    "pd_sparse": "xmtc.methods.one_vs_all.pd_sparse:PDSparse",
    "ppd_sparse": "xmtc.methods.one_vs_all.ppd_sparse:PPDSparse",
    "proxml": "xmtc.methods.one_vs_all.proxml:ProXML",
    "fastxml": "xmtc.methods.instance_tree.fastxml:FastXML",
    "pfastrexml": "xmtc.methods.instance_tree.pfastrexml:PfastreXML",
    "sleec": "xmtc.methods.embedding.sleec:SLEEC",
    "annexml": "xmtc.methods.embedding.annexml:AnnexML",
    "attention_xml": "xmtc.methods.attention.attention_xml:AttentionXML",
    "xml_rnn": "xmtc.methods.attention.xml_rnn:XMLRNN",
    "xml_cnn": "xmtc.methods.convolution.xml_cnn:XMLCNN",
    "bow_cnn": "xmtc.methods.convolution.bow_cnn:BowCNN",
    "rank_ae": "xmtc.methods.autoencoder.rank_ae:RankAE",
    "bce_ae": "xmtc.methods.autoencoder.bce_ae:BCEAE",
    "c2ae": "xmtc.methods.autoencoder.c2ae:C2AE",
    "fasttext": "xmtc.methods.embedding.fasttext:FastText",
    "aplc_xlnet": "xmtc.methods.transformer.aplc_xlnet:APLCXLNet",
    "lexical": "xmtc.methods.lexical.lexical:Lexical",
    "ensemble": "xmtc.methods.ensemble.ensemble:Ensemble",
    "consensus": "xmtc.methods.ensemble.consensus:Consensus",
}
METHOD_REGISTRY = Registry("method", Method, METHODS, group="xmtc.methods", hint="`xmtc methods`")
PUBLIC_NAMES = ("METHODS", "as_method", "method_class", "method_name")  # beside the classes of the methods


if not TYPE_CHECKING:  # or any misspelt name would have the type Any

    def __getattr__(name: str) -> Any:
        """The class of a method by its own name, imported only now."""
        method = None if name.startswith("_") else METHOD_REGISTRY.class_names().get(name)
        if method is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return METHOD_REGISTRY.find(method)


def __dir__() -> list[str]:
    return sorted(
        [*PUBLIC_NAMES, *METHOD_REGISTRY.class_names(), *(name for name in globals() if name.startswith("__"))]
    )


def method_class(name: Any) -> type[Method]:
    """The class of a method by its name, imported only now."""
    return METHOD_REGISTRY.find(name)


def method_name(method: Method) -> str:
    """The name of a method; of one that no table lists, "module:Class"."""
    return METHOD_REGISTRY.get_name(type(method))


def as_method(method: Method | str) -> Method:
    """A method as it is, or by its name with its defaults."""
    return method if isinstance(method, Method) else method_class(method)()


def model_class(method: Method) -> Any:
    """The class of model that a method's `_fit` is annotated with; None where it does not say."""
    try:
        return get_type_hints(type(method)._fit).get("return")
    except NameError:  # imported for a type checker alone
        return None


def check_savable(method: Method) -> None:
    """Refuse, before the training, a method whose model could not be saved after it."""
    name, model = type(method).__name__, model_class(method)
    if "<locals>" in type(method).__qualname__:
        raise XmtcError(f"{name} is defined inside a function, where a saved model could not find it; move it out.")
    try:
        if model not in (None, Model, Form):
            check_form(model)
    except ValueError as error:
        raise XmtcError(f"What {name} trains could not be saved: {error}; change that first.") from None
