"""The words of a corpus, counted once: what the terms of any analyzer are made from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from xmtc.base.run import Run
from xmtc.compiled import kernel
from xmtc.text.analyzers import Pieces
from xmtc.text.tokenizer import Counts, Tokenizer, batches
from xmtc.text.vocabulary import FREE, end_to_end, merge

FEW_NEW = 0.04  # new words, below which words are enough


class Entries(NamedTuple):
    """How often each document of a batch holds each term."""

    starts: np.ndarray  # (n_docs + 1,) int64, document i has entries starts[i]:starts[i + 1]
    terms: np.ndarray  # (n_entries,) int32
    counts: np.ndarray  # (n_entries,) int32

    @classmethod
    def of(cls, counts: Counts) -> Entries:
        return cls(counts.starts, counts.terms, counts.counts)


@dataclass(frozen=True)
class Counted:
    """Documents as words with their counts, in batches; words are numbered through all of them."""

    text: np.ndarray  # uint8, the distinct words end to end
    ends: np.ndarray  # (n_words + 1,) int64
    batches: list[Entries]

    @classmethod
    def of(cls, tokenizer: Tokenizer, contents: Iterable[str], run: Run) -> Counted:
        """Texts may be a stream: only their counts are kept."""
        counts = list(run.map(tokenizer.count, batches(contents), "reading texts", size=len))
        text, ends, numbers = merge([(c.text, c.ends) for c in counts])
        parts = [Entries(c.starts, n[c.terms], c.counts) for n, c in zip(numbers, counts, strict=True)]
        return cls(text, ends, parts)

    @property
    def n_docs(self) -> int:
        return sum(len(batch.starts) - 1 for batch in self.batches)

    @property
    def lengths(self) -> np.ndarray:
        """Distinct words of each document."""
        return np.concatenate([np.zeros(0, np.int64), *(np.diff(batch.starts) for batch in self.batches)])

    def rows(self, documents: np.ndarray) -> Counted:
        """Some documents, given in ascending order, in one batch, and the words that occur in them."""
        lengths, terms, counts, first = [np.zeros(1, np.int64)], [], [], 0
        for batch in self.batches:
            after = first + len(batch.starts) - 1
            here = documents[(documents >= first) & (documents < after)] - first
            kept = np.zeros(after - first, bool)
            kept[here] = True
            entries = np.repeat(kept, np.diff(batch.starts))
            lengths.append(np.diff(batch.starts)[here])
            terms.append(batch.terms[entries])
            counts.append(batch.counts[entries])
            first = after
        used, numbers = np.unique(np.concatenate(terms), return_inverse=True)
        text, ends = end_to_end([bytes(self.text[self.ends[i] : self.ends[i + 1]]) for i in used])
        starts = np.cumsum(np.concatenate(lengths))
        return Counted(text, ends, [Entries(starts, numbers.astype(np.int32), np.concatenate(counts))])

    def as_counts(self) -> Counts:
        """Of one batch."""
        (batch,) = self.batches
        return Counts(self.text, self.ends, *batch)

    @property
    def n_words(self) -> int:
        return len(self.ends) - 1

    @property
    def n_entries(self) -> int:
        """Distinct words of all documents together."""
        return sum(len(batch.terms) for batch in self.batches)

    def frequencies(self) -> np.ndarray:
        """In how many documents each word occurs."""
        return total((np.bincount(batch.terms, minlength=self.n_words) for batch in self.batches), self.n_words)

    @property
    def new_words(self) -> float:
        """The chance that a word of a new document is unknown: the share of words that occur in a single document (Good
        and Turing's estimate)."""
        return int((self.frequencies() == 1).sum()) / max(1, self.n_entries)

    def frequencies_of(self, pieces: Pieces, run: Run) -> np.ndarray:
        """In how many documents each term occurs that words become."""
        n_terms = len(pieces.ends) - 1

        def count(batch: Entries) -> np.ndarray:
            return np.bincount(spread(batch, pieces.starts, pieces.numbers, n_terms).terms, minlength=n_terms)

        return total(run.map(count, self.batches, "counting terms", total=len(self.batches)), n_terms)


def total(counts: Iterable[np.ndarray], n: int) -> np.ndarray:
    return sum(counts, np.zeros(n, np.int64))


def with_columns(pieces: Pieces, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The columns of the terms of each word, of those that have one: word i has columns[starts[i]:starts[i + 1]]."""
    found = columns[pieces.numbers]
    kept = found != FREE
    return np.concatenate([[0], np.cumsum(kept)])[pieces.starts], found[kept]


def spread(batch: Entries, starts: np.ndarray, numbers: np.ndarray, n_terms: int) -> Entries:
    """Counts of words as counts of the terms that they become; word i is numbers[starts[i]:starts[i + 1]]."""
    room = int((starts[batch.terms + 1] - starts[batch.terms]).sum())
    found = np.zeros_like(batch.starts), np.empty(room, np.int32), np.empty(room, np.int32)
    n = spread_counts(*batch, starts, numbers, np.full(n_terms, -1), *found)
    return Entries(found[0], found[1][:n], found[2][:n])


@kernel
def spread_counts(starts, words, counts, word_starts, numbers, latest, new_starts, terms, new_counts):
    """`spread`, written into its last three arguments; returns how many entries there are. latest[t] is where term t
    was written last: in this document, if not before it begins."""
    n = np.int64(0)
    for doc in range(len(starts) - 1):
        for entry in range(starts[doc], starts[doc + 1]):
            word, count = words[entry], counts[entry]
            for i in range(word_starts[word], word_starts[word + 1]):
                term = numbers[i]
                if latest[term] < new_starts[doc]:
                    latest[term], terms[n], new_counts[n] = n, term, 0
                    n += 1
                new_counts[latest[term]] += count
        new_starts[doc + 1] = n
    return n
