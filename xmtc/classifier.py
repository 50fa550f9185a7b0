"""The scikit-learn face: `Classifier("parabel", n_trees=3).fit(texts, tags).predict(texts, k=5)`.

A Classifier is a recipe in scikit-learn's sense: it can be cloned, searched with GridSearchCV and put in a Pipeline.
What it trains is a Tagger, kept in `tagger_`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_array

from xmtc.base.method import Method
from xmtc.base.predictions import Predictions
from xmtc.base.run import Run
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.evaluation import DEFAULT
from xmtc.explain.pieces import Highlight
from xmtc.features import COLUMNS, TEXTS
from xmtc.parameters import applicable, check_names, from_json, parameters_of, values_of
from xmtc.pipeline import Pipeline
from xmtc.tagger import Tag, Tagger


class Classifier(BaseEstimator):
    """A method, by its name or as it is, and any hyper-parameters of the method (`xmtc methods NAME`) or of the views
    of a text that it reads.

    Documents are texts, or rows of a matrix of features; labels are a list of names for each document.
    """

    def __init__(self, method: str | Method = "parabel", **parameters: Any):
        self.set_params(method=method, **parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Every hyper-parameter with its value, those of a preset and the defaults included."""
        return {"method": self.method} | values_of(self.method, self._given())

    def set_params(self, /, **parameters: Any) -> Classifier:
        method = parameters.pop("method") if "method" in parameters else self.method
        check_names(method, parameters, self._held() | parameters)
        self.__dict__.update(method=method, **parameters)
        return self

    def _held(self) -> dict[str, Any]:
        """All parameters that were ever set, also for another method."""
        return {name: value for name, value in vars(self).items() if name not in ("method", "tagger_")}

    def _given(self) -> dict[str, Any]:
        """Those of them that the method has, as it is now."""
        known = {field.name for field in parameters_of(self.method, self._held())}
        return {name: value for name, value in self._held().items() if name in known or "." in name}

    def fit(self, X: Any, y: Any = None, valid: tuple[Any, Any] | None = None, run: Run = Run()) -> Classifier:
        """Train on documents X and their labels y; `valid`, a pair like them, only decides when to stop."""
        if y is None:
            raise XmtcError(
                "Classifier requires y to be passed, but the target y is None; give labels for each document."
            )
        documents, checked = list(documents_of(X, y)), None if valid is None else list(documents_of(*valid))
        self.tagger_: Tagger = self._pipeline(as_matrix(X)).fit(documents, checked, run)
        return self

    def _pipeline(self, matrix: csr_array | None) -> Pipeline:
        """Of the parameters that were set, those that are of use for texts, or for a matrix."""
        content = TEXTS if matrix is None else COLUMNS
        given = self._given()
        if matrix is not None:
            given = {"n_columns": matrix.shape[1]} | given
        return Pipeline.of(self.method, content, applicable(self.method, content, given))

    def predict(self, X: Any, k: int = 5, threshold: float = 0.0, run: Run = Run()) -> list[list[str]]:
        """The names of the best k labels of each document that score at least the threshold."""
        return [[tag.label for tag in tags] for tags in self.tags(X, k, threshold, run)]

    def tags(self, X: Any, k: int = 5, threshold: float = 0.0, run: Run = Run()) -> list[list[Tag]]:
        """As `predict`, with the scores."""
        return self._trained().named(self.rank(X, k, run).above(threshold))

    def rank(self, X: Any, k: int = 5, run: Run = Run()) -> Predictions:
        """Label numbers and scores as two arrays; `classes_` has the names."""
        self._check_width(X)
        return self._trained().rank(documents_of(X), k, run)

    def evaluate(self, X: Any, y: Any, metrics: Sequence[str] = DEFAULT, run: Run = Run()) -> dict[str, float]:
        """Metrics by their published names, as fractions."""
        self._check_width(X)
        return self._trained().evaluate(documents_of(X, y), metrics, run=run)

    def score(self, X: Any, y: Any) -> float:
        """nDCG@5, for scikit-learn's searches."""
        return self.evaluate(X, y, ["nDCG@5"])["nDCG@5"]

    def explain(self, text: str, label: str, n: int = 20) -> list[tuple[str, float]]:
        """The words that speak most for a label, and what each adds to its score."""
        return self._trained().explain(text, label, n)

    def highlight(self, text: str, *labels: str, k: int = 3, n: int = 20, run: Run = Run()) -> list[Highlight]:
        """The whole text with each word's weight, for each label, or for the best k where none is named."""
        return self._trained().highlight(text, *labels, k=k, n=n, run=run)

    def save(self, folder: str | Path) -> None:
        self._trained().save(folder)

    @classmethod
    def load(cls, folder: str | Path, verify: bool = False) -> Classifier:
        """A trained Classifier from a model folder."""
        tagger = Tagger.load(folder, verify)
        views = {key: value for view in tagger.about["views"].values() for key, value in view.items()}
        parameters = {key: from_json(value) for key, value in (tagger.about["parameters"] | views).items()}
        classifier = cls(tagger.about["method"], **parameters)
        classifier.tagger_ = tagger
        return classifier

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """What was given, and no more."""
        given = (f"{name}={value!r}" for name, value in self._held().items())
        return f"{type(self).__name__}({', '.join([repr(self.method), *given])})"

    @property
    def history_(self) -> tuple[dict[str, Any], ...]:
        """What the training told, stage by stage and pass by pass; `pandas.DataFrame(classifier.history_)` shows it."""
        return self._trained().history

    @property
    def classes_(self) -> np.ndarray:
        return np.array(self._trained().labels.words(), dtype=object)

    @property
    def n_features_in_(self) -> int:
        return sum(view.size for view in self._trained().views.values() if view.max_length is None)

    def _check_width(self, X: Any) -> None:
        """A matrix must have the columns of the one it was trained on."""
        matrix, expected = as_matrix(X), self._trained().views.get("columns")
        if matrix is not None and expected is not None and matrix.shape[1] != expected.size:
            found, wanted = matrix.shape[1], expected.size
            raise XmtcError(f"X has {found} features, but Classifier is expecting {wanted} features as input.")

    def _trained(self) -> Tagger:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                "This Classifier is not trained yet; call fit(texts, labels) or Classifier.load(folder)."
            )
        return self.tagger_

    def __sklearn_is_fitted__(self) -> bool:
        return "tagger_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.sparse = True, True
        tags.target_tags.required, tags.target_tags.multi_output, tags.target_tags.single_output = True, True, False
        return tags


def documents_of(X: Any, y: Any = None) -> Iterator[Document]:
    """Documents from texts or a matrix of features, and lists of labels or an indicator matrix."""
    if isinstance(X, str):
        raise XmtcError("Found one text where a list of texts was expected; put it in a list: [text].")
    matrix = as_matrix(X)
    n_docs = len(X) if matrix is None else matrix.shape[0]
    labels = [[]] * n_docs if y is None else as_label_lists(y)
    if len(labels) != n_docs:
        raise XmtcError(
            f"Found {n_docs} documents and {len(labels)} lists of labels; expected one list for each document."
        )
    contents = ((text, None) for text in X) if matrix is None else matrix_rows(matrix)
    for number, ((text, features), names) in enumerate(zip(contents, labels, strict=True)):
        if not isinstance(text, str):
            raise XmtcError(f"Document {number} is a {type(text).__name__}; expected a text or a row of a matrix.")
        yield Document(str(number), text, label_names(number, names), features)


def as_matrix(X: Any) -> csr_array | None:
    """Features where X is a matrix of numbers, None where it holds texts."""
    if issparse(X) or (isinstance(X, np.ndarray) and (X.ndim == 2 or X.dtype.kind in "biufc")):
        return csr_array(check_array(X, accept_sparse="csr", dtype=np.float32, ensure_min_samples=0))
    return None


def matrix_rows(X: csr_array) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    for begin, end in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        yield "", (X.indices[begin:end].astype(np.int32), X.data[begin:end])


def as_label_lists(y: Any) -> Sequence[Any]:
    """Lists of labels; a matrix of zeros and ones, as MultiLabelBinarizer makes it, means its columns' numbers."""
    is_wide = isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] > 1 and y.dtype.kind in "biuf"
    if not issparse(y) and not (is_wide and np.isin(y, (0, 1)).all()):
        return y
    matrix = csr_array(y, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return np.split(matrix.indices, matrix.indptr[1:-1])


def label_names(number: int, names: Any) -> list[str]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise XmtcError(
            f"The labels of document {number} are {names!r}; expected a list of labels, such as ['a', 'b']."
        )
    return list(dict.fromkeys(label_name(number, name) for name in names))


def label_name(number: int, name: Any) -> str:
    """A label as text; what stands for a missing one, or what no file could hold, is refused."""
    is_nan = isinstance(name, (float, np.floating)) and name != name
    try:
        if name is None or is_nan or isinstance(name, bytes):
            raise TypeError
        str(name).encode()  # half of a surrogate pair has no bytes
        return str(name)
    except (TypeError, UnicodeEncodeError):
        raise XmtcError(
            f"A label of document {number} is {name!r}; expected whole text, such as 'a', or a number."
        ) from None
