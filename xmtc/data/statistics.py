"""Statistics of a corpus in one pass: those of the papers' data set tables, and what is worth knowing before training.

A word is a run of characters between white space, lower-cased. Memory grows with the number of documents, distinct
words and labels, not with the length of the texts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b

from xmtc.data.corpus import Corpus
from xmtc.data.document import Document


@dataclass(frozen=True)
class Statistics:
    """A data set in numbers."""

    documents: int
    features: int  # distinct words of a text corpus, columns of a feature corpus
    labels: int  # those that occur
    labels_per_document: float
    documents_per_label: float
    words_per_document: float | None  # None in a feature corpus
    features_per_document: float | None  # None in a text corpus
    duplicates: int  # documents, not empty, whose text or features occurred before
    empty_documents: int  # without a word or a feature
    unlabelled_documents: int
    labels_seen_once: int
    top_fifth_share: float  # share of all label assignments on the 20 % most frequent labels
    rejected: int  # bad lines that were skipped


@dataclass
class Tally:
    """Counts of the documents read so far."""

    documents: int = 0
    items: int = 0  # words, or features
    empty: int = 0
    unlabelled: int = 0
    columns: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    content_hashes: set[bytes] = field(default_factory=set)
    vocabulary: set[str] = field(default_factory=set)

    def add(self, document: Document) -> None:
        if document.features is None:
            words = document.text.lower().split()
            self.vocabulary.update(words)
            n_items = len(words)
        else:
            n_items = len(document.features[0])
            self.columns = max(self.columns, int(document.features[0][-1]) + 1 if n_items else 0)

        self.documents += 1
        self.items += n_items
        self.empty += not n_items
        self.unlabelled += not document.labels
        self.labels.update(document.labels)
        if n_items:
            self.content_hashes.add(_fingerprint(document))


def compute_corpus_statistics(corpus: Corpus) -> Statistics:
    """The statistics of a corpus."""
    tally = Tally()
    for document in corpus:
        tally.add(document)

    is_text = not corpus.has_features
    assignments = tally.labels.total()
    return Statistics(
        documents=tally.documents,
        features=len(tally.vocabulary) if is_text else corpus.n_features or tally.columns,
        labels=len(tally.labels),
        labels_per_document=assignments / tally.documents,
        documents_per_label=assignments / max(1, len(tally.labels)),
        words_per_document=tally.items / tally.documents if is_text else None,
        features_per_document=None if is_text else tally.items / tally.documents,
        duplicates=tally.documents - tally.empty - len(tally.content_hashes),
        empty_documents=tally.empty,
        unlabelled_documents=tally.unlabelled,
        labels_seen_once=sum(count == 1 for count in tally.labels.values()),
        top_fifth_share=top_fifth_share(tally.labels),
        rejected=corpus.n_rejected,
    )


def top_fifth_share(label_counts: Counter[str]) -> float:
    """Share of all label assignments that are of the 20 % most frequent labels, whose number is rounded up."""
    n_top = -(-len(label_counts) // 5)
    return sum(count for _, count in label_counts.most_common(n_top)) / max(1, label_counts.total())


def _fingerprint(document: Document) -> bytes:
    """8 bytes for the content: among a million documents, two that differ are taken for one with chance 3e-8."""
    if document.features is None:
        return blake2b(document.text.encode(), digest_size=8).digest()
    columns, values = document.features
    return blake2b(columns.tobytes() + values.tobytes(), digest_size=8).digest()
