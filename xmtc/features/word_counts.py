"""The words of a corpus, counted once: what the terms of any analyzer are made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from xmtc.core.numba_support import kernel
from xmtc.core.run import Run
from xmtc.data.batch import Texts
from xmtc.storage.disk_arrays import ArrayStore
from xmtc.text.analyzers import WordTerms
from xmtc.text.string_index import NOT_FOUND, WordMerger, select_words
from xmtc.text.tokenizer import BatchTermCounts, Tokenizer, batch_texts

MAX_NEW_WORD_SHARE = 0.04  # new words, below which words are enough


class TermCounts(NamedTuple):
    """How often each document of a batch holds each term."""

    starts: np.ndarray  # (n_docs + 1,) int64, document i has entries starts[i]:starts[i + 1]
    terms: np.ndarray  # (n_entries,) int32
    counts: np.ndarray  # (n_entries,) int32

    @classmethod
    def from_batch(cls, counts: BatchTermCounts) -> TermCounts:
        return cls(counts.starts, counts.terms, counts.counts)


@dataclass(frozen=True)
class StoredCounts:
    """The counts of a batch, put away. Its words are numbered by themselves, so that they take few bytes."""

    numbers: np.ndarray  # (n_words of the batch,) int32, which of the words of all batches they are
    frequencies: np.ndarray  # (n_words of the batch,) int32, documents that hold each
    n_docs: int
    load_lengths: Callable[[], np.ndarray]  # of the documents, in entries
    load_terms: Callable[[], np.ndarray]
    load_counts: Callable[[], np.ndarray]

    @classmethod
    def from_counts(cls, batch: TermCounts, n_words: int, shelf: ArrayStore) -> StoredCounts:
        lengths = np.diff(batch.starts)
        return cls(
            np.arange(n_words, dtype=np.int32),
            np.bincount(batch.terms, minlength=n_words).astype(np.int32),
            len(lengths),
            *(shelf.put(shrink_dtype(part)) for part in (lengths, batch.terms, batch.counts)),
        )

    def restore(self) -> TermCounts:
        """The counts, with the words numbered through all batches."""
        starts = np.concatenate([[0], np.cumsum(self.load_lengths(), dtype=np.int64)])
        return TermCounts(starts, self.numbers[self.load_terms()], self.load_counts().astype(np.int32))


@dataclass(frozen=True)
class WordCounts:
    """Documents as words with their counts, in batches; words are numbered through all of them."""

    text: np.ndarray  # uint8, the distinct words end to end
    ends: np.ndarray  # (n_words + 1,) int64
    batches: list[StoredCounts]

    @classmethod
    def from_texts(cls, tokenizer: Tokenizer, contents: Iterable[str | Texts], run: Run) -> WordCounts:
        """Texts may be a stream: only their counts are kept, in the run's folder if it has one."""
        shelf, words, held = ArrayStore(run.workdir), WordMerger(), []

        def count(batch: Iterable[str]) -> tuple[np.ndarray, np.ndarray, StoredCounts]:
            found = tokenizer.count(Texts.from_strings(batch))  # as Texts, they are normalised by compiled code, too
            return (
                found.text,
                found.ends,
                StoredCounts.from_counts(TermCounts.from_batch(found), len(found.ends) - 1, shelf),
            )

        for text, ends, counts in run.map(count, batch_texts(contents), "reading texts", size=len):
            words.add(text, ends)
            held.append(counts)
        words.merge()
        numbered = zip(held, words.numbers, strict=True)
        return cls(words.text, words.ends, [replace(batch, numbers=numbers) for batch, numbers in numbered])

    @cached_property
    def n_docs(self) -> int:
        return sum(batch.n_docs for batch in self.batches)

    @property
    def lengths(self) -> np.ndarray:
        """Distinct words of each document."""
        return np.concatenate([np.zeros(0, np.int64), *(batch.load_lengths() for batch in self.batches)])

    def pop_batches(self) -> Iterator[StoredCounts]:
        """The batches for the last time: each is let go of when it was worked on."""
        while self.batches:
            yield self.batches.pop(0)

    def select_documents(self, documents: np.ndarray) -> WordCounts:
        """Some documents, given in ascending order, in one batch, and the words that occur in them."""
        lengths, terms, counts, first = [np.zeros(1, np.int64)], [], [], 0
        for batch in (each.restore() for each in self.batches):
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
        text, ends = select_words(self.text, self.ends, used)
        rows = TermCounts(np.cumsum(np.concatenate(lengths)), numbers.astype(np.int32), np.concatenate(counts))
        return WordCounts(text, ends, [StoredCounts.from_counts(rows, len(used), ArrayStore(None))])

    def to_batch_counts(self) -> BatchTermCounts:
        """Of one batch."""
        (batch,) = self.batches
        return BatchTermCounts(self.text, self.ends, *batch.restore())

    @property
    def n_words(self) -> int:
        return len(self.ends) - 1

    @cached_property
    def n_entries(self) -> int:
        """Distinct words of all documents together."""
        return int(self.frequencies.sum())

    @cached_property
    def frequencies(self) -> np.ndarray:
        """In how many documents each word occurs."""
        found = np.zeros(self.n_words, np.int64)
        for batch in self.batches:
            found[batch.numbers] += batch.frequencies
        return found

    @property
    def new_word_share(self) -> float:
        """The chance that a word of a new document is unknown: the share of words that occur in a single document (Good
        and Turing's estimate)."""
        return int((self.frequencies == 1).sum()) / max(1, self.n_entries)

    def count_term_frequencies(self, pieces: WordTerms, run: Run) -> np.ndarray:
        """In how many documents each term occurs that words become."""
        n_terms = len(pieces.ends) - 1

        def count(batch: StoredCounts) -> np.ndarray:
            return np.bincount(
                expand_counts(batch.restore(), pieces.starts, pieces.numbers, n_terms).terms, minlength=n_terms
            )

        return sum_counts(run.map(count, self.batches, "counting terms", total=len(self.batches)), n_terms)


def shrink_dtype(numbers: np.ndarray) -> np.ndarray:
    """Whole numbers from 0 on, with as many bytes as the largest needs."""
    return numbers.astype(np.min_scalar_type(numbers.max(initial=0)))


def sum_counts(counts: Iterable[np.ndarray], n: int) -> np.ndarray:
    return sum(counts, np.zeros(n, np.int64))


def map_to_columns(pieces: WordTerms, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The columns of the terms of each word, of those that have one: word i has columns[starts[i]:starts[i + 1]]."""
    found = columns[pieces.numbers]
    kept = found != NOT_FOUND
    return np.concatenate([[0], np.cumsum(kept)])[pieces.starts], found[kept]


def expand_counts(batch: TermCounts, starts: np.ndarray, numbers: np.ndarray, n_terms: int) -> TermCounts:
    """Counts of words as counts of the terms that they become; word i is numbers[starts[i]:starts[i + 1]]."""
    room = int((starts[batch.terms + 1] - starts[batch.terms]).sum())
    found = np.zeros_like(batch.starts), np.empty(room, np.int32), np.empty(room, np.int32)
    n = write_expanded_counts(*batch, starts, numbers, np.full(n_terms, -1), *found)
    return TermCounts(found[0], found[1][:n], found[2][:n])


@kernel
def write_expanded_counts(starts, words, counts, word_starts, numbers, latest, new_starts, terms, new_counts):
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
