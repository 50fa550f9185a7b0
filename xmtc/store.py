"""Model folders: a folder of forms, and beside it history.jsonl, which says how the training went: it has seconds in
it, which no two trainings share, so that it is neither compared nor needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xmtc.base import history
from xmtc.base.folders import MISFITS, MODEL, FolderKind, sha256
from xmtc.errors import XmtcError

FORMAT = 3
HISTORY = "history.jsonl"
MOST_HISTORY = 2**26  # bytes; what is larger is no history
MODELS = FolderKind(MODEL, FORMAT, "xmtc train -o", "train", (HISTORY,))
check_target, damaged = MODELS.check_target, MODELS.damaged

__all__ = ["FORMAT", "MISFITS", "check_target", "damaged", "load", "load_history", "save", "sha256"]


def save(folder: str | Path, about: dict[str, Any], parts: dict[str, Any], told: Sequence[history.Entry] = ()) -> None:
    """Write named parts (forms, and mappings of them), what is said about them, and what their training told."""
    MODELS.save(folder, about, parts, {HISTORY: history.to_lines(told)} if told else {})


def load(folder: str | Path, verify: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """(about, parts) of a model folder. `verify` reads every byte and compares checksums."""
    return MODELS.load(folder, verify, import_package)


def load_history(folder: str | Path) -> tuple[history.Entry, ...]:
    """What the training of a model told; nothing where that is missing or damaged, which harms nobody."""
    path = Path(folder) / HISTORY
    try:
        if not path.is_file() or path.stat().st_size > MOST_HISTORY:
            return ()
        return history.from_lines(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, RecursionError):
        return ()


def import_package(folder: Path, about: dict[str, Any]) -> None:
    """A model of another package's method needs that package, which its name finds."""
    package = about.get("package", "xmtc")
    if package == "xmtc":
        return
    from xmtc.methods import method_class

    try:
        method_class(about["method"])
    except XmtcError:
        raise XmtcError(
            f"{folder} was trained by {about['method']} of {package}, which is not here; install that package "
            f"(pip install {package}), or import it first."
        ) from None
