"""Every method by name. One line here and one file are all a new method needs."""

from __future__ import annotations

import difflib
from importlib import import_module

from xmtc.errors import XmtcError
from xmtc.method import Method

METHODS = {
    "parabel": "xmtc.methods.label_tree.parabel:Parabel",
}


def method_class(name: str) -> type[Method]:
    """The class of a method by its name in METHODS, imported only now."""
    if not isinstance(name, str) or name not in METHODS:
        near = difflib.get_close_matches(str(name), METHODS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise XmtcError(f"There is no method {name!r}.{hint} `xmtc methods` lists them: {', '.join(METHODS)}.")
    module, _, attribute = METHODS[name].partition(":")
    return getattr(import_module(module), attribute)
