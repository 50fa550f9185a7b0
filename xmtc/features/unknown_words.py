"""Share of the words of documents that a model does not know."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import numpy as np

from xmtc.core.dataset import Bag, Dataset, Tokens
from xmtc.core.run import Run
from xmtc.features.tfidf import AnalyzedTfidf, FittedTfidf, JoinedTfidf, TfidfBesideVectors
from xmtc.features.view import UNKNOWN_ID, FittedView
from xmtc.features.words import FittedWords
from xmtc.text.analyzers import get_analyzer
from xmtc.text.string_index import NOT_FOUND
from xmtc.text.tokenizer import batch_texts


def measure_unknown_words(
    views: Mapping[str, FittedView],
    texts: Sequence[str],
    run: Run = Run(),
    training: Dataset | None = None,
) -> np.ndarray | None:
    """Return the share of the distinct terms of each text that the first view of words does not know, (n_docs,).

    Return None if no view has words. For texts that are among the training documents `training`, terms that no other
    document of the training may have count as unknown, as they would be without the text.
    """
    for name, view in views.items():
        if isinstance(view, FittedWords):
            words = None if training is None else training.views[name]
            return measure_unknown_tokens(view.transform(texts, run), words)
        terms = find_terms(view)
        if terms is None:
            continue
        is_rare = np.zeros(terms.size, bool) if training is None else mark_rare_terms(training, name, terms.size)
        count = partial(count_unknown_terms, terms, is_rare)
        blocks = run.map(count, batch_texts(texts), "reading texts")
        return np.concatenate([np.zeros(0), *blocks])
    return None


def measure_unknown_tokens(tokens: Tokens, training: Bag | Tokens | None) -> np.ndarray:
    """Return the share of unknown words in each text; words that occur once in the training are unknown, too."""
    is_unknown = np.arange(tokens.size) == UNKNOWN_ID
    if isinstance(training, Tokens):
        is_unknown |= mark_words_of_one_document(training)
    if not tokens.n_docs:
        return np.zeros(0)
    return np.add.reduceat(is_unknown[tokens.ids].astype(float), tokens.offsets[:-1]) / tokens.lengths


def find_terms(view: FittedView) -> FittedTfidf | None:
    """Return the terms of a view, those of its first analyzer; None if it has none."""
    if isinstance(view, TfidfBesideVectors):
        return find_terms(view.terms[0]) if view.terms else None
    if isinstance(view, JoinedTfidf):
        return view.parts[0]
    return view if isinstance(view, FittedTfidf) else None


def mark_words_of_one_document(tokens: Tokens) -> np.ndarray:
    """Return which words only one document has, shape (size,)."""
    documents = np.repeat(np.arange(tokens.n_docs, dtype=np.int32), tokens.lengths)
    first, last = np.full(tokens.size, -1, np.int32), np.full(tokens.size, -1, np.int32)
    last[tokens.ids] = documents  # of equal ids, the last one counts
    first[tokens.ids[::-1]] = documents[::-1]
    return (first == last) & (last >= 0)


def mark_rare_terms(training: Dataset, name: str, n_terms: int) -> np.ndarray:
    """Return which terms of a view have as few training documents as a term may, and no name of a label, (n_terms,)."""
    bag = training.views[name]
    if not isinstance(bag, Bag):
        return np.zeros(n_terms, bool)
    is_name = np.zeros(bag.n_docs, bool) if training.is_name is None else training.is_name
    is_in_name = np.repeat(is_name, np.diff(bag.matrix.indptr))
    counts, named = (
        np.bincount(bag.matrix.indices[is_chosen], minlength=bag.matrix.shape[1])[:n_terms]
        for is_chosen in (~is_in_name, is_in_name)
    )
    counts[named > 0] = 0  # names alone make a word a term
    return counts == counts[counts > 0].min(initial=1 + bag.n_docs)


def count_unknown_terms(view: FittedTfidf, is_rare: np.ndarray, texts: Collection[str]) -> np.ndarray:
    """Return the share of unknown terms in each text of a batch; 0 for texts without words."""
    counts = view.tokenizer.count(texts)
    text, ends = counts.text, counts.ends
    starts, numbers = np.arange(len(ends)), np.arange(len(ends) - 1)
    if isinstance(view, AnalyzedTfidf):
        analyzer = get_analyzer(view.analyzer)
        assert analyzer is not None
        word_terms = analyzer.analyze(text, ends)
        text, ends, starts, numbers = word_terms.text, word_terms.ends, word_terms.starts, word_terms.numbers
    columns = view.vocabulary.find_packed(text, ends)
    is_unknown = (columns == NOT_FOUND) | np.append(is_rare, True)[columns]
    n_unknown = np.diff(np.append(0, np.cumsum(is_unknown[numbers]))[starts])[counts.terms]
    n_terms = np.diff(starts)[counts.terms]
    totals = [np.diff(np.append(0, np.cumsum(values))[counts.starts]) for values in (n_unknown, n_terms)]
    return totals[0] / np.maximum(totals[1], 1)
