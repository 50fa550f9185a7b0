"""Model folders: about.json and arrays.safetensors with the parts of a Tagger, and the training history.

The history contains times, which differ between trainings. It is optional, and never compared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import numpy as np

from xmtc.core import history
from xmtc.core.method import Model
from xmtc.core.training_store import TrainingStore
from xmtc.errors import XmtcError
from xmtc.features import FittedView, FittedViews, view_class
from xmtc.scores import LabelSelector
from xmtc.scores.drift import DriftReference
from xmtc.storage.cache import compute_path_sha256
from xmtc.storage.folder import MODEL_KIND, STRUCTURE_ERRORS, FolderKind, Stamp, read_stamp
from xmtc.storage.json_types import check_json
from xmtc.storage.regular_files import read_regular
from xmtc.text.string_index import StringIndex
from xmtc.vocabulary.label_concepts import LabelConcepts

READABLE_MODEL_FORMATS = (3, 4)
CURRENT_MODEL_FORMAT = READABLE_MODEL_FORMATS[-1]
HISTORY_FILE, TRAINING_FILE = "history.jsonl", "training.safetensors"
MAX_HISTORY_BYTES = 2**26
EXTRA_FILES = (HISTORY_FILE, TRAINING_FILE)
MODEL_FOLDER_KIND = FolderKind(MODEL_KIND, READABLE_MODEL_FORMATS, "xmtc train -o", "train", EXTRA_FILES)
check_target, damaged_model_error = MODEL_FOLDER_KIND.check_target, MODEL_FOLDER_KIND.make_damage_error
PACKAGE_NAME_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")  # of a distribution or a module

__all__ = [
    "CURRENT_MODEL_FORMAT",
    "STRUCTURE_ERRORS",
    "Stamp",
    "check_parts",
    "check_target",
    "compute_path_sha256",
    "damaged_model_error",
    "load",
    "load_history",
    "load_training",
    "read_stamp",
    "save",
]


class ScoresDescription(TypedDict):
    """Kind of the scores, calibrated probabilities or raw, and the reason."""

    are: Literal["probabilities", "raw"]
    because: str
    documents: NotRequired[int]


class ReadingDescription(TypedDict):
    """Non-default options with which the training corpus was read."""

    text: NotRequired[str]
    labels: NotRequired[str]
    id: NotRequired[str]
    separator: NotRequired[str]
    delimiter: NotRequired[str]
    encoding: NotRequired[str]
    sheet: NotRequired[str]
    recursive: NotRequired[bool]


class TargetDescription(TypedDict):
    """Form of the labels that a Classifier was trained on, in which it returns labels."""

    kind: Literal["lists", "column", "vector", "array", "sparse", "frame"]
    numbers: bool


class VocabularyDescription(TypedDict):
    n_concepts: int
    languages: list[str]
    language: str
    labels_found: int


class LabelFilter(TypedDict):
    allow: list[str]
    deny: list[str]


class GateDescription(TypedDict):
    """Promise for documents that are published without a person, and the share of documents that it leaves."""

    metric: str
    target: float
    confidence: float
    coverage: float
    documents: int
    gives: str


DecisionRule = TypedDict(
    "DecisionRule",
    {"for": str, "by": str, "gives": str, "documents": NotRequired[int], "gate": NotRequired[GateDescription]},
)


class AnalyzerDescription(TypedDict):
    """Analyzer that `analyzer=auto` chose."""

    analyzer: str
    because: str


class NameChoiceDescription(TypedDict):
    """Weight and length of label names as training documents, the numbers of names, and the reason."""

    weight: float
    length: float
    names: NotRequired[int]
    unseen_labels: NotRequired[int]
    because: str


class PlanDescription(TypedDict):
    """Plan of method `auto`."""

    minutes: float
    arguments: str  # of the `xmtc train` command that repeats it
    because: str


class About(TypedDict):
    """Content of about.json without the parts. Validated once, when a model is opened."""

    xmtc: str
    method: str
    parameters: dict[str, Any]  # validated by `parameters.parameters_from_about`
    views: dict[str, dict[str, Any]]
    sizes: dict[str, int]
    n_docs: int
    n_labels: int
    data: str
    package: NotRequired[str]
    calibrate: NotRequired[bool]
    scores: NotRequired[ScoresDescription]
    reading: NotRequired[ReadingDescription]
    target: NotRequired[TargetDescription]
    feature_names: NotRequired[list[str]]  # of the columns, if they had names
    vocabulary: NotRequired[VocabularyDescription]
    filter: NotRequired[LabelFilter]
    decision: NotRequired[DecisionRule]
    chosen: NotRequired[AnalyzerDescription]
    names: NotRequired[dict[str, Any]]  # validated by `parameters.parameters_from_about`
    chosen_names: NotRequired[NameChoiceDescription]
    plan: NotRequired[PlanDescription]


def save(
    folder: str | Path,
    about: dict[str, Any],
    parts: dict[str, Any],
    history_entries: Sequence[history.Entry] = (),
    expected_stamp: Stamp = (),
    training: TrainingStore | None = None,
) -> None:
    """Write a model folder: its description, its named parts, its training history and its training documents."""
    MODEL_FOLDER_KIND.save(
        folder,
        about,
        parts,
        {HISTORY_FILE: history.to_json_lines(history_entries)} if history_entries else {},
        expected_stamp,
        {} if training is None else {TRAINING_FILE: training},
    )


def load_training(folder: Path, about: dict[str, Any], verify: bool = False) -> TrainingStore | None:
    """Return the training documents of a model folder; None if it has none."""
    training = MODEL_FOLDER_KIND.load_attachment(folder, about, TRAINING_FILE, verify)
    if training is None:
        return None
    if not isinstance(training, TrainingStore) or training.n_labels != about["n_labels"]:
        raise damaged_model_error(folder, f"{TRAINING_FILE} is not for its labels")
    return training


def load(folder: str | Path, verify: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the description and the parts of a model folder; `verify` reads every byte and compares checksums."""
    return MODEL_FOLDER_KIND.load(folder, verify, check_about)


def load_history(folder: str | Path) -> tuple[history.Entry, ...]:
    """Return the training history; empty if it is missing or damaged."""
    try:
        return history.from_json_lines(read_regular(folder, HISTORY_FILE, MAX_HISTORY_BYTES).decode("utf-8"))
    except (OSError, ValueError, TypeError, RecursionError):
        return ()


def check_about(folder: Path, about: dict[str, Any]) -> None:
    """Validate the description of a model and import the package of its method."""
    try:
        check_json(about, About, "")
    except ValueError as error:
        raise damaged_model_error(folder, str(error)) from None
    import_method_package(folder, about)


def import_method_package(folder: Path, about: dict[str, Any]) -> None:
    """Import the third-party package that registers the method of a model."""
    package = about.get("package", "xmtc")
    if package == "xmtc":
        return
    from xmtc.methods import method_class

    if PACKAGE_NAME_PATTERN.fullmatch(package) is None:
        raise damaged_model_error(folder, f"its package {package!r:.100} is not a valid package name")
    try:
        method_class(about["method"])
    except XmtcError:
        if package == "__main__":
            raise XmtcError(
                f"{folder} was trained by {about['method']}, a class that another program defined in its main script; "
                "define it in a module, import that module here and in the training program, and train again."
            ) from None
        raise XmtcError(
            f"{folder} was trained by {about['method']} of {package}, which is not installed; install that package "
            f"(pip install {package}), or import it first."
        ) from None


def check_parts(about: dict[str, Any], parts: dict[str, Any]) -> None:
    """Raise ValueError for parts that do not form a Tagger. Only sizes of arrays are checked."""
    kinds: dict[str, Any] = {"views": dict, "labels": StringIndex, "frequencies": np.ndarray, "model": Model}
    attached: dict[str, Any] = {
        "concepts": LabelConcepts,
        "allowed": np.ndarray,
        "decision": LabelSelector,
        "reference": DriftReference,
    }
    kinds |= {name: kind for name, kind in attached.items() if name in parts}
    if parts.keys() != kinds.keys():
        raise ValueError(f"it holds {', '.join(parts) or 'nothing'} instead of {', '.join(kinds)}")
    for name, kind in kinds.items():
        if not isinstance(parts[name], kind):
            raise ValueError(f"its {name} is of another kind")
    check_attached_parts(len(parts["labels"]), **{name: parts.get(name) for name in attached})
    check_part_sizes(about["n_docs"], *(parts[name] for name in ("views", "labels", "frequencies", "model")))


def check_attached_parts(
    n_labels: int,
    concepts: LabelConcepts | None,
    allowed: np.ndarray | None,
    decision: LabelSelector | None,
    reference: DriftReference | None,
) -> None:
    if concepts is not None and len(concepts.concepts) != n_labels:
        raise ValueError("its vocabulary is not for its labels")
    if allowed is not None and (allowed.shape != (n_labels,) or allowed.dtype != np.bool_):
        raise ValueError("its label filter does not cover all labels")
    if decision is not None and not decision.is_compatible_with(n_labels):
        raise ValueError("its decision is not for its labels")
    if reference is not None and reference.labels.max(initial=0) >= n_labels:
        raise ValueError("its reference is not for its labels")


def check_part_sizes(
    n_docs: int, views: dict[str, Any], labels: StringIndex, frequencies: np.ndarray, model: Model
) -> None:
    for name, view in views.items():
        if not isinstance(view, FittedView) or type(view).__module__ != view_class(name).__module__:
            raise ValueError(f"its view {name} is of another kind")
    if model.n_labels != len(labels) or model.views != {name: view.size for name, view in views.items()}:
        raise ValueError("its labels and views are not those of its model")
    if n_docs < 1 or frequencies.shape != (len(labels),) or frequencies.dtype != np.int64:
        raise ValueError(f"it does not have a frequency for each of its {len(labels)} labels")


def check_document_lengths(views: FittedViews, model: Model) -> None:
    """Raise ValueError if a view returns longer documents than the model can read."""
    for name, most in model.max_lengths().items():
        length = views[name].max_length
        if length is not None and length > most:
            raise ValueError(f"it reads {length} {name} of a text, but its encoder has positions for {most}")


def check_frequencies(frequencies: np.ndarray) -> None:
    if frequencies.min(initial=0) < 0:
        raise ValueError("it has a negative label frequency")
