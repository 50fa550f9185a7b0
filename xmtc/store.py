"""Model folders: a folder of forms, and beside it history.jsonl, which says how the training went: it has seconds in
it, which no two trainings share, so that it is neither compared nor needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xmtc.base import history
from xmtc.base.folders import MISFITS, MODEL, FolderKind, Stamp, sha256, stamp_of
from xmtc.base.method import Model
from xmtc.decisions import Decision
from xmtc.errors import XmtcError
from xmtc.features import FittedView, FittedViews, view_class
from xmtc.text.vocabulary import Vocabulary
from xmtc.vocab.labels import LabelConcepts

FORMAT = 3
HISTORY = "history.jsonl"
MOST_HISTORY = 2**26  # bytes; what is larger is no history
MODELS = FolderKind(MODEL, FORMAT, "xmtc train -o", "train", (HISTORY,))
check_target, damaged = MODELS.check_target, MODELS.damaged

__all__ = [
    "FORMAT",
    "MISFITS",
    "Stamp",
    "check_target",
    "check_whole",
    "damaged",
    "load",
    "load_history",
    "save",
    "sha256",
    "stamp_of",
]


def save(
    folder: str | Path,
    about: dict[str, Any],
    parts: dict[str, Any],
    told: Sequence[history.Entry] = (),
    over: Stamp = (),
) -> None:
    """Write named parts (forms, and mappings of them), what is said about them, and what their training told."""
    MODELS.save(folder, about, parts, {HISTORY: history.to_lines(told)} if told else {}, over)


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


def check_whole(about: dict[str, Any], parts: dict[str, Any]) -> None:
    """Refuse parts that are no tagger together; of the arrays, only the sizes are looked at."""
    stated: dict[str, Any] = {"method": str, "parameters": dict, "views": dict, "n_docs": int}
    kinds: dict[str, Any] = {"views": dict, "labels": Vocabulary, "frequencies": np.ndarray, "model": Model}
    attached: dict[str, Any] = {"concepts": LabelConcepts, "allowed": np.ndarray, "decision": Decision}
    kinds |= {name: kind for name, kind in attached.items() if name in parts}
    if parts.keys() != kinds.keys():
        raise ValueError(f"it holds {', '.join(parts) or 'nothing'} instead of {', '.join(kinds)}")
    for wanted, found in ((stated, about), (kinds, parts)):
        for name, kind in wanted.items():
            if not isinstance(found.get(name), kind):
                raise ValueError(f"its {name} is missing or of another kind")
    check_reading(about.get("reading", {}))
    check_attached(len(parts["labels"]), **{name: parts.get(name) for name in attached})
    check_sizes(about["n_docs"], *(parts[name] for name in ("views", "labels", "frequencies", "model")))


def check_attached(
    n_labels: int, concepts: LabelConcepts | None, allowed: np.ndarray | None, decision: Decision | None
) -> None:
    if concepts is not None and len(concepts.concepts) != n_labels:
        raise ValueError("its vocabulary is not for its labels")
    if allowed is not None and (allowed.shape != (n_labels,) or allowed.dtype != np.bool_):
        raise ValueError("it does not say of all labels whether it may answer them")
    if decision is not None and not decision.fits(n_labels):
        raise ValueError("its decision is not for its labels")


def check_reading(reading: Any) -> None:
    """Refuse what cannot be how a corpus was read; folders of older versions do not say it."""
    if not isinstance(reading, dict) or not all(isinstance(value, (str, bool)) for value in reading.values()):
        raise ValueError("it does not say how its corpus was read")


def check_sizes(n_docs: int, views: dict[str, Any], labels: Vocabulary, frequencies: np.ndarray, model: Model) -> None:
    for name, view in views.items():
        if not isinstance(view, FittedView) or type(view).__module__ != view_class(name.partition("-")[0]).__module__:
            raise ValueError(f"its view {name} is of another kind")
    if model.n_labels != len(labels) or model.views != {name: view.size for name, view in views.items()}:
        raise ValueError("its labels and views are not those of its model")
    if n_docs < 1 or frequencies.shape != (len(labels),) or frequencies.dtype != np.int64:
        raise ValueError(f"it does not say how often its {len(labels)} labels occurred")


def check_lengths(views: FittedViews, model: Model) -> None:
    """Refuse views that give the model longer documents than it can read."""
    for name, most in model.max_lengths().items():
        length = views[name].max_length
        if length is not None and length > most:
            raise ValueError(f"it reads {length} {name} of a text, but its encoder has positions for {most}")


def check_frequencies(frequencies: np.ndarray) -> None:
    if frequencies.min(initial=0) < 0:
        raise ValueError("a label of it occurred less than never")
