"""A report of a tagger on labelled documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xmtc.analysis.report.figures import figures
from xmtc.analysis.report.shown import Excerpt, Named
from xmtc.core.dataset import Dataset
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.evaluation import DEPTH
from xmtc.tagger import Tagger

BEGINNING = 400  # characters of a text
FIRST = 5  # labels, and words, of a document that is shown


def report_on(
    tagger: Tagger,
    documents: Sequence[Document],
    title: str,
    about: dict[str, str],
    *,
    threshold: float | None = None,
    language: str | None = None,
    run: Run = Run(),
) -> Named:
    """What the tagger makes of the documents. Labels are given that score at least the threshold; without one, those of
    the model's decision, or as many as training documents have on average."""
    tagger.check_language(language)
    data, Y, unseen = tagger.read_beside(documents, run)
    ranked = tagger.ranked(data, DEPTH, run, tagger.allowed)
    given = given_labels(tagger, data, ranked, threshold, run)
    report = figures(
        ranked,
        given.labels,
        Y,
        tagger.frequencies,
        tagger.about["n_docs"],
        words=None if any(document.features is not None for document in documents) else lengths(documents),
        branches=branches(tagger, language, len(unseen)),
    )
    names = [called(tagger, number, language) for number in range(len(tagger.labels))] + list(unseen)
    shown = [excerpt(tagger, documents[doc], ranked, doc, names) for doc in report.worst]
    return Named(
        report, title, about | {"Labels are given": given.how}, names.__getitem__, lambda doc: documents[doc].id, shown
    )


class Given(NamedTuple):
    labels: Predictions
    how: str  # as a sentence goes on after "labels are given"


def given_labels(
    tagger: Tagger,
    data: Dataset,
    ranked: Predictions,
    threshold: float | None = None,
    run: Run = Run(),
    always: bool = False,
) -> Given:
    """The labels that documents get: from a threshold on, by the model's decision, or as many as in training."""
    if threshold is not None:
        return Given(ranked.apply_threshold(threshold), f"from a score of {threshold:.3g} on")
    if tagger.decision is not None:
        return Given(tagger.given(data, run, always), f"by the model's decision: {tagger.decision}")
    least = usual_threshold(ranked, tagger)
    labels = ranked.apply_threshold(least)
    return Given(labels, f"from a score of {least:.3g} on{why(tagger, labels)}")


def why(tagger: Tagger, given: Predictions) -> str:
    """What the threshold that nobody has named is."""
    usual = float(tagger.frequencies.sum() / tagger.about["n_docs"])
    if (given.labels != NO_LABEL).sum() < 0.95 * usual * given.n_docs:
        return f", which are all that the model finds; training documents had {usual:.1f} on average"
    return ", at which documents get as many as the training documents had on average"


def usual_threshold(ranked: Predictions, tagger: Tagger) -> float:
    """At which documents get as many labels as those of the training had; no true label is looked at."""
    scores = np.sort(ranked.scores[ranked.labels != NO_LABEL])[::-1]
    wanted = round(float(tagger.frequencies.sum() / tagger.about["n_docs"]) * ranked.n_docs)
    return float(scores[min(max(wanted, 1), len(scores)) - 1]) if len(scores) else 0.5


def lengths(documents: Sequence[Document]) -> np.ndarray:
    return np.array([len(document.text.split()) for document in documents])


def branches(tagger: Tagger, language: str | None, n_unseen: int) -> list[str | None] | None:
    """What stands at the top above each label, where a vocabulary tells."""
    if tagger.concepts is None:
        return None
    concepts, n_labels = tagger.concepts, len(tagger.labels)
    above = ([concepts.name(number, language), *concepts.broader(number, language)] for number in range(n_labels))
    return [names[-1] for names in above] + [None] * n_unseen  # a concept at the top is a branch of its own


def called(tagger: Tagger, number: int, language: str | None) -> str:
    name = None if tagger.concepts is None else tagger.concepts.name(number, language)
    return tagger.labels[number] if name is None else f"{name} ({tagger.labels[number]})"


def excerpt(tagger: Tagger, document: Document, ranked: Predictions, doc: int, names: Sequence[str]) -> Excerpt:
    """A document beside its answers; with the words that spoke for the first that is wrong."""
    pairs = zip(ranked.labels[doc, :FIRST].tolist(), ranked.scores[doc, :FIRST].tolist(), strict=True)
    best = [(label, score) for label, score in pairs if label != NO_LABEL]
    wrong = [label for label, _ in best if tagger.labels[label] not in document.labels]
    text = document.text[:BEGINNING] + ("…" if len(document.text) > BEGINNING else "")
    true = [name_of(tagger, label, names) for label in document.labels]
    return Excerpt(
        document.id, text, true, [(names[label], score) for label, score in best], spoke_for(tagger, document, wrong)
    )


def name_of(tagger: Tagger, label: str, names: Sequence[str]) -> str:
    number = tagger.labels.number(label)
    return label if number == NO_LABEL else names[number]


def spoke_for(tagger: Tagger, document: Document, wrong: list[int]) -> list[str]:
    """None where a model reads no words, or cannot say."""
    if not wrong or not document.text:
        return []
    try:
        found = tagger.explain(document.text, tagger.labels[wrong[0]], FIRST)
    except (XmtcError, NotImplementedError):
        return []
    return [word for word, weight in found if weight > 0]
