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
from xmtc.text.analyzers import Pieces
from xmtc.text.term_index import FREE, Merging, cut_out
from xmtc.text.tokenizer import Counts, Tokenizer, batches

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
class Held:
    """The counts of a batch, put away. Its words are numbered by themselves, so that they take few bytes."""

    numbers: np.ndarray  # (n_words of the batch,) int32, which of the words of all batches they are
    frequencies: np.ndarray  # (n_words of the batch,) int32, documents that hold each
    n_docs: int
    lengths: Callable[[], np.ndarray]  # of the documents, in entries
    terms: Callable[[], np.ndarray]
    counts: Callable[[], np.ndarray]

    @classmethod
    def of(cls, batch: Entries, n_words: int, shelf: ArrayStore) -> Held:
        lengths = np.diff(batch.starts)
        return cls(
            np.arange(n_words, dtype=np.int32),
            np.bincount(batch.terms, minlength=n_words).astype(np.int32),
            len(lengths),
            *(shelf.put(few_bytes(part)) for part in (lengths, batch.terms, batch.counts)),
        )

    def entries(self) -> Entries:
        """The counts, with the words numbered through all batches."""
        starts = np.concatenate([[0], np.cumsum(self.lengths(), dtype=np.int64)])
        return Entries(starts, self.numbers[self.terms()], self.counts().astype(np.int32))


@dataclass(frozen=True)
class Counted:
    """Documents as words with their counts, in batches; words are numbered through all of them."""

    text: np.ndarray  # uint8, the distinct words end to end
    ends: np.ndarray  # (n_words + 1,) int64
    batches: list[Held]

    @classmethod
    def of(cls, tokenizer: Tokenizer, contents: Iterable[str | Texts], run: Run) -> Counted:
        """Texts may be a stream: only their counts are kept, in the run's folder if it has one."""
        shelf, words, held = ArrayStore(run.workdir), Merging(), []

        def count(batch: Iterable[str]) -> tuple[np.ndarray, np.ndarray, Held]:
            found = tokenizer.count(Texts.of(batch))  # as Texts, they are normalised by compiled code, too
            return found.text, found.ends, Held.of(Entries.of(found), len(found.ends) - 1, shelf)

        for text, ends, counts in run.map(count, batches(contents), "reading texts", size=len):
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
        return np.concatenate([np.zeros(0, np.int64), *(batch.lengths() for batch in self.batches)])

    def handed_over(self) -> Iterator[Held]:
        """The batches for the last time: each is let go of when it was worked on."""
        while self.batches:
            yield self.batches.pop(0)

    def rows(self, documents: np.ndarray) -> Counted:
        """Some documents, given in ascending order, in one batch, and the words that occur in them."""
        lengths, terms, counts, first = [np.zeros(1, np.int64)], [], [], 0
        for batch in (each.entries() for each in self.batches):
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
        text, ends = cut_out(self.text, self.ends, used)
        rows = Entries(np.cumsum(np.concatenate(lengths)), numbers.astype(np.int32), np.concatenate(counts))
        return Counted(text, ends, [Held.of(rows, len(used), ArrayStore(None))])

    def as_counts(self) -> Counts:
        """Of one batch."""
        (batch,) = self.batches
        return Counts(self.text, self.ends, *batch.entries())

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
    def new_words(self) -> float:
        """The chance that a word of a new document is unknown: the share of words that occur in a single document (Good
        and Turing's estimate)."""
        return int((self.frequencies == 1).sum()) / max(1, self.n_entries)

    def frequencies_of(self, pieces: Pieces, run: Run) -> np.ndarray:
        """In how many documents each term occurs that words become."""
        n_terms = len(pieces.ends) - 1

        def count(batch: Held) -> np.ndarray:
            return np.bincount(spread(batch.entries(), pieces.starts, pieces.numbers, n_terms).terms, minlength=n_terms)

        return total(run.map(count, self.batches, "counting terms", total=len(self.batches)), n_terms)


def few_bytes(numbers: np.ndarray) -> np.ndarray:
    """Whole numbers from 0 on, with as many bytes as the largest needs."""
    return numbers.astype(np.min_scalar_type(numbers.max(initial=0)))


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
