"""Growth of a fitted tf-idf view: words of new documents, and weights for the documents of all updates.

Both need no texts of earlier documents. New words become columns at the end of their analyzer's columns. Document
frequencies are counted in the feature matrix; a row is scaled from old to new weights, because its term frequencies
stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.dataset import Bag
from xmtc.core.sparse import normalise_rows
from xmtc.features.tfidf import FittedTfidf, JoinedTerms, JoinedTfidf, is_gram_view, stack_columns
from xmtc.features.view import FittedView
from xmtc.features.word_counts import mark_single_words
from xmtc.text.analyzers import get_analyzer
from xmtc.text.string_index import NOT_FOUND, StringIndex, index_distinct_words, select_words


class GrownView(NamedTuple):
    """View with further columns, and the new number of each old column."""

    view: FittedView
    columns: np.ndarray  # (old size,), ascending


def grow_view(view: FittedView, texts: Sequence[str], n_docs: int) -> GrownView:
    """Add the words of texts that a tf-idf view does not know; `n_docs` is the number of documents with them.

    Other views, and character n-grams, stay as they are."""
    if isinstance(view, JoinedTfidf):
        parts = [grow_part(part, texts, n_docs) for part in view.parts]
        starts = np.cumsum([0, *(part.size for part in parts[:-1])])
        columns = [start + np.arange(old.size) for start, old in zip(starts, view.parts, strict=True)]
        return GrownView(replace(view, parts=tuple(parts)), np.concatenate(columns))
    if isinstance(view, FittedTfidf):
        return GrownView(grow_part(view, texts, n_docs), np.arange(view.size))
    return GrownView(view, np.arange(view.size))


def grow_part(view: FittedTfidf, texts: Sequence[str], n_docs: int) -> FittedTfidf:
    """Add the unknown words of texts to the terms of one analyzer."""
    if is_gram_view(view) or not texts:
        return view
    counts = view.tokenizer.count(texts)
    analyzer = get_analyzer(view.analyzer) if hasattr(view, "analyzer") else None
    terms = counts if analyzer is None else analyzer.analyze(counts.text, counts.ends)
    is_new = view.vocabulary.find_packed(terms.text, terms.ends) == NOT_FOUND
    is_new &= mark_single_words(terms.text, terms.ends)
    new_text, new_ends = select_words(terms.text, terms.ends, np.flatnonzero(is_new))
    new = StringIndex.from_subset(new_text, new_ends, np.arange(len(new_ends) - 1))
    if not len(new):
        return view
    matrix = replace(view, vocabulary=new, idf=np.ones(len(new))).weigh_counts(counts)
    frequencies = np.bincount(matrix.indices, minlength=len(new))
    text, ends = np.concatenate([view.vocabulary.text, new.text]), view.vocabulary.ends
    ends = np.concatenate([ends, ends[-1] + new.ends[1:]])
    vocabulary = StringIndex(text, ends, index_distinct_words(text, ends[:-1], ends[1:]).table)
    return replace(view, vocabulary=vocabulary, idf=np.append(view.idf, compute_idf(frequencies, n_docs)))


def compute_idf(frequencies: np.ndarray, n_docs: int) -> np.ndarray:
    return np.log((1 + n_docs) / (1 + frequencies)) + 1


def spread_columns(bag: Bag, columns: np.ndarray, n_columns: int) -> Bag:
    """Return the documents in a view that has grown."""
    if n_columns == bag.size:
        return bag
    indices = columns[bag.matrix.indices].astype(bag.matrix.indices.dtype)
    matrix = csr_array((bag.matrix.data, indices, bag.matrix.indptr), shape=(bag.n_docs, n_columns))
    n_cluster_columns = int(columns[bag.n_cluster_columns - 1]) + 1 if bag.n_cluster_columns else 0
    return bag.copy_with(matrix=matrix, n_cluster_columns=n_cluster_columns)


def refit_view(view: FittedView, bag: Bag) -> tuple[FittedView, Bag]:
    """Weigh the terms of a tf-idf view by their frequency in all documents, and drop those that no document has now.

    Word n-grams keep their weights, which include that of n-grams beside words. Other views stay as they are."""
    if not isinstance(view, (FittedTfidf, JoinedTfidf)):
        return view, bag
    parts = view.parts if isinstance(view, JoinedTfidf) else (view,)
    refitted, blocks, kept_columns, start = [], [], [], 0
    for part in parts:
        block = csr_array(bag.matrix[:, start : start + part.size])
        frequencies = np.bincount(block.indices, minlength=part.size)
        kept = np.flatnonzero(frequencies)
        index = StringIndex.from_subset(part.vocabulary.text, part.vocabulary.ends, kept)
        is_fixed = ~mark_single_words(index.text, index.ends) & (not is_gram_view(part))
        idf = np.where(is_fixed, part.idf[kept], compute_idf(frequencies[kept], bag.n_docs))
        block = csr_array(block[:, kept])
        block.data = (block.data * (idf / part.idf[kept])[block.indices]).astype(np.float32)
        blocks.append(normalise_rows(block))
        refitted.append(replace(part, vocabulary=index, idf=idf))
        kept_columns.append(start + kept)
        start += part.size
    n_cluster = int((np.concatenate(kept_columns) < bag.n_cluster_columns).sum())
    if isinstance(view, JoinedTfidf):
        fitted: FittedView = replace(view, parts=tuple(refitted))
        return fitted, bag.copy_with(
            matrix=stack_columns(blocks), n_cluster_columns=n_cluster, vocabulary=JoinedTerms(tuple(refitted))
        )
    return refitted[0], bag.copy_with(matrix=blocks[0], n_cluster_columns=n_cluster, vocabulary=refitted[0].vocabulary)
