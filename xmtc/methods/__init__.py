"""Classification methods, imported on first use: `from xmtc.methods import Parabel`.

To add a method, write one file and add one line to the table METHODS. Other packages register their methods through the
entry point group `xmtc.methods`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_type_hints

from xmtc.core.method import Method, Model
from xmtc.core.registry import Registry
from xmtc.errors import XmtcError
from xmtc.storage.form import Form, check_form

if TYPE_CHECKING:  # type checkers cannot read the table METHODS, so its classes are repeated here
    from xmtc.methods.attention.attention_xml import AttentionXML as AttentionXML
    from xmtc.methods.attention.xml_rnn import XMLRNN as XMLRNN
    from xmtc.methods.autoencoder.bce_ae import BCEAE as BCEAE
    from xmtc.methods.autoencoder.c2ae import C2AE as C2AE
    from xmtc.methods.autoencoder.rank_ae import RankAE as RankAE
    from xmtc.methods.convolution.bow_cnn import BowCNN as BowCNN
    from xmtc.methods.convolution.xml_cnn import XMLCNN as XMLCNN
    from xmtc.methods.embedding.annexml import AnnexML as AnnexML
    from xmtc.methods.embedding.extremetext import ExtremeText as ExtremeText
    from xmtc.methods.embedding.fasttext import FastText as FastText
    from xmtc.methods.embedding.sleec import SLEEC as SLEEC
    from xmtc.methods.ensemble.auto import Auto as Auto
    from xmtc.methods.ensemble.consensus import Consensus as Consensus
    from xmtc.methods.ensemble.ensemble import Ensemble as Ensemble
    from xmtc.methods.ensemble.stacked import Stacked as Stacked
    from xmtc.methods.instance_tree.craftml import CRAFTML as CRAFTML
    from xmtc.methods.instance_tree.fastxml import FastXML as FastXML
    from xmtc.methods.instance_tree.pfastrexml import PfastreXML as PfastreXML
    from xmtc.methods.label_tree.bonsai import Bonsai as Bonsai
    from xmtc.methods.label_tree.parabel import Parabel as Parabel
    from xmtc.methods.label_tree.plt import PLT as PLT
    from xmtc.methods.lexical.lexical import Lexical as Lexical
    from xmtc.methods.matcher.matcher import Matcher as Matcher
    from xmtc.methods.one_vs_all.dismec import DiSMEC as DiSMEC
    from xmtc.methods.one_vs_all.pd_sparse import PDSparse as PDSparse
    from xmtc.methods.one_vs_all.ppd_sparse import PPDSparse as PPDSparse
    from xmtc.methods.one_vs_all.proxml import ProXML as ProXML
    from xmtc.methods.one_vs_all.slice import Slice as Slice
    from xmtc.methods.transformer.aplc_xlnet import APLCXLNet as APLCXLNet
    from xmtc.methods.transformer.xr_transformer import XRTransformer as XRTransformer

METHODS = {
    "parabel": "xmtc.methods.label_tree.parabel:Parabel",
    "bonsai": "xmtc.methods.label_tree.bonsai:Bonsai",
    "plt": "xmtc.methods.label_tree.plt:PLT",
    "dismec": "xmtc.methods.one_vs_all.dismec:DiSMEC",
    "pd_sparse": "xmtc.methods.one_vs_all.pd_sparse:PDSparse",
    "ppd_sparse": "xmtc.methods.one_vs_all.ppd_sparse:PPDSparse",
    "proxml": "xmtc.methods.one_vs_all.proxml:ProXML",
    "slice": "xmtc.methods.one_vs_all.slice:Slice",
    "fastxml": "xmtc.methods.instance_tree.fastxml:FastXML",
    "pfastrexml": "xmtc.methods.instance_tree.pfastrexml:PfastreXML",
    "craftml": "xmtc.methods.instance_tree.craftml:CRAFTML",
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
    "extremetext": "xmtc.methods.embedding.extremetext:ExtremeText",
    "aplc_xlnet": "xmtc.methods.transformer.aplc_xlnet:APLCXLNet",
    "xr_transformer": "xmtc.methods.transformer.xr_transformer:XRTransformer",
    "lexical": "xmtc.methods.lexical.lexical:Lexical",
    "matcher": "xmtc.methods.matcher.matcher:Matcher",
    "ensemble": "xmtc.methods.ensemble.ensemble:Ensemble",
    "consensus": "xmtc.methods.ensemble.consensus:Consensus",
    "stacked": "xmtc.methods.ensemble.stacked:Stacked",
    "auto": "xmtc.methods.ensemble.auto:Auto",
}
METHOD_REGISTRY = Registry("method", Method, METHODS, group="xmtc.methods", hint="`xmtc methods`")
PUBLIC_NAMES = ("METHODS", "as_method", "method_class", "method_name")  # in addition to the method classes


if not TYPE_CHECKING:  # otherwise type checkers accept misspelt names, with the type Any

    def __getattr__(name: str) -> Any:
        """Import and return a method class by its class name."""
        method = None if name.startswith("_") else METHOD_REGISTRY.class_names().get(name)
        if method is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return METHOD_REGISTRY.find(method)


def __dir__() -> list[str]:
    return sorted(
        [*PUBLIC_NAMES, *METHOD_REGISTRY.class_names(), *(name for name in globals() if name.startswith("__"))]
    )


def method_class(name: Any) -> type[Method]:
    """Import and return the class of a registered method.

    Parameters
    ----------
    name : str
        Name of the method, as in the table METHODS.

    Returns
    -------
    type
        Subclass of Method.

    Raises
    ------
    XmtcError
        If no method has this name.

    Examples
    --------
    >>> from xmtc.methods import method_class
    >>> method_class("parabel").__name__
    'Parabel'
    """
    return METHOD_REGISTRY.find(name)


def method_name(method: Method) -> str:
    """Return the registered name of a method, or "module:Class" if it is not registered.

    Parameters
    ----------
    method : Method
        Instance of a method class.

    Returns
    -------
    str
        Name of the method.

    Examples
    --------
    >>> from xmtc.methods import Parabel, method_name
    >>> method_name(Parabel())
    'parabel'
    """
    return METHOD_REGISTRY.get_name(type(method))


def as_method(method: Method | str) -> Method:
    """Return a method given by name with its default parameters; return a Method unchanged.

    Parameters
    ----------
    method : Method or str
        Method, or the name of one.

    Returns
    -------
    Method
        The method.

    Raises
    ------
    XmtcError
        If no method has this name.

    Examples
    --------
    >>> from xmtc.methods import as_method
    >>> as_method("parabel").n_trees
    3
    """
    return method if isinstance(method, Method) else method_class(method)()


def model_class(method: Method) -> Any:
    """Return the model class that a method's `fit` is annotated with, or None if it has no annotation."""
    try:
        return get_type_hints(type(method)._fit).get("return")
    except NameError:  # the annotation is imported under TYPE_CHECKING only
        return None


def check_savable(method: Method) -> None:
    """Raise an error before training if the method's model could not be saved after it."""
    name, model = type(method).__name__, model_class(method)
    if "<locals>" in type(method).__qualname__:
        raise XmtcError(
            f"{name} is defined inside a function, so a saved model cannot be loaded; define it at module level."
        )
    try:
        if model not in (None, Model, Form):
            check_form(model)
    except ValueError as error:
        raise XmtcError(f"The model of {name} cannot be saved: {error}; change its fields before training.") from None
