"""Sentence vectors as a view, and beside terms in the view of linear methods."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted import make_planted_corpus, planted_words

torch = pytest.importorskip("torch", reason="networks need PyTorch: pip install 'xmtc[neural]'")
transformers = pytest.importorskip("transformers", reason="encoders need transformers: pip install 'xmtc[neural]'")

from tiny_encoders import bert_tokenizer, tiny, tiny_sentence_encoder  # noqa: E402

from xmtc import Classifier  # noqa: E402
from xmtc.core.dataset import Dataset  # noqa: E402
from xmtc.core.run import Run  # noqa: E402
from xmtc.errors import XmtcError  # noqa: E402
from xmtc.features import dense as dense_view  # noqa: E402
from xmtc.features.dense import SENTENCE_TERM, Dense  # noqa: E402
from xmtc.features.tfidf import Tfidf  # noqa: E402

ONE = Run(threads=1, device="cpu")
TEXTS = make_planted_corpus(100, seed=3)[0]
TRAIN = make_planted_corpus(200, seed=1)


def fit(kind: str = "bert"):
    return Dense(sentence_encoder=tiny(kind)).fit(TEXTS, ONE)


@pytest.fixture(scope="module")
def classifier():
    return Classifier("dismec", dense=tiny("bert"), calibrate=False).fit(*TRAIN, run=ONE)


@pytest.fixture(scope="module")
def folder(classifier, tmp_path_factory):
    target = tmp_path_factory.mktemp("model") / "model"
    classifier.save(target)
    return target


def test_vectors_are_the_pooled_states_of_the_encoder():
    vectors = fit()[1].matrix.toarray()
    model = transformers.BertModel.from_pretrained(tiny("bert")).eval()
    ids = torch.tensor([bert_tokenizer().encode(TEXTS[0]).ids])
    with torch.no_grad():
        state = model(ids).last_hidden_state[0, 0].numpy()  # without a pooling file: the first subword
    np.testing.assert_allclose(vectors[0], state / np.linalg.norm(state), atol=2e-3)  # weights are in half precision


@pytest.mark.parametrize("kind", ["bert", "mpnet", "xlnet"])
def test_vectors_have_unit_length_and_do_not_depend_on_threads_or_device_batches(kind):
    fitted, bag = fit(kind)
    assert bag.matrix.shape == (len(TEXTS), fitted.size)
    np.testing.assert_allclose(np.linalg.norm(bag.matrix.toarray(), axis=1), 1, rtol=1e-5)
    two = fitted.transform(TEXTS, Run(threads=2, device="cpu"))
    np.testing.assert_array_equal(two.matrix.data, bag.matrix.data)
    alone = fitted.transform(TEXTS[:1], ONE)
    np.testing.assert_allclose(alone.matrix.data, bag.matrix[[0]].data, atol=1e-5)


def test_text_without_a_known_subword_has_no_vector():
    fitted, _ = fit()
    bag = fitted.transform(["", "noise1", " \n"], ONE)
    assert np.diff(bag.matrix.indptr).tolist() == [0, fitted.size, 0]
    assert fitted.mark_known_documents(bag).tolist() == [False, True, False]


def test_vectors_of_large_corpora_are_cached_by_content(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    texts = TEXTS * (dense_view.MIN_CACHED_TEXTS // len(TEXTS))
    fitted, bag = Dense(sentence_encoder=tiny("bert")).fit(texts, ONE)
    assert not list(tmp_path.glob("xmtc/sentence-vectors/.*"))
    (file,) = tmp_path.glob("xmtc/sentence-vectors/*.npy")
    np.save(file, 2 * np.load(file))
    np.testing.assert_array_equal(fitted.transform(texts, ONE).matrix.data, 2 * bag.matrix.data)  # read from the cache
    fitted.transform([*texts[1:], "noise1"], ONE)
    assert len(list(tmp_path.glob("xmtc/sentence-vectors/*.npy"))) == 2
    file.write_bytes(file.read_bytes()[:500])
    np.testing.assert_array_equal(fitted.transform(texts, ONE).matrix.data, bag.matrix.data)
    fitted.transform(TEXTS, ONE)
    assert len(list(tmp_path.glob("xmtc/sentence-vectors/*.npy"))) == 2  # few texts are not cached


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_terms_and_vectors_stand_side_by_side(share):
    fitted, bag = Tfidf(dense=tiny("bert"), dense_share=share, analyzer="words").fit(TEXTS, ONE)
    terms, vectors = Tfidf(analyzer="words").fit(TEXTS, ONE)[1].matrix, fit()[1].matrix
    width = vectors.shape[1]
    n_terms = 0 if share == 1 else terms.shape[1]
    assert bag.matrix.shape[1] == fitted.size == n_terms + width
    matrix = bag.matrix.toarray()
    np.testing.assert_allclose(matrix[:, n_terms:], vectors.toarray() * share**0.5, rtol=1e-6)
    if n_terms:
        np.testing.assert_allclose(matrix[:, :n_terms], terms.toarray() * (1 - share) ** 0.5, rtol=1e-6)
    np.testing.assert_array_equal(fitted.transform(TEXTS, ONE).matrix.toarray(), matrix)
    assert fitted.term(fitted.size - 1) == SENTENCE_TERM
    assert bag.n_cluster_columns == n_terms


@pytest.mark.parametrize("analyzer", ["auto", "words+chars"])
@pytest.mark.parametrize("method", ["parabel", "dismec"])
def test_linear_methods_read_terms_and_vectors(method, analyzer):
    classifier = Classifier(method, dense=tiny("bert"), analyzer=analyzer).fit(iter(TRAIN[0]), TRAIN[1], run=ONE)
    assert classifier.evaluate(*make_planted_corpus(100, seed=2), ["P@1"], run=ONE)["P@1"] > 0.95


def test_model_is_saved_with_its_encoder(classifier, folder, monkeypatch):
    monkeypatch.setattr(dense_view, "load_sentence_encoder", lambda *_: pytest.fail("the encoder was loaded again"))
    loaded = Classifier.load(folder, verify=True)
    np.testing.assert_array_equal(loaded.rank(TEXTS, run=ONE).scores, classifier.rank(TEXTS, run=ONE).scores)
    assert loaded.get_params()["dense"] == tiny("bert")


def test_explanation_has_words_and_one_term_for_the_vector(classifier):
    text = " ".join([*planted_words(3), "noise1"])
    highlight = classifier.highlight(text, "label-03", run=ONE)[0]
    assert "".join(piece.text for piece in highlight.pieces) == text
    words = dict(highlight.words)
    assert words.keys() == {*planted_words(3), "noise1", SENTENCE_TERM}
    margin = sum(words.values()) + highlight.bias
    assert 1 / (1 + np.exp(-margin)) == pytest.approx(highlight.score, abs=1e-5)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"pooling": "best"}, "its pooling is 'best'"),
        ({"config": "{}"}, "its encoder cannot be built"),
        ({"width": 16}, "its encoder has 396 subwords and 32 dimensions; expected 396 and 16"),
        ({"weights": {}}, "its encoder cannot be built: it has 1 layers, but 0 weights"),
        ({"weights": {"other": np.zeros(3, np.float16)}}, "its weights do not fit its network"),
        ({"subwords": 100}, "it reads 100 subwords of a text, but its encoder has positions for 64"),
    ],
)
def test_damaged_encoder_is_refused(changes, problem):
    fitted, _ = fit()
    fitted.check()
    if "subwords" in changes:
        changes = {"subwords": replace(fitted.subwords, max_subwords=changes["subwords"])}
    with pytest.raises(ValueError, match=problem):
        replace(fitted, **changes).check()


@pytest.mark.parametrize("more", [{}, {"dense_share": 1.0}])
def test_words_have_their_part_of_the_mean_vector(more):
    classifier = Classifier("dismec", dense=tiny_sentence_encoder(), calibrate=False, **more).fit(*TRAIN, run=ONE)
    text = " ".join([*planted_words(3), "noise1", "Noise2"])
    highlight = classifier.highlight(text, "label-03", run=ONE)[0]
    words = dict(highlight.words)
    assert words.keys() == {*planted_words(3), "noise1", "noise2", SENTENCE_TERM}
    assert 1 / (1 + np.exp(-sum(words.values()) - highlight.bias)) == pytest.approx(highlight.score, abs=1e-4)
    planted = [words[word] for word in planted_words(3)]
    assert np.mean(planted) > max(words["noise1"], words["noise2"])


def test_damaged_share_is_refused(classifier):
    view = classifier.tagger_.views["tfidf"]
    view.check()
    with pytest.raises(ValueError, match="its share of the sentence vectors is 2"):
        replace(view, share=2.0).check()
    with pytest.raises(ValueError, match="its terms are not one view of terms"):
        replace(view, terms=(view.vectors,)).check()


def test_missing_encoder_is_named():
    with pytest.raises(XmtcError, match="The encoder no/such/folder cannot be loaded"):
        Classifier("parabel", dense="no/such/folder").fit(*TRAIN, run=ONE)


def test_view_alone_is_a_bag():
    fitted, bag = fit()
    assert Dataset({"dense": bag}).sizes == {"dense": fitted.size}
