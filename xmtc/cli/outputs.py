"""Files that reports and comparisons are written to: which form a name asks for, and what may be replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

Shown = TypeVar("Shown")
Signs = Mapping[str, tuple[bytes, bytes]]


def form_of(path: str, forms: Mapping[str, Callable[[Shown], str]], signs: Signs, what: str) -> Callable[[Shown], str]:
    """What makes the file of that name; refused, before the work, where it would write over something else. `signs` are
    how our own files begin, and what follows soon: by this one of ours is known, which may be replaced."""
    from pathlib import Path

    from xmtc.data.file_streams import check_place
    from xmtc.errors import XmtcError

    kind = "html" if path == "-" else Path(path).suffix.lstrip(".").lower()
    if kind not in forms:
        raise XmtcError(
            f"-o {path} does not say what to write; expected a name that ends with .html, .md, .json or .csv."
        )
    if path != "-" and Path(path).is_file() and Path(path).stat().st_size:
        with open(path, "rb") as stream:
            head, (begin, sign) = stream.read(1000), signs[kind]
        if not head.startswith(begin) or sign not in head:
            raise XmtcError(f"{path} exists and is no {what} of xmtc; choose another name or move it away.")
    check_place(path)
    return forms[kind]
