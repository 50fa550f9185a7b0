"""A report of a tagger on labelled documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xmtc.analysis.report.statistics import compute_report
from xmtc.analysis.report.tables import Excerpt, NamedReport
from xmtc.core.dataset import Dataset
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.evaluation import EVALUATION_DEPTH
from xmtc.tagger import Tagger

SNIPPET_CHARACTERS = 400  # characters of a text
MAX_EXCERPT_ITEMS = 5  # labels, and words, of a document that is shown


def build_report(
    tagger: Tagger,
    documents: Sequence[Document],
    title: str,
    about: dict[str, str],
    *,
    threshold: float | None = None,
    language: str | None = None,
    run: Run = Run(),
) -> NamedReport:
    """What the tagger makes of the documents. Labels are given that score at least the threshold; without one, those of
    the model's decision, or as many as training documents have on average."""
    tagger.check_language(language)
    data, Y, unseen = tagger.transform_labelled(documents, run)
    ranked = tagger.predict(data, EVALUATION_DEPTH, run)
    given = assign_labels(tagger, data, ranked, threshold, run)
    report = compute_report(
        ranked,
        given.labels,
        Y,
        tagger.frequencies,
        tagger.about["n_docs"],
        document_lengths=None
        if any(document.features is not None for document in documents)
        else count_document_words(documents),
        branches=find_top_concepts(tagger, language, len(unseen)),
    )
    names = [format_label(tagger, number, language) for number in range(len(tagger.labels))] + list(unseen)
    shown = [make_excerpt(tagger, documents[doc], ranked, doc, names) for doc in report.worst]
    return NamedReport(
        report,
        title,
        about | {"Labels are given": given.description},
        names.__getitem__,
        lambda doc: documents[doc].id,
        shown,
    )


class AssignedLabels(NamedTuple):
    labels: Predictions
    description: str  # as a sentence goes on after "labels are given"


def assign_labels(
    tagger: Tagger,
    data: Dataset,
    ranked: Predictions,
    threshold: float | None = None,
    run: Run = Run(),
    always: bool = False,
) -> AssignedLabels:
    """The labels that documents get: from a threshold on, by the model's decision, or as many as in training."""
    if threshold is not None:
        return AssignedLabels(ranked.apply_threshold(threshold), f"from a score of {threshold:.3g} on")
    if tagger.decision is not None:
        tuned = tagger.predict(data, run=run, threshold="tuned", always=always)
        return AssignedLabels(tuned, f"by the model's decision: {tagger.decision}")
    least = estimate_default_threshold(ranked, tagger)
    labels = ranked.apply_threshold(least)
    return AssignedLabels(labels, f"from a score of {least:.3g} on{explain_default_threshold(tagger, labels)}")


def explain_default_threshold(tagger: Tagger, given: Predictions) -> str:
    """What the threshold that nobody has named is."""
    usual = float(tagger.frequencies.sum() / tagger.about["n_docs"])
    if (given.labels != NO_LABEL).sum() < 0.95 * usual * given.n_docs:
        return f", which are all that the model finds; training documents had {usual:.1f} on average"
    return ", at which documents get as many as the training documents had on average"


def estimate_default_threshold(ranked: Predictions, tagger: Tagger) -> float:
    """At which documents get as many labels as those of the training had; no true label is looked at."""
    scores = np.sort(ranked.scores[ranked.labels != NO_LABEL])[::-1]
    wanted = round(float(tagger.frequencies.sum() / tagger.about["n_docs"]) * ranked.n_docs)
    return float(scores[min(max(wanted, 1), len(scores)) - 1]) if len(scores) else 0.5


def count_document_words(documents: Sequence[Document]) -> np.ndarray:
    return np.array([len(document.text.split()) for document in documents])


def find_top_concepts(tagger: Tagger, language: str | None, n_unseen: int) -> list[str | None] | None:
    """What stands at the top above each label, where a vocabulary tells."""
    if tagger.concepts is None:
        return None
    concepts, n_labels = tagger.concepts, len(tagger.labels)
    above = ([concepts.name(number, language), *concepts.broader_names(number, language)] for number in range(n_labels))
    return [names[-1] for names in above] + [None] * n_unseen  # a concept at the top is a branch of its own


def format_label(tagger: Tagger, number: int, language: str | None) -> str:
    name = None if tagger.concepts is None else tagger.concepts.name(number, language)
    return tagger.labels[number] if name is None else f"{name} ({tagger.labels[number]})"


def make_excerpt(tagger: Tagger, document: Document, ranked: Predictions, doc: int, names: Sequence[str]) -> Excerpt:
    """A document beside its answers; with the words that spoke for the first that is wrong."""
    pairs = zip(
        ranked.labels[doc, :MAX_EXCERPT_ITEMS].tolist(), ranked.scores[doc, :MAX_EXCERPT_ITEMS].tolist(), strict=True
    )
    best = [(label, score) for label, score in pairs if label != NO_LABEL]
    wrong = [label for label, _ in best if tagger.labels[label] not in document.labels]
    text = document.text[:SNIPPET_CHARACTERS] + ("…" if len(document.text) > SNIPPET_CHARACTERS else "")
    true = [find_label_title(tagger, label, names) for label in document.labels]
    return Excerpt(
        document.id,
        text,
        true,
        [(names[label], score) for label, score in best],
        find_misleading_words(tagger, document, wrong),
    )


def find_label_title(tagger: Tagger, label: str, names: Sequence[str]) -> str:
    number = tagger.labels.find(label)
    return label if number == NO_LABEL else names[number]


def find_misleading_words(tagger: Tagger, document: Document, wrong: list[int]) -> list[str]:
    """None where a model reads no words, or cannot say."""
    if not wrong or not document.text:
        return []
    try:
        found = tagger.explain(document.text, tagger.labels[wrong[0]], MAX_EXCERPT_ITEMS)
    except (XmtcError, NotImplementedError):
        return []
    return [word for word, weight in found if weight > 0]
