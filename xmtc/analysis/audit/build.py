"""The audit of a corpus: everything that is suspected of it, in one table."""

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
MAX_SCORED_LABELS = 50  # labels of a document that are scored
FINDING_COLUMNS = [
    Column("kind", str), Column("document", int), Column("id", str), Column("label", str), Column("name", str),
    Column("score", float), Column("other", str), Column("suggestion", str), Column("text", str),
]  # fmt: skip


class Finding(NamedTuple):
    """Something to look at. `score` says how sure it is or, of copies and twins, how much they have in common."""

    kind: str
    document: int | None  # its number in the corpus, from 1 on
    id: str | None
    label: str | None
    name: str | None  # what the label is called, where a vocabulary tells
    score: float
    other: str | None  # the id of the other document, or the other label
    suggestion: str
    text: str  # how the document begins

    def to_record(self) -> Record:
        return self._asdict() | {"score": round(float(self.score), 4)}


@dataclass(frozen=True)
class Audit:
    n_docs: int
    n_labels: int
    n_assignments: int  # assignments of labels to documents
    n_test: int | None  # documents that were looked for in the corpus
    findings: dict[str, list[Finding]]  # by kind, the worst first

    def records(self) -> Iterator[Record]:
        yield from (finding.to_record() for found in self.findings.values() for finding in found)


@dataclass(frozen=True)
class AuditedCorpus:
    """What was read, and what labels are called."""

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
        """Labels with their names, for sentences."""
        called = [self.get_label_name(label) for label in range(len(self.names))]
        known = [name if title is None else f"{title} ({name})" for name, title in zip(self.names, called, strict=True)]
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
    """Everything that is suspected of labelled documents, which may be a stream."""
    check_folds(folds)
    if pipeline.method.has_label_name_input:
        name = method_name(pipeline.method)
        raise XmtcError(f"{name} knows labels by their names, not by documents; choose another --method to judge them.")
    notes = DocumentCollector()
    prepared = pipeline.prepare(notes.watch(documents), run)
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
            WRONG_LABEL: list(make_label_findings(corpora, wrong, WRONG_LABEL, "take it away")),
            MISSING_LABEL: list(make_label_findings(corpora, missing, MISSING_LABEL, "add it")),
            **group_by_kind(make_duplicate_findings(corpora, inside), (DUPLICATE, NEAR_DUPLICATE)),
            **({} if leaks is None else group_by_kind(leaks, (DUPLICATE_IN_TEST, NEAR_DUPLICATE_IN_TEST))),
            DUPLICATE_LABEL: list(make_duplicate_label_findings(corpora, run)),
        },
    )


def describe_plan(corpora: AuditedCorpus, method: str, folds: int, has_test: bool) -> str:
    n_docs = len(corpora.collected.ids)
    beside = " and across corpus and test" if has_test else ""
    return (
        f"{n_docs:,} documents with {len(corpora.names):,} labels: {folds} trainings of {method} on "
        f"{n_docs - n_docs // folds:,} documents each judge the labels of the others; then documents are compared in "
        f"the corpus{beside}, and labels with each other."
    )


def cross_validate_labels(
    corpora: AuditedCorpus, pipeline: Pipeline, folds: int, k: int, seed: int, run: Run
) -> tuple[SuspectLabels, SuspectLabels]:
    """Labels that are likely wrong, and those that are likely missing. Scores become probabilities before: what they
    turn out to mean, by the labels that are given."""
    where = assign_folds(np.array(corpora.collected.fingerprints), folds, seed)
    found = predict_out_of_fold(pipeline.method, corpora.prepared.data, where, min(k, len(corpora.names)), run)
    # of others nothing can be said
    known = np.flatnonzero(features.mark_known_documents(corpora.prepared.fitted_views, corpora.prepared.data))
    found, Y = select_prediction_rows(found, known), corpora.Y[known]
    wrong, missing = find_label_errors(apply_isotonic_curve(found, *fit_isotonic_curve(found, Y)), Y)
    return replace(wrong, documents=known[wrong.documents]), replace(missing, documents=known[missing.documents])


def make_label_findings(corpora: AuditedCorpus, found: SuspectLabels, kind: str, suggestion: str) -> Iterator[Finding]:
    notes = corpora.collected
    for document, label, sureness in zip(
        found.documents.tolist(), found.labels.tolist(), found.confidence.tolist(), strict=True
    ):
        name = corpora.get_label_name(label)
        told = f"look whether to {suggestion}"
        label_name = corpora.names[label]
        beginning = notes.snippets[document]
        yield Finding(kind, document + 1, notes.ids[document], label_name, name, sureness, None, told, beginning)


def make_duplicate_findings(corpora: AuditedCorpus, found: DuplicateDocuments) -> Iterator[Finding]:
    """Documents that stand in the corpus before."""
    notes, titles = corpora.collected, corpora.label_titles()
    for document in np.flatnonzero(found.other != NO_ROW).tolist():
        other = int(found.other[document])
        kind = DUPLICATE if found.is_exact[document] else NEAR_DUPLICATE
        told = suggest_for_duplicates(kind, get_label_set(corpora.Y, document), get_label_set(corpora.Y, other), titles)
        yield as_duplicate_finding(notes, kind, document, notes.ids[other], float(found.similarity[document]), told)


def find_test_duplicates(corpora: AuditedCorpus, test: Iterable[Document], run: Run) -> tuple[list[Finding], int]:
    """Documents of the corpus that are in the test corpus, too, and how many that has."""
    notes, collector, first = corpora.collected, LabelCollector(), corpora.prepared.data.n_docs
    deque(collector.collect(notes.watch(test)), maxlen=0)
    titles = corpora.label_titles(sorted(collector.id_by_label.keys() - set(corpora.names)))
    Y, found = (
        collector.to_matrix(corpora.names),
        find_duplicate_documents(np.array(notes.fingerprints), notes.word_matrix(), first, run),
    )
    leaks = []
    for number in np.flatnonzero(found.other != NO_ROW).tolist():
        document = int(found.other[number])
        kind = DUPLICATE_IN_TEST if found.is_exact[number] else NEAR_DUPLICATE_IN_TEST
        told = suggest_for_duplicates(
            kind, get_label_set(corpora.Y, document), get_label_set(Y, number - first), titles
        )
        leaks.append(
            as_duplicate_finding(notes, kind, document, notes.ids[number], float(found.similarity[number]), told)
        )
    return leaks, len(notes.ids) - first


def as_duplicate_finding(
    notes: DocumentCollector, kind: str, document: int, other: str, similarity: float, suggestion: str
) -> Finding:
    beginning = notes.snippets[document]
    return Finding(kind, document + 1, notes.ids[document], None, None, similarity, other, suggestion, beginning)


def suggest_for_duplicates(kind: str, here: set[int], there: set[int], titles: list[str]) -> str:
    """What to do about two documents that are the same, by their labels."""
    one = "keep one of them" if kind in (DUPLICATE, NEAR_DUPLICATE) else "leave it out of one of the two"
    if here == there:
        return f"{SAME_LABELS_PREFIX}: {one}"
    sides = (("here", here - there), ("there", there - here))
    only = [f"only {place} {', '.join(sorted(titles[label] for label in each))}" for place, each in sides if each]
    todo = "make them the same" if kind in (DUPLICATE, DUPLICATE_IN_TEST) else "look whether they should differ"
    return f"other labels ({'; '.join(only)}): {todo}, or {one}"


def group_by_kind(found: Iterable[Finding], kinds: Sequence[str]) -> dict[str, list[Finding]]:
    """Of each kind, those whose labels differ first."""
    worst = sorted(found, key=lambda each: (each.suggestion.startswith(SAME_LABELS_PREFIX), -each.score, each.document))
    return {kind: [each for each in worst if each.kind == kind] for kind in kinds}


def make_duplicate_label_findings(corpora: AuditedCorpus, run: Run) -> Iterator[Finding]:
    frequencies, titles = np.bincount(corpora.Y.indices, minlength=len(corpora.names)), corpora.label_titles()
    for each in find_duplicate_labels(corpora.names, corpora.Y, corpora.concepts, run):
        label, other = corpora.names[each.label], corpora.names[each.other]
        counts = f"{frequencies[each.label]:,} and {frequencies[each.other]:,} documents"
        told = f"{each.reason} ({counts}): look whether {titles[each.other]} is enough"
        yield Finding(
            DUPLICATE_LABEL, None, None, label, corpora.get_label_name(each.label), each.score, other, told, ""
        )


def get_label_set(Y: csr_array, document: int) -> set[int]:
    return set(Y.indices[Y.indptr[document] : Y.indptr[document + 1]].tolist())
