"""Tf-idf features by all cores, with scikit-learn's numbers: (1 + ln tf) · (1 + ln((1 + n) / (1 + df))), rows of
length 1. Columns stand in the order of document frequency, so the columns that matter most lie close together.

Terms are what an analyzer makes of words: themselves, stems, character n-grams, or several of these side by side."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array, hstack

from xmtc.core.array_validation import construct_unchecked
from xmtc.core.dataset import Bag
from xmtc.core.hyperparameters import param
from xmtc.core.numba_support import kernel
from xmtc.core.run import Run
from xmtc.core.sparse import narrow_indptr, shell_sort
from xmtc.errors import XmtcError
from xmtc.features.view import ANALYZER_PARAM, FittedView, View
from xmtc.features.word_counts import MAX_NEW_WORD_SHARE, TermCounts, WordCounts, expand_counts, map_to_columns
from xmtc.storage.disk_arrays import PreallocatedArray
from xmtc.storage.form import array
from xmtc.text.analyzers import AUTO, WORDS, check_analyzer_name, get_analyzer, has_grams, parse_analyzer_names
from xmtc.text.stop_words import load_stop_words
from xmtc.text.string_index import NOT_FOUND, StringIndex, select_most_frequent
from xmtc.text.tokenizer import BatchTermCounts, Tokenizer, batch_texts
from xmtc.text.word_spans import Span, TermOrigin, find_part_spans, find_spans

BLOCK_ROWS = 100_000  # that are put beside each other at a time
MAX_GRAM_SHARE = (
    0.05  # beside words, grams in more than this part of the documents are left out: they are the most, say little
)
TfidfFit = tuple["FittedTfidf | JoinedTfidf", Bag]
AnalyzerChooser = Callable[["Tfidf", WordCounts], str]  # an analyzer for words that were counted


@dataclass(frozen=True)
class Tfidf(View):
    """How texts become weighted terms."""

    title: ClassVar[str] = "Text features"
    has_analyzer_callback: ClassVar[bool] = True
    has_batch_support: ClassVar[bool] = True
    uses_workdir: ClassVar[bool] = True

    min_df: int = param(2, "drop terms found in fewer documents than this", low=1)
    max_features: int = param(0, "keep only this many terms, the most frequent by documents (0: all)", low=0)
    ngrams: int = param(1, "terms are runs of 1 up to this many words", low=1, high=5)
    stop_words: str = param("", "words to drop: a language, as 'english', or the path of a file with one word a line")
    min_chars: int = param(2, "drop words shorter than this", low=1)
    lowercase: bool = param(True, "treat upper and lower case alike")
    sublinear_tf: bool = param(True, "use 1 + ln(tf) instead of tf")
    analyzer: str = ANALYZER_PARAM
    max_grams: int = param(500_000, "keep only this many character n-grams, the most frequent by documents", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in parse_analyzer_names(self.analyzer):
            get_analyzer(name)
        if has_grams(self.analyzer) and self.ngrams > 1:
            raise XmtcError(
                f"Tfidf: ngrams={self.ngrams} makes terms of several words, and analyzer={self.analyzer} cuts single "
                "words; use ngrams=1, or an analyzer without grams."
            )

    def fit(self, contents: Iterable[str], run: Run = Run(), choose: AnalyzerChooser | None = None) -> TfidfFit:
        """Learn the vocabulary and weigh the same texts. Texts may be a stream: only their counts are kept. `choose`
        is asked for the analyzer where that is auto; without it, words are."""
        tokenizer = self.build_tokenizer()
        counted = WordCounts.from_texts(tokenizer, contents, run)
        analyzer = self.analyzer
        if analyzer == AUTO:
            analyzer = choose(self, counted) if choose and counted.n_words else WORDS
        return self.fit_counts(counted, tokenizer, analyzer, run, should_release=True)

    def build_tokenizer(self) -> Tokenizer:
        return Tokenizer(self.lowercase, self.min_chars, self.ngrams, load_stop_words(self.stop_words))

    def fit_counts(
        self, counted: WordCounts, tokenizer: Tokenizer, analyzer: str, run: Run, should_release: bool = False
    ) -> TfidfFit:
        """Terms and weights from words that were counted, and are let go of if it is for the last time."""
        names = parse_analyzer_names(analyzer)
        by_words = counted.new_word_share < MAX_NEW_WORD_SHARE
        parts = []
        for name in names:
            common = MAX_GRAM_SHARE if has_grams(name) and len(names) > 1 else 1.0
            is_last = should_release and name == names[-1]
            parts.append(self._fit_analyzer(counted, tokenizer, name, common, run, is_last))
        if len(parts) == 1:
            return parts[0]
        fitted = JoinedTfidf(parts=tuple(part for part, _ in parts))
        return fitted, fitted.join_bags([shown for _, shown in parts], by_words, run)

    def _fit_analyzer(
        self, counted: WordCounts, tokenizer: Tokenizer, name: str, common: float, run: Run, is_last: bool
    ) -> tuple[FittedTfidf, Bag]:
        """Terms of one analyzer; those in more than the common part of the documents are left out."""
        analyzer, n_docs, n_entries = get_analyzer(name), counted.n_docs, counted.n_entries
        pieces = None if analyzer is None else analyzer.analyze(counted.text, counted.ends)
        text, ends = (counted.text, counted.ends) if pieces is None else (pieces.text, pieces.ends)
        frequencies = counted.frequencies if pieces is None else counted.count_term_frequencies(pieces, run)
        most = min([n for n in (self.max_features, has_grams(name) and self.max_grams) if n], default=None)
        kept = select_most_frequent(text, ends, drop_common(frequencies, common * n_docs), self.min_df, most)
        if not len(kept):
            raise self._empty_corpus_error(n_docs, any_words=len(frequencies) > 0)

        learnt: dict[str, Any] = {
            "tokenizer": tokenizer,
            "vocabulary": StringIndex.from_subset(text, ends, kept),
            "idf": np.log((1 + n_docs) / (1 + frequencies[kept])) + 1,
            "sublinear_tf": self.sublinear_tf,
        }
        columns = np.full(len(ends) - 1, NOT_FOUND, np.int32)
        columns[kept] = np.arange(len(kept), dtype=np.int32)
        if pieces is None:
            fitted = FittedTfidf(**learnt)
            weigh = partial(fitted.weigh, columns=columns)
        else:
            fitted = analyzed = AnalyzedTfidf(**learnt, analyzer=name)
            weigh = partial(analyzed.weigh_word_terms, pieces=map_to_columns(pieces, columns))
        n_batches, batches = len(counted.batches), counted.pop_batches() if is_last else counted.batches
        blocks = run.map(lambda batch: weigh(batch.restore()), batches, "weighing words", total=n_batches)
        matrix = gather_rows(blocks, (n_docs, len(kept)), nnz=int(frequencies[kept].sum()), run=run)
        shown = construct_unchecked(Bag, matrix=matrix, vocabulary=fitted.vocabulary)
        return fitted, shown.copy_with(weight_scale=compute_fineness(n_entries, shown))

    def _empty_corpus_error(self, n_docs: int, any_words: bool) -> XmtcError:
        found, remedy = f"No word occurs in at least min_df={self.min_df} of the {n_docs} documents", "a lower min_df"
        if not any_words:
            found = f"None of the {n_docs} documents holds a word of at least min_chars={self.min_chars} characters"
            remedy = "a lower min_chars, and check the text field and stop_words"
        return XmtcError(f"{found}, so there is nothing to learn from; give more text or {remedy}.")


def drop_common(frequencies: np.ndarray, limit: float) -> np.ndarray:
    """Document frequencies without those above a limit; as they are, where nothing that occurs twice would be left."""
    found = np.where(frequencies <= limit, frequencies, 0)
    return found if found.max(initial=0) > 1 else frequencies


def compute_fineness(n_words: int, shown: Bag) -> float:
    """How much smaller values, and so weights, are where documents have more terms than words."""
    return min(1.0, (n_words / max(1, shown.matrix.nnz)) ** 0.5)


@dataclass(frozen=True, kw_only=True)
class FittedTfidf(FittedView):
    """Terms and their weights, learnt from a corpus."""

    tokenizer: Tokenizer
    vocabulary: StringIndex
    idf: np.ndarray = array(np.float64)  # (size,)
    sublinear_tf: bool

    @property
    def size(self) -> int:
        return len(self.vocabulary)

    def term(self, number: int) -> str:
        return self.vocabulary[number]

    def transform(self, contents: Iterable[str], run: Run = Run()) -> Bag:
        """Weigh the words of new texts; words outside the vocabulary are dropped, so a row may be empty."""

        def weigh(batch: Collection[str]) -> csr_array:
            return self.weigh_counts(self.tokenizer.count(batch))

        return self.stack_blocks(run.map(weigh, batch_texts(contents), "reading texts", size=len))

    def weigh_counts(self, counts: BatchTermCounts) -> csr_array:
        """Features of a batch that has words of its own."""
        return self.weigh(TermCounts.from_batch(counts), self.vocabulary.find_packed(counts.text, counts.ends))

    def spans(self, text: str) -> list[Span]:
        """A word belongs to every term that it is part of: to several, where terms are runs of words."""
        words = find_spans(self.tokenizer, text)
        terms: list[list[int]] = [[] for _ in words]
        for first in range(len(words)):
            for after in range(first + 1, min(first + self.tokenizer.ngrams, len(words)) + 1):
                term = self.vocabulary.find(" ".join(word.word for word in words[first:after]))
                for word in range(first, after) if term != NOT_FOUND else ():
                    terms[word].append(term)
        return [word._replace(numbers=tuple(found)) for word, found in zip(words, terms, strict=True)]

    def term_origin(self, offset: int = 0) -> TermOrigin:
        return TermOrigin(None, self.vocabulary, offset)

    def stack_blocks(self, blocks: Iterator[csr_array]) -> Bag:
        return construct_unchecked(Bag, matrix=stack_rows(blocks, self.size), vocabulary=self.vocabulary)

    def weigh(self, batch: TermCounts, columns: np.ndarray) -> csr_array:
        """Features of a batch, given the column of each of its terms."""
        data, indices, indptr = weigh_rows(*batch, columns, self.idf, self.sublinear_tf)
        return csr_array((data, indices, narrow_indptr(indptr)), shape=(len(indptr) - 1, self.size))

    def check(self) -> None:
        self.tokenizer.check()
        self.vocabulary.check()
        if self.idf.shape != (self.size,) or not ((self.idf > 0) & np.isfinite(self.idf)).all():
            raise ValueError(f"its {self.size} words do not have one positive weight each")


@dataclass(frozen=True, kw_only=True)
class AnalyzedTfidf(FittedTfidf):
    """Terms that are not the words themselves: stems or character n-grams."""

    has_word_terms: ClassVar[bool] = False

    analyzer: str

    def weigh_counts(self, counts: BatchTermCounts) -> csr_array:
        analyzer = get_analyzer(self.analyzer)
        assert analyzer is not None
        pieces = analyzer.analyze(counts.text, counts.ends)
        return self.weigh_word_terms(
            TermCounts.from_batch(counts), map_to_columns(pieces, self.vocabulary.find_packed(pieces.text, pieces.ends))
        )

    def weigh_word_terms(self, batch: TermCounts, pieces: tuple[np.ndarray, np.ndarray]) -> csr_array:
        """Features of a batch, given the columns of each of its words."""
        return self.weigh(expand_counts(batch, *pieces, self.size), np.arange(self.size, dtype=np.int32))

    def term_origin(self, offset: int = 0) -> TermOrigin:
        return TermOrigin(get_analyzer(self.analyzer), self.vocabulary, offset)

    def spans(self, text: str) -> list[Span]:
        return find_part_spans(self.tokenizer, [self.term_origin()], text)

    def check(self) -> None:
        super().check()
        check_analyzer_name(self.analyzer)


@dataclass(frozen=True, kw_only=True)
class JoinedTfidf(FittedView):
    """Terms of several analyzers, each weighed by itself; all have the same part in the length of a document."""

    has_word_terms: ClassVar[bool] = False

    parts: tuple[FittedTfidf, ...]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    @property
    def column_offsets(self) -> list[int]:
        """The first column of each part."""
        return np.cumsum([0, *(part.size for part in self.parts[:-1])]).tolist()

    def term(self, number: int) -> str:
        part, first = next(
            pair for pair in zip(self.parts[::-1], self.column_offsets[::-1], strict=True) if pair[1] <= number
        )
        return part.term(number - first)

    def transform(self, contents: Iterable[str], run: Run = Run()) -> Bag:
        def weigh(batch: Collection[str]) -> csr_array:
            return self.weigh_counts(self.parts[0].tokenizer.count(batch))

        blocks = run.map(weigh, batch_texts(contents), "reading texts", size=len)
        return construct_unchecked(Bag, matrix=stack_rows(blocks, self.size), vocabulary=JoinedTerms(self.parts))

    def weigh_counts(self, counts: BatchTermCounts) -> csr_array:
        """Features of a batch that has words of its own."""
        return stack_columns([part.weigh_counts(counts) for part in self.parts])

    def join_bags(self, shown: list[Bag], by_words: bool, run: Run) -> Bag:
        """What training sees. Where words are enough to cluster labels by, grams are left out of it, which takes half
        the time."""
        lead = sum(part.size for part in self.parts if not is_gram_view(part)) if by_words else 0
        n_words = max(int(bag.matrix.nnz * bag.weight_scale**2) for bag in shown)
        n_docs = shown[0].n_docs
        blocks = (
            stack_columns([bag.matrix[at : at + BLOCK_ROWS] for bag in shown]) for at in range(0, n_docs, BLOCK_ROWS)
        )
        matrix = gather_rows(blocks, (n_docs, self.size), nnz=sum(bag.matrix.nnz for bag in shown), run=run)
        found = construct_unchecked(Bag, matrix=matrix, vocabulary=JoinedTerms(self.parts))
        return found.copy_with(n_cluster_columns=lead, weight_scale=compute_fineness(n_words, found))

    def spans(self, text: str) -> list[Span]:
        sources = [part.term_origin(first) for part, first in zip(self.parts, self.column_offsets, strict=True)]
        return find_part_spans(self.parts[0].tokenizer, sources, text)

    def check(self) -> None:
        for part in self.parts:
            part.check()
        if len(self.parts) < 2 or any(part.tokenizer != self.parts[0].tokenizer for part in self.parts):
            raise ValueError("its terms are not made of the same words")


def stack_columns(blocks: list[csr_array]) -> csr_array:
    share = np.float32(len(blocks) ** -0.5)
    return csr_array(hstack([block * share for block in blocks], format="csr", dtype=np.float32))


def is_gram_view(part: FittedTfidf) -> bool:
    return isinstance(part, AnalyzedTfidf) and has_grams(part.analyzer)


@dataclass(frozen=True)
class JoinedTerms:
    """The terms of several parts, one after the other."""

    parts: tuple[FittedTfidf, ...]

    def __len__(self) -> int:
        return sum(part.size for part in self.parts)

    def words(self) -> list[str]:
        return [word for part in self.parts for word in part.vocabulary.words()]


def gather_rows(blocks: Iterable[csr_array], shape: tuple[int, int], nnz: int, run: Run) -> csr_array:
    """Blocks of rows, one below the other, of which it is known how large they are together: each is let go of when it
    is in its place, in memory or in the run's folder. All threads put them there: memory that is written to for the
    first time costs more than the copy."""
    data, indices = PreallocatedArray(nnz, np.float32, run.workdir), PreallocatedArray(nnz, np.int32, run.workdir)
    lengths, row = np.zeros(1 + shape[0], np.int64), 1

    def put(block: csr_array) -> Iterator[Callable[[], None]]:
        nonlocal row
        lengths[row : row + block.shape[0]] = np.diff(block.indptr)
        row += block.shape[0]
        yield data.prepare_write(block.data)
        yield indices.prepare_write(block.indices)

    puts = (each for block in blocks for each in put(block))
    for _ in run.without_output().map(lambda put: put(), puts, "putting rows below each other"):
        pass
    return csr_array((data.to_array(), indices.to_array(), narrow_indptr(np.cumsum(lengths))), shape=shape)


def stack_rows(blocks: Iterator[csr_array], n_features: int) -> csr_array:
    """Blocks of rows, one below the other."""
    parts = list(blocks)
    if len(parts) == 1:
        return parts[0]
    indptr = np.zeros(1 + sum(part.shape[0] for part in parts), np.int64)
    np.cumsum(np.concatenate([np.diff(part.indptr) for part in parts] or [np.zeros(0)]), out=indptr[1:])
    data = np.concatenate([part.data for part in parts] or [np.zeros(0, np.float32)])
    indices = np.concatenate([part.indices for part in parts] or [np.zeros(0, np.int32)])
    return csr_array((data, indices, narrow_indptr(indptr)), shape=(len(indptr) - 1, n_features))


def weigh_rows(
    starts: np.ndarray, terms: np.ndarray, counts: np.ndarray, columns: np.ndarray, idf: np.ndarray, sublinear_tf: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tf-idf rows of length 1 as (data, indices, indptr), columns ascending."""
    n = len(terms)
    keys, values = np.empty(n, np.int64), np.empty(n, np.float64)
    data, indices, indptr = np.empty(n, np.float32), np.empty(n, np.int32), np.zeros_like(starts)
    write_tfidf_rows(starts, terms, counts, columns, idf, sublinear_tf, keys, values, data, indices, indptr)
    return data[: indptr[-1]].copy(), indices[: indptr[-1]].copy(), indptr


@kernel
def write_tfidf_rows(starts, terms, counts, columns, idf, sublinear_tf, keys, values, data, indices, indptr):
    """`weigh_rows`, written into its last three arguments. A key is a column and its count, so that one sort serves
    both."""
    n = np.int64(0)
    for doc in range(len(starts) - 1):
        begin, norm = n, 0.0
        for entry in range(starts[doc], starts[doc + 1]):
            column = np.int64(columns[terms[entry]])
            if column != NOT_FOUND:
                keys[n] = column << 32 | counts[entry]
                n += 1
        shell_sort(keys, begin, n)
        for i in range(begin, n):
            column, tf = keys[i] >> 32, float(keys[i] & 0xFFFFFFFF)
            values[i] = (np.log(tf) + 1 if sublinear_tf else tf) * idf[column]
            norm += values[i] * values[i]
            indices[i] = column
        norm = np.sqrt(norm)
        for i in range(begin, n):
            data[i] = values[i] / norm
        indptr[doc + 1] = n
