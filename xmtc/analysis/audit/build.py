"""The audit of a corpus: everything that is suspected of it, in one table."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xmtc import features
from xmtc.analysis.audit.confident_learning import Suspects, suspects
from xmtc.analysis.audit.duplicate_labels import twins
from xmtc.analysis.audit.duplicates import Copies, Notes, copies
from xmtc.analysis.audit.folds import check_folds, fold_of, out_of_fold
from xmtc.analysis.audit.near_duplicates import NONE
from xmtc.core.run import Run
from xmtc.data.document import Document
from xmtc.data.label_collector import LabelCollector
from xmtc.errors import XmtcError
from xmtc.methods import method_name
from xmtc.methods.ensemble.calibrated import curve, of_documents, on_curve
from xmtc.output import Column, Record
from xmtc.pipeline import Pipeline, Prepared
from xmtc.vocabulary import Vocabulary
from xmtc.vocabulary.label_concepts import LabelConcepts

WRONG, MISSING, TWICE = "wrong label", "missing label", "same label"
COPY, NEAR, LEAK, NEAR_LEAK = "duplicate", "near-duplicate", "duplicate in test", "near-duplicate in test"
SAME = "the same labels"
CANDIDATES = 50  # labels of a document that are scored
COLUMNS = [
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

    def record(self) -> Record:
        return self._asdict() | {"score": round(float(self.score), 4)}


@dataclass(frozen=True)
class Audit:
    n_docs: int
    n_labels: int
    n_given: int  # assignments of labels to documents
    n_test: int | None  # documents that were looked for in the corpus
    findings: dict[str, list[Finding]]  # by kind, the worst first

    def records(self) -> Iterator[Record]:
        yield from (finding.record() for found in self.findings.values() for finding in found)


@dataclass(frozen=True)
class Corpora:
    """What was read, and what labels are called."""

    prepared: Prepared
    notes: Notes
    names: list[str]
    concepts: LabelConcepts | None = None

    @property
    def Y(self) -> csr_array:
        assert self.prepared.data.Y is not None
        return self.prepared.data.Y

    def called(self, label: int) -> str | None:
        return None if self.concepts is None else self.concepts.name(label)

    def titles(self, unseen: Iterable[str] = ()) -> list[str]:
        """Labels with their names, for sentences."""
        called = [self.called(label) for label in range(len(self.names))]
        known = [name if title is None else f"{title} ({name})" for name, title in zip(self.names, called, strict=True)]
        return [*known, *unseen]


def audit(
    documents: Iterable[Document],
    pipeline: Pipeline,
    *,
    test: Iterable[Document] | None = None,
    folds: int = 5,
    k: int = CANDIDATES,
    seed: int = 0,
    vocabulary: Vocabulary | None = None,
    language: str | None = None,
    run: Run = Run(),
    tell: Callable[[str], None] = lambda sentence: None,
) -> Audit:
    """Everything that is suspected of labelled documents, which may be a stream."""
    check_folds(folds)
    if pipeline.method.has_label_name_input:
        name = method_name(pipeline.method)
        raise XmtcError(f"{name} knows labels by their names, not by documents; choose another --method to judge them.")
    notes = Notes()
    prepared = pipeline.prepare(notes.watch(documents), run)
    names = prepared.labels.words()
    concepts = None if vocabulary is None else LabelConcepts.of(vocabulary, names, language)
    corpora = Corpora(prepared, notes, names, concepts)
    tell(plan(corpora, method_name(pipeline.method), folds, test is not None))
    wrong, missing = judged(corpora, pipeline, folds, k, seed, run)
    inside = copies(np.array(notes.prints), notes.words(), run=run)
    leaks, n_test = (None, None) if test is None else across(corpora, test, run)
    return Audit(
        n_docs=prepared.data.n_docs,
        n_labels=len(names),
        n_given=corpora.Y.nnz,
        n_test=n_test,
        findings={
            WRONG: list(suspected(corpora, wrong, WRONG, "take it away")),
            MISSING: list(suspected(corpora, missing, MISSING, "add it")),
            **by_kind(copied(corpora, inside), (COPY, NEAR)),
            **({} if leaks is None else by_kind(leaks, (LEAK, NEAR_LEAK))),
            TWICE: list(same_labels(corpora, run)),
        },
    )


def plan(corpora: Corpora, method: str, folds: int, has_test: bool) -> str:
    n_docs = len(corpora.notes.ids)
    beside = " and across corpus and test" if has_test else ""
    return (
        f"{n_docs:,} documents with {len(corpora.names):,} labels: {folds} trainings of {method} on "
        f"{n_docs - n_docs // folds:,} documents each judge the labels of the others; then documents are compared in "
        f"the corpus{beside}, and labels with each other."
    )


def judged(corpora: Corpora, pipeline: Pipeline, folds: int, k: int, seed: int, run: Run) -> tuple[Suspects, Suspects]:
    """Labels that are likely wrong, and those that are likely missing. Scores become probabilities before: what they
    turn out to mean, by the labels that are given."""
    where = fold_of(np.array(corpora.notes.prints), folds, seed)
    found = out_of_fold(pipeline.method, corpora.prepared.data, where, min(k, len(corpora.names)), run)
    # of others nothing can be said
    known = np.flatnonzero(features.known(corpora.prepared.fitted, corpora.prepared.data))
    found, Y = of_documents(found, known), corpora.Y[known]
    wrong, missing = suspects(on_curve(found, *curve(found, Y)), Y)
    return replace(wrong, documents=known[wrong.documents]), replace(missing, documents=known[missing.documents])


def suspected(corpora: Corpora, found: Suspects, kind: str, suggestion: str) -> Iterator[Finding]:
    notes = corpora.notes
    for document, label, sureness in zip(
        found.documents.tolist(), found.labels.tolist(), found.sureness.tolist(), strict=True
    ):
        name = corpora.called(label)
        told = f"look whether to {suggestion}"
        label_name = corpora.names[label]
        beginning = notes.beginnings[document]
        yield Finding(kind, document + 1, notes.ids[document], label_name, name, sureness, None, told, beginning)


def copied(corpora: Corpora, found: Copies) -> Iterator[Finding]:
    """Documents that stand in the corpus before."""
    notes, titles = corpora.notes, corpora.titles()
    for document in np.flatnonzero(found.other != NONE).tolist():
        other = int(found.other[document])
        kind = COPY if found.is_exact[document] else NEAR
        told = on_labels(kind, row(corpora.Y, document), row(corpora.Y, other), titles)
        yield as_copy(notes, kind, document, notes.ids[other], float(found.similarity[document]), told)


def across(corpora: Corpora, test: Iterable[Document], run: Run) -> tuple[list[Finding], int]:
    """Documents of the corpus that are in the test corpus, too, and how many that has."""
    notes, collector, first = corpora.notes, LabelCollector(), corpora.prepared.data.n_docs
    deque(collector.watch(notes.watch(test)), maxlen=0)
    titles = corpora.titles(sorted(collector.numbers.keys() - set(corpora.names)))
    Y, found = collector.matrix(corpora.names), copies(np.array(notes.prints), notes.words(), first, run)
    leaks = []
    for number in np.flatnonzero(found.other != NONE).tolist():
        document = int(found.other[number])
        kind = LEAK if found.is_exact[number] else NEAR_LEAK
        told = on_labels(kind, row(corpora.Y, document), row(Y, number - first), titles)
        leaks.append(as_copy(notes, kind, document, notes.ids[number], float(found.similarity[number]), told))
    return leaks, len(notes.ids) - first


def as_copy(notes: Notes, kind: str, document: int, other: str, similarity: float, suggestion: str) -> Finding:
    beginning = notes.beginnings[document]
    return Finding(kind, document + 1, notes.ids[document], None, None, similarity, other, suggestion, beginning)


def on_labels(kind: str, here: set[int], there: set[int], titles: list[str]) -> str:
    """What to do about two documents that are the same, by their labels."""
    one = "keep one of them" if kind in (COPY, NEAR) else "leave it out of one of the two"
    if here == there:
        return f"{SAME}: {one}"
    sides = (("here", here - there), ("there", there - here))
    only = [f"only {place} {', '.join(sorted(titles[label] for label in each))}" for place, each in sides if each]
    todo = "make them the same" if kind in (COPY, LEAK) else "look whether they should differ"
    return f"other labels ({'; '.join(only)}): {todo}, or {one}"


def by_kind(found: Iterable[Finding], kinds: Sequence[str]) -> dict[str, list[Finding]]:
    """Of each kind, those whose labels differ first."""
    worst = sorted(found, key=lambda each: (each.suggestion.startswith(SAME), -each.score, each.document))
    return {kind: [each for each in worst if each.kind == kind] for kind in kinds}


def same_labels(corpora: Corpora, run: Run) -> Iterator[Finding]:
    frequencies, titles = np.bincount(corpora.Y.indices, minlength=len(corpora.names)), corpora.titles()
    for each in twins(corpora.names, corpora.Y, corpora.concepts, run):
        label, other = corpora.names[each.label], corpora.names[each.other]
        counts = f"{frequencies[each.label]:,} and {frequencies[each.other]:,} documents"
        told = f"{each.because} ({counts}): look whether {titles[each.other]} is enough"
        yield Finding(TWICE, None, None, label, corpora.called(each.label), each.score, other, told, "")


def row(Y: csr_array, document: int) -> set[int]:
    return set(Y.indices[Y.indptr[document] : Y.indptr[document + 1]].tolist())
