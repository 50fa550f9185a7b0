"""Tests of tokenization and tf-idf against scikit-learn, and of words that scikit-learn would split."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from xmtc.core.run import Run
from xmtc.data.batch import Texts, concatenate_bytes
from xmtc.errors import XmtcError
from xmtc.features.tfidf import Tfidf, choose_ngram_weight
from xmtc.features.word_counts import WordCounts, compute_lifts, mark_single_words
from xmtc.text.string_index import NOT_FOUND, StringIndex, index_distinct_words
from xmtc.text.tokenizer import (
    Tokenizer,
    chunk_character_mask,
    count_per_document,
    is_word_character,
    word_character_mask,
)

WORDS = "the Quick brown fox_1 jumps over ÉTÉ été naïve straße 東京 Σίσυφος x y 42 don't can't e-mail".split()


ALL_NGRAMS = {"ngram_min_df": 1, "ngram_min_lift": 0, "ngram_weight": 1}


def random_texts(n: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(0, 30))) for _ in range(n)]


def sklearn_columns(ours, theirs) -> list[int]:
    return [theirs.vocabulary_[word] for word in ours.vocabulary.words()]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {}),
        ({"min_df": 1, "sublinear_tf": False}, {"min_df": 1, "sublinear_tf": False}),
        (ALL_NGRAMS | {"ngrams": 3}, {"ngram_range": (1, 3)}),
        ({"lowercase": False}, {"lowercase": False}),
        ({"min_chars": 1}, {"token_pattern": r"(?u)\w+"}),
        ({"min_chars": 1, "tokens": "chunks"}, {"token_pattern": r"(?u)\S+"}),
        ({"token_pattern": r"(?u)\w\w\w+"}, {"token_pattern": r"(?u)\w\w\w+"}),
        ({"token_pattern": "[^ ']+"}, {"token_pattern": "[^ ']+"}),
        ({"stop_words": ["the", "fox_1"]}, {"stop_words": ["the", "fox_1"]}),
        ({"max_df": 0.55}, {"max_df": 0.55}),
        (ALL_NGRAMS | {"max_df": 0.3, "ngrams": 2}, {"max_df": 0.3, "ngram_range": (1, 2)}),
        (ALL_NGRAMS | {"stop_words": "english", "ngrams": 2}, {"stop_words": "english", "ngram_range": (1, 2)}),
    ],
)
def test_values_equal_scikit_learn(ours, theirs):
    texts = random_texts(300, seed=0)
    fitted, shown = Tfidf(**ours).fit(texts)
    X = shown.matrix
    reference = TfidfVectorizer(**{"sublinear_tf": True, "min_df": 2} | theirs)
    expected = reference.fit_transform(texts)
    columns = sklearn_columns(fitted, reference)
    assert sorted(columns) == list(range(expected.shape[1]))
    np.testing.assert_allclose(X.toarray(), expected[:, columns].toarray(), atol=1e-6)
    others = random_texts(50, seed=1)
    expected = reference.transform(others)[:, columns]
    np.testing.assert_allclose(fitted.transform(others).matrix.toarray(), expected.toarray(), atol=1e-6)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80), st.integers(1, 3), st.integers(1, 3))
def test_terms_are_runs_of_word_characters(text, min_chars, ngrams):
    """Compare with a reference implementation: characters, then words, then n-grams."""
    normal = unicodedata.normalize("NFC", text).lower().encode("utf-8", "replace").decode()
    marked = "".join(c if is_word_character(c) else " " for c in normal)
    words = [word for word in marked.split(" ") if len(word) >= min_chars]
    runs = [" ".join(words[i : i + n]) for n in range(1, ngrams + 1) for i in range(len(words) - n + 1)]
    assert Counter(Tokenizer(min_chars=min_chars, ngrams=ngrams)(text)) == Counter(runs)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.sampled_from("ab cd é".split()), max_size=8), max_size=4), st.integers(1, 3))
def test_skip_grams_are_pairs_with_words_between_them(documents, skip):
    tokenizer = Tokenizer(min_chars=1, ngrams=2, skip=skip)
    counts = tokenizer.count([" ".join(words) for words in documents])
    terms = StringIndex(counts.text, counts.ends, np.empty(0, np.int32)).words()
    for d, words in enumerate(documents):
        entries = slice(counts.starts[d], counts.starts[d + 1])
        found = {terms[t]: n for t, n in zip(counts.terms[entries], counts.counts[entries], strict=True)}
        pairs = [(i, j) for i in range(len(words)) for j in range(i + 1, min(i + 2 + skip, len(words)))]
        assert found == Counter([*words, *(f"{words[i]} {words[j]}" for i, j in pairs)])


def test_explanations_mark_both_words_of_a_skip_gram():
    texts = ["alpha one beta", "alpha two beta", "beta one alpha", "beta two alpha"] * 5
    fitted, _ = Tfidf(ngrams=2, ngram_skip=1, ngram_min_lift=0).fit(texts)
    number = fitted.vocabulary.find("alpha beta")
    assert [span.word for span in fitted.spans("alpha zero beta") if number in span.numbers] == ["alpha", "beta"]


@pytest.mark.parametrize("stop_words", [(), ("the", "été", "b7")])
def test_counting_in_one_pass_equals_three_passes(stop_words):
    """Compare with separate splitting, numbering and counting, with enough words to grow the hash table."""
    rng = np.random.default_rng(0)
    texts = [f"{text} b{rng.integers(300)} b{rng.integers(9)}" for text in random_texts(400, seed=3)]
    tokenizer = Tokenizer(stop_words=stop_words)
    words = tokenizer._split_words(texts)
    result = index_distinct_words(words.text, words.begins, words.ends)
    expected = result.text, result.ends, *count_per_document(words.starts, result.numbers, len(result.ends) - 1)
    counts = tokenizer.count(texts)
    for ours, theirs in zip(
        (counts.text, counts.ends, counts.starts, counts.terms, counts.counts), expected, strict=True
    ):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


@given(st.characters(exclude_categories=["Mn", "Mc", "Me", "Cs"]))
def test_word_characters_equal_python_except_for_marks(character):
    assert is_word_character(character) == bool(re.fullmatch(r"\w", character))


def test_character_masks_agree_with_python():
    words, chunks = word_character_mask(), chunk_character_mask()
    codes = [*range(0x3000), *range(0, len(words), 7), *range(0xE0100, len(words))]
    assert [bool(words[code]) for code in codes] == [is_word_character(chr(code)) for code in codes]
    assert [bool(chunks[code]) for code in codes] == [not chr(code).isspace() for code in codes]
    assert chunks[len(words) :].all()


def test_combining_marks_do_not_split_words():
    assert Tokenizer()("नमस्ते दुनिया") == ["नमस्ते", "दुनिया"]
    assert Tokenizer()(unicodedata.normalize("NFD", "café")) == ["café"]


def test_result_is_independent_of_threads_and_batches():
    texts = random_texts(200, seed=2)
    one, shown = Tfidf().fit(texts, Run(threads=1))
    X = shown.matrix
    batches = [Texts.from_strings(texts[i : i + 20]) for i in range(0, 200, 20)]
    two, shown = Tfidf().fit(batches, Run(threads=2))
    Z = shown.matrix
    assert {part.dtype for part in (X.indices, X.indptr, Z.indices, Z.indptr)} == {np.dtype(np.int32)}
    assert one.vocabulary.words() == two.vocabulary.words()
    assert (X != Z).nnz == 0
    assert (two.transform(batches).matrix != X).nnz == 0


def test_frequent_terms_come_first_and_are_limited_by_max_features():
    texts = ["common rare", "common seldom", "common seldom", "common"]
    assert Tfidf(min_df=1).fit(texts)[0].vocabulary.words() == ["common", "seldom", "rare"]
    assert Tfidf(min_df=1, max_features=2).fit(texts)[0].vocabulary.words() == ["common", "seldom"]


def test_ngrams_that_say_no_more_than_their_words_are_dropped():
    """new york is 20 times as frequent as by chance, and on new once; on monday occurs in two documents only."""
    texts = ["new york on"] * 5 + ["on new"] * 5 + ["on monday"] * 2 + ["on"] * 88 + ["other words"] * 20
    words = Tfidf(ngrams=3, ngram_min_lift=10).fit(texts)[0].vocabulary.words()
    assert [word for word in words if " " in word] == ["new york"]
    all_words = Tfidf(ngrams=3, ngram_min_lift=0).fit(texts)[0].vocabulary.words()
    assert [word for word in all_words if " " in word] == [
        "other words",
        "new york",
        "new york on",
        "on new",
        "york on",
    ]
    assert "on monday" in Tfidf(ngrams=2, ngram_min_lift=0, ngram_min_df=2).fit(texts)[0].vocabulary.words()


def test_chunks_keep_what_words_lose():
    text = "C++ and .NET 4.8, e-mail"
    view = Tfidf(min_df=1, min_chars=1)
    assert {"c++", ".net", "4.8,", "e-mail"} < set(view.replace(tokens="chunks").fit([text])[0].vocabulary.words())
    both, _ = view.replace(tokens="chunks", min_chars=2, analyzer="words+chars").fit([text])
    both.check()
    assert [span.word for span in both.spans(text)] == ["c++", "and", ".net", "4.8", "e-mail"]


def test_max_df_is_named_if_no_word_is_left():
    with pytest.raises(
        XmtcError, match=r"at least min_df=2 of the 3 documents and in at most the share max_df=0.5; give"
    ):
        Tfidf(max_df=0.5).fit(["word"] * 3)


@given(st.lists(st.text(alphabet="a é", max_size=5), max_size=9))
def test_terms_without_spaces_are_single_words(terms):
    text, ends = concatenate_bytes([term.encode() for term in terms])
    n_spaces = np.concatenate([[0], np.cumsum(text == ord(" "))])[ends]
    np.testing.assert_array_equal(mark_single_words(text, ends), n_spaces[1:] == n_spaces[:-1])


def test_ngrams_weigh_less_in_short_texts():
    texts = ["red tape", "blue screen", "white wall"] * 4
    half, _ = Tfidf(ngrams=2, ngram_min_lift=0).fit(texts)
    full, bag = Tfidf(ngrams=2, ngram_min_lift=0, ngram_weight=1).fit(texts)
    assert [half.term(i) for i in range(half.size)] == [full.term(i) for i in range(full.size)]
    np.testing.assert_allclose(half.idf, full.idf * np.repeat([1, 0.5], [6, 3]))
    np.testing.assert_allclose(bag.matrix.data, 3**-0.5, rtol=1e-6)
    assert [choose_ngram_weight(words) for words in (10, 60, 200)] == [0.5, 0.75, 1]


def test_the_lift_of_an_ngram_is_that_of_its_closest_parts():
    texts = [f"a b c x{i}" for i in range(4)] + ["a b"] * 4 + ["d"] * 8
    counts = WordCounts.from_texts(Tokenizer(min_chars=1, ngrams=3), texts, Run())
    lifts = compute_lifts(counts.text, counts.ends, counts.frequencies, counts.n_docs)
    lift = dict(
        zip(StringIndex.from_subset(counts.text, counts.ends, np.arange(len(lifts))).words(), lifts, strict=True)
    )
    assert lift["a"] == np.inf
    assert lift["a b"] == 8 * 16 / (8 * 8)
    assert lift["b c"] == 4 * 16 / (8 * 4)
    assert lift["a b c"] == 4 * 16 / (8 * 4)  # of "a" and "b c", or of "a b" and "c"
    assert lift["b c x0"] == 1 * 16 / (8 * 1)  # of "b" and "c x0"; 4 of "b c" and "x0"


@pytest.mark.parametrize("analyzer", ["words:1-2", "words:1-2+chars"])
def test_labels_are_clustered_by_single_words(analyzer):
    """Word n-grams come after the words, and make weights smaller."""
    texts = random_texts(300, seed=0)
    _, bag = Tfidf(analyzer=analyzer, ngram_min_lift=0).fit(texts)
    words, _ = Tfidf(analyzer="words").fit(texts)
    assert bag.n_cluster_columns == words.size
    assert bag.vocabulary.words()[: words.size] == words.vocabulary.words()
    assert " " in bag.vocabulary.words()[words.size]
    assert 0.2 < bag.weight_scale < 0.8
    assert Tfidf(analyzer="words").fit(texts)[1].n_cluster_columns == 0


def test_texts_can_be_an_iterator_and_rows_empty():
    fitted, shown = Tfidf().fit(text for text in ["same words", "same words", "", "!?"])
    assert (shown.n_docs, shown.size) == (4, 2)
    assert np.diff(shown.matrix.indptr).tolist() == [2, 2, 0, 0]
    assert fitted.transform(iter([])).matrix.shape == (0, 2)


def test_stop_words_are_read_from_a_file(tmp_path):
    (tmp_path / "stop.txt").write_text("Same\nand\n")
    words = Tfidf(min_df=1, stop_words=str(tmp_path / "stop.txt")).fit(["same words", "words AND more"])[0]
    assert words.vocabulary.words() == ["words", "more"]
    with pytest.raises(XmtcError, match=r"neither one of danish, .* nor a readable UTF-8 file"):
        Tfidf(stop_words="klingon").fit(["text"])


def test_error_for_a_corpus_without_words():
    with pytest.raises(XmtcError, match=r"No word occurs in at least min_df=2 of the 2 documents"):
        Tfidf().fit(["each", "different"])
    for texts in (["a b", "?!"], ["", ""]):
        with pytest.raises(XmtcError, match="None of the 2 documents holds a word of at least min_chars=2 characters"):
            Tfidf().fit(texts)


@given(st.lists(st.text(min_size=1, max_size=8), unique=True, max_size=60))
def test_vocabulary_contains_only_its_words(words):
    words = list(dict.fromkeys(word.encode("utf-8", "replace").decode() for word in words))
    vocabulary, other = StringIndex.from_strings(words), StringIndex.from_strings(f"{word}!!!!!!!!!" for word in words)
    assert vocabulary.words() == words
    assert vocabulary.find_packed(vocabulary.text, vocabulary.ends).tolist() == list(range(len(words)))
    assert (vocabulary.find_packed(other.text, other.ends) == NOT_FOUND).all()
