"""The scikit-learn face: `Classifier("parabel", n_trees=3).fit(texts, tags).predict(texts, k=5)`.

A Classifier is a recipe in scikit-learn's sense: it can be cloned, searched with GridSearchCV and put in a Pipeline.
What it trains is a Tagger, kept in `tagger_`. Answers come in the form in which labels were given: lists of names, or
an indicator matrix with a column for each label."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import ClassifierTags
from sklearn.utils.validation import validate_data

from xmtc import evaluation
from xmtc.core.array_validation import as_document_weights, validate_sparse_matrix
from xmtc.core.method import Method
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.data.corpus import Corpus
from xmtc.data.document import Document
from xmtc.data.in_memory import (
    COLUMN,
    FRAME,
    INDICATORS,
    LISTS,
    SPARSE,
    LabelTarget,
    as_label_target,
    as_texts_or_matrix,
    is_corpus_like,
    iter_documents,
)
from xmtc.data.prediction_matrices import check_matrix_memory, compute_dense_scores, to_sparse_matrix
from xmtc.errors import XmtcError
from xmtc.evaluation import DEFAULT_METRICS
from xmtc.explain.highlights import Highlight
from xmtc.features import FEATURES, TEXTS
from xmtc.parameters import (
    check_parameter_names,
    collect_all_parameters,
    load_saved_parameters,
    select_applicable_parameters,
)
from xmtc.pipeline import Pipeline
from xmtc.scores.tagger_thresholds import tune_tagger_thresholds
from xmtc.tagger import Tag, Tagger
from xmtc.vocabulary import Vocabulary

DEFAULT_K, INDICATOR_THRESHOLD = 5, 0.5  # labels of an answer in names; the score from which on an indicator says 1
INITIAL_SEARCH_LABELS = 100  # labels among which those above a threshold are looked for first
PARTIAL_FIT_MESSAGE = (
    "A trained Classifier cannot learn from further documents; fit a new one on all of them, "
    "or train one on the further documents and make one of both with `xmtc combine`."
)


class Classifier(BaseEstimator):
    """A method, by its name or as it is, and any hyper-parameters of the method (`xmtc methods NAME`), of the methods
    that it holds (`parabel__n_trees`, or `parabel.n_trees` in a dict) or of the views of a text that it reads.

    Documents are texts, rows of a matrix of features, or a corpus. Labels are a list of names for each document, or an
    indicator: an array, a sparse matrix or a data frame of zeros and ones with a column for each label.
    """

    def __init__(self, method: str | Method = "parabel", **parameters: Any):
        self.set_params(method=method, **parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Every hyper-parameter with its value, those of a preset and the defaults included; with deep=False only what
        was given, which is what `clone` copies."""
        values = {
            name: value for name, (_, value) in collect_all_parameters(self.method, self._stored_parameters()).items()
        }
        given = {name: value for name, value in self._stored_parameters().items() if name in values}
        return {"method": self.method} | (values if deep else {}) | given

    def set_params(self, /, **parameters: Any) -> Classifier:
        """Set hyper-parameters, which are checked at once. Those that were set for another method stay for when it
        returns; a clone has only those of its own."""
        method = parameters.pop("method") if "method" in parameters else self.method
        named = {name.replace("__", "."): value for name, value in parameters.items()}
        check_parameter_names(method, named, self._stored_parameters() | named)
        self.__dict__.update(method=method, **named)
        return self

    def _stored_parameters(self) -> dict[str, Any]:
        """All parameters that were ever set, also for another method."""
        fitted = [name for name in vars(self) if name.endswith("_") or name.startswith("_")]
        return {name: value for name, value in vars(self).items() if name not in ("method", *fitted)}

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        valid: tuple[Any, Any] | Corpus | None = None,
        run: Run = Run(),
    ) -> Classifier:
        """Train on documents X and their labels y, which a corpus brings along itself. `sample_weight` says how much
        each document counts, for linear methods; `valid`, a corpus or a pair like X and y, only decides when to
        stop, or what scores mean."""
        target, found, pipeline = self._prepare_training(X, y)
        classes = None if target is None else target.columns
        numbers = "" if target is None or not target.has_integer_labels else target.kind
        checked = None if valid is None else self._to_documents(*as_documents_and_labels(valid), classes, numbers)
        weights = None if sample_weight is None else np.asarray(sample_weight)
        tagger = pipeline.fit(found, checked, run, classes=classes, weights=weights)
        if target is not None and target.as_json():
            tagger.about["target"] = target.as_json()
        self.tagger_: Tagger = tagger
        return self

    def _prepare_training(self, X: Any, y: Any) -> tuple[LabelTarget | None, Iterable[Document], Pipeline]:
        """How labels were given, the documents, and what they are trained with."""
        self.__dict__.pop("n_features_in_", None)
        self.__dict__.pop("feature_names_in_", None)
        if is_corpus_like(X):
            first: Document = next(iter(X))
            content, n_columns = (TEXTS, 0) if first.features is None else (FEATURES, getattr(X, "n_features", 0) or 0)
            return None, self._to_documents(X, y), self._build_pipeline(content, n_columns)
        if y is None:
            raise XmtcError(
                "Classifier requires y to be passed, but the target y is None; give labels for each document."
            )
        X = self._validate_documents(X, reset=True)
        target = as_label_target(y)
        content, n_columns = (FEATURES, X.shape[1]) if issparse(X) else (TEXTS, 0)
        return target, list(iter_documents(X, target.labels)), self._build_pipeline(content, n_columns)

    def _build_pipeline(self, content: str, n_columns: int) -> Pipeline:
        """Of the parameters that were set, those that are of use for texts, or for a matrix."""
        given = self._stored_parameters()
        if content == FEATURES:
            given = {"n_columns": n_columns} | given
        return Pipeline.from_parameters(self.method, content, select_applicable_parameters(self.method, content, given))

    def _to_documents(
        self, X: Any, y: Any = None, label_names: Sequence[str] | None = None, numeric_target_kind: str = ""
    ) -> Iterable[Document]:
        """Documents and, where they are given, their labels; `names` are those of the columns of an indicator, and
        `numbers` the kind of target that labels were given in, if they were given as numbers."""
        if is_corpus_like(X):
            if y is not None:
                raise XmtcError("Found labels beside a corpus, which brings its own; give one of them.")
            return X
        target = None if y is None else as_label_target(y, label_names, numeric_target_kind)
        if target is not None and numeric_target_kind and label_names is not None:
            check_numeric_labels(target, label_names)
        return list(iter_documents(self._validate_documents(X), None if target is None else target.labels))

    def _validate_documents(self, X: Any, reset: bool = False) -> list[str] | csr_array:
        found = as_texts_or_matrix(X)
        if isinstance(found, list):
            return found
        if hasattr(found, "check_format"):  # which scikit-learn trusts
            found = validate_sparse_matrix(found, "X")
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # too large for float32 is refused as infinite
                checked = validate_data(
                    self, found, accept_sparse="csr", dtype=np.float32, ensure_min_samples=0, reset=reset
                )
        except ValueError as error:
            raise XmtcError(str(error)) from None
        return csr_array(checked)

    def predict(
        self,
        X: Any,
        k: int | None = None,
        threshold: float | None = None,
        run: Run = Run(),
        *,
        always: bool = False,
    ) -> Any:
        """The labels of each document. Trained on lists of names: the names of the best k (5), best first, that score
        at least the threshold (0). Trained on an indicator: an indicator of the same kind, with a 1 where a label is
        among the best k (all) and scores at least the threshold (0.5). Trained on a column with one label for each
        document: such a column. With a decision (`fit_decision`), and neither k nor a threshold: what that gives.

        A text of which the model knows no word gets no labels, unless `always`: then those that it would guess of any
        text. A column has a label for each document, whatever it holds."""
        kind = self._target_description()["kind"]
        if kind == LISTS:
            decide = self._should_use_decision(k, threshold)
            named = self.predict_labels(
                X, DEFAULT_K if k is None else k, threshold or 0.0, run, always=always, decide=decide
            )
            return [[tag.label for tag in tags] for tags in named]
        if kind == COLUMN:
            best = self.rank(X, 1, run).labels
            return self.classes_[np.where(best == NO_LABEL, self._fitted_tagger().frequencies.argmax(), best)]
        indicator = self._predict_indicator(X, k, threshold, run, always)
        if kind == SPARSE:
            return indicator
        check_matrix_memory(indicator.shape[0], indicator.shape[1], indicator.dtype.itemsize)
        return as_data_frame(X, indicator.toarray(), self.classes_) if kind == FRAME else indicator.toarray()

    def _predict_indicator(self, X: Any, k: int | None, threshold: float | None, run: Run, always: bool) -> csr_array:
        """(n_docs, n_labels) int64, ones at the labels of each document."""
        if self._should_use_decision(k, threshold):
            return to_sparse_matrix(
                self._fitted_tagger().decided(self._to_documents(X), run, always=always),
                self._n_labels,
                should_binarise=True,
            )
        least = (INDICATOR_THRESHOLD if k is None else 0.0) if threshold is None else threshold
        predictions = (
            self._predict_above_threshold(X, least, run, always) if k is None else self.rank(X, k, run, always=always)
        )
        return to_sparse_matrix(predictions.apply_threshold(least), self._n_labels, should_binarise=True)

    def _should_use_decision(self, k: int | None, threshold: float | None) -> bool:
        return k is None and threshold is None and self._fitted_tagger().decision is not None

    def _predict_above_threshold(self, X: Any, threshold: float, run: Run, always: bool) -> Predictions:
        """As many labels as it takes until every document's last one is below the threshold."""
        found, n_labels, k = list(self._to_documents(X)), self._n_labels, INITIAL_SEARCH_LABELS
        while True:
            predictions = self._fitted_tagger().predict(found, min(k, n_labels), run, always=always)
            is_enough = k >= n_labels or not predictions.n_docs or predictions.scores[:, -1].max() < threshold
            if is_enough:
                return predictions
            k *= 10
            check_matrix_memory(len(found), min(k, n_labels), 2 * np.dtype(np.float32).itemsize)

    def predict_proba(self, X: Any, k: int | None = None, run: Run = Run(), *, always: bool = False) -> Any:
        """(n_docs, n_labels) float32, the scores of all labels, in the order of `classes_`; 0 where a method did not
        look at a label, and throughout for a text of which the model knows no word, unless `always`. With k, a sparse
        matrix of each document's k best, for label sets whose scores would not fit in memory."""
        found, n_labels = list(self._to_documents(X)), self._n_labels
        rank = partial(self._fitted_tagger().predict, always=self._should_always_predict(always))
        if k is not None:
            return to_sparse_matrix(rank(found, k, run), n_labels)
        check_matrix_memory(len(found), n_labels, np.dtype(np.float32).itemsize)
        return compute_dense_scores(rank, found, n_labels, run)

    def decision_function(self, X: Any, run: Run = Run()) -> np.ndarray:
        """(n_docs, n_labels) float32, the scores less 0.5: above 0 where `predict` says 1, if there is no decision."""
        return self.predict_proba(X, run=run) - np.float32(INDICATOR_THRESHOLD)

    def predict_labels(
        self,
        X: Any,
        k: int = DEFAULT_K,
        threshold: float = 0.0,
        run: Run = Run(),
        *,
        always: bool = False,
        language: str | None = None,
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        decide: bool = False,
    ) -> list[list[Tag]]:
        """The best k labels of each document that score at least the threshold, with their scores and, where a
        vocabulary is attached, their names in a language; `always` as in `predict`, `allow`, `deny` and `decide` as for
        `Tagger.tags`."""
        tagger = self._fitted_tagger()
        allowed, always = tagger.build_label_mask(allow, deny), self._should_always_predict(always)
        if decide:
            ranked = tagger.decided(self._to_documents(X), run, allowed, always=always)
        else:
            ranked = tagger.predict(self._to_documents(X), k, run, allowed, always=always)
        found = tagger.to_tags(ranked.apply_threshold(threshold), language)
        if not self._target_description()["numbers"]:
            return found
        return [[Tag(int(tag.label), tag.score, tag.name) for tag in tags] for tags in found]  # type: ignore[arg-type]

    def fit_decision(
        self, X: Any, y: Any = None, goal: str = "f1", by: str | None = None, run: Run = Run()
    ) -> Classifier:
        """Let a trained Classifier learn how many labels to give, from documents that it was not trained on. The goal
        is f1 (a mean over documents), micro-f1, macro-f1, precision=0.9, recall=0.8 or tags=5. It is served by one
        threshold for `all` labels, one for each `label`, or a number for each `document`; if nothing is said, by what
        is best. `predict` uses it from then on, and the model folder keeps it; a further `fit` forgets it."""
        learnt = tune_tagger_thresholds(
            self._fitted_tagger(),
            self._to_labelled_documents(X, y),
            goal,
            by,
            run,
            always=self._should_always_predict(),
        )
        self.tagger_ = learnt.tagger
        return self

    def attach(self, vocabulary: Vocabulary, language: str | None = None) -> Classifier:
        """Let a trained Classifier know what its labels are called; the model folder keeps the vocabulary."""
        self.tagger_ = self._fitted_tagger().with_vocabulary(vocabulary, language)
        return self

    def rank(self, X: Any, k: int = DEFAULT_K, run: Run = Run(), *, always: bool = False) -> Predictions:
        """Label numbers and scores as two arrays; a number is a place in `classes_`. `always` as in `predict`."""
        self._fitted_tagger()
        return self.tagger_.predict(self._to_documents(X), k, run, always=self._should_always_predict(always))

    def evaluate(
        self, X: Any, y: Any = None, metrics: str | Sequence[str] = DEFAULT_METRICS, run: Run = Run()
    ) -> dict[str, float]:
        """Metrics by their published names, as fractions, of what `predict` answers. A corpus brings its labels
        along."""
        metrics = [metrics] if isinstance(metrics, str) else metrics
        return self._fitted_tagger().evaluate(
            self._to_labelled_documents(X, y), metrics, run=run, always=self._should_always_predict()
        )

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """nDCG@5, for scikit-learn's searches."""
        tagger, name = self._fitted_tagger(), "nDCG@5"
        if sample_weight is None:
            return self.evaluate(X, y, name)[name]
        found = evaluation.evaluate_per_document(
            *tagger.rank_labelled(self._to_labelled_documents(X, y), 5, always=self._should_always_predict()), [name]
        )
        return float(np.average(found[name], weights=as_document_weights(sample_weight, len(found[name]))))

    def _to_labelled_documents(self, X: Any, y: Any) -> Iterable[Document]:
        if y is None and not is_corpus_like(X):
            raise XmtcError("Found no labels to compare with; give y, or a corpus, which brings its own.")
        target = self._target_description()
        return self._to_documents(
            X, y, self._fitted_tagger().labels.words(), target["kind"] if target["numbers"] else ""
        )

    @property
    def partial_fit(self) -> NoReturn:
        """There is none yet: whoever asks for it is told what to do instead."""
        raise AttributeError(PARTIAL_FIT_MESSAGE)

    def explain(self, text: str, label: str, n: int = 20) -> list[tuple[str, float]]:
        """The words that speak most for a label, and what each adds to its score."""
        return self._fitted_tagger().explain(text, str(label), n)

    def highlight(
        self, text: str, *labels: str, k: int = 3, n: int = 20, run: Run = Run(), language: str | None = None
    ) -> list[Highlight]:
        """The whole text with each word's weight, for each label, or for the best k where none is named."""
        return self._fitted_tagger().highlight(text, *map(str, labels), k=k, n=n, run=run, language=language)

    def save(self, folder: str | Path) -> None:
        """Write the model folder, which `load`, `Tagger.load` and the `xmtc` command open."""
        self._fitted_tagger().save(folder)

    @classmethod
    def load(cls, folder: str | Path, verify: bool = False) -> Classifier:
        """Open a model folder as a trained Classifier."""
        tagger = Tagger.load(folder, verify)
        classifier = cls(tagger.about["method"], **load_saved_parameters(tagger, folder))
        classifier.tagger_ = tagger
        if "columns" in tagger.views:
            classifier.n_features_in_ = tagger.views["columns"].n_inputs
        return classifier

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """What was given, and no more."""
        given = (f"{name}={value!r}" for name, value in self.get_params(deep=False).items() if name != "method")
        return f"{type(self).__name__}({', '.join([repr(self.method), *given])})"

    @property
    def history_(self) -> tuple[dict[str, Any], ...]:
        """What the training told, stage by stage and pass by pass; `pandas.DataFrame(classifier.history_)` shows it."""
        return self._fitted_tagger().history

    @property
    def classes_(self) -> np.ndarray:
        """The labels, in the order of their numbers: of an indicator, its columns."""
        names = self._fitted_tagger().labels.words()
        return np.array(list(map(int, names))) if self._target_description()["numbers"] else np.array(names, object)

    @property
    def _n_labels(self) -> int:
        return len(self._fitted_tagger().labels)

    def _target_description(self) -> dict[str, Any]:
        """How labels were given, and are to be given back."""
        return self._fitted_tagger().about.get("target", {"kind": LISTS, "numbers": False})

    def _should_always_predict(self, always: bool = False) -> bool:
        """Whether a text without known words gets labels: in a column, each document has one."""
        return always or self._target_description()["kind"] == COLUMN

    def _fitted_tagger(self) -> Tagger:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                "This Classifier is not trained yet; call fit(texts, labels) or Classifier.load(folder)."
            )
        return self.tagger_

    def __sklearn_is_fitted__(self) -> bool:
        return "tagger_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        """scikit-learn calls a classifier only what is trained on its own forms of labels, and refuses lists of names
        for these: so this is one as soon as it was trained on an indicator, and can be scored like others."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.sparse = True, True
        tags.classifier_tags = ClassifierTags(multi_class=True, multi_label=True)
        tags.target_tags.required, tags.target_tags.multi_output, tags.target_tags.single_output = True, True, False
        if self.__sklearn_is_fitted__() and self._target_description()["kind"] in INDICATORS:
            tags.estimator_type = "classifier"
        return tags


def as_documents_and_labels(valid: Any) -> tuple[Any, Any]:
    """Documents and labels to stop by; a corpus has both."""
    if is_corpus_like(valid):
        return valid, None
    if not isinstance(valid, Sequence) or len(valid) != 2:
        raise XmtcError("Found no pair of documents and labels as valid; expected (texts, labels), or a corpus.")
    return valid[0], valid[1]


def check_numeric_labels(target: LabelTarget, names: Sequence[str]) -> None:
    """Refuse names for what are numbers to the model, such as the columns of an array: all would count as missed."""
    found = {label for labels in target.labels for label in labels}
    if found and not target.has_integer_labels and found.isdisjoint(names):
        raise XmtcError(
            f"Found labels by names, such as {min(found)!r}, but the model was trained on their numbers; give these, "
            "or train on names: on a data frame or on lists."
        )


def as_data_frame(X: Any, indicator: np.ndarray, columns: np.ndarray) -> Any:
    """An indicator with the names of labels and, where X has them, of documents."""
    try:
        import pandas
    except ImportError:
        raise XmtcError(
            "This model was trained on labels in a data frame and answers with one, which needs pandas: "
            "pip install pandas, or ask for predict_proba."
        ) from None
    return pandas.DataFrame(indicator, columns=columns, index=X.index if hasattr(X, "iloc") else None)
