"""A Tagger is a trained pipeline, whole by construction: views of texts, label names, and a Model between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xmtc import evaluation, features
from xmtc import model_folder as store
from xmtc.core.dataset import Dataset
from xmtc.core.label_masks import predict_allowed
from xmtc.core.method import Explanation, Model
from xmtc.core.predictions import NO_LABEL, Predictions, check_k
from xmtc.core.run import Run
from xmtc.data.document import Document, as_documents
from xmtc.data.label_collector import LabelCollector
from xmtc.errors import XmtcError, find_similar_names, truncate_text
from xmtc.explain.highlights import Highlight, compute_word_weights, highlight
from xmtc.features import FEATURES, FittedViews, view_class
from xmtc.scores import LabelSelector
from xmtc.scores.thresholds import fingerprint_model
from xmtc.storage.form import check_finite
from xmtc.text.normalisation import normalize_unicode
from xmtc.text.string_index import StringIndex
from xmtc.vocabulary import Vocabulary as Concepts
from xmtc.vocabulary.label_concepts import LabelConcepts
from xmtc.vocabulary.label_filters import select_allowed_labels

LABEL_SCORE_DEPTH = 1000  # labels among which the score of a named one is looked for


class LabelScore(NamedTuple):
    label: str
    score: float


class Tag(LabelScore):
    """A label and how sure the model is of it; `name` is what it is called, where a vocabulary tells."""

    name: str | None

    def __new__(cls, label: str, score: float, name: str | None = None) -> Tag:
        tag = super().__new__(cls, label, score)
        tag.name = name  # beside the pair, which can be taken apart as before
        return tag

    def __repr__(self) -> str:
        name = "" if self.name is None else f", name={self.name!r}"
        return f"Tag(label={self.label!r}, score={self.score!r}{name})"


@dataclass(frozen=True)
class Tagger:
    views: FittedViews  # by name, those that the model reads
    labels: StringIndex  # label names by number, in alphabetical order
    frequencies: np.ndarray  # (n_labels,) int64, training documents of each label
    model: Model
    about: dict[str, Any]  # method, parameters, where from: what about.json says
    unchecked: Path | None = None  # the folder it was loaded from, until its numbers have been looked at
    # what its training told, stage by stage and pass by pass
    history: tuple[dict[str, Any], ...] = field(default=(), compare=False)
    concepts: LabelConcepts | None = None  # what the labels stand for, where a vocabulary was attached
    allowed: np.ndarray | None = None  # (n_labels,) bool, the labels that it may answer, if not all
    decision: LabelSelector | None = None  # which of the ranked labels are given, where that was learnt

    def __repr__(self) -> str:
        sizes = [f"{view.size:,} {get_view_unit(name)}" for name, view in self.views.items()]
        trained = f"trained on {self.about['n_docs']:,} documents"
        return f"Tagger({', '.join([self.about['method'], f'{len(self.labels):,} labels', *sizes, trained])})"

    def predict_labels(
        self,
        texts: Iterable[str],
        k: int = 5,
        threshold: float = 0.0,
        run: Run = Run(),
        *,
        always: bool = False,
        language: str | None = None,
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        decide: bool = False,
    ) -> list[list[Tag]]:
        """The best k labels of each text that score at least the threshold, best first; with a vocabulary, what each is
        called in a language. A text of which the model knows no word has none; with `always`, those that the model
        would guess of any text. `allow` and `deny` are lists of labels or filters such as `branch:…`.
        With `decide`, as many labels as the model's decision gives, whatever k is."""
        asked, allowed = as_documents(texts), self.build_label_mask(allow, deny)
        found = (
            self.decided(asked, run, allowed, always=always)
            if decide
            else self.predict(asked, k, run, allowed, always=always)
        )
        return self.to_tags(found.apply_threshold(threshold), language)

    def predict(
        self,
        documents: Iterable[Document],
        k: int = 5,
        run: Run = Run(),
        allowed: np.ndarray | None = None,
        *,
        always: bool = False,
    ) -> Predictions:
        """Label numbers and scores of documents; see `tags` for names, and for `always`. `allowed`, (n_labels,) bool,
        are the labels to choose from, instead of those that the model itself may answer."""
        check_k(k)
        return self.ranked(self.transform(documents, run), k, run, self.allowed if allowed is None else allowed, always)

    def decided(
        self,
        documents: Iterable[Document],
        run: Run = Run(),
        allowed: np.ndarray | None = None,
        *,
        always: bool = False,
    ) -> Predictions:
        """Return the labels above the tuned thresholds, of those that `rank` finds."""
        decision = self.require_decision()
        return decision(self.predict(documents, decision.depth, run, allowed, always=always))

    def given(self, data: Dataset, run: Run = Run(), always: bool = False) -> Predictions:
        """As `decided`, of documents that were read already; ranked apart: a search asked for more looks further."""
        decision = self.require_decision()
        return decision(self.ranked(data, decision.depth, run, self.allowed, always))

    def require_decision(self) -> LabelSelector:
        """The decision that was learnt on the scores of this model; refused where there is none, or for others."""
        if self.decision is None:
            raise XmtcError(
                "The model has no decision; `xmtc thresholds MODEL VALID` learns one from labelled documents."
            )
        self.check()
        if self.decision.scores != fingerprint_model(self.model):
            raise XmtcError(
                "The model's decision was learnt on other scores than the model gives now; learn it anew, with "
                "`xmtc thresholds MODEL VALID`."
            )
        return self.decision

    def ranked(self, data: Dataset, k: int, run: Run, allowed: np.ndarray | None, always: bool = False) -> Predictions:
        """As `rank`, of documents that were read already."""
        found = (
            self.model.predict(data, k, run) if allowed is None else predict_allowed(self.model, data, k, allowed, run)
        )
        return (
            require_finite_scores(found)
            if always
            else require_finite_scores(found).mask_documents(features.mark_known_documents(self.views, data))
        )

    def has_known_words(self, text: str) -> bool:
        """Whether the text holds a word that the model knows."""
        return bool(features.mark_known_documents(self.views, self.transform(as_documents([text])))[0])

    def build_label_mask(self, allow: Sequence[str] = (), deny: Sequence[str] = ()) -> np.ndarray | None:
        """(n_labels,) bool, the labels that these lists, and the model's own, leave; None where that is all."""
        if not allow and not deny:
            return self.allowed
        self.check()
        found = select_allowed_labels(self.labels, self.concepts, allow, deny)
        return found if self.allowed is None else require_allowed_labels(found & self.allowed)

    def to_tags(self, predictions: Predictions, language: str | None = None) -> list[list[Tag]]:
        """Labels, scores and names, document by document."""
        self.check_language(language)
        rows = zip(predictions.labels.tolist(), predictions.scores.tolist(), strict=True)
        pairs = ([(i, score) for i, score in zip(*row, strict=True) if i != NO_LABEL] for row in rows)
        return [[Tag(self.labels[i], score, self._label_name(i, language)) for i, score in row] for row in pairs]

    def label_name(self, label: str, language: str | None = None) -> str | None:
        """What a label is called in a language; None where no vocabulary tells."""
        self.check()
        self.check_language(language)
        return self._label_name(self._label_number(label), language)

    def broader_names(self, label: str, language: str | None = None) -> list[str]:
        """What the concepts above a label are called, the nearest first; none where no vocabulary tells."""
        self.check()
        self.check_language(language)
        return [] if self.concepts is None else self.concepts.broader_names(self._label_number(label), language)

    def _label_name(self, number: int, language: str | None = None) -> str | None:
        return None if self.concepts is None else self.concepts.name(number, language)

    def check_language(self, language: str | None) -> None:
        if language is not None:
            self.require_vocabulary(f"language={truncate_text(language)!r}").vocabulary.check_language(language)

    def require_vocabulary(self, feature: str) -> LabelConcepts:
        """What the labels stand for; refused where no vocabulary tells."""
        if self.concepts is None:
            raise XmtcError(f"{feature} needs a vocabulary, and the model has none; `xmtc vocab attach` gives it one.")
        return self.concepts

    def with_vocabulary(self, vocabulary: Concepts, language: str | None = None) -> Tagger:
        """The same, knowing what its labels are called and how they hang together; `language` is the one that labels
        are named in where none is asked for."""
        concepts = LabelConcepts.from_labels(vocabulary, self.labels.words(), language)
        return replace(self, concepts=concepts, about=self.about | {"vocabulary": concepts.about()})

    def with_filter(self, allow: Sequence[str] = (), deny: Sequence[str] = ()) -> Tagger:
        """The same, answering only with these labels; without any, with all."""
        self.check()
        allowed = select_allowed_labels(self.labels, self.concepts, allow, deny) if allow or deny else None
        about = {name: value for name, value in self.about.items() if name != "filter"}
        said = {"allow": list(allow), "deny": list(deny)}
        return replace(self, allowed=allowed, about=about if allowed is None else about | {"filter": said})

    def with_decision(self, decision: LabelSelector | None, **learnt: Any) -> Tagger:
        """The same, with a decision; `learnt` is what else is said of it. Without one, with none."""
        about = {name: value for name, value in self.about.items() if name != "decision"}
        if decision is None:
            return replace(self, decision=None, about=about)
        decision = replace(decision, scores=fingerprint_model(self.model))
        return replace(self, decision=decision, about=about | {"decision": decision.describe() | learnt})

    def with_model(self, model: Model) -> Tagger:
        """The same with another model, such as a calibrated one: a decision was learnt on scores that are no more."""
        return replace(self.with_decision(None), model=model)

    def transform(self, documents: Iterable[Document], run: Run = Run()) -> Dataset:
        """The features of documents."""
        self.check()
        return features.transform(self.views, documents, run)

    def check(self) -> None:
        """Check once all numbers of a loaded model, which compiled code trusts. Not when it is opened, so that this
        stays quick. Raise XmtcError if it is damaged."""
        if self.unchecked is not None:
            try:
                check_finite(self.views, "views")
                check_finite(self.model, "model")
                check_finite(self.decision, "decision")
                attached = [part for part in (self.concepts, self.decision) if part is not None]
                for part in (*self.views.values(), self.labels, self.model, *attached):
                    part.check()
                store.check_document_lengths(self.views, self.model)
                store.check_frequencies(self.frequencies)
            except store.STRUCTURE_ERRORS as error:
                raise store.damaged_model_error(self.unchecked, str(error)) from None
            object.__setattr__(self, "unchecked", None)

    def evaluate(
        self,
        documents: Iterable[Document],
        metrics: Sequence[str] = evaluation.DEFAULT_METRICS,
        propensity: evaluation.Propensity = evaluation.Propensity(),
        run: Run = Run(),
        *,
        always: bool = False,
    ) -> dict[str, float]:
        """Metrics by their published names, as fractions, of what `rank` answers. Labels that training never saw count
        as missed, and so do those of a document without an answer."""
        data, Y, unseen = self.transform_labelled(documents, run)
        predictions = self.ranked(data, evaluation.max_k(metrics), run, self.allowed, always)
        given = self.given(data, run, always) if evaluation.has_decision_metric(metrics) else None
        return self.evaluate_predictions(predictions, Y, metrics, propensity, unseen, given)

    def rank_labelled(
        self, documents: Iterable[Document], k: int = 5, run: Run = Run(), *, always: bool = False
    ) -> tuple[Predictions, csr_array]:
        """Predictions, and the true labels beside them; those that training never saw have the last columns."""
        check_k(k)
        data, Y, _ = self.transform_labelled(documents, run)
        return self.ranked(data, k, run, self.allowed, always), Y

    def transform_labelled(
        self, documents: Iterable[Document], run: Run = Run()
    ) -> tuple[Dataset, csr_array, list[str]]:
        """Features, the true labels beside them, and the labels of the columns that training never saw."""
        collector = LabelCollector()
        data = self.transform(collector.collect(documents), run)
        known = self.labels.words()
        return data, collector.to_matrix(known), sorted(collector.id_by_label.keys() - set(known))

    def evaluate_predictions(
        self,
        predictions: Predictions,
        Y: csr_array,
        metrics: Sequence[str] = evaluation.DEFAULT_METRICS,
        propensity: evaluation.Propensity = evaluation.Propensity(),
        unseen_labels: Sequence[str] = (),
        assigned: Predictions | None = None,
    ) -> dict[str, float]:
        """Metrics of predictions that `rank_labelled` gave; `unseen` are the labels of its further columns, which
        hierarchical metrics need to know, and `given` what metrics at a decision are about."""
        is_asked = self.concepts is not None and evaluation.has_hierarchical_metric(metrics)
        above = self.concepts.lineage(unseen_labels) if self.concepts is not None and is_asked else None
        n_docs = self.about["n_docs"]
        return evaluation.evaluate(predictions, Y, metrics, self.frequencies, propensity, n_docs, above, assigned)

    def explain(self, text: str, label: str, n: int = 20) -> list[tuple[str, float]]:
        """The words that speak most for a label, and what each adds to its score."""
        explanation = require_finite_weights(self.model.explain(self._transform_text(text), self._label_number(label)))
        return compute_word_weights(text, self.views[explanation.view], explanation)[:n]

    def highlight(
        self, text: str, *labels: str, k: int = 3, n: int = 20, run: Run = Run(), language: str | None = None
    ) -> list[Highlight]:
        """The whole text with each word's weight, for each label, or for the best k where none is named; with it the n
        words that weigh most, for the label or against it. A text of which the model knows no word has no best."""
        self.check_language(language)
        document = self._transform_text(text)
        numbers = [self._label_number(label) for label in labels]
        best = self.ranked(document, k, run, self.allowed)
        if not labels:
            numbers = [number for number in best.labels[0].tolist() if number != NO_LABEL]
        elif not set(numbers) <= set(best.labels[0].tolist()):
            best = self.ranked(document, LABEL_SCORE_DEPTH, run, None)  # only now: it may take longer
        scores = dict(zip(best.labels[0].tolist(), best.scores[0].tolist(), strict=True))

        found = []
        for number in numbers:
            explanation = require_finite_weights(self.model.explain(document, number))
            view = self.views[explanation.view]
            named = highlight(text, self.labels[number], scores.get(number), view, explanation, n)
            found.append(replace(named, name=self._label_name(number, language)))
        return found

    def _transform_text(self, text: str) -> Dataset:
        """A text in the views that the model reads."""
        if not isinstance(text, str):
            raise XmtcError(f"Found a {type(text).__name__} to explain, expected one text; explain one at a time.")
        if any(view.input_kind == FEATURES for view in self.views.values()):
            raise XmtcError("This model was trained on features without words, so it has none to explain with.")
        return self.transform(as_documents([text]))

    def _label_number(self, label: str) -> int:
        number = self.labels.find(label)
        if number == NO_LABEL and self.concepts is not None:  # by its notation or its name
            number = next(iter(self.concepts.find_labels(label)), NO_LABEL)
        if number == NO_LABEL:
            near = find_similar_names(label, self.labels.words(), n=3)
            named = [ascii(name) if is_visually_equal(name, label) else repr(name) for name in near]
            hint = f"did you mean {' or '.join(named)}?" if near else f"it knows {len(self.labels)} others."
            raise XmtcError(f"The model has no label {truncate_text(label)!r}; {hint}")
        return number

    def save(self, folder: str | Path, expected_stamp: store.Stamp = ()) -> None:
        """Write the model folder; a model that stands there is replaced, anything else is left alone. With the stamp
        that a model had when it was opened (`store.stamp_of`), no other is replaced: what somebody else changed
        meanwhile is not lost."""
        parts = {"views": self.views, "labels": self.labels, "frequencies": self.frequencies, "model": self.model}
        attached = {"concepts": self.concepts, "allowed": self.allowed, "decision": self.decision}
        parts |= {name: part for name, part in attached.items() if part is not None}
        store.save(folder, self.about, parts, self.history, expected_stamp)

    @classmethod
    def load(cls, folder: str | Path, verify: bool = False) -> Tagger:
        """Open a model folder. Arrays stay on disk until they are used; `verify` reads and checks every byte."""
        about, parts = store.load(folder, verify)
        try:
            store.check_parts(about, parts)
        except (ValueError, TypeError) as error:
            raise store.damaged_model_error(Path(folder), str(error)) from None
        described = {name: value for name, value in about.items() if name not in ("format", "files", "parts")}
        return cls(**parts, about=described, unchecked=Path(folder), history=store.load_history(folder))


def get_view_unit(name: str) -> str:
    """What the size of a view counts, in words: tfidf features, words."""
    unit = view_class(name.partition("-")[0]).unit
    return name if unit == name else f"{name} {unit}"


def require_allowed_labels(allowed: np.ndarray) -> np.ndarray:
    if not allowed.any():
        raise XmtcError("The model itself may not answer any of the labels that are left; allow more, or deny less.")
    return allowed


def require_finite_scores(found: Predictions) -> Predictions:
    """Answers whose scores are numbers: weights may be numbers, and yet so large that what is computed is none."""
    if not np.isfinite(found.scores).all():
        raise not_finite_error("scores")
    return found


def require_finite_weights(found: Explanation) -> Explanation:
    per_token = 0 if found.per_token is None else found.per_token
    if not (np.isfinite(found.weights).all() and np.isfinite(per_token).all()):
        raise not_finite_error("explanations")
    return found


def not_finite_error(what: str) -> XmtcError:
    return XmtcError(
        f"The model's {what} are no numbers: its weights are too large or damaged; copy or train it again."
    )


def is_visually_equal(name: str, other: str) -> bool:
    """Whether two names are the same to the eye, but for how their letters are composed."""
    return normalize_unicode("NFKC", name) == normalize_unicode("NFKC", other)
