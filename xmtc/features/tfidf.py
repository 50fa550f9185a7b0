"""Tf-idf features by all cores, with scikit-learn's numbers: (1 + ln tf) · (1 + ln((1 + n) / (1 + df))), rows of
length 1. Columns stand in the order of document frequency, so the columns that matter most lie close together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array

from xmtc.base.arrays import trusted
from xmtc.base.dataset import Bag
from xmtc.base.form import array
from xmtc.base.params import briefly, param
from xmtc.base.run import Run
from xmtc.compiled import kernel
from xmtc.errors import XmtcError
from xmtc.features.view import FittedView, View
from xmtc.sparse import narrow, sort
from xmtc.text.spans import Span, find_spans
from xmtc.text.tokenizer import Counts, Tokenizer, batches
from xmtc.text.vocabulary import FREE, Vocabulary, merge, most_frequent


@dataclass(frozen=True)
class Tfidf(View):
    """How texts become weighted terms."""

    title: ClassVar[str] = "Text features"

    min_df: int = param(2, "drop terms found in fewer documents than this", low=1)
    max_features: int = param(0, "keep only this many terms, the most frequent by documents (0: all)", low=0)
    ngrams: int = param(1, "terms are runs of 1 up to this many words", low=1, high=5)
    stop_words: str = param("", "words to drop: 'english', or the path of a file with one word a line")
    min_chars: int = param(2, "drop words shorter than this", low=1)
    lowercase: bool = param(True, "treat upper and lower case alike")
    sublinear_tf: bool = param(True, "use 1 + ln(tf) instead of tf")

    def fit(self, contents: Iterable[str], run: Run = Run()) -> tuple[FittedTfidf, Bag]:
        """Learn the vocabulary and weigh the same texts. Texts may be a stream: only their counts are kept."""
        tokenizer = Tokenizer(self.lowercase, self.min_chars, self.ngrams, self._stop_list())
        counts = list(run.map(tokenizer.count, batches(contents), "reading texts", size=len))
        terms, ends, term_numbers = merge([(c.text, c.ends) for c in counts])
        frequencies = sum(
            (np.bincount(n[c.terms], minlength=len(ends) - 1) for n, c in zip(term_numbers, counts, strict=True)),
            np.zeros(len(ends) - 1, np.int64),
        )

        kept = most_frequent(terms, ends, frequencies, self.min_df, self.max_features or None)
        n_docs = sum(len(c.starts) - 1 for c in counts)
        if not len(kept):
            raise self._nothing_to_learn_from(n_docs, any_words=len(frequencies) > 0)

        fitted = FittedTfidf(
            tokenizer=tokenizer,
            vocabulary=Vocabulary.picked(terms, ends, kept),
            idf=np.log((1 + n_docs) / (1 + frequencies[kept])) + 1,
            sublinear_tf=self.sublinear_tf,
        )
        columns = np.full(len(ends) - 1, FREE, np.int32)
        columns[kept] = np.arange(len(kept), dtype=np.int32)
        jobs = ((c, columns[n]) for n, c in zip(term_numbers, counts, strict=True))
        blocks = run.map(lambda job: fitted.weigh(*job), jobs, "weighing words", total=len(counts))
        return fitted, fitted.stacked(blocks)

    def _nothing_to_learn_from(self, n_docs: int, any_words: bool) -> XmtcError:
        found, remedy = f"No word occurs in at least min_df={self.min_df} of the {n_docs} documents", "a lower min_df"
        if not any_words:
            found = f"None of the {n_docs} documents holds a word of at least min_chars={self.min_chars} characters"
            remedy = "a lower min_chars, and check the text field and stop_words"
        return XmtcError(f"{found}, so there is nothing to learn from; give more text or {remedy}.")

    def _stop_list(self) -> tuple[str, ...]:
        if not self.stop_words:
            return ()
        if self.stop_words == "english":
            from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

            return tuple(sorted(ENGLISH_STOP_WORDS))
        try:
            return tuple(Path(self.stop_words).read_text(encoding="utf-8").split())
        except (OSError, ValueError) as error:  # ValueError: no UTF-8, or what cannot be a path
            raise XmtcError(
                f"stop_words={briefly(self.stop_words)} is neither 'english' nor a readable UTF-8 file of words: "
                f"{getattr(error, 'strerror', None) or error}."
            ) from None


@dataclass(frozen=True, kw_only=True)
class FittedTfidf(FittedView):
    """Terms and their weights, learnt from a corpus."""

    tokenizer: Tokenizer
    vocabulary: Vocabulary
    idf: np.ndarray = array(np.float64)  # (size,)
    sublinear_tf: bool

    @property
    def size(self) -> int:
        return len(self.vocabulary)

    def term(self, number: int) -> str:
        return self.vocabulary[number]

    def transform(self, contents: Iterable[str], run: Run = Run()) -> Bag:
        """Weigh the words of new texts; words outside the vocabulary are dropped, so a row may be empty."""

        def weigh(batch: list[str]) -> csr_array:
            counts = self.tokenizer.count(batch)
            return self.weigh(counts, self.vocabulary.find(counts.text, counts.ends))

        return self.stacked(run.map(weigh, batches(contents), "reading texts", size=len))

    def spans(self, text: str) -> list[Span]:
        """A word belongs to every term that it is part of: to several, where terms are runs of words."""
        words = find_spans(self.tokenizer, text)
        terms: list[list[int]] = [[] for _ in words]
        for first in range(len(words)):
            for after in range(first + 1, min(first + self.tokenizer.ngrams, len(words)) + 1):
                term = self.vocabulary.number(" ".join(word.word for word in words[first:after]))
                for word in range(first, after) if term != FREE else ():
                    terms[word].append(term)
        return [word._replace(numbers=tuple(found)) for word, found in zip(words, terms, strict=True)]

    def stacked(self, blocks: Iterator[csr_array]) -> Bag:
        return trusted(Bag, matrix=stack(blocks, self.size), vocabulary=self.vocabulary)

    def weigh(self, counts: Counts, columns: np.ndarray) -> csr_array:
        """Features of a batch, given the column of each of its terms."""
        entries = counts.starts, counts.terms, counts.counts
        data, indices, indptr = weigh_rows(*entries, columns, self.idf, self.sublinear_tf)
        return csr_array((data, indices, narrow(indptr)), shape=(len(indptr) - 1, self.size))

    def check(self) -> None:
        self.tokenizer.check()
        self.vocabulary.check()
        if self.idf.shape != (self.size,) or not ((self.idf > 0) & np.isfinite(self.idf)).all():
            raise ValueError(f"its {self.size} words do not have one positive weight each")


def stack(blocks: Iterator[csr_array], n_features: int) -> csr_array:
    """Blocks of rows, one below the other."""
    parts = list(blocks)
    if len(parts) == 1:
        return parts[0]
    indptr = np.zeros(1 + sum(part.shape[0] for part in parts), np.int64)
    np.cumsum(np.concatenate([np.diff(part.indptr) for part in parts] or [np.zeros(0)]), out=indptr[1:])
    data = np.concatenate([part.data for part in parts] or [np.zeros(0, np.float32)])
    indices = np.concatenate([part.indices for part in parts] or [np.zeros(0, np.int32)])
    return csr_array((data, indices, narrow(indptr)), shape=(len(indptr) - 1, n_features))


def weigh_rows(
    starts: np.ndarray, terms: np.ndarray, counts: np.ndarray, columns: np.ndarray, idf: np.ndarray, sublinear_tf: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tf-idf rows of length 1 as (data, indices, indptr), columns ascending."""
    n = len(terms)
    keys, values = np.empty(n, np.int64), np.empty(n, np.float64)
    data, indices, indptr = np.empty(n, np.float32), np.empty(n, np.int32), np.zeros_like(starts)
    write_rows(starts, terms, counts, columns, idf, sublinear_tf, keys, values, data, indices, indptr)
    return data[: indptr[-1]].copy(), indices[: indptr[-1]].copy(), indptr


@kernel
def write_rows(starts, terms, counts, columns, idf, sublinear_tf, keys, values, data, indices, indptr):
    """`weigh_rows`, written into its last three arguments. A key is a column and its count, so that one sort serves
    both."""
    n = np.int64(0)
    for doc in range(len(starts) - 1):
        begin, norm = n, 0.0
        for entry in range(starts[doc], starts[doc + 1]):
            column = np.int64(columns[terms[entry]])
            if column != FREE:
                keys[n] = column << 32 | counts[entry]
                n += 1
        sort(keys, begin, n)
        for i in range(begin, n):
            column, tf = keys[i] >> 32, float(keys[i] & 0xFFFFFFFF)
            values[i] = (np.log(tf) + 1 if sublinear_tf else tf) * idf[column]
            norm += values[i] * values[i]
            indices[i] = column
        norm = np.sqrt(norm)
        for i in range(begin, n):
            data[i] = values[i] / norm
        indptr[doc + 1] = n
