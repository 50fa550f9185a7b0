"""XR-Transformer: levels, losses, and the linear classifiers on terms and vectors side by side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted import make_planted_corpus
from scipy.sparse import csr_array

pytest.importorskip("transformers", reason="needs the encoders: pip install 'xmtc[neural]'")

import torch
from tiny_encoders import tiny

from xmtc.core.dataset import Bag, Dataset, Tokens
from xmtc.core.run import Run
from xmtc.data.in_memory import to_documents
from xmtc.methods.transformer.xr_model import JOINED, join_terms_and_vectors
from xmtc.methods.transformer.xr_network import compute_initial_weights, squared_hinge
from xmtc.methods.transformer.xr_transformer import XRTransformer
from xmtc.pipeline import train

ONE = Run(threads=1, device="cpu")
QUICK = XRTransformer.quick_parameters


@pytest.fixture(scope="module")
def trained():
    events = []
    documents = to_documents(*make_planted_corpus(200, seed=1))
    run = replace(ONE, callbacks=events.append)
    parameters = QUICK | {"encoder": tiny("bert", 32), "calibrate": False, "epochs": 1}
    return train(documents, "xr_transformer", run=run, **parameters), events


def test_each_level_of_the_tree_trains_the_encoder(trained):
    _, events = trained
    passes = [event for event in events if type(event).__name__ == "Pass"]
    assert [event.network for event in passes] == ["level-0", "level-1", "level-2"]


def test_the_encoder_changes_unless_no_level_is_trained(trained):
    tagger, _ = trained
    texts = to_documents(*make_planted_corpus(60, seed=1))
    frozen = train(texts, "xr_transformer", run=ONE, **QUICK, encoder=tiny("bert", 32), calibrate=False, max_nodes=0)
    name = "embeddings.word_embeddings.weight"
    before, after = (which.model.encoder.weights[name] for which in (frozen, tagger))
    from xmtc.features.encoders.model_loader import load_encoder

    source = load_encoder(tiny("bert", 32)).state_dict()[name].numpy()
    np.testing.assert_array_equal(before, source.astype(np.float16))
    assert np.abs(after - before).max() > 0.001


def test_scores_are_those_of_the_classifiers_on_terms_and_vectors(trained):
    tagger, _ = trained
    data = tagger.transform(to_documents(*make_planted_corpus(20, seed=3)), ONE)
    model, found = tagger.model, tagger.model.predict(data, 5, ONE)
    joined = model._join_views(data, ONE)
    np.testing.assert_allclose(np.sqrt(joined.X.multiply(joined.X).sum(axis=1)), 1, rtol=1e-4)
    np.testing.assert_array_equal(model.ranker.predict(joined, 5, ONE).scores, found.scores)
    explained, label = model.explain(data.select_rows(np.array([0])), int(found.labels[0, 0])), int(found.labels[0, 0])
    assert explained.view == "tfidf"
    assert (explained.ids < data.views["tfidf"].size).all()
    whole = model.ranker.explain(joined.select_rows(np.array([0])), label)
    assert explained.weights.sum() + explained.bias == pytest.approx(whole.weights.sum() + whole.bias, rel=1e-4)


def test_rows_of_terms_and_vectors_share_the_length():
    terms, vectors = np.eye(3, 4, dtype=np.float32), np.eye(3, 2, dtype=np.float32)
    tokens = Tokens([1, 1, 1], [0, 1, 2, 3], 2)
    data = Dataset({"tfidf": Bag(terms), "subwords": tokens}, np.eye(3))
    joined = join_terms_and_vectors(data, vectors, 0.2)
    expected = np.hstack([terms * 0.8**0.5, vectors * 0.2**0.5])
    np.testing.assert_allclose(joined.views[JOINED].matrix.toarray(), expected, rtol=1e-6)
    assert joined.bag.n_cluster_columns == 4


def test_squared_hinge():
    margins, targets = torch.tensor([[0.5, -2.0], [3.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert float(squared_hinge(margins, targets, None, "sum")) == pytest.approx((0.25 + 0 + 16 + 1) / 2)
    mask = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    assert float(squared_hinge(margins, targets, mask, "sum")) == pytest.approx((0.25 + 1) / 2)


def test_nodes_start_in_the_direction_of_their_documents():
    vectors = np.array([[1, 0], [0, 1], [0, 1]], np.float32)
    weights = compute_initial_weights(vectors, csr_array(np.array([[1, 0, 0], [0, 1, 0], [0, 1, 0]], np.float32)))
    np.testing.assert_allclose(weights[0], 4 * np.array([1, -1]) / 2**0.5, rtol=1e-5)
    np.testing.assert_allclose(weights[1], -weights[0], rtol=1e-5)
    np.testing.assert_allclose(weights[2], 4 * -vectors.mean(axis=0) / np.linalg.norm(vectors.mean(axis=0)), rtol=1e-5)


def test_training_resumes_from_a_checkpoint(trained, tmp_path):
    from xmtc.core.checkpoint import Checkpoint

    documents = list(to_documents(*make_planted_corpus(200, seed=1)))
    parameters = QUICK | {"encoder": tiny("bert", 32), "calibrate": False, "epochs": 1}

    def stop(event):
        if type(event).__name__ == "Pass" and event.network == "level-1":
            raise KeyboardInterrupt

    for callbacks in (stop, ()):
        run = replace(ONE, checkpoint=Checkpoint(tmp_path / "checkpoint"), callbacks=callbacks)
        try:
            again = train(documents, "xr_transformer", run=run, **parameters)
        except KeyboardInterrupt:
            continue
    expected, found = (tagger.predict(documents[:9], 5, ONE) for tagger in (trained[0], again))
    np.testing.assert_array_equal(found.labels, expected.labels)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"share": 1.5}, "with the share 1.5"),
        ({"views": {"tfidf": 3, "subwords": 5}}, "its classifiers read"),
        ({"views": {"tfidf": 3}}, "it reads the views tfidf"),
    ],
)
def test_damaged_model_is_refused(changes, problem, trained):
    model = trained[0].model
    model.check()
    with pytest.raises(ValueError, match=problem):
        replace(model, **changes).check()
