"""Base classes of all methods: `Method` (hyper-parameters and training), `Model` (trained arrays) and `Explanation`.

A Method is a frozen dataclass of hyper-parameters. `Method.fit` validates the data and calls `_fit` of the subclass,
which returns a Model. `Model.predict` and `Model.explain` validate the data and call `_predict` and `_explain`.
Subclasses therefore only receive valid data, which compiled kernels rely on. Neither class knows words or label names;
`xmtc.tagger.Tagger` does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import ParameterSet
from xmtc.core.memory import check_address_space
from xmtc.core.predictions import Predictions, check_k
from xmtc.core.process_rank import is_single_process
from xmtc.core.run import Run, check_run
from xmtc.errors import XmtcError
from xmtc.storage.form import Form

if TYPE_CHECKING:
    from xmtc.core.dataset_change import DatasetChange, ModelUpdate


@dataclass(frozen=True)
class Explanation:
    """Contribution of each term of a document to the score of one label.

    Parameters
    ----------
    view : str
        Name of the view that the ids belong to.
    ids : ndarray of int32, shape (n_terms,)
        Columns of a `Bag`, or token ids of `Tokens`, each once.
    weights : ndarray of float32, shape (n_terms,)
        Contribution of each id to the score, largest first.
    per_token : ndarray of float32, shape (n_tokens,), optional
        Contribution of each token of the document, in reading order.
    bias : float, optional
        Part of the explained quantity that no term contributes: the weights and the bias sum to it. None if the
        weights do not sum to a quantity of the model.
    members : tuple of MemberExplanation
        Explanations by the members of a combination that found the label. Their terms may be of different views; `ids`
        and `weights` are then those of the view with the largest share.

    Examples
    --------
    >>> import numpy as np
    >>> from xmtc import Explanation
    >>> explanation = Explanation.from_occurrences("words", np.array([3, 5, 3]), np.array([0.5, 0.75, 0.5]))
    >>> explanation.ids.tolist(), explanation.weights.tolist()
    ([3, 5], [1.0, 0.75])
    """

    view: str
    ids: np.ndarray
    weights: np.ndarray
    per_token: np.ndarray | None = None
    bias: float | None = None
    members: tuple[MemberExplanation, ...] = ()

    @classmethod
    def from_occurrences(
        cls, view: str, ids: np.ndarray, weights: np.ndarray, per_token: bool = False, bias: float | None = None
    ) -> Explanation:
        """Build an explanation from ids that may repeat, summing their weights.

        Parameters
        ----------
        view : str
            Name of the view that the ids belong to.
        ids : ndarray of int, shape (n,)
            Ids, possibly repeated.
        weights : ndarray of float, shape (n,)
            Weight of each occurrence.
        per_token : bool, default=False
            Whether the occurrences are all tokens of the document in reading order; then `weights` is kept as
            `per_token` too.
        bias : float, optional
            Part of the explained quantity that no term contributes.

        Returns
        -------
        Explanation
            One weight per distinct id, largest first.

        Examples
        --------
        >>> import numpy as np
        >>> Explanation.from_occurrences("words", np.array([7, 2, 7]), np.array([0.5, 0.75, 1.0])).ids.tolist()
        [7, 2]
        """
        distinct, which = np.unique(ids, return_inverse=True)
        total = np.bincount(which, weights, len(distinct)).astype(np.float32)
        order = np.argsort(-total, kind="stable")
        tokens = weights.astype(np.float32) if per_token else None
        return cls(view, distinct[order].astype(np.int32), total[order], tokens, bias)

    def rename_views(self, names: dict[str, str]) -> Explanation:
        """Return a copy with other names of the views."""
        members = tuple(member._replace(explanation=member.explanation.rename_views(names)) for member in self.members)
        return replace(self, view=names[self.view], members=members)


class MemberExplanation(NamedTuple):
    """Explanation by one member of a combination."""

    number: int  # position in the combination, from 0
    share: float  # part of the combined score, from 0 to 1
    explanation: Explanation


@dataclass(frozen=True, kw_only=True)
class Model(Form, ABC):
    """Base class of trained models. A subclass is a dataclass whose fields are its file format (see `xmtc.Form`).

    A subclass implements `_predict` and `_explain`, and may override `to_exhaustive`, `max_lengths` and `check`.

    Parameters
    ----------
    n_labels : int
        Number of labels, which are numbered from 0.
    views : dict of str to int
        Number of features of each view that the model reads.

    Examples
    --------
    >>> import numpy as np
    >>> from xmtc import Dataset
    >>> from xmtc.methods import DiSMEC
    >>> data = Dataset.from_matrix(np.eye(2), np.eye(2))
    >>> model = DiSMEC().fit(data)
    >>> model.predict(data, k=1).labels.tolist()
    [[0], [1]]
    """

    n_labels: int
    views: dict[str, int]

    def predict(self, data: Dataset, k: int = 5, run: Run = Run()) -> Predictions:
        """Return the k best labels of every document.

        Parameters
        ----------
        data : Dataset
            Documents with the views of the training data.
        k : int, default=5
            Maximum number of labels per document.
        run : Run, optional
            Threads, device and progress.

        Returns
        -------
        Predictions
            Labels and scores, best first.

        Raises
        ------
        XmtcError
            If k is not positive, or the views differ from those of the training data.
        """
        check_run(run)
        self._check_data(data, k)
        return self._predict(data, k, run)

    def explain(self, document: Dataset, label: int) -> Explanation:
        """Return the contribution of each term of one document to the score of a label.

        Parameters
        ----------
        document : Dataset
            A single document with the views of the training data.
        label : int
            Number of the label.

        Returns
        -------
        Explanation
            Terms and their weights, largest first.

        Raises
        ------
        XmtcError
            If there is not exactly one document, or its views differ from those of the training data.
        """
        self._check_data(document)
        if document.n_docs != 1:
            raise XmtcError(f"Found {document.n_docs} documents to explain, expected one; explain one at a time.")
        return self._explain(document, label)

    def _check_data(self, data: Dataset, k: int = 5) -> None:
        check_k(k)
        check_is_dataset(data)
        if data.sizes != self.views:
            raise XmtcError(
                f"The documents have {format_view_sizes(data.sizes)}, but the model was trained on "
                f"{format_view_sizes(self.views)}; pass the views and columns of the training data."
            )

    @abstractmethod
    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        """Return the k best labels of every document; `data` and `k` are valid."""

    @abstractmethod
    def _explain(self, document: Dataset, label: int) -> Explanation:
        """Return the contribution of each term of the document to the label's score; `document` is valid."""

    def to_exhaustive(self) -> Model:
        """Return a copy that scores every label instead of searching with a beam.

        Ranking a small set of allowed labels needs it. Models without a bounded search return themselves."""
        return self

    def max_lengths(self) -> dict[str, int]:
        """Return the maximum number of tokens per document that the model reads, for views with such a limit."""
        return {}


class LabelName(NamedTuple):
    """A name of a label, preferred or alternative."""

    label: str
    text: str
    is_preferred: bool = True


@dataclass(frozen=True)
class Method(ParameterSet, ABC):
    """Base class of training methods. A subclass is a frozen dataclass with `param()` fields, named as in its paper.

    A subclass implements `_fit`, whose return annotation is its Model class, and sets the class attributes below where
    the defaults do not hold. docs/how-to/bring-your-own-method.md has a complete example.

    Examples
    --------
    >>> from xmtc.methods import Parabel
    >>> method = Parabel(n_trees=1)
    >>> method.n_trees, method.replace(n_trees=2).n_trees
    (1, 2)
    """

    # Views of a document to train on; a property where they depend on hyper-parameters.
    required_views: ClassVar[tuple[str, ...]] = ("tfidf",)
    # Hyper-parameters for training on a few hundred documents within a second; used by tests and to compile kernels.
    quick_parameters: ClassVar[dict[str, Any]] = {}
    # Default parameters of these views, where they differ from the views' own defaults.
    view_defaults: ClassVar[dict[str, Any]] = {}
    # Parameters of single views by name, as text; they take precedence over those of all views.
    own_view_parameters: ClassVar[dict[str, dict[str, str]]] = {}
    # Whether results are identical for any batch size and number of threads. Networks sum in varying order.
    is_exact: ClassVar[bool] = True
    # Whether document weights (Dataset.weights) multiply the loss.
    has_weight_support: ClassVar[bool] = False
    # Whether it reads label names (Dataset.names) and can predict labels without training documents.
    has_label_name_input: ClassVar[bool] = False
    # Whether training is distributed over the machines of a Ray cluster.
    has_cluster_support: ClassVar[bool] = False
    # Whether several processes train one model together, started by torchrun or by Ray Train on a cluster.
    has_multiprocess_support: ClassVar[bool] = False
    # Whether training writes the model to Run.workdir, as memory-mapped arrays.
    has_workdir_support: ClassVar[bool] = False
    # Whether `fit` returns calibrated probabilities.
    has_own_calibration: ClassVar[bool] = False

    def fit(self, data: Dataset, valid: Dataset | None = None, run: Run = Run()) -> Model:
        """Train a model.

        Parameters
        ----------
        data : Dataset
            Training documents with labels.
        valid : Dataset, optional
            Validation documents for early stopping and calibration, with the views and labels of `data`.
        run : Run, optional
            Threads, device, cluster, checkpoint and progress.

        Returns
        -------
        Model
            The trained model.

        Raises
        ------
        XmtcError
            If there are no documents or labels, if `valid` has other views or labels than `data`, or if documents
            have weights and the method does not support them.
        """
        check_run(run)
        if isinstance(data, Dataset) and data.is_name is not None and not self.has_name_documents:
            data = data.drop_names()
        self._check_data(data, valid)
        if self.has_multiprocess_support and run.cluster and is_single_process():
            return run.run_in_worker_group(partial(self.fit, data, valid))
        return self._fit(data, valid, run)

    def _check_data(self, data: Dataset, valid: Dataset | None) -> None:
        check_address_space()
        check_is_dataset(data)
        if data.Y is None or not (data.n_docs and data.n_labels):
            raise XmtcError(
                f"Found {data.n_docs} documents and {data.n_labels} labels to train on; expected at least one of each: "
                "Dataset(views, Y)."
            )
        is_weighted = data.weights is not None and not (self.has_name_documents and data.has_weights_of_names_only)
        if is_weighted and not self.has_weight_support:
            raise XmtcError(
                f"{type(self).__name__} does not support document weights; omit sample_weight, or use a method that "
                "supports them, such as parabel or dismec."
            )
        if valid is not None:
            check_is_dataset(valid)
            if (valid.sizes, valid.n_labels) != (data.sizes, data.n_labels):
                actual, expected = (
                    f"{format_view_sizes(part.sizes)} and {part.n_labels} labels" for part in (valid, data)
                )
                raise XmtcError(f"The validation documents have {actual}; expected {expected}, as in training.")

    @property
    def has_name_documents(self) -> bool:
        """True if names of labels, which have weights, may be training documents (`Dataset.is_name`); they are dropped
        otherwise."""
        return self.has_weight_support

    @abstractmethod
    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> Model:
        """Train a model on valid data; `valid` is only used for early stopping and calibration."""

    def list_label_names(self, labels: Sequence[str], language: str | None = None) -> Iterable[LabelName]:
        """Return the names of the labels of the training documents and of all other labels it can predict.

        Only called if `has_label_name_input`. `language` is that of the texts, such as finnish, if it is recognised."""
        return ()

    def select_held_out_rows(self, data: Dataset) -> np.ndarray | None:
        """Return the rows of data that training holds out for early stopping, or None if it trains on all."""
        return None

    def for_holdout(self) -> Method:
        """Return the method of models whose scores for held-out documents calibrate a model of this method.

        It may be cheaper, if its scores are distributed nearly as those of this method."""
        return self

    def update(self, model: Model, change: DatasetChange, run: Run) -> ModelUpdate | None:
        """Train only what a change of the training data affects, starting from the model of this method before.

        Return None if the method cannot, or if training from scratch is better."""
        return None

    def load_kernels(self) -> None:
        """Load the compiled kernels of `fit`, so that this overlaps with reading the documents."""


def check_is_dataset(data: Any) -> None:
    if not isinstance(data, Dataset):
        raise XmtcError(
            f"Found a {type(data).__name__}, expected a Dataset; build one with Dataset.from_matrix(X), or with labels "
            "Dataset.from_matrix(X, Y)."
        )


def format_view_sizes(sizes: dict[str, int]) -> str:
    return ", ".join(f"{size:,} {name}" for name, size in sizes.items()) or "no views"
