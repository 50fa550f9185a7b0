"""Statistics of a corpus, computed in one pass: those of papers' data set tables, and indicators of problems.

A word is a lower-cased run of characters between white space. Memory grows with the number of documents, distinct words
and labels, not with the length of the texts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b

from xmtc.data.corpus import Corpus
from xmtc.data.document import Document


@dataclass(frozen=True)
class Statistics:
    """Statistics of a corpus."""

    documents: int
    features: int  # distinct words of a text corpus, columns of a feature corpus
    labels: int  # that occur
    labels_per_document: float
    documents_per_label: float
    words_per_document: float | None  # None in a feature corpus
    features_per_document: float | None  # None in a text corpus
    duplicates: int  # documents that are not empty and whose text or features occurred before
    empty_documents: int  # without words or features
    unlabelled_documents: int
    labels_seen_once: int
    top_fifth_share: float  # share of the label assignments that the 20 % most frequent labels have
    rejected: int  # skipped bad lines


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
    """Read a corpus once and return its statistics."""
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
    """Return the share of label assignments that the 20 % most frequent labels (rounded up) have."""
    n_top = -(-len(label_counts) // 5)
    return sum(count for _, count in label_counts.most_common(n_top)) / max(1, label_counts.total())


def _fingerprint(document: Document) -> bytes:
    """Return an 8-byte hash of the content; the chance of a collision among a million documents is 3e-8."""
    if document.features is None:
        return blake2b(document.text.encode(), digest_size=8).digest()
    columns, values = document.features
    return blake2b(columns.tobytes() + values.tobytes(), digest_size=8).digest()
