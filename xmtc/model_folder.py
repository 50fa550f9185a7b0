"""Model folders: a folder of forms, and beside it history.jsonl, which says how the training went: it has seconds in
it, which no two trainings share, so that it is neither compared nor needed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import numpy as np

from xmtc.core import history
from xmtc.core.method import Model
from xmtc.errors import XmtcError
from xmtc.features import FittedView, FittedViews, view_class
from xmtc.scores import Decision
from xmtc.storage.folder import STRUCTURE_ERRORS, MODEL_KIND, FolderKind, Stamp, compute_path_sha256, read_stamp
from xmtc.storage.json_types import check_json
from xmtc.storage.regular_files import read_regular
from xmtc.text.term_index import Vocabulary
from xmtc.vocabulary.label_concepts import LabelConcepts

FORMATS = (3, 4)  # that are read
FORMAT = FORMATS[-1]  # that is written
HISTORY = "history.jsonl"
MAX_HISTORY_BYTES = 2**26
MODELS = FolderKind(MODEL_KIND, FORMATS, "xmtc train -o", "train", (HISTORY,))
check_target, damaged = MODELS.check_target, MODELS.make_damage_error
PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # name of a package, as pip takes it, or of a module

__all__ = [
    "FORMAT",
    "STRUCTURE_ERRORS",
    "Stamp",
    "check_target",
    "check_whole",
    "damaged",
    "load",
    "load_history",
    "save",
    "compute_path_sha256",
    "read_stamp",
]


class Scores(TypedDict):
    """Meaning of the scores: calibrated probabilities, or as the method computes them."""

    are: Literal["probabilities", "raw"]
    because: str
    documents: NotRequired[int]


class Reading(TypedDict):
    """How the training corpus was read, where not as usual."""

    text: NotRequired[str]
    labels: NotRequired[str]
    id: NotRequired[str]
    separator: NotRequired[str]
    delimiter: NotRequired[str]
    encoding: NotRequired[str]
    sheet: NotRequired[str]
    recursive: NotRequired[bool]


class TargetKind(TypedDict):
    """Form in which a Classifier was given labels, and gives them back."""

    kind: Literal["lists", "column", "array", "sparse", "frame"]
    numbers: bool


class AttachedVocabulary(TypedDict):
    n_concepts: int
    languages: list[str]
    language: str
    labels_found: int


class LabelFilter(TypedDict):
    allow: list[str]
    deny: list[str]


DecisionRule = TypedDict("DecisionRule", {"for": str, "by": str, "gives": str, "documents": NotRequired[int]})


class Analyzer(TypedDict):
    """The analyzer that `auto` has chosen."""

    analyzer: str
    because: str


class About(TypedDict):
    """Everything that about.json of a model says beside its parts. Checked when a model is opened, so that nothing
    that reads it later has to."""

    xmtc: str
    method: str
    parameters: dict[str, Any]  # checked by `parameters.given_to`, against the fields of the method
    views: dict[str, dict[str, Any]]
    sizes: dict[str, int]
    n_docs: int
    n_labels: int
    data: str
    package: NotRequired[str]
    calibrate: NotRequired[bool]
    scores: NotRequired[Scores]
    reading: NotRequired[Reading]
    target: NotRequired[TargetKind]
    vocabulary: NotRequired[AttachedVocabulary]
    filter: NotRequired[LabelFilter]
    decision: NotRequired[DecisionRule]
    chosen: NotRequired[Analyzer]


def save(
    folder: str | Path,
    about: dict[str, Any],
    parts: dict[str, Any],
    told: Sequence[history.Entry] = (),
    over: Stamp = (),
) -> None:
    """Write named parts (forms, and mappings of them), what is said about them, and what their training told."""
    MODELS.save(folder, about, parts, {HISTORY: history.to_json_lines(told)} if told else {}, over)


def load(folder: str | Path, verify: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (about, parts) of a model folder. `verify` reads every byte and compares checksums."""
    return MODELS.load(folder, verify, prepare)


def load_history(folder: str | Path) -> tuple[history.Entry, ...]:
    """Return the history of a training; nothing where it is missing or damaged, which harms nobody."""
    try:
        return history.from_json_lines(read_regular(folder, HISTORY, MAX_HISTORY_BYTES).decode("utf-8"))
    except (OSError, ValueError, TypeError, RecursionError):
        return ()


def prepare(folder: Path, about: dict[str, Any]) -> None:
    """Check the description of a model, and import the package of its method, before its parts are made."""
    try:
        check_json(about, About, "")
    except ValueError as error:
        raise damaged(folder, str(error)) from None
    import_package(folder, about)


def import_package(folder: Path, about: dict[str, Any]) -> None:
    """Import the package that adds the method of a model, which the method's name finds."""
    package = about.get("package", "xmtc")
    if package == "xmtc":
        return
    from xmtc.methods import method_class

    if PACKAGE.fullmatch(package) is None:
        raise damaged(folder, f"its package is {package!r:.100}, which is no name of one")
    try:
        method_class(about["method"])
    except XmtcError:
        raise XmtcError(
            f"{folder} was trained by {about['method']} of {package}, which is not here; install that package "
            f"(pip install {package}), or import it first."
        ) from None


def check_whole(about: dict[str, Any], parts: dict[str, Any]) -> None:
    """Refuse parts that are no tagger together; of the arrays, only the sizes are looked at."""
    kinds: dict[str, Any] = {"views": dict, "labels": Vocabulary, "frequencies": np.ndarray, "model": Model}
    attached: dict[str, Any] = {"concepts": LabelConcepts, "allowed": np.ndarray, "decision": Decision}
    kinds |= {name: kind for name, kind in attached.items() if name in parts}
    if parts.keys() != kinds.keys():
        raise ValueError(f"it holds {', '.join(parts) or 'nothing'} instead of {', '.join(kinds)}")
    for name, kind in kinds.items():
        if not isinstance(parts[name], kind):
            raise ValueError(f"its {name} is of another kind")
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
