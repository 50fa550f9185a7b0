"""Token counts of a corpus, from which the terms of every analyzer are derived without reading the texts again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from xmtc.core.numba_support import kernel
from xmtc.core.run import Run
from xmtc.data.batch import Texts
from xmtc.storage.disk_arrays import ArrayStore
from xmtc.text.analyzers import WordTerms
from xmtc.text.string_index import NOT_FOUND, StringIndex, WordMerger
from xmtc.text.tokenizer import SPACE_BYTE, BatchTermCounts, Tokenizer, batch_texts, copy_ranges

MAX_NEW_WORD_SHARE = 0.04  # share of unknown words in new documents, below which words are sufficient terms


class TermCounts(NamedTuple):
    """Term counts of the documents of a batch."""

    starts: np.ndarray  # (n_docs + 1,) int64; document i has the entries starts[i]:starts[i + 1]
    terms: np.ndarray  # (n_entries,) int32
    counts: np.ndarray  # (n_entries,) int32

    @classmethod
    def from_batch(cls, counts: BatchTermCounts) -> TermCounts:
        return cls(counts.starts, counts.terms, counts.counts)


@dataclass(frozen=True)
class StoredCounts:
    """Word counts of a batch, in memory or on disk.

    Words are numbered within the batch, so that the numbers need few bytes."""

    numbers: np.ndarray  # (n_batch_words,) int32; number of each of the batch's words among the words of all batches
    frequencies: np.ndarray  # (n_batch_words,) int32; document frequencies within the batch
    n_docs: int
    load_lengths: Callable[[], np.ndarray]  # number of entries of each document
    load_terms: Callable[[], np.ndarray]
    load_counts: Callable[[], np.ndarray]

    @classmethod
    def from_counts(cls, batch: TermCounts, n_words: int, store: ArrayStore) -> StoredCounts:
        lengths = np.diff(batch.starts)
        return cls(
            np.arange(n_words, dtype=np.int32),
            np.bincount(batch.terms, minlength=n_words).astype(np.int32),
            len(lengths),
            *(store.put(shrink_dtype(values)) for values in (lengths, batch.terms, batch.counts)),
        )

    def restore(self) -> TermCounts:
        """Load the counts, with words numbered across all batches."""
        starts = np.concatenate([[0], np.cumsum(self.load_lengths(), dtype=np.int64)])
        return TermCounts(starts, self.numbers[self.load_terms()], self.load_counts().astype(np.int32))


@dataclass(frozen=True)
class WordCounts:
    """Word counts of documents, in batches. Words are numbered across all batches."""

    tokenizer: Tokenizer  # that split the texts
    text: np.ndarray  # uint8; concatenated bytes of the distinct words
    ends: np.ndarray  # (n_words + 1,) int64
    batches: list[StoredCounts]

    @classmethod
    def from_texts(cls, tokenizer: Tokenizer, contents: Iterable[str | Texts], run: Run) -> WordCounts:
        """Count the words of a stream of texts."""
        return count_texts([tokenizer], contents, run)[tokenizer]

    @cached_property
    def n_docs(self) -> int:
        return sum(batch.n_docs for batch in self.batches)

    @property
    def lengths(self) -> np.ndarray:
        """Number of distinct words of each document."""
        return np.concatenate([np.zeros(0, np.int64), *(batch.load_lengths() for batch in self.batches)])

    def pop_batches(self) -> Iterator[StoredCounts]:
        """Yield the batches and remove each, so that its memory is freed after use."""
        while self.batches:
            yield self.batches.pop(0)

    @property
    def n_words(self) -> int:
        return len(self.ends) - 1

    @cached_property
    def n_entries(self) -> int:
        """Number of pairs of a document and a distinct single word."""
        return int(self.frequencies[self.is_single_word].sum())

    @cached_property
    def is_single_word(self) -> np.ndarray:
        """Terms that are not n-grams of several words, shape (n_words,)."""
        return mark_single_words(self.text, self.ends) if self.tokenizer.ngrams > 1 else np.ones(self.n_words, bool)

    @cached_property
    def frequencies(self) -> np.ndarray:
        """Document frequency of each word."""
        frequencies = np.zeros(self.n_words, np.int64)
        for batch in self.batches:
            frequencies[batch.numbers] += batch.frequencies
        return frequencies

    @property
    def new_word_share(self) -> float:
        """Good-Turing estimate of the probability that a word of a new document is unknown."""
        return int((self.frequencies[self.is_single_word] == 1).sum()) / max(1, self.n_entries)

    def count_term_frequencies(self, word_terms: WordTerms, run: Run) -> np.ndarray:
        """Return the document frequency of each term."""
        n_terms = len(word_terms.ends) - 1

        def count(batch: StoredCounts) -> np.ndarray:
            counts = expand_counts(batch.restore(), word_terms.starts, word_terms.numbers, n_terms)
            return np.bincount(counts.terms, minlength=n_terms)

        frequencies = run.map(count, self.batches, "counting terms", total=len(self.batches))
        return sum(frequencies, np.zeros(n_terms, np.int64))


def count_texts(
    tokenizers: Collection[Tokenizer], contents: Iterable[str | Texts], run: Run
) -> dict[Tokenizer, WordCounts]:
    """Count the tokens of a stream of texts with each tokenizer. Only the counts are kept, in the run's working
    directory if it has one."""
    store = ArrayStore(run.workdir)
    mergers = {tokenizer: WordMerger() for tokenizer in tokenizers}
    stored: dict[Tokenizer, list[StoredCounts]] = {tokenizer: [] for tokenizer in tokenizers}

    def count(batch: Iterable[str]) -> list[tuple[np.ndarray, np.ndarray, StoredCounts]]:
        texts, counted = Texts.from_strings(batch), []  # compiled code normalises Texts faster than str
        for tokenizer in tokenizers:
            counts = tokenizer.count(texts)
            entries = StoredCounts.from_counts(TermCounts.from_batch(counts), len(counts.ends) - 1, store)
            counted.append((counts.text, counts.ends, entries))
        return counted

    for counted in run.map(count, batch_texts(contents), "reading texts", size=len):
        for tokenizer, (text, ends, entries) in zip(tokenizers, counted, strict=True):
            mergers[tokenizer].add(text, ends)
            stored[tokenizer].append(entries)
    result = {}
    for tokenizer, words in mergers.items():
        words.merge()
        numbered = zip(stored.pop(tokenizer), words.numbers, strict=True)
        batches = [replace(batch, numbers=numbers) for batch, numbers in numbered]
        result[tokenizer] = WordCounts(tokenizer, words.text, words.ends, batches)
    return result


def mark_single_words(text: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return which terms, given as concatenated bytes and end offsets, have no space, shape (n_terms,)."""
    is_single = np.ones(len(ends) - 1, np.bool_)
    unmark_terms_with_spaces(text, ends, is_single)
    return is_single


@kernel
def unmark_terms_with_spaces(text, ends, is_single):
    """Set is_single[i] to False if term i has a space."""
    for term in range(len(is_single)):
        for i in range(ends[term], ends[term + 1]):
            if text[i] == SPACE_BYTE:
                is_single[term] = False
                break


def compute_lifts(text: np.ndarray, ends: np.ndarray, frequencies: np.ndarray, n_docs: int) -> np.ndarray:
    """Return how many times more often each term of several words occurs than if its parts were independent.

    The parts are the first word and the rest, or the last word and the rest, whichever gives less; the lift of a single
    word is infinite. The terms are given as concatenated bytes, end offsets and document frequencies."""
    lifts = np.full(len(frequencies), np.inf)
    ngrams = np.flatnonzero(~mark_single_words(text, ends))
    if not len(ngrams):
        return lifts
    terms = StringIndex.from_subset(text, ends, np.arange(len(frequencies)))
    spaces = np.flatnonzero(text == SPACE_BYTE)
    begins, stops = ends[ngrams], ends[ngrams + 1]
    for cuts in (spaces[np.searchsorted(spaces, begins)], spaces[np.searchsorted(spaces, stops) - 1]):
        expected = np.full(len(ngrams), 1 / n_docs)
        for part in (copy_ranges(text, begins, cuts), copy_ranges(text, cuts + 1, stops)):
            numbers = terms.find_packed(*part)
            expected *= np.where(numbers == NOT_FOUND, n_docs, frequencies[numbers])
        lifts[ngrams] = np.minimum(lifts[ngrams], frequencies[ngrams] / expected)
    return lifts


def shrink_dtype(numbers: np.ndarray) -> np.ndarray:
    """Convert non-negative integers to the smallest sufficient dtype."""
    return numbers.astype(np.min_scalar_type(numbers.max(initial=0)))


def map_to_columns(word_terms: WordTerms, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (starts, columns): the columns of word i are columns[starts[i]:starts[i + 1]]. Terms without a column are
    dropped."""
    term_columns = columns[word_terms.numbers]
    kept = term_columns != NOT_FOUND
    return np.concatenate([[0], np.cumsum(kept)])[word_terms.starts], term_columns[kept]


def expand_counts(batch: TermCounts, starts: np.ndarray, numbers: np.ndarray, n_terms: int) -> TermCounts:
    """Convert word counts to term counts; word i has the terms numbers[starts[i]:starts[i + 1]]."""
    max_entries = int((starts[batch.terms + 1] - starts[batch.terms]).sum())
    new_starts, terms, counts = (
        np.zeros_like(batch.starts),
        np.empty(max_entries, np.int32),
        np.empty(max_entries, np.int32),
    )
    n = write_expanded_counts(*batch, starts, numbers, np.full(n_terms, -1), new_starts, terms, counts)
    return TermCounts(new_starts, terms[:n], counts[:n])


@kernel
def write_expanded_counts(starts, words, counts, word_starts, numbers, latest, new_starts, terms, new_counts):
    """Write the result of `expand_counts` into the last three arguments and return the number of entries. latest[t] is
    the last entry of term t; it belongs to the current document unless it precedes the document's first entry."""
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
