"""Audit of a corpus: all findings in one table."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xmtc import features
from xmtc.analysis.audit.confident_learning import SuspectLabels, find_label_errors
from xmtc.analysis.audit.duplicate_labels import find_duplicate_labels
from xmtc.analysis.audit.duplicates import DocumentCollector, DuplicateDocuments, find_duplicate_documents
from xmtc.analysis.audit.folds import assign_folds, check_folds, predict_out_of_fold
from xmtc.analysis.audit.near_duplicates import NO_ROW
from xmtc.core.run import Run
from xmtc.data.document import Document
from xmtc.data.label_collector import LabelCollector
from xmtc.errors import XmtcError
from xmtc.methods import method_name
from xmtc.methods.ensemble.calibrated_model import apply_isotonic_curve, fit_isotonic_curve, select_prediction_rows
from xmtc.output import Column, Record
from xmtc.pipeline import Pipeline, TrainingData
from xmtc.vocabulary import Vocabulary
from xmtc.vocabulary.label_concepts import LabelConcepts

WRONG_LABEL, MISSING_LABEL, DUPLICATE_LABEL = "wrong label", "missing label", "same label"
DUPLICATE, NEAR_DUPLICATE, DUPLICATE_IN_TEST, NEAR_DUPLICATE_IN_TEST = (
    "duplicate",
    "near-duplicate",
    "duplicate in test",
    "near-duplicate in test",
)
SAME_LABELS_PREFIX = "the same labels"
MAX_SCORED_LABELS = 50  # per document
FINDING_COLUMNS = [
    Column("kind", str), Column("document", int), Column("id", str), Column("label", str), Column("name", str),
    Column("score", float), Column("other", str), Column("suggestion", str), Column("text", str),
]  # fmt: skip


class Finding(NamedTuple):
    """Probable error in a corpus. `score` is its confidence or, of duplicates, their similarity."""

    kind: str
    document: int | None  # position in the corpus, from 1
    id: str | None
    label: str | None
    name: str | None  # of the label, from a vocabulary
    score: float
    other: str | None  # id of the other document, or the other label
    suggestion: str
    text: str  # beginning of the document

    def to_record(self) -> Record:
        return self._asdict() | {"score": round(float(self.score), 4)}


@dataclass(frozen=True)
class Audit:
    """Findings in a corpus, and its size."""

    n_docs: int
    n_labels: int
    n_assignments: int
    n_test: int | None  # documents of the test corpus
    findings: dict[str, list[Finding]]  # by kind, the most confident first

    def records(self) -> Iterator[Record]:
        yield from (finding.to_record() for findings in self.findings.values() for finding in findings)


@dataclass(frozen=True)
class AuditedCorpus:
    """Views of a corpus, and the names of its labels."""

    prepared: TrainingData
    collected: DocumentCollector
    names: list[str]
    concepts: LabelConcepts | None = None

    @property
    def Y(self) -> csr_array:
        assert self.prepared.data.Y is not None
        return self.prepared.data.Y

    def get_label_name(self, label: int) -> str | None:
        return None if self.concepts is None else self.concepts.name(label)

    def label_titles(self, unseen: Iterable[str] = ()) -> list[str]:
        """Return labels with their names in the vocabulary, then the labels that the corpus lacks."""
        titles = [self.get_label_name(label) for label in range(len(self.names))]
        known = [name if title is None else f"{title} ({name})" for name, title in zip(self.names, titles, strict=True)]
        return [*known, *unseen]


def audit(
    documents: Iterable[Document],
    pipeline: Pipeline,
    *,
    test: Iterable[Document] | None = None,
    folds: int = 5,
    k: int = MAX_SCORED_LABELS,
    seed: int = 0,
    vocabulary: Vocabulary | None = None,
    language: str | None = None,
    run: Run = Run(),
    report_progress: Callable[[str], None] = lambda sentence: None,
) -> Audit:
    """Audit labelled documents; both corpora may be streams."""
    check_folds(folds)
    pipeline.refuse_auto("audit")
    if pipeline.method.has_label_name_input:
        name = method_name(pipeline.method)
        raise XmtcError(f"{name} matches label names and learns nothing from documents; choose another --method.")
    notes = DocumentCollector()
    prepared = replace(pipeline, names=None).prepare(notes.watch(documents), run)
    names = prepared.labels.words()
    concepts = None if vocabulary is None else LabelConcepts.from_labels(vocabulary, names, language)
    corpora = AuditedCorpus(prepared, notes, names, concepts)
    report_progress(describe_plan(corpora, method_name(pipeline.method), folds, test is not None))
    wrong, missing = cross_validate_labels(corpora, pipeline, folds, k, seed, run)
    inside = find_duplicate_documents(np.array(notes.fingerprints), notes.word_matrix(), run=run)
    leaks, n_test = (None, None) if test is None else find_test_duplicates(corpora, test, run)
    return Audit(
        n_docs=prepared.data.n_docs,
        n_labels=len(names),
        n_assignments=corpora.Y.nnz,
        n_test=n_test,
        findings={
            WRONG_LABEL: list(make_label_findings(corpora, wrong, WRONG_LABEL, "remove it")),
            MISSING_LABEL: list(make_label_findings(corpora, missing, MISSING_LABEL, "add it")),
            **group_by_kind(make_duplicate_findings(corpora, inside), (DUPLICATE, NEAR_DUPLICATE)),
            **({} if leaks is None else group_by_kind(leaks, (DUPLICATE_IN_TEST, NEAR_DUPLICATE_IN_TEST))),
            DUPLICATE_LABEL: list(make_duplicate_label_findings(corpora, run)),
        },
    )


def describe_plan(corpora: AuditedCorpus, method: str, folds: int, has_test: bool) -> str:
    n_docs = len(corpora.collected.ids)
    beside = " (also in the test corpus)" if has_test else ""
    return (
        f"{n_docs:,} documents with {len(corpora.names):,} labels: {folds}-fold cross-validation of {method}, then a "
        f"search for duplicate documents{beside} and duplicate labels."
    )


def cross_validate_labels(
    corpora: AuditedCorpus, pipeline: Pipeline, folds: int, k: int, seed: int, run: Run
) -> tuple[SuspectLabels, SuspectLabels]:
    """Return probably wrong and probably missing labels, from calibrated out-of-fold predictions."""
    fold_of = assign_folds(np.array(corpora.collected.fingerprints), folds, seed)
    predictions = predict_out_of_fold(pipeline.method, corpora.prepared.data, fold_of, min(k, len(corpora.names)), run)
    # documents without a known word have no meaningful scores
    known = np.flatnonzero(features.mark_known_documents(corpora.prepared.fitted_views, corpora.prepared.data))
    predictions, Y = select_prediction_rows(predictions, known), corpora.Y[known]
    wrong, missing = find_label_errors(apply_isotonic_curve(predictions, *fit_isotonic_curve(predictions, Y)), Y)
    return replace(wrong, documents=known[wrong.documents]), replace(missing, documents=known[missing.documents])


def make_label_findings(
    corpora: AuditedCorpus, suspects: SuspectLabels, kind: str, suggestion: str
) -> Iterator[Finding]:
    notes = corpora.collected
    for document, label, confidence in zip(
        suspects.documents.tolist(), suspects.labels.tolist(), suspects.confidence.tolist(), strict=True
    ):
        name = corpora.get_label_name(label)
        advice = f"check whether to {suggestion}"
        label_name = corpora.names[label]
        snippet = notes.snippets[document]
        yield Finding(kind, document + 1, notes.ids[document], label_name, name, confidence, None, advice, snippet)


def make_duplicate_findings(corpora: AuditedCorpus, duplicates: DuplicateDocuments) -> Iterator[Finding]:
    """Yield documents that duplicate an earlier one of the corpus."""
    notes, titles = corpora.collected, corpora.label_titles()
    for document in np.flatnonzero(duplicates.other != NO_ROW).tolist():
        other = int(duplicates.other[document])
        kind = DUPLICATE if duplicates.is_exact[document] else NEAR_DUPLICATE
        labels, other_labels = get_label_set(corpora.Y, document), get_label_set(corpora.Y, other)
        advice = suggest_for_duplicates(kind, labels, other_labels, titles)
        similarity = float(duplicates.similarity[document])
        yield as_duplicate_finding(notes, kind, document, notes.ids[other], similarity, advice)


def find_test_duplicates(corpora: AuditedCorpus, test: Iterable[Document], run: Run) -> tuple[list[Finding], int]:
    """Return documents that the test corpus duplicates, and the number of test documents."""
    notes, collector, first = corpora.collected, LabelCollector(), corpora.prepared.data.n_docs
    deque(collector.collect(notes.watch(test)), maxlen=0)
    titles = corpora.label_titles(sorted(collector.id_by_label.keys() - set(corpora.names)))
    Y = collector.to_matrix(corpora.names)
    duplicates = find_duplicate_documents(np.array(notes.fingerprints), notes.word_matrix(), first, run)
    findings = []
    for row in np.flatnonzero(duplicates.other != NO_ROW).tolist():
        document = int(duplicates.other[row])
        kind = DUPLICATE_IN_TEST if duplicates.is_exact[row] else NEAR_DUPLICATE_IN_TEST
        labels, test_labels = get_label_set(corpora.Y, document), get_label_set(Y, row - first)
        advice = suggest_for_duplicates(kind, labels, test_labels, titles)
        similarity = float(duplicates.similarity[row])
        findings.append(as_duplicate_finding(notes, kind, document, notes.ids[row], similarity, advice))
    return findings, len(notes.ids) - first


def as_duplicate_finding(
    notes: DocumentCollector, kind: str, document: int, other: str, similarity: float, suggestion: str
) -> Finding:
    snippet = notes.snippets[document]
    return Finding(kind, document + 1, notes.ids[document], None, None, similarity, other, suggestion, snippet)


def suggest_for_duplicates(kind: str, here: set[int], there: set[int], titles: list[str]) -> str:
    """Return advice on two duplicate documents, which depends on their labels."""
    one = "keep one of them" if kind in (DUPLICATE, NEAR_DUPLICATE) else "remove it from one corpus"
    if here == there:
        return f"{SAME_LABELS_PREFIX}: {one}"
    sides = (("here", here - there), ("there", there - here))
    only = [f"only {place} {', '.join(sorted(titles[label] for label in each))}" for place, each in sides if each]
    todo = "make them the same" if kind in (DUPLICATE, DUPLICATE_IN_TEST) else "check whether they should differ"
    return f"different labels ({'; '.join(only)}): {todo}, or {one}"


def group_by_kind(findings: Iterable[Finding], kinds: Sequence[str]) -> dict[str, list[Finding]]:
    """Group findings by kind; those with different labels come first."""
    ordered = sorted(
        findings, key=lambda each: (each.suggestion.startswith(SAME_LABELS_PREFIX), -each.score, each.document)
    )
    return {kind: [finding for finding in ordered if finding.kind == kind] for kind in kinds}


def make_duplicate_label_findings(corpora: AuditedCorpus, run: Run) -> Iterator[Finding]:
    frequencies, titles = np.bincount(corpora.Y.indices, minlength=len(corpora.names)), corpora.label_titles()
    for pair in find_duplicate_labels(corpora.names, corpora.Y, corpora.concepts, run):
        label, other = corpora.names[pair.label], corpora.names[pair.other]
        counts = f"{frequencies[pair.label]:,} and {frequencies[pair.other]:,} documents"
        advice = f"{pair.reason} ({counts}): check whether {titles[pair.other]} suffices"
        yield Finding(
            DUPLICATE_LABEL, None, None, label, corpora.get_label_name(pair.label), pair.score, other, advice, ""
        )


def get_label_set(Y: csr_array, document: int) -> set[int]:
    return set(Y.indices[Y.indptr[document] : Y.indptr[document + 1]].tolist())
