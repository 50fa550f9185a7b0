"""A trained pipeline: views of a text, label names, and the Model between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xmtc import evaluation, features, model_folder
from xmtc.core.dataset import Dataset
from xmtc.core.label_masks import predict_allowed
from xmtc.core.method import Explanation, Model
from xmtc.core.predictions import NO_LABEL, Predictions, check_k
from xmtc.core.run import Run
from xmtc.core.training_store import TrainingStore
from xmtc.data.document import Document, as_documents
from xmtc.data.label_collector import LabelCollector
from xmtc.errors import XmtcError, find_similar_names, truncate_text
from xmtc.explain.highlights import Highlight, highlight
from xmtc.explain.word_weights import sum_by_word, weigh_words
from xmtc.features import FEATURES, FittedViews, view_class
from xmtc.features.unknown_words import measure_unknown_words
from xmtc.scores import LabelSelector
from xmtc.scores.drift import (
    MIN_DRIFT_DOCUMENTS,
    REFERENCE_DEPTH,
    DriftReference,
    DriftReport,
    Observations,
    compare_with_reference,
)
from xmtc.scores.quality import QualityEstimates
from xmtc.scores.thresholds import fingerprint_model
from xmtc.storage.form import check_finite
from xmtc.text.normalisation import normalize_unicode
from xmtc.text.string_index import StringIndex
from xmtc.vocabulary import Vocabulary
from xmtc.vocabulary.label_concepts import LabelConcepts
from xmtc.vocabulary.label_filters import select_allowed_labels

STRUCTURE_KEYS = ("format", "files", "parts", "attached")  # of about.json, not of the model
LABEL_SCORE_DEPTH = 1000  # ranks searched for the score of a label that the caller named

Documents = Iterable[str] | Iterable[Document]
Threshold = float | Literal["tuned"]


class LabelScore(NamedTuple):
    label: str
    score: float


class Tag(LabelScore):
    """A predicted label: a pair (label, score) with a name.

    Parameters
    ----------
    label : str
        Label, as in the training corpus.
    score : float
        Score, a probability if the model is calibrated.
    name : str, optional
        Name of the label; None without a vocabulary.

    Examples
    --------
    >>> label, score = Tag("c_1309", 0.93, name="citrus fruit")
    >>> label
    'c_1309'
    """

    name: str | None

    def __new__(cls, label: str, score: float, name: str | None = None) -> Tag:
        tag = super().__new__(cls, label, score)
        tag.name = name  # an attribute, so that a Tag still unpacks as a pair
        return tag

    def __repr__(self) -> str:
        name = "" if self.name is None else f", name={self.name!r}"
        return f"Tag(label={self.label!r}, score={self.score!r}{name})"


class LabelledData(NamedTuple):
    """Features of documents and their true labels."""

    data: Dataset
    Y: csr_array  # (n_docs, n_labels + n_unseen); labels that training never saw have the last columns
    unseen_labels: list[str]  # names of the last columns


@dataclass(frozen=True)
class Tagger:
    """A trained model that knows words and label names; `Tagger.load` opens one, `Pipeline.fit` trains one.

    Examples
    --------
    >>> from xmtc import Document, train
    >>> documents = [Document("1", "pears and apples", ["fruit"]), Document("2", "a trip to the moon", ["space"])]
    >>> tagger = train(documents, "parabel", min_df=1)
    >>> [[tag.label for tag in tags] for tags in tagger.predict_labels(["apples"], k=1)]
    [['fruit']]
    """

    views: FittedViews  # by name, those that the model reads
    labels: StringIndex  # label names by number, sorted
    frequencies: np.ndarray  # (n_labels,) int64, number of training documents of each label
    model: Model
    about: dict[str, Any]  # method, parameters, provenance: the content of about.json
    unchecked: Path | None = None  # folder it was loaded from, until `check` has validated the arrays
    history: tuple[dict[str, Any], ...] = field(default=(), compare=False)  # events of the training
    concepts: LabelConcepts | None = None  # concepts of the labels, if a vocabulary is attached
    allowed: np.ndarray | None = None  # (n_labels,) bool, labels that may be predicted; None: all
    decision: LabelSelector | None = None  # tuned thresholds, if there are any
    reference: DriftReference | None = None  # predictions for held-out documents, to compare new texts with
    training: TrainingStore | None = field(default=None, repr=False, compare=False)  # documents, kept for updates

    def __repr__(self) -> str:
        sizes = [f"{view.size:,} {get_view_unit(name)}" for name, view in self.views.items()]
        trained = f"trained on {self.about['n_docs']:,} documents"
        return f"Tagger({', '.join([self.about['method'], f'{len(self.labels):,} labels', *sizes, trained])})"

    def predict_labels(
        self,
        documents: Documents | Dataset,
        k: int = 5,
        threshold: Threshold = 0.0,
        run: Run = Run(),
        *,
        always: bool = False,
        language: str | None = None,
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
    ) -> list[list[Tag]]:
        """Return the best labels of each document, best first.

        Parameters
        ----------
        documents
            Texts, Documents, or the Dataset that `transform` returned.
        k
            Maximum number of labels per document; ignored with tuned thresholds.
        threshold
            Minimum score, or "tuned" for the thresholds that `xmtc thresholds` tuned.
        run
            Threads and device.
        always
            Also predict for documents without any known word, which otherwise get no labels.
        language
            Language of the label names, if the model has a vocabulary.
        allow, deny
            Labels to choose from and labels to leave out: labels or filters such as `branch:…`.

        Returns
        -------
        list of list of Tag
            One list per document.
        """
        allowed = self.build_label_mask(allow, deny)
        predictions = self.predict(documents, k, run, threshold=threshold, allowed=allowed, always=always)
        return self.to_tags(predictions, language)

    def predict(
        self,
        documents: Documents | Dataset,
        k: int = 5,
        run: Run = Run(),
        *,
        threshold: Threshold | None = None,
        allowed: np.ndarray | None = None,
        always: bool = False,
    ) -> Predictions:
        """Return label numbers and scores of documents as two arrays.

        Parameters
        ----------
        documents
            Texts, Documents, or the Dataset that `transform` returned.
        k
            Number of labels per document; ignored with tuned thresholds.
        run
            Threads and device.
        threshold
            Minimum score, or "tuned" for the thresholds that `xmtc thresholds` tuned.
        allowed
            Labels to choose from, (n_labels,) bool; by default those that the model's own filter allows.
        always
            Also predict for documents without any known word, which otherwise get no labels.

        Raises
        ------
        XmtcError
            If `threshold` is "tuned" and the model has no tuned thresholds for its current scores.

        Returns
        -------
        Predictions
            Label numbers, which are indices into `labels`, and their scores, best first.
        """
        allowed = self.allowed if allowed is None else allowed
        if isinstance(threshold, str):
            check_threshold_name(threshold)
            decision = self.require_decision()
            return decision(self._predict(self._as_dataset(documents, run), decision.depth, run, allowed, always))
        check_k(k)
        predictions = self._predict(self._as_dataset(documents, run), k, run, allowed, always)
        return predictions if threshold is None else predictions.apply_threshold(threshold)

    def predict_with_quality(
        self,
        documents: Documents | Dataset,
        run: Run = Run(),
        *,
        allowed: np.ndarray | None = None,
        always: bool = False,
    ) -> tuple[Predictions, QualityEstimates]:
        """Return the labels above the tuned thresholds, and the quality estimates of the model's gate.

        Parameters
        ----------
        documents
            Texts, Documents, or the Dataset that `transform` returned.
        run
            Threads and device.
        allowed
            Labels to choose from, (n_labels,) bool; by default those that the model's own filter allows.
        always
            Also predict for documents without any known word, which otherwise get no labels.

        Raises
        ------
        XmtcError
            If the model has no gate for its current scores.

        Returns
        -------
        Predictions
            Label numbers and their scores, best first.
        QualityEstimates
            Estimated precision, recall and F1 of each document, and whether it is published without a person.
        """
        decision = self.require_decision()
        if not decision.gate:
            raise XmtcError(
                "The model has no gate; `xmtc thresholds MODEL CORPUS --publish precision=0.9` tests one on labelled "
                "documents."
            )
        allowed = self.allowed if allowed is None else allowed
        ranked = self._predict(self._as_dataset(documents, run), decision.depth, run, allowed, always)
        selected = decision(ranked)
        return selected, decision.gate[0].estimate(ranked, selected)

    @property
    def has_gate(self) -> bool:
        """True if `predict_with_quality` can estimate the quality of tags."""
        return self.decision is not None and bool(self.decision.gate)

    def _predict(self, data: Dataset, k: int, run: Run, allowed: np.ndarray | None, always: bool) -> Predictions:
        """Return the best k labels; `allowed` None applies no filter, not even the model's own."""
        if allowed is None:
            predictions = self.model.predict(data, k, run)
        else:
            predictions = predict_allowed(self.model, data, k, allowed, run)
        require_finite_scores(predictions)
        if always:
            return predictions
        return predictions.mask_documents(features.mark_known_documents(self.views, data))

    def _as_dataset(self, documents: Documents | Dataset, run: Run) -> Dataset:
        return documents if isinstance(documents, Dataset) else self.transform(documents, run)

    def require_decision(self) -> LabelSelector:
        """Return the tuned thresholds; raise XmtcError if there are none or they were tuned on other scores."""
        if self.decision is None:
            raise XmtcError(
                "The model has no tuned thresholds; `xmtc thresholds MODEL CORPUS` tunes them on labelled documents."
            )
        self.check()
        if self.decision.scores != fingerprint_model(self.model):
            raise XmtcError(
                "The model's thresholds were tuned on other scores than it returns now; tune them again with "
                "`xmtc thresholds MODEL CORPUS`."
            )
        return self.decision

    def has_known_words(self, text: str) -> bool:
        """Return True if the model knows a word of the text."""
        return bool(features.mark_known_documents(self.views, self.transform([text]))[0])

    def build_label_mask(self, allow: Sequence[str] = (), deny: Sequence[str] = ()) -> np.ndarray | None:
        """Return which labels the lists and the model's own filter leave, (n_labels,) bool; None if that is all."""
        if not allow and not deny:
            return self.allowed
        self.check()
        allowed = select_allowed_labels(self.labels, self.concepts, allow, deny)
        return allowed if self.allowed is None else require_allowed_labels(allowed & self.allowed)

    def to_tags(self, predictions: Predictions, language: str | None = None) -> list[list[Tag]]:
        """Return labels, scores and names of predictions, one list per document."""
        self.check_language(language)
        rows = zip(predictions.labels.tolist(), predictions.scores.tolist(), strict=True)
        pairs = ([(i, score) for i, score in zip(*row, strict=True) if i != NO_LABEL] for row in rows)
        return [[Tag(self.labels[i], score, self._label_name(i, language)) for i, score in row] for row in pairs]

    def label_name(self, label: str, language: str | None = None) -> str | None:
        """Return the name of a label in a language; None without a vocabulary."""
        self.check()
        self.check_language(language)
        return self._label_name(self.find_label(label), language)

    def broader_names(self, label: str, language: str | None = None) -> list[str]:
        """Return the names of a label's broader concepts, nearest first; empty without a vocabulary."""
        self.check()
        self.check_language(language)
        return [] if self.concepts is None else self.concepts.broader_names(self.find_label(label), language)

    def _label_name(self, number: int, language: str | None = None) -> str | None:
        return None if self.concepts is None else self.concepts.name(number, language)

    def check_language(self, language: str | None) -> None:
        """Raise XmtcError if the vocabulary has no names in the language."""
        if language is not None:
            self.require_vocabulary(f"language={truncate_text(language)!r}").vocabulary.check_language(language)

    def require_vocabulary(self, feature: str) -> LabelConcepts:
        """Return the concepts of the labels; raise XmtcError if no vocabulary is attached."""
        if self.concepts is None:
            raise XmtcError(
                f"{feature} needs a vocabulary, but the model has none; attach one with `xmtc vocab attach`."
            )
        return self.concepts

    def with_vocabulary(self, vocabulary: Vocabulary, language: str | None = None) -> Tagger:
        """Return a copy with a vocabulary of the labels; `language` is the default language of their names."""
        concepts = LabelConcepts.from_labels(vocabulary, self.labels.words(), language)
        return replace(self, concepts=concepts, about=self.about | {"vocabulary": concepts.about()})

    def with_filter(self, allow: Sequence[str] = (), deny: Sequence[str] = ()) -> Tagger:
        """Return a copy that predicts only these labels; without arguments, all labels."""
        self.check()
        about = {name: value for name, value in self.about.items() if name != "filter"}
        if not allow and not deny:
            return replace(self, allowed=None, about=about)
        allowed = select_allowed_labels(self.labels, self.concepts, allow, deny)
        return replace(self, allowed=allowed, about=about | {"filter": {"allow": list(allow), "deny": list(deny)}})

    def with_decision(self, decision: LabelSelector | None, **description: Any) -> Tagger:
        """Return a copy with tuned thresholds, or with None without any; `description` is added to `about`."""
        about = {name: value for name, value in self.about.items() if name != "decision"}
        if decision is None:
            return replace(self, decision=None, about=about)
        decision = replace(decision, scores=fingerprint_model(self.model))
        return replace(self, decision=decision, about=about | {"decision": decision.describe() | description})

    def with_model(self, model: Model) -> Tagger:
        """Return a copy with another model, such as a calibrated one, and without thresholds and reference for the old
        scores."""
        return replace(self.with_decision(None), model=model, reference=None)

    def transform(self, documents: Documents, run: Run = Run()) -> Dataset:
        """Return the features of texts or Documents."""
        self.check()
        return features.transform(self.views, as_documents(documents), run)

    def transform_labelled(self, documents: Iterable[Document], run: Run = Run()) -> LabelledData:
        """Return the features and the true labels of documents."""
        collector = LabelCollector()
        data = self.transform(collector.collect(documents), run)
        known = self.labels.words()
        return LabelledData(data, collector.to_matrix(known), sorted(collector.id_by_label.keys() - set(known)))

    def check(self) -> None:
        """Validate the arrays of a loaded model before compiled code reads them; raise XmtcError if it is damaged.

        Loading skips this, so that opening a folder is quick. The first prediction calls it.
        """
        if self.unchecked is None:
            return
        try:
            check_finite(self.views, "views")
            check_finite(self.model, "model")
            check_finite(self.decision, "decision")
            attached = [part for part in (self.concepts, self.decision, self.reference) if part is not None]
            for part in (*self.views.values(), self.labels, self.model, *attached):
                part.check()
            model_folder.check_document_lengths(self.views, self.model)
            model_folder.check_frequencies(self.frequencies)
        except model_folder.STRUCTURE_ERRORS as error:
            raise model_folder.damaged_model_error(self.unchecked, str(error)) from None
        object.__setattr__(self, "unchecked", None)

    def evaluate(
        self,
        documents: Iterable[Document] | LabelledData,
        metrics: Sequence[str] = evaluation.DEFAULT_METRICS,
        propensity: evaluation.Propensity = evaluation.Propensity(),
        run: Run = Run(),
        *,
        always: bool = False,
    ) -> dict[str, float]:
        """Return metrics of the model on labelled documents, as fractions.

        Labels that training never saw count as missed, and so do the labels of documents without predictions.

        Parameters
        ----------
        documents
            Labelled documents, such as a corpus, or what `transform_labelled` returned.
        metrics
            Metric names, such as "P@1", "nDCG@5" or "micro-F1@0.5".
        propensity
            Propensity model of PSP@k.
        run
            Threads and device.
        always
            Also predict for documents without any known word.

        Returns
        -------
        dict of str to float
            Value of each metric, from 0 to 1.
        """
        depth = evaluation.max_k(metrics)  # raises for an unknown metric before any work
        labelled = documents if isinstance(documents, LabelledData) else self.transform_labelled(documents, run)
        predictions = self.predict(labelled.data, depth, run, always=always)
        assigned = None
        if evaluation.has_decision_metric(metrics):  # by a depth of their own
            assigned = self.predict(labelled.data, run=run, threshold="tuned", always=always)
        return self.evaluate_predictions(predictions, labelled.Y, metrics, propensity, labelled.unseen_labels, assigned)

    def evaluate_predictions(
        self,
        predictions: Predictions,
        Y: csr_array,
        metrics: Sequence[str] = evaluation.DEFAULT_METRICS,
        propensity: evaluation.Propensity = evaluation.Propensity(),
        unseen_labels: Sequence[str] = (),
        assigned: Predictions | None = None,
    ) -> dict[str, float]:
        """Return metrics of predictions beside the true labels Y of `transform_labelled`, as fractions.

        Parameters
        ----------
        predictions
            Ranked labels.
        Y
            True labels, (n_docs, n_labels + n_unseen).
        metrics, propensity
            As in `evaluate`.
        unseen_labels
            Names of the last columns of Y, which hierarchical metrics need.
        assigned
            Labels above the tuned thresholds, for metrics such as "micro-F1@decision".
        """
        lineage = None
        if self.concepts is not None and evaluation.has_hierarchical_metric(metrics):
            lineage = self.concepts.lineage(unseen_labels)
        n_docs = self.about["n_docs"]
        return evaluation.evaluate(predictions, Y, metrics, self.frequencies, propensity, n_docs, lineage, assigned)

    def measure_drift(self, documents: Documents, run: Run = Run()) -> DriftReport:
        """Compare new texts with the held-out documents on which the model was calibrated; labels are not needed.

        Parameters
        ----------
        documents
            New texts or Documents.
        run
            Threads and device.

        Returns
        -------
        DriftReport
            Unknown words, scores, predicted labels and estimated accuracy.

        Raises
        ------
        XmtcError
            If the model has no reference, or there are too few texts.
        """
        documents = list(as_documents(documents))
        if len(documents) < MIN_DRIFT_DOCUMENTS:
            raise XmtcError(
                f"Found {len(documents):,} documents, expected at least {MIN_DRIFT_DOCUMENTS} to compare with the "
                "reference of the model; give more."
            )
        return compare_with_reference(self.require_reference(), self.observe(documents, run))

    def observe(self, documents: Sequence[Document], run: Run = Run()) -> Observations:
        """Return the best predictions of documents and their shares of unknown words, without the model's filter."""
        data = self.transform(documents, run)
        predictions = self._predict(data, min(REFERENCE_DEPTH, len(self.labels)), run, None, always=True)
        texts = [document.text for document in documents]
        return Observations.from_predictions(predictions, measure_unknown_words(self.views, texts, run))

    def require_reference(self) -> DriftReference:
        """Return the reference of the model; raise XmtcError if it has none."""
        self.check()
        if self.reference is None:
            raise XmtcError(
                "The model has no reference for drift, because its scores are not calibrated, or by its method itself; "
                "`xmtc calibrate MODEL CORPUS` makes one from held-out documents."
            )
        return self.reference

    def explain(self, text: str, label: str, n: int = 20) -> list[tuple[str, float]]:
        """Return the words with the largest contributions to the score of a label.

        Parameters
        ----------
        text
            Text to explain.
        label
            Label to explain, or its name.
        n
            Maximum number of words.

        Returns
        -------
        list of (str, float)
            Words and their contributions, largest first.
        """
        explanation = self._explain(self._transform_text(text), self.find_label(label))
        return sum_by_word(weigh_words(text, self.views, explanation))[:n]

    def highlight(
        self, text: str, *labels: str, k: int = 3, n: int = 20, run: Run = Run(), language: str | None = None
    ) -> list[Highlight]:
        """Return the weight of each word of a text, for each label.

        Parameters
        ----------
        text
            Text to explain.
        labels
            Labels to explain; without any, the best k. A text without any known word has no best labels.
        k
            Number of best labels to explain.
        n
            Number of words with the largest weights, positive or negative, to list.
        run
            Threads and device.
        language
            Language of the label names, if the model has a vocabulary.

        Returns
        -------
        list of Highlight
            One per label; a notebook shows it as HTML.
        """
        self.check_language(language)
        document = self._transform_text(text)
        numbers = [self.find_label(label) for label in labels]
        best = self._predict(document, k, run, self.allowed, always=False)
        if not labels:
            numbers = [number for number in best.labels[0].tolist() if number != NO_LABEL]
        elif not set(numbers) <= set(best.labels[0].tolist()):  # a deeper search is slower: only if needed
            best = self._predict(document, LABEL_SCORE_DEPTH, run, None, always=False)
        scores = dict(zip(best.labels[0].tolist(), best.scores[0].tolist(), strict=True))

        highlights = []
        for number in numbers:
            explanation = self._explain(document, number)
            result = highlight(
                text, self.labels[number], scores.get(number), self.views, explanation, n, self._member_names()
            )
            highlights.append(replace(result, name=self._label_name(number, language)))
        return highlights

    def _member_names(self) -> list[str]:
        """Return the methods of the members of a combination; the second of the same method is `parabel-2`."""
        parameters = self.about.get("parameters", {})
        members = parameters.get("members") or [parameters.get("member")] * parameters.get("n_members", 0)
        methods = [member.get("method", "member") if isinstance(member, dict) else str(member) for member in members]
        counts = [methods[: i + 1].count(method) for i, method in enumerate(methods)]
        return [method if n == 1 else f"{method}-{n}" for method, n in zip(methods, counts, strict=True)]

    def _explain(self, document: Dataset, number: int) -> Explanation:
        return require_finite_weights(self.model.explain(document, number))

    def _transform_text(self, text: str) -> Dataset:
        if not isinstance(text, str):
            raise XmtcError(f"Found a {type(text).__name__} to explain, expected one text; explain one at a time.")
        if any(view.input_kind == FEATURES for view in self.views.values()):
            raise XmtcError("The model was trained on features without words, so it cannot explain words.")
        return self.transform([text])

    def find_label(self, label: str) -> int:
        """Return the number of a label, given also by its name or notation; raise XmtcError for an unknown one."""
        number = self.labels.find(label)
        if number == NO_LABEL and self.concepts is not None:  # by its notation or its name
            number = next(iter(self.concepts.find_labels(label)), NO_LABEL)
        if number == NO_LABEL:
            similar = find_similar_names(label, self.labels.words(), n=3)
            names = [ascii(name) if is_visually_equal(name, label) else repr(name) for name in similar]
            hint = f"did you mean {' or '.join(names)}?" if similar else f"it knows {len(self.labels)} others."
            raise XmtcError(f"The model has no label {truncate_text(label)!r}; {hint}")
        return number

    def save(self, folder: str | Path, expected_stamp: model_folder.Stamp = ()) -> None:
        """Write a model folder.

        Parameters
        ----------
        folder
            Folder to write. A model in it is replaced; a folder with anything else is refused.
        expected_stamp
            What `model_folder.read_stamp` returned before loading. If the model in the folder has changed since
            then, saving is refused, so that the change of another process is not lost.
        """
        parts = {"views": self.views, "labels": self.labels, "frequencies": self.frequencies, "model": self.model}
        attached = {
            "concepts": self.concepts,
            "allowed": self.allowed,
            "decision": self.decision,
            "reference": self.reference,
        }
        parts |= {name: part for name, part in attached.items() if part is not None}
        model_folder.save(folder, self.about, parts, self.history, expected_stamp, self.training)

    @classmethod
    def load(cls, folder: str | Path, verify: bool = False) -> Tagger:
        """Open a model folder.

        Parameters
        ----------
        folder
            Model folder. Its arrays stay on disk until they are used.
        verify
            Whether to read every byte and compare checksums.

        Raises
        ------
        XmtcError
            If the folder holds no model, or a damaged one.
        """
        about, parts = model_folder.load(folder, verify)
        try:
            model_folder.check_parts(about, parts)
        except (ValueError, TypeError) as error:
            raise model_folder.damaged_model_error(Path(folder), str(error)) from None
        training = model_folder.load_training(Path(folder), about, verify)
        about = {name: value for name, value in about.items() if name not in STRUCTURE_KEYS}
        history = model_folder.load_history(folder)
        return cls(**parts, about=about, unchecked=Path(folder), history=history, training=training)


def check_threshold_name(threshold: str) -> None:
    if threshold != "tuned":
        raise XmtcError(f"threshold={truncate_text(threshold)!r} is not a threshold; expected a number or 'tuned'.")


def get_view_unit(name: str) -> str:
    """Return what the size of a view counts, such as "words" or "tfidf features"."""
    unit = view_class(name).unit
    return name if unit == name else f"{name} {unit}"


def require_allowed_labels(allowed: np.ndarray) -> np.ndarray:
    if not allowed.any():
        raise XmtcError("The model's own filter excludes all remaining labels; allow more, or deny fewer.")
    return allowed


def require_finite_scores(predictions: Predictions) -> None:
    """Raise XmtcError for scores that are not finite: finite weights may still overflow."""
    if not np.isfinite(predictions.scores).all():
        raise not_finite_error("scores")


def require_finite_weights(explanation: Explanation) -> Explanation:
    numbers = [explanation.weights, explanation.per_token, explanation.bias]
    if not all(np.isfinite(values).all() for values in numbers if values is not None):
        raise not_finite_error("explanations")
    for member in explanation.members:
        require_finite_weights(member.explanation)
    return explanation


def not_finite_error(noun: str) -> XmtcError:
    return XmtcError(
        f"The model's {noun} are not finite: its weights are too large or damaged; copy or train it again."
    )


def is_visually_equal(name: str, other: str) -> bool:
    """Return True if two names differ only in how their characters are composed."""
    return normalize_unicode("NFKC", name) == normalize_unicode("NFKC", other)
