"""Tf-idf features, computed on all cores, with the values of scikit-learn's TfidfVectorizer.

The weight of a term is (1 + ln tf) · (1 + ln((1 + n) / (1 + df))), and rows have unit length. Columns are ordered by
document frequency, so that frequent columns are close together in memory; n-grams of words follow the words. An
analyzer maps tokens to terms: words, n-grams of words, stems, character n-grams, or several of these side by side."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
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
from xmtc.data.batch import Texts
from xmtc.errors import XmtcError
from xmtc.features.dense import SENTENCE_LENGTH_PARAM, FittedDense, load_sentence_encoder
from xmtc.features.view import ANALYZER_PARAM, FittedView, View
from xmtc.features.word_counts import (
    MAX_NEW_WORD_SHARE,
    TermCounts,
    WordCounts,
    compute_lifts,
    count_texts,
    expand_counts,
    map_to_columns,
    mark_single_words,
)
from xmtc.storage.disk_arrays import PreallocatedArray
from xmtc.storage.form import array
from xmtc.text.analyzers import (
    AUTO,
    MAX_NGRAM_WORDS,
    WORDS,
    check_analyzer_name,
    get_analyzer,
    has_grams,
    parse_analyzer_names,
    parse_word_ngrams,
    reads_chunks,
)
from xmtc.text.stop_words import load_stop_words
from xmtc.text.string_index import NOT_FOUND, StringIndex, select_most_frequent, select_words
from xmtc.text.token_pattern import NAME_PATTERN, check_token_pattern
from xmtc.text.tokenizer import (
    CHUNK_UNIT,
    MAX_SKIPPED_WORDS,
    NAME_UNIT,
    TOKEN_UNITS,
    WORD_UNIT,
    BatchTermCounts,
    Tokenizer,
    batch_texts,
)
from xmtc.text.word_spans import Span, TermOrigin, find_term_spans, merge_spans

BLOCK_ROWS = 100_000  # rows of several analyzers that are joined at a time
MAX_GRAM_SHARE = 0.05  # n-grams joined with words are dropped above this document frequency: many and uninformative
# Word n-grams have their full weight from this number of distinct words per document (docs/how-to/languages.md).
FULL_NGRAM_WEIGHT_WORDS, MIN_NGRAM_WEIGHT = 80, 0.5
TokenCounts = dict[Tokenizer, WordCounts]
TfidfFit = tuple["FittedTfidf | JoinedTfidf | TfidfBesideVectors", Bag]


@dataclass(frozen=True)
class Tfidf(View):
    """Tf-idf weighted terms of texts."""

    title: ClassVar[str] = "Text features"
    has_batch_support: ClassVar[bool] = True
    uses_workdir: ClassVar[bool] = True

    min_df: int = param(2, "Minimum document frequency of a term.", low=1)
    max_df: float = param(1.0, "Maximum document frequency of a term, as a share of the documents.", low=0.0, high=1.0)
    max_features: int = param(0, "Maximum number of terms, by document frequency; 0 keeps all.", low=0)
    ngrams: int = param(1, "Maximum number of words of a term, for words and stems.", low=1, high=MAX_NGRAM_WORDS)
    ngram_min_df: int = param(3, "Minimum document frequency of a term of several words.", low=1)
    ngram_min_lift: float = param(
        1.2, "Minimum ratio of the frequency of a term of several words to that of independent words.", low=0
    )
    ngram_weight: float = param(
        0.0,
        "Factor of the weight of terms of several words; 0 chooses from 0.5 for short to 1 for long texts.",
        low=0.0,
        high=10.0,
    )
    ngram_skip: int = param(
        0, "Maximum number of words between the two words of a pair.", low=0, high=MAX_SKIPPED_WORDS
    )
    stop_words: str = param(
        "", "Stop words: a language such as english, words joined by commas, or the path of a file with one per line."
    )
    min_chars: int = param(2, "Minimum number of characters of a word.", low=1)
    tokens: str = param(
        WORD_UNIT,
        "Tokens: words (runs of letters and digits), names (also single letters and inner punctuation, such as in c++, "
        ".net, e-mail, 3.11), or chunks (runs of characters other than white space).",
        choices=(*TOKEN_UNITS, NAME_UNIT),
    )
    token_pattern: str = param("", "Regular expression (RE2) of a token, instead of tokens and min_chars.")
    lowercase: bool = param(True, "Conversion of texts to lower case.")
    sublinear_tf: bool = param(True, "Term weight 1 + ln(tf) instead of tf.")
    analyzer: str = ANALYZER_PARAM
    max_grams: int = param(500_000, "Maximum number of character n-grams, by document frequency.", low=1)
    dense: str = param(
        "",
        "Pretrained encoder whose sentence vectors are read beside the terms: a folder, a name that `xmtc pretrained "
        "list` lists, or a name of the Hugging Face Hub.",
    )
    dense_share: float = param(
        0.2, "Share of the sentence vector in the squared length of a row; with 1, no term is read.", low=0.0, high=1.0
    )
    sentence_length: int = SENTENCE_LENGTH_PARAM

    def __post_init__(self) -> None:
        if isinstance(self.stop_words, (list, tuple, set, frozenset)) and all(map(is_text, self.stop_words)):
            object.__setattr__(self, "stop_words", ",".join((*sorted(self.stop_words), "")))
        super().__post_init__()
        if self.token_pattern:
            check_token_pattern(self.token_pattern)
        for name in parse_analyzer_names(self.analyzer):
            get_analyzer(name)
        if self.ngrams > 1 and self.analyzer != AUTO and all(map(has_grams, self.analyzer.split("+"))):
            raise XmtcError(
                f"Tfidf: ngrams={self.ngrams} has no effect on analyzer={self.analyzer}, whose terms are parts of "
                f"words; use ngrams=1, or an analyzer such as words:1-{self.ngrams}+{self.analyzer}."
            )

    def fit(self, contents: Iterable[str | Texts], run: Run = Run()) -> TfidfFit:
        """Learn the vocabulary from a stream of texts and return the texts' features; only word counts are kept.

        analyzer=auto means words here: Pipeline, which knows the labels, selects the analyzer between `count_words`
        and `fit_counts`."""
        analyzer = WORDS if self.analyzer == AUTO else self.analyzer
        if self.dense:
            contents = list(contents)
        fitted, bag = self.fit_counts(self.count_words(contents, run, analyzer), analyzer, run, should_release=True)
        return self.join_vectors(fitted, bag, contents, run) if self.dense else (fitted, bag)

    def join_vectors(self, fitted: FittedView, bag: Bag, contents: Iterable[str | Texts], run: Run) -> TfidfFit:
        """Return the fitted terms and their features with the sentence vectors of the texts beside them."""
        vectors = load_sentence_encoder(self.dense, self.sentence_length, run)
        joined = TfidfBesideVectors(
            terms=(fitted,) if self.dense_share < 1 else (), vectors=vectors, share=self.dense_share
        )
        return joined, joined.join_bags(bag, vectors.transform(iterate_texts(contents), run))

    def count_words(self, contents: Iterable[str | Texts], run: Run, analyzer: str = WORDS) -> TokenCounts:
        """Count the tokens that an analyzer reads."""
        return count_texts(self.list_tokenizers(analyzer), contents, run)

    def fit_counted(self, counts: WordCounts, contents: Iterable[str | Texts], analyzer: str, run: Run) -> TfidfFit:
        """Learn terms and weights with an analyzer, and free the given counts. The contents are read only if the
        analyzer needs other tokens."""
        tokenizers = self.list_tokenizers(analyzer)
        available = {counts.tokenizer: counts}
        if counts.tokenizer not in tokenizers:
            counts.batches.clear()
        if missing := [tokenizer for tokenizer in tokenizers if tokenizer not in available]:
            available |= count_texts(missing, contents, run)
        return self.fit_counts(available, analyzer, run, should_release=True)

    def list_tokenizers(self, analyzer: str) -> list[Tokenizer]:
        """Return the distinct tokenizers of an analyzer."""
        return list(dict.fromkeys(map(self.build_tokenizer, parse_analyzer_names(analyzer))))

    def build_tokenizer(self, name: str) -> Tokenizer:
        """Return the tokenizer of one analyzer. That of `chars` has no stop words and keeps single characters."""
        if reads_chunks(name):
            return Tokenizer(self.lowercase, min_chars=1, unit=CHUNK_UNIT)
        ngrams = 1 if has_grams(name) else parse_word_ngrams(name) or self.ngrams
        stop_words, skip = load_stop_words(self.stop_words), self.ngram_skip if ngrams > 1 else 0
        if pattern := self.token_pattern or (NAME_PATTERN if self.tokens == NAME_UNIT else ""):
            return Tokenizer(self.lowercase, 1, ngrams, stop_words, CHUNK_UNIT, pattern, skip)
        return Tokenizer(self.lowercase, self.min_chars, ngrams, stop_words, self.tokens, skip=skip)

    def fit_counts(self, counts: TokenCounts, analyzer: str, run: Run, should_release: bool = False) -> TfidfFit:
        """Learn terms and weights from token counts and return the documents' features. With `should_release` the
        counts are freed while they are read for the last time."""
        names = parse_analyzer_names(analyzer)
        tokenizers = [self.build_tokenizer(name) for name in names]
        has_few_new_words = counts[tokenizers[0]].new_word_share < MAX_NEW_WORD_SHARE
        parts = []
        for i, (name, tokenizer) in enumerate(zip(names, tokenizers, strict=True)):
            max_share = MAX_GRAM_SHARE if has_grams(name) and len(names) > 1 else 1.0
            is_last_use = should_release and tokenizer not in tokenizers[i + 1 :]
            parts.append(self._fit_analyzer(counts[tokenizer], name, max_share, run, is_last_use))
        if len(parts) == 1:
            return parts[0]
        fitted = JoinedTfidf(parts=tuple(part for part, _ in parts))
        return fitted, fitted.join_bags([bag for _, bag in parts], has_few_new_words, run)

    def _fit_analyzer(
        self, counts: WordCounts, name: str, max_share: float, run: Run, should_release: bool
    ) -> tuple[FittedTfidf, Bag]:
        """Fit the terms of one analyzer; terms in more than `max_share` of the documents are dropped."""
        analyzer, n_docs, n_entries = get_analyzer(name), counts.n_docs, counts.n_entries
        word_terms = None if analyzer is None else analyzer.analyze(counts.text, counts.ends)
        text, ends = (counts.text, counts.ends) if word_terms is None else (word_terms.text, word_terms.ends)
        frequencies = counts.frequencies if word_terms is None else counts.count_term_frequencies(word_terms, run)
        max_terms = min([n for n in (self.max_features, has_grams(name) and self.max_grams) if n], default=None)
        limited, is_ngram = drop_common(frequencies, max_share * n_docs), np.zeros(len(frequencies), bool)
        limited = np.where(frequencies <= self.max_df * n_docs, limited, 0)
        if counts.tokenizer.ngrams > 1:
            is_ngram = ~mark_single_words(text, ends)
            limited = np.where(is_ngram & ~self._mark_useful_ngrams(text, ends, frequencies, n_docs), 0, limited)
        kept = select_most_frequent(text, ends, limited, self.min_df, max_terms)
        if not len(kept):
            raise self._empty_corpus_error(n_docs, has_words=len(frequencies) > 0)
        n_ngrams = int(np.count_nonzero(is_ngram[kept]))
        weight = self.ngram_weight or choose_ngram_weight(n_entries / max(1, n_docs))
        kept = kept[np.argsort(is_ngram[kept], kind="stable")]  # clustering of labels reads the words only

        fields: dict[str, Any] = {
            "tokenizer": counts.tokenizer,
            "vocabulary": StringIndex.from_subset(text, ends, kept),
            "idf": (np.log((1 + n_docs) / (1 + frequencies[kept])) + 1) * np.where(is_ngram[kept], weight, 1.0),
            "sublinear_tf": self.sublinear_tf,
        }
        columns = np.full(len(ends) - 1, NOT_FOUND, np.int32)
        columns[kept] = np.arange(len(kept), dtype=np.int32)
        if word_terms is None:
            fitted = FittedTfidf(**fields)
            weigh = partial(fitted.weigh, columns=columns)
        else:
            fitted = analyzed = AnalyzedTfidf(**fields, analyzer=name)
            weigh = partial(analyzed.weigh_word_terms, word_columns=map_to_columns(word_terms, columns))
        n_batches, batches = len(counts.batches), counts.pop_batches() if should_release else counts.batches
        blocks = run.map(lambda batch: weigh(batch.restore()), batches, "weighing words", total=n_batches)
        matrix = gather_rows(blocks, (n_docs, len(kept)), nnz=int(frequencies[kept].sum()), run=run)
        bag = construct_unchecked(Bag, matrix=matrix, vocabulary=fitted.vocabulary)
        return fitted, bag.copy_with(
            n_cluster_columns=len(kept) - n_ngrams if n_ngrams else 0,
            weight_scale=compute_weight_scale(n_entries, bag),
        )

    def _mark_useful_ngrams(
        self, text: np.ndarray, ends: np.ndarray, frequencies: np.ndarray, n_docs: int
    ) -> np.ndarray:
        """Return which terms have the document frequency and the lift of a useful n-gram."""
        is_useful = frequencies >= self.ngram_min_df  # so have the parts of an n-gram
        numbers = np.flatnonzero(is_useful)
        lifts = compute_lifts(*select_words(text, ends, numbers), frequencies[numbers], n_docs)
        is_useful[numbers] = lifts >= self.ngram_min_lift
        return is_useful

    def _empty_corpus_error(self, n_docs: int, has_words: bool) -> XmtcError:
        problem, remedy = f"No word occurs in at least min_df={self.min_df} of the {n_docs} documents", "a lower min_df"
        if self.max_df < 1:
            problem, remedy = f"{problem} and in at most the share max_df={self.max_df:g}", f"{remedy} or higher max_df"
        if not has_words:
            problem = f"None of the {n_docs} documents holds a word of at least min_chars={self.min_chars} characters"
            remedy = "a lower min_chars, and check the text field and stop_words"
        return XmtcError(f"{problem}; give more text or {remedy}.")


def choose_ngram_weight(words_per_document: float) -> float:
    """Return the factor of the weight of word n-grams for a mean number of distinct words per document."""
    return float(np.clip(words_per_document / FULL_NGRAM_WEIGHT_WORDS, MIN_NGRAM_WEIGHT, 1.0))


def is_text(value: object) -> bool:
    return isinstance(value, str)


def drop_common(frequencies: np.ndarray, limit: float) -> np.ndarray:
    """Set document frequencies above a limit to 0, unless no term would then occur in two documents."""
    limited = np.where(frequencies <= limit, frequencies, 0)
    return limited if limited.max(initial=0) > 1 else frequencies


def compute_weight_scale(n_words: int, bag: Bag) -> float:
    """Return the factor by which values, and so weights, are smaller if documents have more terms than words."""
    return min(1.0, (n_words / max(1, bag.matrix.nnz)) ** 0.5)


@dataclass(frozen=True, kw_only=True)
class FittedTfidf(FittedView):
    """Terms of a corpus and their idf weights."""

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
        """Return the features of new texts; words outside the vocabulary are dropped, so a row may be empty."""

        def weigh(batch: Collection[str]) -> csr_array:
            return self.weigh_counts(self.tokenizer.count(batch))

        blocks = run.map(weigh, batch_texts(contents), "reading texts", size=len)
        return construct_unchecked(Bag, matrix=stack_rows(blocks, self.size), vocabulary=self.vocabulary)

    @property
    def has_own_tokenizer(self) -> bool:
        """True if the tokenizer does not depend on the parameters for words."""
        return False

    def weigh_counts(self, counts: BatchTermCounts) -> csr_array:
        """Return the features of a batch, whose words have numbers of their own."""
        return self.weigh(TermCounts.from_batch(counts), self.vocabulary.find_packed(counts.text, counts.ends))

    def spans(self, text: str) -> list[Span]:
        return find_term_spans([self.term_origin()], text)

    def term_origin(self, offset: int = 0) -> TermOrigin:
        return TermOrigin(self.tokenizer, None, self.vocabulary, offset)

    def weigh(self, batch: TermCounts, columns: np.ndarray) -> csr_array:
        """Return the features of a batch, given the column of each of its terms."""
        data, indices, indptr = weigh_rows(*batch, columns, self.idf, self.sublinear_tf)
        return csr_array((data, indices, narrow_indptr(indptr)), shape=(len(indptr) - 1, self.size))

    def check(self) -> None:
        self.tokenizer.check()
        self.vocabulary.check()
        if self.idf.shape != (self.size,) or not ((self.idf > 0) & np.isfinite(self.idf)).all():
            raise ValueError(f"the idf weights of its {self.size} words are not {self.size} positive finite numbers")


@dataclass(frozen=True, kw_only=True)
class AnalyzedTfidf(FittedTfidf):
    """Stems or character n-grams of a corpus and their idf weights."""

    analyzer: str

    @property
    def has_own_tokenizer(self) -> bool:
        return reads_chunks(self.analyzer)

    def weigh_counts(self, counts: BatchTermCounts) -> csr_array:
        analyzer = get_analyzer(self.analyzer)
        assert analyzer is not None
        word_terms = analyzer.analyze(counts.text, counts.ends)
        columns = self.vocabulary.find_packed(word_terms.text, word_terms.ends)
        return self.weigh_word_terms(TermCounts.from_batch(counts), map_to_columns(word_terms, columns))

    def weigh_word_terms(self, batch: TermCounts, word_columns: tuple[np.ndarray, np.ndarray]) -> csr_array:
        """Return the features of a batch, given the result of `map_to_columns` for its words."""
        return self.weigh(expand_counts(batch, *word_columns, self.size), np.arange(self.size, dtype=np.int32))

    def term_origin(self, offset: int = 0) -> TermOrigin:
        return TermOrigin(self.tokenizer, get_analyzer(self.analyzer), self.vocabulary, offset)

    def check(self) -> None:
        super().check()
        check_analyzer_name(self.analyzer)


@dataclass(frozen=True, kw_only=True)
class JoinedTfidf(FittedView):
    """Side-by-side terms of several analyzers. Each is weighted separately and contributes equally to the row norm."""

    parts: tuple[FittedTfidf, ...]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    @property
    def column_offsets(self) -> list[int]:
        """First column of each part."""
        return np.cumsum([0, *(part.size for part in self.parts[:-1])]).tolist()

    def term(self, number: int) -> str:
        part, first = next(
            pair for pair in zip(self.parts[::-1], self.column_offsets[::-1], strict=True) if pair[1] <= number
        )
        return part.term(number - first)

    def transform(self, contents: Iterable[str], run: Run = Run()) -> Bag:
        def weigh(batch: Collection[str]) -> csr_array:
            counts = {tokenizer: tokenizer.count(batch) for tokenizer in {part.tokenizer for part in self.parts}}
            return stack_columns([part.weigh_counts(counts[part.tokenizer]) for part in self.parts])

        blocks = run.map(weigh, batch_texts(contents), "reading texts", size=len)
        return construct_unchecked(Bag, matrix=stack_rows(blocks, self.size), vocabulary=JoinedTerms(self.parts))

    def join_bags(self, bags: list[Bag], has_few_new_words: bool, run: Run) -> Bag:
        """Return the training documents' features. If words are sufficient to cluster labels, n-grams are excluded from
        clustering, which halves its time."""
        n_word_columns = 0
        for part, bag in zip(self.parts, bags, strict=True):  # the columns before the first n-gram
            n_word_columns += 0 if is_gram_view(part) else bag.n_cluster_columns or part.size
            if bag.n_cluster_columns or is_gram_view(part):
                break
        n_words = max(int(bag.matrix.nnz * bag.weight_scale**2) for bag in bags)
        n_docs = bags[0].n_docs
        blocks = (
            stack_columns([bag.matrix[at : at + BLOCK_ROWS] for bag in bags]) for at in range(0, n_docs, BLOCK_ROWS)
        )
        matrix = gather_rows(blocks, (n_docs, self.size), nnz=sum(bag.matrix.nnz for bag in bags), run=run)
        joined = construct_unchecked(Bag, matrix=matrix, vocabulary=JoinedTerms(self.parts))
        return joined.copy_with(
            n_cluster_columns=n_word_columns if has_few_new_words else 0,
            weight_scale=compute_weight_scale(n_words, joined),
        )

    def spans(self, text: str) -> list[Span]:
        origins = [part.term_origin(first) for part, first in zip(self.parts, self.column_offsets, strict=True)]
        return find_term_spans(origins, text)

    def check(self) -> None:
        for part in self.parts:
            part.check()
        tokenizers = {replace(part.tokenizer, ngrams=1) for part in self.parts if not part.has_own_tokenizer}
        if len(self.parts) < 2 or len(tokenizers) > 1:
            raise ValueError("its parts are fewer than two or have different tokenizers")


def stack_columns(blocks: list[csr_array]) -> csr_array:
    """Return blocks of unit-length rows side by side, scaled so that the joined rows have unit length."""
    share = np.float32(len(blocks) ** -0.5)
    return csr_array(hstack([block * share for block in blocks], format="csr", dtype=np.float32))


def is_gram_view(part: FittedTfidf) -> bool:
    return isinstance(part, AnalyzedTfidf) and has_grams(part.analyzer)


@dataclass(frozen=True, kw_only=True)
class TfidfBesideVectors(FittedView):
    """Terms, if any, with the sentence vectors of an encoder beside them, each with a share of the row's length."""

    terms: tuple[FittedView, ...]  # none, or one
    vectors: FittedDense
    share: float  # of the vector in the squared length of a row

    @property
    def size(self) -> int:
        return self.n_terms + self.vectors.size

    @property
    def n_terms(self) -> int:
        return sum(view.size for view in self.terms)

    def term(self, number: int) -> str:
        n_terms = self.n_terms
        return self.terms[0].term(number) if number < n_terms else self.vectors.term(number - n_terms)

    def transform(self, contents: Iterable[str], run: Run = Run()) -> Bag:
        texts = list(iterate_texts(contents))
        parts = [view.transform(texts, run) for view in (*self.terms, self.vectors)]
        return self.join_bags(*(part for part in parts if isinstance(part, Bag)))

    def join_bags(self, *bags: Bag) -> Bag:
        """Return the features of the terms, if any, and of the vectors side by side.

        Clustering of labels reads the terms only, which takes a fraction of the time."""
        terms, vectors = bags[0], bags[-1]
        if not self.terms:
            return vectors
        factors = np.float32((1 - self.share) ** 0.5), np.float32(self.share**0.5)
        matrix = hstack([terms.matrix * factors[0], vectors.matrix * factors[1]], format="csr", dtype=np.float32)
        return construct_unchecked(
            Bag,
            matrix=csr_array(matrix),
            vocabulary=None,
            n_cluster_columns=terms.n_cluster_columns or self.n_terms,
            weight_scale=terms.weight_scale,
        )

    def spans(self, text: str) -> list[Span]:
        n_terms = self.n_terms
        spans = [span for view in self.terms for span in view.spans(text)]
        spans += [
            span._replace(numbers=tuple(n_terms + number for number in span.numbers))
            for span in self.vectors.spans(text)
        ]
        return merge_spans(spans)

    def check(self) -> None:
        if len(self.terms) > 1 or not all(isinstance(view, FittedTfidf | JoinedTfidf) for view in self.terms):
            raise ValueError("its terms are not one view of terms")
        if not 0 <= self.share <= 1:
            raise ValueError(f"its share of the sentence vectors is {self.share}; expected a number from 0 to 1")
        for view in (*self.terms, self.vectors):
            view.check()


def iterate_texts(contents: Iterable[str | Texts]) -> Iterator[str]:
    """Yield the texts one by one."""
    for content in contents:
        yield from content if isinstance(content, Texts) else (content,)


@dataclass(frozen=True)
class JoinedTerms:
    """Concatenated terms of several parts."""

    parts: tuple[FittedTfidf, ...]

    def __len__(self) -> int:
        return sum(part.size for part in self.parts)

    def words(self) -> list[str]:
        return [word for part in self.parts for word in part.vocabulary.words()]


def gather_rows(blocks: Iterable[csr_array], shape: tuple[int, int], nnz: int, run: Run) -> csr_array:
    """Concatenate blocks of rows into preallocated arrays, in memory or in the run's working directory.

    Each block is freed when it is copied. All threads copy: the first write to newly allocated memory takes longer than
    the copy itself."""
    data, indices = PreallocatedArray(nnz, np.float32, run.workdir), PreallocatedArray(nnz, np.int32, run.workdir)
    lengths, row = np.zeros(1 + shape[0], np.int64), 1

    def prepare_writes(block: csr_array) -> Iterator[Callable[[], None]]:
        nonlocal row
        lengths[row : row + block.shape[0]] = np.diff(block.indptr)
        row += block.shape[0]
        yield data.prepare_write(block.data)
        yield indices.prepare_write(block.indices)

    writes = (write for block in blocks for write in prepare_writes(block))
    for _ in run.without_output().map(lambda write: write(), writes, "concatenating rows"):
        pass
    return csr_array((data.to_array(), indices.to_array(), narrow_indptr(np.cumsum(lengths))), shape=shape)


def stack_rows(blocks: Iterator[csr_array], n_features: int) -> csr_array:
    """Concatenate blocks of rows."""
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
    """Return unit-length tf-idf rows with ascending columns as (data, indices, indptr)."""
    n = len(terms)
    keys, values = np.empty(n, np.int64), np.empty(n, np.float64)
    data, indices, indptr = np.empty(n, np.float32), np.empty(n, np.int32), np.zeros_like(starts)
    write_tfidf_rows(starts, terms, counts, columns, idf, sublinear_tf, keys, values, data, indices, indptr)
    return data[: indptr[-1]].copy(), indices[: indptr[-1]].copy(), indptr


@kernel
def write_tfidf_rows(starts, terms, counts, columns, idf, sublinear_tf, keys, values, data, indices, indptr):
    """Write the result of `weigh_rows` into the last three arguments. A key is a column and its count, so that one sort
    orders both."""
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
