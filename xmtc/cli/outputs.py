"""Files that reports and comparisons are written to: which form a name asks for, and what may be replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

ReportT = TypeVar("ReportT")
FileSignatures = Mapping[str, tuple[bytes, bytes]]


def select_formatter(
    path: str, formatters: Mapping[str, Callable[[ReportT], str]], signatures: FileSignatures, report_kind: str
) -> Callable[[ReportT], str]:
    """What makes the file of that name; refused, before the work, where it would write over something else. `signs` are
    how our own files begin, and what follows soon: by this one of ours is known, which may be replaced."""
    from pathlib import Path

    from xmtc.data.file_streams import check_output_path
    from xmtc.errors import XmtcError

    kind = "html" if path == "-" else Path(path).suffix.lstrip(".").lower()
    if kind not in formatters:
        raise XmtcError(
            f"-o {path} does not say what to write; expected a name that ends with .html, .md, .json or .csv."
        )
    if path != "-" and Path(path).is_file() and Path(path).stat().st_size:
        with open(path, "rb") as stream:
            head, (begin, sign) = stream.read(1000), signatures[kind]
        if not head.startswith(begin) or sign not in head:
            raise XmtcError(f"{path} exists and is no {report_kind} of xmtc; choose another name or move it away.")
    check_output_path(path)
    return formatters[kind]
