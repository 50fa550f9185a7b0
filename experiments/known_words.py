"""Texts with only the words that have a bag-of-words feature, as in section 3.1 of Rank-AE.

Networks that read texts then have the vocabulary of the methods that read the feature matrix.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from xmtc.data.corpus import Corpus, open_corpus_writer
from xmtc.text.tokenizer import Tokenizer
from xmtc.text.word_spans import find_spans


def write_known_words(corpus: Corpus, words: Collection[str], target: str) -> int:
    """Write a copy of the corpus with only these words, in their order; return the number of words removed."""
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    corpus.check_not_overwritten(target)
    tokenizer, known, n_removed = Tokenizer(min_chars=1), {word.lower() for word in words}, 0
    with open_corpus_writer(target, None, corpus) as add:
        for document in corpus:
            spans = find_spans(tokenizer, document.text)
            kept = [span.word for span in spans if span.word in known]
            n_removed += len(spans) - len(kept)
            add(document._replace(text=" ".join(kept)))
    return n_removed
