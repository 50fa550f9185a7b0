"""Estimator for scikit-learn: `Classifier("parabel", n_trees=3).fit(texts, labels).predict(texts, k=5)`.

A Classifier can be cloned, searched with GridSearchCV and put in a Pipeline. It trains a Tagger, kept in `tagger_`.
Predictions have the form of the training labels: lists of names, or an indicator matrix with a column per label.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array, issparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils import ClassifierTags
from sklearn.utils.validation import validate_data

from xmtc import evaluation
from xmtc.core.array_validation import as_document_weights, validate_sparse_matrix
from xmtc.core.events import Convergence, collect_convergence, merge_convergence
from xmtc.core.method import Method
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run, check_run
from xmtc.data.corpus import Corpus
from xmtc.data.document import Document
from xmtc.data.in_memory import (
    COLUMN,
    FRAME,
    INDICATORS,
    LISTS,
    SINGLE_LABELS,
    SPARSE,
    VECTOR,
    LabelTarget,
    as_corpus,
    as_label_target,
    as_texts_or_matrix,
    is_corpus_like,
    is_frame,
    iter_documents,
)
from xmtc.data.prediction_matrices import check_matrix_memory, compute_dense_scores, to_sparse_matrix
from xmtc.data.tables import add_column
from xmtc.errors import XmtcError
from xmtc.evaluation import DEFAULT_METRICS
from xmtc.explain.highlights import Highlight
from xmtc.export.linear_arrays import LinearArrays, extract_arrays
from xmtc.features import FEATURES, TEXTS
from xmtc.hub import HUB_PREFIX, cache_model, push_model, render_card
from xmtc.maintenance.update import update_tagger
from xmtc.model_folder import damaged_model_error
from xmtc.parameters import (
    check_parameter_names,
    collect_all_parameters,
    load_saved_parameters,
    select_applicable_parameters,
)
from xmtc.pipeline import Pipeline
from xmtc.scores.quality import DEFAULT_CONFIDENCE, parse_promise
from xmtc.scores.tagger_thresholds import tune_tagger_thresholds
from xmtc.tagger import Tag, Tagger, Threshold
from xmtc.vocabulary import Vocabulary

DEFAULT_K = 5  # labels per document, if labels are lists of names
CONVENTIONS = ("n_jobs", "random_state")  # parameters of scikit-learn's estimators, besides those of the method
INDICATOR_THRESHOLD = 0.5  # minimum score of a 1 in an indicator
INITIAL_SEARCH_LABELS = 100  # labels that the search above a threshold looks at first


class Classifier(BaseEstimator):
    """A method with its hyper-parameters, trained on documents and labels.

    Documents are texts, rows of a feature matrix, or a corpus. Labels are a list of names per document, one label per
    document as in other classifiers of scikit-learn, or an indicator: an array, a sparse matrix or a data frame of
    zeros and ones with a column per label.

    Parameters
    ----------
    method
        Name of a method (`xmtc methods` lists them), or a Method.
    **parameters
        Hyper-parameters of the method, of its members (`parabel__n_trees`, or `parabel.n_trees` in a dict) and of the
        views that it reads. `xmtc methods NAME` lists them. As in scikit-learn, `random_state` is accepted for `seed`,
        an integer or None, and `n_jobs` for the number of threads of `fit`, where -1 uses all.

    Examples
    --------
    >>> from xmtc import Classifier
    >>> texts = ["pears and apples", "apple trees", "a trip to the moon", "the moon and the stars"]
    >>> labels = [["fruit"], ["fruit", "garden"], ["space", "travel"], ["space"]]
    >>> classifier = Classifier("parabel", min_df=1).fit(texts, labels)
    >>> classifier.predict(["stars above the moon"], k=1)
    [['space']]
    """

    def __init__(self, method: str | Method = "parabel", **parameters: Any):
        self.set_params(method=method, **parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the hyper-parameters.

        Parameters
        ----------
        deep
            Return all of them; otherwise only those that were set, which `clone` copies.

        Returns
        -------
        dict of str to object
            The method and its hyper-parameters by name.
        """
        values = {
            name: value for name, (_, value) in collect_all_parameters(self.method, self._stored_parameters()).items()
        }
        explicit = {name: value for name, value in self._stored_parameters().items() if name in values}
        conventions = {name: vars(self)[name] for name in CONVENTIONS if name in vars(self)}
        return {"method": self.method} | (values if deep else {}) | explicit | conventions

    def set_params(self, /, **parameters: Any) -> Classifier:
        """Set hyper-parameters, which are validated at once.

        Parameters of another method are kept until that method is set again; a clone does not have them.

        Parameters
        ----------
        **parameters
            The method, and hyper-parameters by name.

        Returns
        -------
        Classifier
            This object.
        """
        method = parameters.pop("method") if "method" in parameters else self.method
        conventions = {name: parameters.pop(name) for name in CONVENTIONS if name in parameters}
        check_conventions(**conventions)
        named = {name.replace("__", "."): value for name, value in parameters.items()}
        check_parameter_names(method, named, self._stored_parameters() | named)
        self.__dict__.update(method=method, **named, **conventions)
        return self

    def _stored_parameters(self) -> dict[str, Any]:
        """Return all parameters that were set, including those of other methods."""
        fitted = [name for name in vars(self) if name.endswith("_") or name.startswith("_")]
        return {name: value for name, value in vars(self).items() if name not in ("method", *CONVENTIONS, *fitted)}

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        valid: tuple[Any, Any] | Corpus | None = None,
        run: Run = Run(),
        keep_training: bool | None = False,
    ) -> Classifier:
        """Train on documents.

        Parameters
        ----------
        X
            Documents: texts, a feature matrix, or a corpus, which includes labels.
        y
            Labels; None with a corpus.
        sample_weight
            Weight of each document, for label trees and most one-vs-all methods. A document of weight 0 is left out,
            and so are labels that only such documents have, except the columns of an indicator and, with one label per
            document, as in scikit-learn, all labels in y.
        valid
            Validation documents for early stopping and calibration: a corpus or a pair (X, y).
        run
            Threads, device, checkpoint and progress.
        keep_training
            Whether to keep ids, features and labels of the documents for `partial_fit` and `xmtc update`; None keeps
            them up to 200 MiB.

        Returns
        -------
        Classifier
            This object, trained.

        Raises
        ------
        XmtcError
            If documents, labels or hyper-parameters are not valid.
        """
        from xmtc.core.numba_support import log_compilation

        check_run(run)
        log_compilation()
        run, X = self._apply_jobs(run), as_corpus(X, y)
        target, documents, pipeline = self._prepare_training(X, y)
        classes = None if target is None else target.columns
        numbers = "" if target is None or not target.has_integer_labels else target.kind
        valid_documents = None
        if valid is not None:
            valid_documents = self._to_documents(*as_documents_and_labels(valid), classes, numbers)
        weights = None if sample_weight is None else np.asarray(sample_weight)
        parts: list[Convergence] = []
        run = replace(run, callbacks=(*run.callback_tuple, partial(collect_convergence, parts)))
        tagger = pipeline.fit(
            documents, valid_documents, run, classes=classes, weights=weights, keep_training=keep_training
        )
        if target is not None and target.as_json():
            tagger = replace(tagger, about=tagger.about | {"target": target.as_json()})
        if hasattr(self, "feature_names_in_"):
            tagger = replace(tagger, about=tagger.about | {"feature_names": self.feature_names_in_.tolist()})
        self.tagger_: Tagger = tagger
        self.__dict__.pop("n_iter_", None)
        convergence = merge_convergence(parts)
        if convergence.n_classifiers:
            self.n_iter_ = convergence.n_passes  # maximum number of passes of a linear solver
        if convergence.warning:
            warnings.warn(convergence.warning, ConvergenceWarning, stacklevel=2)
        return self

    def _prepare_training(self, X: Any, y: Any) -> tuple[LabelTarget | None, Iterable[Document], Pipeline]:
        """Return the form of the labels, the documents, and the pipeline to train."""
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

    def _apply_jobs(self, run: Run) -> Run:
        """Return the run with the threads of `n_jobs`, unless the run names their number itself."""
        n_jobs = vars(self).get("n_jobs")
        if n_jobs is None or run.threads:
            return run
        return replace(run, threads=n_jobs if n_jobs > 0 else max(1, run.n_threads + 1 + n_jobs))

    def _build_pipeline(self, content: str, n_columns: int) -> Pipeline:
        parameters = self._stored_parameters()
        if vars(self).get("random_state") is not None:
            parameters = {"seed": self.random_state} | parameters
        if content == FEATURES:
            parameters = {"n_columns": n_columns} | parameters
        parameters = select_applicable_parameters(self.method, content, parameters)
        return Pipeline.from_parameters(self.method, content, parameters)

    def _to_documents(
        self, X: Any, y: Any = None, label_names: Sequence[str] | None = None, numeric_target_kind: str = ""
    ) -> Iterable[Document]:
        """Return documents, with labels if y is given.

        `label_names` are the columns of an indicator; `numeric_target_kind` is the form of the training labels if
        these were numbers.
        """
        if is_corpus_like(X):
            if y is not None:
                raise XmtcError("Found y together with a corpus, which has labels itself; leave y out.")
            return X
        target = None if y is None else as_label_target(y, label_names, numeric_target_kind)
        if target is not None and numeric_target_kind and label_names is not None:
            check_numeric_labels(target, label_names)
        return list(iter_documents(self._validate_documents(X), None if target is None else target.labels))

    def _validate_documents(self, X: Any, reset: bool = False) -> list[str] | csr_array:
        documents = as_texts_or_matrix(X)
        if isinstance(documents, list):
            return documents
        if hasattr(documents, "check_format"):  # scikit-learn does not validate the indices of a sparse matrix
            documents = validate_sparse_matrix(documents, "X")
        check_finite_rows(documents)
        if not reset and hasattr(self, "feature_names_in_"):
            check_column_order(documents, self.feature_names_in_)
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # an overflow of float32 is refused as infinite
                matrix = validate_data(
                    self, documents, accept_sparse="csr", dtype=np.float32, ensure_min_samples=0, reset=reset
                )
        except ValueError as error:
            raise XmtcError(str(error)) from None
        return csr_array(matrix)

    def predict(
        self,
        X: Any,
        k: int | None = None,
        threshold: Threshold | None = None,
        run: Run = Run(),
        *,
        always: bool = False,
    ) -> Any:
        """Return the labels of each document in the form of the training labels.

        Parameters
        ----------
        X
            Documents.
        k
            Maximum number of labels per document: by default 5 for lists of names, all for an indicator.
        threshold
            Minimum score: by default 0 for lists of names, 0.5 for an indicator. "tuned" applies the thresholds that
            `tune_thresholds` tuned, which is the default if the model has some and k is not given.
        run
            Threads and device.
        always
            Also predict for texts without any known word, which otherwise get no labels.

        Returns
        -------
        list of list, array, sparse array or data frame
            Trained on lists of names: names, best first. Trained on an indicator: an indicator of the same kind.
            Trained on one label per document: one label per document, whatever its text, as an array of the same
            number of dimensions.

        Examples
        --------
        >>> from xmtc import Classifier
        >>> classifier = Classifier(min_df=1).fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
        >>> classifier.predict(["an apple", "the sky"], k=1)
        [['fruit'], ['weather']]
        """
        kind = self._target_description()["kind"]
        if k is None and threshold is None and self._fitted_tagger().decision is not None:
            threshold = "tuned"
        if kind == LISTS:
            k = DEFAULT_K if k is None else k
            tags_by_document = self.predict_labels(X, k, threshold or 0.0, run, always=always)
            return [[tag.label for tag in tags] for tags in tags_by_document]
        if kind in SINGLE_LABELS:
            best = self.rank(X, 1, run).labels
            column = self.classes_[np.where(best == NO_LABEL, self._fitted_tagger().frequencies.argmax(), best)]
            return column if kind == COLUMN else column[:, 0]
        indicator = to_sparse_matrix(
            self._predict_indicator(X, k, threshold, run, always), self._n_labels, should_binarise=True
        )
        if kind == SPARSE:
            return indicator
        check_matrix_memory(indicator.shape[0], indicator.shape[1], indicator.dtype.itemsize)
        return as_data_frame(X, indicator.toarray(), self.classes_) if kind == FRAME else indicator.toarray()

    def predict_table(
        self, table: Any, k: int = DEFAULT_K, threshold: Threshold = 0.0, run: Run = Run(), column: str = "predictions"
    ) -> Any:
        """Return a table with the labels of its documents in a further column.

        Parameters
        ----------
        table
            Data frame of pandas or polars, Arrow table, relation of DuckDB, or data set of Hugging Face, with a column
            `text` or a single column of texts.
        k
            Maximum number of labels per document.
        threshold
            Minimum score, or "tuned".
        run
            Threads and device.
        column
            Name of the new column, which has a list of labels per document, best first.

        Returns
        -------
        table
            Table of the same library; an Arrow table for a relation of DuckDB.
        """
        tags = self.predict_labels(table, k, threshold, run)
        return add_column(table, column, [[tag.label for tag in document] for document in tags])

    def _predict_indicator(
        self, X: Any, k: int | None, threshold: Threshold | None, run: Run, always: bool
    ) -> Predictions:
        tagger = self._fitted_tagger()
        if isinstance(threshold, str):
            return tagger.predict(self._to_documents(X), run=run, threshold=threshold, always=always)
        if k is not None:
            return self.rank(X, k, run, always=always).apply_threshold(0.0 if threshold is None else threshold)
        minimum = INDICATOR_THRESHOLD if threshold is None else threshold
        return self._predict_above_threshold(X, minimum, run, always).apply_threshold(minimum)

    def _predict_above_threshold(self, X: Any, threshold: float, run: Run, always: bool) -> Predictions:
        """Return enough labels that the last one of every document is below the threshold."""
        documents, n_labels, k = list(self._to_documents(X)), self._n_labels, INITIAL_SEARCH_LABELS
        while True:
            predictions = self._fitted_tagger().predict(documents, min(k, n_labels), run, always=always)
            if k >= n_labels or not predictions.n_docs or predictions.scores[:, -1].max() < threshold:
                return predictions
            k *= 10
            check_matrix_memory(len(documents), min(k, n_labels), 2 * np.dtype(np.float32).itemsize)

    def predict_proba(self, X: Any, k: int | None = None, run: Run = Run(), *, always: bool = False) -> Any:
        """Return the scores of all labels in the order of `classes_`, (n_docs, n_labels) float32.

        Parameters
        ----------
        X
            Documents.
        k
            Number of best labels per document. With it the result is a sparse matrix of their scores, for label sets
            whose scores do not fit in memory.
        run
            Threads and device.
        always
            Also predict for texts without any known word, whose scores otherwise are 0.

        Returns
        -------
        array or sparse array
            0 where the method did not compute a score. Trained on a vector with one label per document, the scores of
            a document are divided by their sum, which is then 1.

        Examples
        --------
        >>> from xmtc import Classifier
        >>> classifier = Classifier(min_df=1).fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
        >>> classifier.predict_proba(["an apple"]).shape
        (1, 2)
        """
        documents, n_labels = list(self._to_documents(X)), self._n_labels
        rank = partial(self._fitted_tagger().predict, always=self._should_always_predict(always))
        if k is not None:
            return to_sparse_matrix(rank(documents, k, run), n_labels)
        check_matrix_memory(len(documents), n_labels, np.dtype(np.float32).itemsize)
        scores = compute_dense_scores(rank, documents, n_labels, run)
        if self._target_description()["kind"] not in SINGLE_LABELS:
            return scores
        rows = np.flatnonzero(~scores.any(axis=1))  # the label of `predict` has the highest score there, too
        best = rank([documents[row] for row in rows.tolist()], 1, run).labels[:, 0]
        scores[rows] = np.where(best[:, None] == NO_LABEL, self._fitted_tagger().frequencies, 0)
        scores[rows[best != NO_LABEL], best[best != NO_LABEL]] = 1
        return scores / scores.sum(axis=1, keepdims=True)

    def decision_function(self, X: Any, run: Run = Run()) -> np.ndarray:
        """Return the scores minus 0.5: positive where `predict` returns 1 without tuned thresholds.

        Parameters
        ----------
        X
            Documents.
        run
            Threads and device.

        Returns
        -------
        array of float32, shape (n_docs, n_labels)
            Trained on a vector with two classes, the scores of the second class, shape (n_docs,).
        """
        scores = self.predict_proba(X, run=run) - np.float32(INDICATOR_THRESHOLD)
        is_binary = self._target_description()["kind"] == VECTOR and scores.shape[1] == 2
        return scores[:, 1] if is_binary else scores

    def predict_labels(
        self,
        X: Any,
        k: int = DEFAULT_K,
        threshold: Threshold = 0.0,
        run: Run = Run(),
        *,
        always: bool = False,
        language: str | None = None,
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
    ) -> list[list[Tag]]:
        """Return the best labels of each document with scores and, with a vocabulary, names.

        Parameters
        ----------
        X
            Documents.
        k, threshold, run, always, language, allow, deny
            As in `Tagger.predict_labels`.

        Returns
        -------
        list of list of Tag
            One list per document, best first.

        Examples
        --------
        >>> from xmtc import Classifier
        >>> classifier = Classifier(min_df=1).fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
        >>> [[tag]] = classifier.predict_labels(["an apple"], k=1)
        >>> tag.label
        'fruit'
        """
        always = self._should_always_predict(always)
        tags_by_document = self._fitted_tagger().predict_labels(
            self._to_documents(X), k, threshold, run, always=always, language=language, allow=allow, deny=deny
        )
        if not self._target_description()["numbers"]:
            return tags_by_document
        return [
            [Tag(int(tag.label), tag.score, tag.name) for tag in tags]  # type: ignore[arg-type]
            for tags in tags_by_document
        ]

    def tune_thresholds(
        self,
        X: Any,
        y: Any = None,
        goal: str = "f1",
        by: str | None = None,
        run: Run = Run(),
        *,
        publish: str | None = None,
        confidence: float = DEFAULT_CONFIDENCE,
    ) -> Classifier:
        """Tune decision thresholds on documents that the Classifier was not trained on.

        `predict` uses them from then on, and the model folder keeps them. A further `fit` drops them.

        Parameters
        ----------
        X, y
            Documents and their labels; a corpus has both.
        goal
            "f1" (mean over documents), "micro-f1", "macro-f1", "precision=0.9", "recall=0.8" or "tags=5".
        by
            "all" for one threshold, "label" for one per label, "document" for a number of labels per document that
            maximises expected F1; by default the best of them.
        run
            Threads and device.
        publish
            Mean metric of documents that are published without a person, such as "precision=0.9", which
            `tagger_.predict_with_quality` marks; thresholds are then tuned on half of the documents, and the promise is
            tested on the other half.
        confidence
            Confidence in the promise.

        Returns
        -------
        Classifier
            This object.
        """
        promise = None if publish is None else parse_promise(publish, confidence)
        documents, always = self._to_labelled_documents(X, y), self._should_always_predict()
        self.tagger_ = tune_tagger_thresholds(
            self._fitted_tagger(), documents, goal, by, run, always=always, promise=promise
        ).tagger
        return self

    def attach(self, vocabulary: Vocabulary, language: str | None = None) -> Classifier:
        """Attach a vocabulary of the labels, which the model folder keeps.

        Parameters
        ----------
        vocabulary
            Vocabulary that has the labels as concepts.
        language
            Default language of label names; the first language of the vocabulary by default.

        Returns
        -------
        Classifier
            This object.
        """
        self.tagger_ = self._fitted_tagger().with_vocabulary(vocabulary, language)
        return self

    def rank(self, X: Any, k: int = DEFAULT_K, run: Run = Run(), *, always: bool = False) -> Predictions:
        """Return label numbers and scores as two arrays.

        Parameters
        ----------
        X
            Documents.
        k
            Number of labels per document.
        run
            Threads and device.
        always
            Also predict for texts without any known word.

        Returns
        -------
        Predictions
            Label numbers, which are indices into `classes_`, and their scores, best first.

        Examples
        --------
        >>> from xmtc import Classifier
        >>> classifier = Classifier(min_df=1).fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
        >>> classifier.classes_[classifier.rank(["an apple"], k=2).labels].tolist()
        [['fruit', 'weather']]
        """
        tagger = self._fitted_tagger()
        return tagger.predict(self._to_documents(X), k, run, always=self._should_always_predict(always))

    def evaluate(
        self, X: Any, y: Any = None, metrics: str | Sequence[str] = DEFAULT_METRICS, run: Run = Run()
    ) -> dict[str, float]:
        """Return metrics of the predictions for labelled documents, as fractions.

        Parameters
        ----------
        X, y
            Documents and their labels; a corpus has both.
        metrics
            Metric names, such as "P@1" or "nDCG@5".
        run
            Threads and device.

        Returns
        -------
        dict of str to float
            Value of each metric, from 0 to 1.

        Examples
        --------
        >>> from xmtc import Classifier
        >>> texts, labels = ["red apple", "blue sky"], [["fruit"], ["weather"]]
        >>> Classifier(min_df=1).fit(texts, labels).evaluate(texts, labels, "P@1")
        {'P@1': 1.0}
        """
        metrics = [metrics] if isinstance(metrics, str) else metrics
        documents, always = self._to_labelled_documents(X, y), self._should_always_predict()
        return self._fitted_tagger().evaluate(documents, metrics, run=run, always=always)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return nDCG@5, for scikit-learn's searches; trained on a vector with one label per document, the accuracy.

        Parameters
        ----------
        X, y
            Documents and their labels; a corpus has both.
        sample_weight
            Weight of each document.

        Returns
        -------
        float
            Mean over documents, from 0 to 1.
        """
        tagger, name = self._fitted_tagger(), "nDCG@5"
        if self._target_description()["kind"] == VECTOR:
            name = "P@1"
        if sample_weight is None:
            return self.evaluate(X, y, name)[name]
        data, Y, _ = tagger.transform_labelled(self._to_labelled_documents(X, y))
        predictions = tagger.predict(data, 5, always=self._should_always_predict())
        values = evaluation.evaluate_per_document(predictions, Y, [name])[name]
        return float(np.average(values, weights=as_document_weights(sample_weight, len(values))))

    def _to_labelled_documents(self, X: Any, y: Any) -> Iterable[Document]:
        X = as_corpus(X, y)
        if y is None and not is_corpus_like(X):
            raise XmtcError("Found no labels to compare with; give y, or a corpus with labels.")
        target = self._target_description()
        return self._to_documents(
            X, y, self._fitted_tagger().labels.words(), target["kind"] if target["numbers"] else ""
        )

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        forget: Iterable[str] = (),
        remove_labels: Iterable[str] = (),
        run: Run = Run(),
    ) -> Classifier:
        """Learn new documents, and new versions of known ones.

        The first call trains like `fit` and keeps the training documents (ids, features and labels, no texts), which
        later calls need. A document with a known id, or without ids with the same content, replaces its old version.

        Parameters
        ----------
        X, y
            Documents and their labels; a corpus has both. Lists of names may have new labels.
        forget
            Ids of documents to leave out.
        remove_labels
            Labels to leave out.
        run
            Threads and device.

        Examples
        --------
        >>> from xmtc import Classifier
        >>> classifier = Classifier(min_df=1).partial_fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
        >>> classifier.partial_fit(["apple trees", "sky"], [["garden", "fruit"], ["weather"]]).classes_.tolist()
        ['fruit', 'garden', 'weather']
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(X, y, run=run, keep_training=True)
        documents = self._to_labelled_documents(X, y)
        updated = update_tagger(self.tagger_, documents, forget=forget, remove_labels=remove_labels, run=run)
        self.tagger_ = updated.tagger
        return self

    def explain(self, text: str, label: str, n: int = 20) -> list[tuple[str, float]]:
        """Return the words with the largest contributions to the score of a label.

        Parameters
        ----------
        text
            Text to explain.
        label
            Label to explain.
        n
            Maximum number of words.

        Returns
        -------
        list of (str, float)
            Words and their contributions, largest first.

        Examples
        --------
        >>> from xmtc import Classifier
        >>> classifier = Classifier(min_df=1).fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
        >>> sorted(word for word, weight in classifier.explain("a red apple", "fruit"))
        ['apple', 'red']
        """
        return self._fitted_tagger().explain(text, str(label), n)

    def highlight(
        self, text: str, *labels: str, k: int = 3, n: int = 20, run: Run = Run(), language: str | None = None
    ) -> list[Highlight]:
        """Return the weight of each word of a text, for each label or for the best k.

        Parameters
        ----------
        text, *labels, k, n, run, language
            As in `Tagger.highlight`.

        Returns
        -------
        list of Highlight
            One per label; a notebook shows it as HTML.
        """
        return self._fitted_tagger().highlight(text, *map(str, labels), k=k, n=n, run=run, language=language)

    def save(self, folder: str | Path) -> None:
        """Write a model folder, which `load`, `Tagger.load` and the command `xmtc` open.

        Parameters
        ----------
        folder
            Folder to write. A model in it is replaced; a folder with anything else is refused.
        """
        self._fitted_tagger().save(folder)

    @classmethod
    def load(cls, folder: str | Path, verify: bool = False) -> Classifier:
        """Open a model folder as a trained Classifier.

        Parameters
        ----------
        folder
            Model folder.
        verify
            Read every byte and compare checksums.

        Returns
        -------
        Classifier
            The trained Classifier.

        Examples
        --------
        >>> import tempfile
        >>> from xmtc import Classifier
        >>> classifier = Classifier(min_df=1).fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     classifier.save(f"{folder}/model")
        ...     Classifier.load(f"{folder}/model").predict(["an apple"], k=1)
        [['fruit']]
        """
        tagger = Tagger.load(folder, verify)
        classifier = cls(tagger.about["method"], **load_saved_parameters(tagger, folder))
        classifier.tagger_ = tagger
        if "columns" in tagger.views:
            classifier.n_features_in_ = tagger.views["columns"].n_inputs
            classifier._restore_feature_names(folder)
        return classifier

    @classmethod
    def from_pretrained(cls, name: str | Path, revision: str | None = None) -> Classifier:
        """Open a model folder, or a model of the Hugging Face Hub (`hf:user/name`), which is kept in the cache.

        Nothing of the model is executed."""
        return cls.load(cache_model(str(name), revision=revision) if str(name).startswith(HUB_PREFIX) else name)

    save_pretrained = save

    def push_to_hub(self, name: str, *, private: bool = False, **card: Any) -> str:
        """Upload the model with a model card to the Hugging Face Hub, and return its address.

        `card` are options of `xmtc.hub.model_card.render_model_card`: report, license and intended_use."""
        with TemporaryDirectory() as folder:
            self.save(Path(folder) / "model")
            return push_model(
                Path(folder) / "model", name, render_card(Path(folder) / "model", name, **card), private=private
            )

    def _restore_feature_names(self, folder: str | Path) -> None:
        names = self.tagger_.about.get("feature_names")
        if names is None:
            return
        if len(names) != self.n_features_in_:
            raise damaged_model_error(
                Path(folder), f"it has {self.n_features_in_} columns and {len(names)} names of columns"
            )
        self.feature_names_in_ = np.array(names, object)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        explicit = (f"{name}={value!r}" for name, value in self.get_params(deep=False).items() if name != "method")
        return f"{type(self).__name__}({', '.join([repr(self.method), *explicit])})"

    @property
    def history_(self) -> tuple[dict[str, Any], ...]:
        """Events of the training, one dict per stage or pass; `pandas.DataFrame(classifier.history_)` shows them."""
        return self._fitted_tagger().history

    @property
    def analyzer_(self) -> str:
        """Analyzer of the texts; the selected one for analyzer=auto, whose reason is in `tagger_.about["chosen"]`."""
        about = self._fitted_tagger().about
        analyzers = [view["analyzer"] for view in about["views"].values() if "analyzer" in view]
        if not analyzers:
            raise AttributeError("The model does not read tf-idf of texts, so it has no analyzer.")
        return about["chosen"]["analyzer"] if "chosen" in about else analyzers[0]

    @property
    def coef_(self) -> csr_array:
        """Weights of the labels of a one-vs-all model, shape (n_labels, n_features), sparse.

        Other methods have no `coef_`: the score of a label depends on all classifiers of its path in a label tree."""
        return csr_array(self._flat_arrays().weights.T)

    @property
    def intercept_(self) -> np.ndarray:
        """Biases of the labels of a one-vs-all model, shape (n_labels,)."""
        return self._flat_arrays().bias

    def _flat_arrays(self) -> LinearArrays:
        """Return the arrays of a one-vs-all model by label; raise AttributeError for another model."""
        method = self._fitted_tagger().about["method"]
        try:
            arrays = extract_arrays(self._fitted_tagger().with_filter())
        except XmtcError:
            raise AttributeError(f"{method} is not a linear model, so it has no coef_ and intercept_.") from None
        if arrays.n_trees > 1 or arrays.link != "logistic" or len(arrays.list_levels()):
            raise AttributeError(f"{method} has label trees, so it has no coef_ and intercept_.")
        order = np.argsort(arrays.slot_labels)
        return replace(arrays, weights=csr_array(arrays.weights[:, order]), bias=arrays.bias[order])

    @property
    def classes_(self) -> np.ndarray:
        """Labels in the order of their numbers; the columns of an indicator."""
        names = self._fitted_tagger().labels.words()
        return np.array(list(map(int, names))) if self._target_description()["numbers"] else np.array(names, object)

    @property
    def _n_labels(self) -> int:
        return len(self._fitted_tagger().labels)

    def _target_description(self) -> dict[str, Any]:
        """Return the form of the training labels, in which `predict` returns labels."""
        return self._fitted_tagger().about.get("target", {"kind": LISTS, "numbers": False})

    def _should_always_predict(self, always: bool = False) -> bool:
        """Return True if texts without known words get labels; a column or vector needs one for each document."""
        return always or self._target_description()["kind"] in SINGLE_LABELS

    def _fitted_tagger(self) -> Tagger:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                "This Classifier is not trained yet; call fit(texts, labels) or Classifier.load(folder)."
            )
        return self.tagger_

    def __sklearn_is_fitted__(self) -> bool:
        return "tagger_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        # scikit-learn refuses lists of names as labels of a classifier, so the estimator type is set only after
        # training on an indicator or on a vector.
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.sparse = True, True
        tags.classifier_tags = ClassifierTags(multi_class=True, multi_label=True)
        tags.target_tags.required, tags.target_tags.multi_output, tags.target_tags.single_output = True, True, True
        if self.__sklearn_is_fitted__() and self._target_description()["kind"] in (*INDICATORS, VECTOR):
            tags.estimator_type = "classifier"
        return tags


def check_conventions(n_jobs: Any = None, random_state: Any = None) -> None:
    """Raise XmtcError for values of scikit-learn's parameters that have no meaning here."""
    if not (n_jobs is None or (isinstance(n_jobs, (int, np.integer)) and n_jobs != 0)):
        raise XmtcError(f"n_jobs={n_jobs!r:.100} is no number of threads; expected None, a positive number or -1.")
    if not (random_state is None or (isinstance(random_state, (int, np.integer)) and random_state >= 0)):
        raise XmtcError(
            f"random_state={random_state!r:.100} is not reproducible; expected None or an integer, the seed."
        )


def as_documents_and_labels(valid: Any) -> tuple[Any, Any]:
    """Return validation documents and their labels, which are None with a corpus."""
    valid = as_corpus(valid, None)
    if is_corpus_like(valid):
        return valid, None
    if not isinstance(valid, Sequence) or len(valid) != 2:
        raise XmtcError("valid is not a pair of documents and labels; expected (texts, labels) or a corpus.")
    return valid[0], valid[1]


def check_numeric_labels(target: LabelTarget, names: Sequence[str]) -> None:
    """Raise XmtcError for label names if the model was trained on numbers: all would count as missed."""
    unknown = {label for labels in target.labels for label in labels}
    if unknown and not target.has_integer_labels and unknown.isdisjoint(names):
        raise XmtcError(
            f"Found label names, such as {min(unknown)!r}, but the model was trained on label numbers; give numbers, "
            "or train on names: on a data frame or on lists."
        )


def check_finite_rows(X: Any) -> None:
    """Raise XmtcError with the row and the column of the first NaN or infinite number of a feature matrix."""
    if issparse(X):
        matrix = coo_array(X)
        bad: Any = np.flatnonzero(~np.isfinite(matrix.data)) if matrix.data.dtype.kind == "f" else []
        found = [(matrix.row[i], matrix.col[i], matrix.data[i]) for i in bad[:1]]
    else:
        try:
            numbers = np.asarray(X, np.float64)
        except (TypeError, ValueError):
            return  # validate_data describes other types
        found = [(*place, numbers[tuple(place)]) for place in np.argwhere(~np.isfinite(numbers))[:1]]
        found = found if numbers.ndim == 2 else []
    for row, column, value in found:
        name = f"column {X.columns[column]!r}" if is_frame(X) else f"column {column}"
        shown = "NaN" if np.isnan(value) else f"{value:g} (infinity)"
        raise XmtcError(
            f"X has {shown} in row {row}, {name}; expected finite numbers: fill such values, as with scikit-learn's "
            "SimpleImputer, or drop those rows."
        )


def check_column_order(X: Any, names: np.ndarray) -> None:
    """Raise XmtcError with the first column whose name is not that of training; arrays without names pass."""
    if not is_frame(X) or not all(isinstance(name, str) for name in X.columns):
        return
    for number, (found, expected) in enumerate(zip(X.columns, names, strict=False)):
        if found != expected:
            raise XmtcError(
                f"The feature names should match those that were passed during fit: column {number} is {found!r}, "
                f"expected {expected!r}; give the columns in the order of training, X[classifier.feature_names_in_]."
            )


def as_data_frame(X: Any, indicator: np.ndarray, columns: np.ndarray) -> Any:
    """Return an indicator as a data frame with the label names and, if X is a data frame, its index."""
    try:
        import pandas
    except ImportError:
        raise XmtcError(
            "The model was trained on labels in a data frame and returns one, which needs pandas; run "
            "`pip install pandas`, or call predict_proba."
        ) from None
    return pandas.DataFrame(indicator, columns=columns, index=X.index if hasattr(X, "iloc") else None)
