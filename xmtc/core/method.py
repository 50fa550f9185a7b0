"""The contract. A Method is a recipe: a frozen dataclass of hyper-parameters whose `fit` trains. A Model is what
training leaves behind: a dataclass of arrays that predicts. Neither knows words or label names; a Tagger does.

What a subclass writes as `fit`, `predict` and `explain` is only ever reached by data that fits it: a check stands
before each, here, so that nobody has to write or to remember it, and compiled code runs on nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, ClassVar, NamedTuple

import numpy as np

from xmtc.cluster.worker_group import is_single_process
from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import ParameterSet
from xmtc.core.memory import check_address_space
from xmtc.core.predictions import Predictions, check_k
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.storage.form import Form


def add_argument_check(check: Callable[..., None], kind: type, name: str) -> None:
    """Let a class's own method of that name begin with a check of what it is given."""
    method = vars(kind).get(name)
    if method is None:
        return

    @wraps(method)
    def checked(self: Any, *given: Any, **named: Any) -> Any:
        check(self, *given, **named)
        return method(self, *given, **named)

    setattr(kind, name, checked)


def distribute_fit(kind: type) -> None:
    """Let a class's own `fit` be done by processes of the cluster, if there is one; where torchrun has started some, by
    these."""
    fit = vars(kind).get("fit")
    if fit is None:
        return

    @wraps(fit)
    def shared(self: Any, data: Dataset, valid: Dataset | None = None, run: Run = Run()) -> Any:
        if run.cluster and is_single_process():
            return run.run_in_worker_group(partial(self.fit, data, valid))
        return fit(self, data, valid, run)

    kind.fit = shared  # type: ignore[attr-defined]


def check_is_dataset(data: Any) -> None:
    if not isinstance(data, Dataset):
        raise XmtcError(
            f"Found a {type(data).__name__} where a Dataset was expected; make one: Dataset.from_matrix(X), or with "
            "labels Dataset.from_matrix(X, Y)."
        )


@dataclass(frozen=True)
class Explanation:
    """Why a model gives a document a label: what each of its terms adds to (or takes from) the label's score."""

    view: str  # whose ids these are
    ids: np.ndarray  # (n,) int32, columns of a Bag or ids of Tokens, each once
    weights: np.ndarray  # (n,) float32, largest first
    per_token: np.ndarray | None = None  # (n_tokens,) float32, the weight of each token of the document

    @classmethod
    def from_occurrences(cls, view: str, ids: np.ndarray, weights: np.ndarray, per_token: bool = False) -> Explanation:
        """From weights of ids that may occur several times; with per_token, they are those of the document's tokens."""
        distinct, which = np.unique(ids, return_inverse=True)
        total = np.bincount(which, weights, len(distinct)).astype(np.float32)
        order = np.argsort(-total, kind="stable")
        tokens = weights.astype(np.float32) if per_token else None
        return cls(view, distinct[order].astype(np.int32), total[order], tokens)


@dataclass(frozen=True, kw_only=True)
class Model(Form, ABC):
    """What training leaves behind. A subclass is a dataclass and a Form: its fields are its file format."""

    n_labels: int
    views: dict[str, int]  # the views that it reads, and the size of each

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        add_argument_check(Model._check_data, cls, "predict")
        add_argument_check(Model._check_document, cls, "explain")

    def _check_data(self, data: Dataset, k: int = 5, *_: Any, **__: Any) -> None:
        """The views that it was trained on, as wide as they were then, and some labels to be named."""
        check_k(k)
        check_is_dataset(data)
        if data.sizes != self.views:
            raise XmtcError(
                f"The documents have {format_view_sizes(data.sizes)}, but the model was trained on {format_view_sizes(self.views)}; give "
                "it the views, and the columns, that it was trained on."
            )

    def _check_document(self, document: Dataset, *_: Any, **__: Any) -> None:
        self._check_data(document)
        if document.n_docs != 1:
            raise XmtcError(f"Found {document.n_docs} documents to explain, expected one; explain one at a time.")

    @abstractmethod
    def predict(self, data: Dataset, k: int = 5, run: Run = Run()) -> Predictions:
        """The k best labels of every document."""

    @abstractmethod
    def explain(self, document: Dataset, label: int) -> Explanation:
        """What speaks for the label in a Dataset of one document."""

    def to_exhaustive(self) -> Model:
        """The same model, with a search that leaves out no label, however long it takes: for those who want the best of
        a few labels only. Itself where its search is not bounded, or cannot be otherwise."""
        return self

    def max_lengths(self) -> dict[str, int]:
        """Of views that hold sequences: how many tokens of a document it can read, where that is limited."""
        return {}


class LabelName(NamedTuple):
    """What a label is called."""

    label: str
    text: str
    is_preferred: bool = True  # the label's own name, and not an alternative one


@dataclass(frozen=True)
class Method(ParameterSet, ABC):
    """A recipe for training. A subclass is a frozen dataclass with param() fields, named as its paper names it."""

    # The views of a document that it is trained on; a property where that depends on parameters.
    required_views: ClassVar[tuple[str, ...]] = ("tfidf",)
    # Parameters that make it train in a second on a few hundred documents, for tests and for compiling ahead.
    quick_parameters: ClassVar[dict[str, Any]] = {}
    # Whether batches and threads change no digit. Networks add up in another order.
    is_exact: ClassVar[bool] = True
    # Whether documents may have weights (Dataset.weights), by which their losses are multiplied.
    has_weight_support: ClassVar[bool] = False
    # Whether it reads the names of labels (Dataset.names), and can give labels that no training document has.
    has_label_name_input: ClassVar[bool] = False
    # Whether the machines of a cluster share its training.
    has_cluster_support: ClassVar[bool] = False
    # Whether several processes can train it together, as torchrun starts them, and Ray Train on a cluster.
    has_multiprocess_support: ClassVar[bool] = False
    # Whether it writes its model to the work folder of a run while it is trained.
    has_workdir_support: ClassVar[bool] = False
    # Whether its fit makes probabilities of scores by itself.
    has_own_calibration: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.has_multiprocess_support:
            distribute_fit(cls)
        add_argument_check(Method._check_data, cls, "fit")

    def _check_data(self, data: Dataset, valid: Dataset | None = None, *_: Any, **__: Any) -> None:
        """Documents with labels, and weights only where it takes them; validation documents in the same views."""
        check_address_space()
        check_is_dataset(data)
        if data.Y is None or not (data.n_docs and data.n_labels):
            raise XmtcError(
                f"Found {data.n_docs} documents and {data.n_labels} labels to train on; expected at least one of each: "
                "Dataset(views, Y)."
            )
        if data.weights is not None and not self.has_weight_support:
            raise XmtcError(
                f"{type(self).__name__} does not take weights of documents; leave sample_weight out, or use one "
                "that does, such as parabel or dismec."
            )
        if valid is not None:
            check_is_dataset(valid)
            if (valid.sizes, valid.n_labels) != (data.sizes, data.n_labels):
                found, wanted = (
                    f"{format_view_sizes(part.sizes)} and {part.n_labels} labels" for part in (valid, data)
                )
                raise XmtcError(f"The validation documents have {found}; expected {wanted}, as in training.")

    def list_label_names(self, labels: Sequence[str]) -> Iterable[LabelName]:
        """Where it reads names: those of the labels of the training documents, and of all others that it can give."""
        return ()

    def select_held_out_rows(self, data: Dataset) -> np.ndarray | None:
        """The rows that its training holds out of data by itself, to stop by; None where it learns from all."""
        return None

    def load_kernels(self) -> None:
        """Load the compiled code of `fit`, while documents are still being read; nothing where that takes no time."""

    @abstractmethod
    def fit(self, data: Dataset, valid: Dataset | None = None, run: Run = Run()) -> Model:
        """Train on data; valid, where there is one, only ever decides when to stop, or what scores mean."""


def format_view_sizes(sizes: dict[str, int]) -> str:
    """Views and their sizes, for a sentence."""
    return ", ".join(f"{size:,} {name}" for name, size in sizes.items()) or "no views"
