"""Report on a tagger for labelled documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xmtc.analysis.report.statistics import compute_report
from xmtc.analysis.report.tables import Excerpt, NamedReport
from xmtc.core.dataset import Dataset
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.evaluation import EVALUATION_DEPTH
from xmtc.scores.quality import QUALITY_METRICS, compute_document_metrics
from xmtc.tagger import Tagger

SNIPPET_CHARACTERS = 400
MAX_EXCERPT_ITEMS = 5  # labels and words of an excerpt


class AssignedLabels(NamedTuple):
    """Labels assigned to documents, and how."""

    labels: Predictions
    description: str  # continues the phrase "labels count as given"


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
    """Compute a report; see `assign_labels` for the meaning of `threshold`."""
    tagger.check_language(language)
    data, Y, unseen = tagger.transform_labelled(documents, run)
    ranked = tagger.predict(data, EVALUATION_DEPTH, run)
    assigned = assign_labels(tagger, data, ranked, threshold, run)
    has_texts = all(document.features is None for document in documents)
    report = compute_report(
        ranked,
        assigned.labels,
        Y,
        tagger.frequencies,
        tagger.about["n_docs"],
        document_lengths=count_document_words(documents) if has_texts else None,
        branches=find_top_concepts(tagger, language, len(unseen)),
    )
    about = about | {"Assigned labels": assigned.description}
    if threshold is None and tagger.has_gate:
        about = about | {"Gate": describe_gate(tagger, data, Y, run)}
    names = [format_label(tagger, label_id, language) for label_id in range(len(tagger.labels))]
    names += [format_unseen_label(tagger, label, language) for label in unseen]
    return NamedReport(
        report,
        title,
        about,
        names.__getitem__,
        lambda doc: documents[doc].id,
        [make_excerpt(tagger, documents[doc], ranked, doc, names, language) for doc in report.worst],
    )


def assign_labels(
    tagger: Tagger,
    data: Dataset,
    ranked: Predictions,
    threshold: float | None = None,
    run: Run = Run(),
    always: bool = False,
) -> AssignedLabels:
    """Assign labels by a threshold, by the model's tuned thresholds, or as many as training documents have."""
    if threshold is not None:
        return AssignedLabels(ranked.apply_threshold(threshold), f"from a score of {threshold:.3g} on")
    if tagger.decision is not None:
        tuned = tagger.predict(data, run=run, threshold="tuned", always=always)
        return AssignedLabels(tuned, f"by the tuned thresholds ({tagger.decision})")
    default = estimate_default_threshold(ranked, tagger)
    labels = ranked.apply_threshold(default)
    return AssignedLabels(labels, f"from a score of {default:.3g} on{explain_default_threshold(tagger, labels)}")


def describe_gate(tagger: Tagger, data: Dataset, Y: csr_array, run: Run) -> str:
    """Return the promise of the model's gate, and the metric and the share of the documents that it publishes."""
    assert tagger.decision is not None
    (gate,) = tagger.decision.gate
    selected, quality = tagger.predict_with_quality(data, run)
    values = compute_document_metrics(selected, Y)[QUALITY_METRICS.index(gate.metric), quality.is_published]
    reached = f", with a mean {gate.metric} of {100 * values.mean():.1f} %" if len(values) else ""
    return f"{gate}; here {100 * quality.is_published.mean():.1f} % of the documents{reached}"


def explain_default_threshold(tagger: Tagger, assigned: Predictions) -> str:
    mean = float(tagger.frequencies.sum() / tagger.about["n_docs"])
    if (assigned.labels != NO_LABEL).sum() < 0.95 * mean * assigned.n_docs:
        return f", which is every label that the model ranks; training documents have {mean:.1f} on average"
    return ", where documents have as many labels as the training documents on average"


def estimate_default_threshold(ranked: Predictions, tagger: Tagger) -> float:
    """Return the threshold at which documents have as many labels as training documents; uses no true labels."""
    scores = np.sort(ranked.scores[ranked.labels != NO_LABEL])[::-1]
    n_labels = round(float(tagger.frequencies.sum() / tagger.about["n_docs"]) * ranked.n_docs)
    return float(scores[min(max(n_labels, 1), len(scores)) - 1]) if len(scores) else 0.5


def count_document_words(documents: Sequence[Document]) -> np.ndarray:
    return np.array([len(document.text.split()) for document in documents])


def find_top_concepts(tagger: Tagger, language: str | None, n_unseen: int) -> list[str | None] | None:
    """Return the name of the top concept above each label; None without a vocabulary or with a flat one."""
    if tagger.concepts is None or tagger.concepts.vocabulary.is_flat:
        return None
    concepts = tagger.concepts
    tops: list[str | None] = []
    for label_id in range(len(tagger.labels)):
        path = [concepts.name(label_id, language), *concepts.broader_names(label_id, language)]
        tops.append(path[-1])  # a top concept is a branch of its own
    return tops + [None] * n_unseen


def format_label(tagger: Tagger, label_id: int, language: str | None) -> str:
    name = None if tagger.concepts is None else tagger.concepts.name(label_id, language)
    return tagger.labels[label_id] if name is None else f"{name} ({tagger.labels[label_id]})"


def format_unseen_label(tagger: Tagger, label: str, language: str | None) -> str:
    """Return a label that the model does not have, with its name if the vocabulary has it."""
    name = None if tagger.concepts is None else tagger.concepts.find_name(label, language)
    return label if name in (None, label) else f"{name} ({label})"


def make_excerpt(
    tagger: Tagger, document: Document, ranked: Predictions, doc: int, names: Sequence[str], language: str | None
) -> Excerpt:
    """Return a document with its predictions, and the words in favour of the first wrong one."""
    labels, scores = ranked.labels[doc, :MAX_EXCERPT_ITEMS].tolist(), ranked.scores[doc, :MAX_EXCERPT_ITEMS].tolist()
    best = [(label, score) for label, score in zip(labels, scores, strict=True) if label != NO_LABEL]
    wrong = [label for label, _ in best if tagger.labels[label] not in document.labels]
    return Excerpt(
        document.id,
        make_snippet(document.text),
        [find_label_title(tagger, label, names, language) for label in document.labels],
        [(names[label], score) for label, score in best],
        find_misleading_words(tagger, document, wrong),
    )


def make_snippet(text: str) -> str:
    return text[:SNIPPET_CHARACTERS] + ("…" if len(text) > SNIPPET_CHARACTERS else "")


def find_label_title(tagger: Tagger, label: str, names: Sequence[str], language: str | None) -> str:
    label_id = tagger.labels.find(label)
    return format_unseen_label(tagger, label, language) if label_id == NO_LABEL else names[label_id]


def find_misleading_words(tagger: Tagger, document: Document, wrong: list[int]) -> list[str]:
    """Return the words in favour of the first wrong label; empty if the model reads no words or cannot explain."""
    if not wrong or not document.text:
        return []
    try:
        weights = tagger.explain(document.text, tagger.labels[wrong[0]], MAX_EXCERPT_ITEMS)
    except (XmtcError, NotImplementedError):
        return []
    return [word for word, weight in weights if weight > 0]
