"""fastText kernels against NumPy; worked examples of n-grams, trees and explanations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted import make_planted_corpus
from scipy.sparse import csr_array
from training_stop import TrainingStop, stop_at_pass

from xmtc import Classifier
from xmtc.core.checkpoint import Checkpoint
from xmtc.core.dataset import Dataset, Tokens
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.methods.embedding.fasttext import FastText, FastTextTrainer, build_huffman_tree, list_label_paths
from xmtc.methods.embedding.fasttext_kernels import (
    PARTIAL_SUMS,
    select_top_labels,
    train_dense_output,
    train_selected_rows,
)
from xmtc.methods.embedding.fasttext_model import LOSSES, FastTextModel, compute_term_shares, hash_all_word_ngrams

ONE = Run(threads=1)


def tokens(*documents: list[int], n_words: int = 9) -> Tokens:
    offsets = np.cumsum([0, *map(len, documents)])
    return Tokens(np.array([word for words in documents for word in words], np.int32), offsets, n_words)


DOCUMENTS = tokens([3, 1, 3, 5], [2], [0], [7, 8, 3, 1, 1])
Y = csr_array(np.array([[1, 0, 0, 1, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 1], [1, 1, 1, 0, 0]], np.float32))
DATA = Dataset({"words": DOCUMENTS}, Y)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    return np.exp(x - x.max()) / np.exp(x - x.max()).sum()


def random_state(n_outputs: int, d: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(9, d)).astype(np.float32), rng.normal(size=(n_outputs, d)).astype(np.float32)


def work(d: int = 6):
    return tuple(np.empty(n, np.float32) for n in (d, d, PARTIAL_SUMS))


X = compute_term_shares(DOCUMENTS, np.zeros(0, np.int64), np.zeros(0, np.int64), 9)
PARTS = X.indptr, X.indices, X.data


def test_document_is_the_mean_of_its_words_and_the_end_token():
    expected = np.zeros((4, 9))
    expected[0, [0, 1, 3, 5]] = np.array([1, 1, 2, 1]) / 5
    expected[1, [0, 2]] = 1 / 2
    expected[2, 0] = 1  # unknown words are ignored
    expected[3, [0, 1, 3, 7, 8]] = np.array([1, 2, 1, 1, 1]) / 6
    np.testing.assert_allclose(X.toarray(), expected, rtol=1e-6)


@pytest.mark.parametrize("one", [False, True])
def test_dense_steps_equal_numpy(one):
    vectors, W = random_state(5)
    docs, rates = np.array([3, 0, 1, 2]), np.array([0.5, 0.4, 0.3, 0.2], np.float32)
    labels = [[1], [3], [1], [4]] if one else [[0, 1, 2], [0, 3], [1], [4]]
    outputs = np.zeros((6, PARTIAL_SUMS), np.float32)
    outputs[:, :5] = W.T
    V, W, loss = vectors.astype(float), W.astype(float), 0.0
    for doc, rate, positives in zip(docs, rates, labels, strict=True):
        x = X.toarray()[doc]
        h = x @ V
        p = (softmax if one else sigmoid)(W @ h)
        y = np.isin(np.arange(5), positives)
        loss -= np.log(p[y]).sum() + (0 if one else np.log(1 - p[~y]).sum())
        error = rate * (y - p)
        gradient = error @ W
        W += np.outer(error, h)
        V += np.outer(x, gradient)
    starts = np.cumsum([0, *map(len, labels)])
    flat, scores = np.concatenate(labels).astype(np.int32), np.empty(PARTIAL_SUMS, np.float32)
    result = train_dense_output(*PARTS, docs, rates, starts, flat, one, vectors, outputs, 5, scores, work())
    assert result == pytest.approx(loss, rel=1e-4)
    np.testing.assert_allclose(vectors, V, atol=1e-5)
    np.testing.assert_allclose(outputs[:, :5], W.T, atol=1e-5)
    np.testing.assert_array_equal(outputs[:, 5:], 0)


def test_sparse_steps_equal_numpy():
    vectors, W = random_state(5)
    docs, rates = np.array([3, 0, 1]), np.array([0.5, 0.4, 0.3], np.float32)
    rows, codes = [[4, 0], [1, 2, 4], [3]], [[1, 0], [0, 1, 1], [1]]
    V, plain, loss = vectors.astype(float), W.astype(float), 0.0
    for doc, rate, some, right in zip(docs, rates, rows, codes, strict=True):
        x = X.toarray()[doc]
        h, gradient = x @ V, np.zeros(6)
        for row, code in zip(some, right, strict=True):
            p = sigmoid(plain[row] @ h)
            loss -= np.log(p if code else 1 - p)
            gradient += rate * (code - p) * plain[row]
            plain[row] += rate * (code - p) * h
        V += np.outer(x, gradient)
    starts = np.cumsum([0, *map(len, rows)])
    flat = np.concatenate(rows).astype(np.int32), np.concatenate(codes).astype(np.float32)
    result = train_selected_rows(*PARTS, docs, rates, starts, *flat, vectors, W, work())
    assert result == pytest.approx(loss, rel=1e-4)
    np.testing.assert_allclose(vectors, V, atol=1e-5)
    np.testing.assert_allclose(W, plain, atol=1e-5)


def test_best_labels_equal_a_stable_sort():
    scores = np.random.default_rng(1).integers(0, 9, (50, 30)).astype(np.float32)
    labels, best = np.zeros((50, 7), np.int32), np.zeros((50, 7), np.float32)
    select_top_labels(scores, labels, best)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :7]
    np.testing.assert_array_equal(labels, expected)
    np.testing.assert_array_equal(best, np.take_along_axis(scores, expected, 1))


def model_of(loss: str, ngrams: int = 1, n_buckets: int = 50) -> FastTextModel:
    rng, n_outputs = np.random.default_rng(2), 4 if loss == "hs" else 5
    seen = np.unique(hash_all_word_ngrams(DOCUMENTS, ngrams, n_buckets)[2])
    return FastTextModel(
        n_labels=5,
        views={"words": 9},
        loss=loss,
        ngrams=ngrams,
        n_buckets=n_buckets,
        buckets=seen,
        vectors=rng.normal(size=(9 + len(seen), 6)).astype(np.float32),
        outputs=rng.normal(size=(6, n_outputs)).astype(np.float32),
        children=build_huffman_tree(np.array([5, 1, 1, 2, 4])) if loss == "hs" else np.zeros((0, 2), np.int32),
    )


@pytest.mark.parametrize("loss", LOSSES)
def test_predictions_equal_numpy(loss):
    model = model_of(loss)
    model.check()
    logits = X.toarray() @ model.vectors.astype(float) @ model.outputs
    if loss == "hs":
        offsets, nodes, codes = list_label_paths(model.children, 5)
        way = np.where(codes == 1, sigmoid(logits[:, nodes]), sigmoid(-logits[:, nodes]))
        expected = np.stack([way[:, offsets[i] : offsets[i + 1]].prod(1) for i in range(5)], 1)
        np.testing.assert_allclose(expected.sum(1), 1)
    else:
        expected = np.array([softmax(row) for row in logits]) if loss == "softmax" else sigmoid(logits)
    result = model.predict(DATA, 5, ONE)
    np.testing.assert_array_equal(result.labels, np.argsort(-expected, axis=1))
    np.testing.assert_allclose(result.scores, -np.sort(-expected, axis=1), rtol=1e-5, atol=1e-7)


def test_rare_labels_are_deep_in_the_huffman_tree():
    children = build_huffman_tree(np.array([5, 1, 1, 2, 4]))
    assert children.tolist() == [[1, 2], [3, 5], [4, 6], [0, 7]]
    offsets, nodes, codes = list_label_paths(children, 5)
    assert np.diff(offsets).tolist() == [1, 4, 4, 3, 2]
    assert nodes[offsets[3] : offsets[4]].tolist() == [3, 2, 1]
    assert codes[offsets[3] : offsets[4]].tolist() == [1, 1, 0]


def test_ngrams_are_within_documents_and_of_known_words():
    result = tokens([3, 1, 3, 1], [3, 1], [3, 0, 1], [1])
    begins, sizes, buckets = hash_all_word_ngrams(result, 3, 10**6)
    assert begins.tolist() == [0, 1, 2, 4, 0, 1]
    assert sizes.tolist() == [2, 2, 2, 2, 3, 3]
    assert buckets[0] == buckets[2] == buckets[3]
    assert len(set(buckets.tolist())) == 4
    assert len(hash_all_word_ngrams(result, 1, 10**6)[0]) == 0


def test_unseen_ngrams_have_no_vector():
    model = model_of("ova", ngrams=2, n_buckets=10**6)
    new = model.transform_tokens(tokens([3, 1, 5])).toarray()[0]  # (3, 1) is known, (1, 5) is not
    assert np.count_nonzero(new) == 5
    np.testing.assert_allclose(new[new > 0], 1 / 5)


@pytest.mark.parametrize("loss", LOSSES)
def test_explanation_sums_to_the_logit(loss):
    model = model_of(loss, ngrams=3)
    for doc in range(4):
        one = DATA.select_rows(np.array([doc]))
        h = model.transform_tokens(one.tokens("words")).toarray()[0]
        without_end = np.where(np.arange(len(h)) == 0, 0, h) @ model.vectors
        for label in range(5):
            if loss == "hs":
                offsets, nodes, codes = list_label_paths(model.children, 5)
                some = slice(offsets[label], offsets[label + 1])
                expected = ((2 * codes[some] - 1) * (without_end @ model.outputs[:, nodes[some]])).sum()
            else:
                expected = without_end @ model.outputs[:, label]
            explained = model.explain(one, label)
            assert explained.per_token.sum() == pytest.approx(expected, abs=1e-5)


def test_learning_rate_decreases_linearly_with_processed_words():
    training = FastTextTrainer(FastText(rate=0.8, epochs=2, loss="ova"), X, Y)
    lengths = np.array([1, 3, 4])
    np.testing.assert_allclose(
        training.compute_learning_rates(lengths, 0), 0.8 * (1 - np.array([0, 1, 4]) / 16), rtol=1e-6
    )
    np.testing.assert_allclose(
        training.compute_learning_rates(lengths, 1), 0.8 * (1 - np.array([8, 9, 12]) / 16), rtol=1e-6
    )


def test_negatives_are_sampled_by_root_frequency():
    Y = csr_array(np.array([[1, 0, 0]] * 16 + [[0, 1, 0]] * 4 + [[0, 0, 1]], np.float32))
    training = FastTextTrainer(FastText(loss="ns", negatives=3), csr_array((21, 2), dtype=np.float32), Y)
    starts, rows, codes = training.select_output_rows(np.full(4000, 1), np.random.default_rng(0))
    assert (rows[starts[:-1]] == 1).all()
    assert (codes[starts[:-1]] == 1).all()
    others = rows[codes == 0]
    assert 1 not in others
    counts = np.bincount(others, minlength=3)
    assert counts[0] / counts[2] == pytest.approx(4, rel=0.1)


@pytest.mark.parametrize("loss", LOSSES)
def test_resumed_training_has_the_same_bytes(loss, tmp_path):
    train, small = make_planted_corpus(80, seed=1), {"dimension": 8, "epochs": 4, "loss": loss, "word_ngrams": 2}
    whole = Classifier("fasttext", **small).fit(*train, run=ONE).tagger_.model

    run = replace(ONE, checkpoint=Checkpoint(tmp_path / "kept", interval_seconds=0))
    with pytest.raises(TrainingStop):
        Classifier("fasttext", **small).fit(*train, run=replace(run, callbacks=stop_at_pass(3)))
    assert int(run.checkpoint.load_piece("vectors")["n_passes"]) == 2
    resumed = Classifier("fasttext", **small).fit(*train, run=run).tagger_.model
    np.testing.assert_array_equal(resumed.vectors, whole.vectors)
    np.testing.assert_array_equal(resumed.outputs, whole.outputs)


def test_diverged_training_raises():
    with pytest.raises(XmtcError, match=r"diverged with rate=1000: .*; lower the rate"):
        FastText(rate=1000.0, epochs=50, loss="softmax").fit(DATA, run=ONE)


def test_training_beyond_memory_is_rejected():
    with pytest.raises(XmtcError, match="9 vectors of words and n-grams, and 5 of labels would need"):
        FastText(dimension=10**12).fit(DATA, run=ONE)


@pytest.mark.parametrize("loss", LOSSES)
def test_single_label_is_predicted(loss):
    model = FastText(loss=loss, dimension=4).fit(Dataset({"words": DOCUMENTS}, csr_array(np.ones((4, 1)))), run=ONE)
    model.check()
    assert (model.predict(DATA, 3, ONE).labels == 0).all()


def test_damaged_models_are_rejected():
    good, tree = model_of("ova", ngrams=2), model_of("hs")
    turned = tree.children[::-1].copy()
    for wrong in (
        replace(good, loss="other"),
        replace(good, views={"tfidf": 9}),
        replace(good, ngrams=0),
        replace(good, vectors=good.vectors[1:]),
        replace(good, buckets=good.buckets[::-1].copy()),
        replace(good, outputs=good.outputs[:, 1:]),
        replace(good, n_labels=4),
        replace(tree, children=turned),
        replace(tree, children=tree.children[1:]),
        replace(tree, children=np.array([[1, 2], [3, 5], [4, 6], [0, 4]], np.int32)),
        replace(tree, children=tree.children - 1),
    ):
        with pytest.raises(ValueError, match=r"expected|do not fit|children has"):
            wrong.check()
