"""Tests of word vectors from the co-occurrences of a corpus."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from xmtc.core.dataset import Tokens
from xmtc.features.words import Words
from xmtc.nn.initial_vectors import load_token_vectors
from xmtc.text.cooccurrence import compute_corpus_vectors, compute_ppmi, compute_singular_vectors, count_cooccurrences


def tokens(*documents: list[int], n_words: int) -> Tokens:
    offsets = np.concatenate([[0], np.cumsum([len(words) for words in documents])])
    return Tokens(np.concatenate(documents).astype(np.int32), offsets, n_words)


def test_cooccurrence_counts_are_weighted_by_distance():
    result = count_cooccurrences(tokens([1, 2, 3], [3, 0, 1], n_words=4)).toarray()
    expected = np.zeros((4, 4))
    for a, b, weight in [(1, 2, 1), (2, 3, 1), (1, 3, 1 / 2), (3, 1, 1 / 2)]:
        expected[a, b] += weight
        expected[b, a] += weight
    assert result == pytest.approx(expected)


def test_positive_mutual_information_equals_the_formula():
    counts = count_cooccurrences(tokens([1, 2, 1, 2, 3, 1, 4, 4, 2], n_words=5))
    dense = counts.toarray().astype(np.float64)
    totals = dense.sum(axis=1)
    smooth = totals**0.75 / (totals**0.75).sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.where(dense > 0, np.log(dense / (totals[:, None] * smooth)), 0).clip(min=0)
    assert compute_ppmi(counts).toarray() == pytest.approx(expected, abs=1e-5)


def test_linear_algebra_uses_one_thread(monkeypatch):
    threads = []
    result = compute_singular_vectors

    def watched(*words):
        threads.extend(each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas")
        return result(*words)

    monkeypatch.setattr("xmtc.text.cooccurrence.compute_singular_vectors", watched)
    compute_corpus_vectors(tokens([1, 2, 1, 2, 3, 1, 4, 4, 2], n_words=5), 2)
    assert set(threads) == {1}


def test_singular_vectors_equal_dense_svd():
    counts = count_cooccurrences(tokens(*np.random.default_rng(0).integers(1, 40, (60, 30)).tolist(), n_words=40))
    left, values = compute_singular_vectors(counts, 5, seed=0)
    exact_left, exact_values, _ = np.linalg.svd(counts.toarray())
    assert values == pytest.approx(exact_values[:5], rel=1e-3)
    assert np.abs((left * exact_left[:, :5]).sum(axis=0))[0] == pytest.approx(1, abs=1e-3)


def test_words_with_equal_neighbours_have_similar_vectors():
    rng = np.random.default_rng(0)
    colours, animals = [1, 2, 3], [4, 5, 6]
    documents = [[rng.choice(colours), 7, rng.choice(colours)] for _ in range(100)]
    documents += [[rng.choice(animals), 8, rng.choice(animals)] for _ in range(100)]
    vectors = compute_corpus_vectors(tokens(*documents, n_words=9), 3)
    alike = vectors @ vectors.T / np.outer(*[np.linalg.norm(vectors, axis=1) + 1e-9] * 2)
    assert alike[1, 2] > 0.9 > 0.3 > alike[1, 4]
    assert np.abs(vectors[0]).max() < 1e-6


def test_corpus_vectors_are_appended_to_pretrained_vectors():
    texts = ["red apple green apple", "a dog and a cat", "green dog"]
    _, result = Words().fit(texts)
    plain = load_token_vectors(result, dimension=4)
    both = load_token_vectors(result, dimension=4, corpus_dimension=3)
    assert both.shape == (result.size, 7)
    assert (both[:, :4] == plain).all()
    again = load_token_vectors(Words().fit(texts)[1], dimension=4, corpus_dimension=3)
    assert (both == again).all()


def test_dimensions_beyond_the_number_of_words_are_zero():
    _, result = Words().fit(["one two three", "two three"])
    vectors = load_token_vectors(result, dimension=2, corpus_dimension=50)
    assert vectors.shape[1] == 52
    assert np.isfinite(vectors).all()


@pytest.mark.parametrize("texts", [["word"], ["a"], ["one", "two"]])
def test_words_without_neighbours_have_zero_vectors(texts):
    _, result = Words().fit(texts)
    assert not load_token_vectors(result, dimension=2, corpus_dimension=2)[:, 2:].any()
