"""Tests of word sequences against a reference implementation, and in a Dataset."""

from __future__ import annotations

import unicodedata
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from xmtc import features
from xmtc.core.dataset import Dataset, Tokens
from xmtc.core.method import Method, Model
from xmtc.core.run import Run
from xmtc.data.batch import Texts
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.features.tfidf import Tfidf
from xmtc.features.words import FittedWords, Words
from xmtc.methods import Parabel
from xmtc.nn.initial_vectors import load_token_vectors
from xmtc.parameters import build_views
from xmtc.pipeline import Pipeline
from xmtc.text.string_index import StringIndex
from xmtc.text.tokenizer import Tokenizer, is_word_character

VARIED = "The the QUICK brown fox_1 été ÉTÉ naïve straße 東京 नमस्ते Σίσυφος x 42 don't e-mail 🎉 … --".split()


def random_texts(n: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(VARIED, rng.integers(0, 30))) for _ in range(n)]


def reference_words(text: str, max_tokens: int, lowercase: bool = True) -> list[str]:
    normal = unicodedata.normalize("NFC", text)
    normal = (normal.lower() if lowercase else normal).encode("utf-8", "replace").decode()
    marked = "".join(c if is_word_character(c) else " " for c in normal)
    return [word for word in marked.split(" ") if word][:max_tokens]


def reference_fit(
    texts: list[str], max_words: int, max_tokens: int, lowercase: bool
) -> tuple[list[str], list[list[int]]]:
    """Return the vocabulary and the ids of each text, as Words.fit should."""
    split = [reference_words(text, max_tokens, lowercase) for text in texts]
    frequencies = Counter(word for words in split for word in set(words))
    vocabulary = sorted(frequencies, key=lambda word: (-frequencies[word], word.encode()))[:max_words]
    numbers = {word: i + 1 for i, word in enumerate(vocabulary)}
    result = [[numbers.get(word, 0) for word in words] for words in split]
    return vocabulary, [row if any(row) else [0] for row in result]


def lists_of(tokens: Tokens) -> list[list[int]]:
    return [tokens.ids[begin:end].tolist() for begin, end in pairwise(tokens.offsets)]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text(max_size=60), max_size=6), st.integers(1, 8), st.integers(1, 6), st.booleans())
@example(["0\U000e0100"], 1, 1, False)  # a variation selector, a mark with a code point above all letters
def test_ids_equal_the_reference(texts, max_words, max_tokens, lowercase):
    texts = [*texts, "some word"]
    fitted, tokens = Words(max_words, max_tokens, lowercase).fit(texts)
    vocabulary, expected = reference_fit(texts, max_words, max_tokens, lowercase)
    assert fitted.vocabulary.words() == vocabulary
    assert lists_of(tokens) == expected
    assert lists_of(fitted.transform(texts)) == expected


def test_batch_ids_follow_the_order_of_occurrence():
    result = Tokenizer(min_chars=1).index_words(["b a b c", "", "?!", "a d d"], max_words=3)
    assert StringIndex(result.text, result.ends, np.zeros(0, np.int32)).words() == ["b", "a", "d"]
    assert result.ids.tolist() == [1, 2, 1, 0, 0, 2, 3, 3]
    assert result.starts.tolist() == [0, 3, 4, 5, 8]
    assert result.frequencies.tolist() == [1, 2, 1]


def test_vocabulary_of_a_batch_grows():
    texts = [" ".join(f"word{i}{'x' * (i % 40)}" for i in range(first, first + 700)) for first in range(0, 7000, 350)]
    fitted, tokens = Words(max_tokens=600).fit(texts)
    vocabulary, expected = reference_fit(texts, 500_000, 600, True)
    assert fitted.vocabulary.words() == vocabulary
    assert lists_of(tokens) == expected


def test_words_beyond_max_tokens_are_not_counted():
    texts = ["a b rare", "b a rare", "c"]
    fitted, _ = Words(max_tokens=2).fit(texts)
    assert fitted.vocabulary.words() == ["a", "b", "c"]
    assert lists_of(fitted.transform(["rare c a", "c c c"])) == [[0, 3], [3, 3]]
    fitted, tokens = Words(max_words=1).fit(["seldom often", "often", "often twice twice twice"])
    assert fitted.size == tokens.size == 2
    assert lists_of(tokens) == [[0, 1], [1], [1, 0, 0, 0]]


def test_result_is_independent_of_threads_and_batches():
    texts = random_texts(200, seed=2)
    one, tokens = Words().fit(texts, Run(threads=1))
    batches = [Texts.from_strings(texts[i : i + 20]) for i in range(0, 200, 20)]
    two, same = Words().fit(batches, Run(threads=2))
    assert one.vocabulary.words() == two.vocabulary.words()
    for result in (same, two.transform(batches, Run(threads=2))):
        assert (result.ids.dtype, result.offsets.dtype) == (np.int32, np.int64)
        np.testing.assert_array_equal(result.ids, tokens.ids)
        np.testing.assert_array_equal(result.offsets, tokens.offsets)
    np.testing.assert_array_equal(load_token_vectors(same), load_token_vectors(tokens))


def test_texts_can_be_an_iterator():
    fitted, tokens = Words().fit(text for text in ["same words", "same", "", "!?"])
    assert lists_of(tokens) == [[1, 2], [1], [0], [0]]
    assert lists_of(fitted.transform(text for text in ["words", "unheard-of", "not words"])) == [[2], [0], [0, 2]]
    none = fitted.transform(iter([]))
    assert (none.n_docs, none.size, none.ids.dtype) == (0, 3, np.int32)


@pytest.mark.parametrize("texts", [[], ["", "?!"]])
def test_error_for_a_corpus_without_words(texts):
    with pytest.raises(XmtcError, match=f"None of the {len(texts)} documents holds a word"):
        Words().fit(texts)


def test_random_vectors_are_reproducible():
    vectors, others = (load_token_vectors(Words().fit([text])[1], dimension=7) for text in ("a b c", "d e f"))
    assert (vectors.shape, vectors.dtype) == ((4, 7), np.float32)
    assert np.abs(vectors).max() <= 1
    assert len(np.unique(vectors)) == vectors.size
    np.testing.assert_array_equal(vectors, others)


def test_vectors_are_read_from_a_file(tmp_path):
    (tmp_path / "vectors.txt").write_text("b 1 2 3\nz 4 5 6\na 7 8 9\n")
    vectors = load_token_vectors(Words().fit(["a b c"])[1], str(tmp_path / "vectors.txt"))
    assert (vectors.shape, vectors.dtype) == ((4, 3), np.float32)
    assert vectors[1:3].tolist() == [[7, 8, 9], [1, 2, 3]]
    unknown = vectors[[0, 3]]
    assert np.abs(unknown).max() <= 1
    # the vector of the unknown word differs from that of a word that is missing in the file
    assert len(np.unique(unknown)) == 6


@dataclass(frozen=True)
class ReadsBoth(Method):
    required_views: ClassVar[tuple[str, ...]] = ("tfidf", "words")

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> Model:
        raise NotImplementedError


def test_two_views_equal_each_view_alone():
    texts = random_texts(50, seed=3)
    views = build_views(ReadsBoth(), features.TEXTS, {"max_tokens": 9, "ngrams": 2, "lowercase": False})
    prepared = Pipeline(Parabel(), views).prepare([Document("", text, ["label"]) for text in texts])
    fitted, data = prepared.fitted_views, prepared.data
    _, bag = Tfidf(ngrams=2, lowercase=False).fit(texts)
    _, tokens = Words(max_tokens=9, lowercase=False).fit(texts)
    again = features.transform(fitted, (Document("", text, []) for text in texts))
    for result in (data, again):
        assert (bag.matrix != result.X).nnz == 0
        assert lists_of(result.tokens("words")) == lists_of(tokens)
    assert {name: view.size for name, view in fitted.items()} == data.sizes == again.sizes
    for result in (data, again):  # used to compute word vectors
        assert result.bag.vocabulary is fitted["tfidf"].vocabulary
        assert result.tokens("words").vocabulary is fitted["words"].vocabulary


@pytest.mark.parametrize("max_tokens", [0, 2**63])
def test_damaged_words_are_rejected(max_tokens):
    with pytest.raises(ValueError, match=f"its maximum number of words, {max_tokens}, is out of range"):
        FittedWords(tokenizer=Tokenizer(), vocabulary=StringIndex.from_strings(["a"]), max_tokens=max_tokens).check()


def some_tokens() -> Tokens:
    vocabulary = StringIndex.from_strings(["a", "b", "c"])
    return Tokens(np.array([1, 3, 1, 0, 2, 0, 2], np.int32), np.array([0, 3, 4, 7]), 4, vocabulary, "encoder")


def test_lengths_and_counts():
    tokens = some_tokens()
    assert tokens.n_docs == 3
    assert tokens.lengths.tolist() == [3, 1, 3]
    counts = tokens.to_count_matrix()
    assert (counts.dtype, counts.indices.dtype, counts.has_canonical_format) == (np.float32, np.int32, True)
    assert counts.toarray().tolist() == [[0, 2, 0, 1], [0, 0, 0, 0], [0, 0, 2, 0]]
    assert tokens.ids.tolist() == [1, 3, 1, 0, 2, 0, 2]  # counting does not change them


@pytest.mark.parametrize(
    "index",
    [np.array([2, 0, 0]), [1], slice(1, 3), slice(None, None, -1), np.array([True, False, True]), np.zeros(0, int)],
)
def test_rows_are_selected(index):
    tokens = some_tokens()
    chosen, lists = tokens.select_rows(index), lists_of(tokens)
    assert lists_of(chosen) == [lists[i] for i in np.arange(3)[index]]
    assert (chosen.ids.dtype, chosen.offsets.dtype, chosen.size) == (np.int32, np.int64, 4)
    assert chosen.vocabulary is tokens.vocabulary
    assert chosen.encoder == "encoder"


def test_dataset_of_words():
    data = Dataset({"words": some_tokens()})
    assert list(data.views) == ["words"]
    assert (data.n_docs, data.sizes, data.n_labels) == (3, {"words": 4}, 0)
    assert Dataset.from_matrix(csr_array((3, 2), dtype=np.float32)).sizes == {"columns": 2}
    labelled = Dataset(data.views, csr_array(np.eye(3, dtype=np.float32))).select_rows(np.array([2, 1]))
    assert lists_of(labelled.tokens("words")) == [[2, 0, 2], [0]]
    assert labelled.Y.indices.tolist() == [2, 1]


def test_fingerprint_depends_on_the_words():
    tokens = some_tokens()
    others = [
        Tokens(tokens.ids[::-1], tokens.offsets, 4, encoder="encoder"),
        Tokens(tokens.ids, np.array([0, 2, 4, 7]), 4, encoder="encoder"),
        Tokens(tokens.ids, tokens.offsets, 5, encoder="encoder"),
        Tokens(tokens.ids, tokens.offsets, 4, encoder="another"),
        Tokens(tokens.ids, tokens.offsets, 4),
    ]
    prints = [Dataset({"words": each}).fingerprint() for each in (tokens, *others)]
    prints.append(Dataset({"subwords": tokens}).fingerprint())
    assert len(set(prints)) == len(prints)
    assert Dataset({"words": some_tokens()}).fingerprint() == prints[0]
