"""Matching of texts with label names and training documents by sentence vectors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted import make_planted_corpus, planted_words
from scipy.sparse import csr_array

from xmtc.core.dataset import Bag, Dataset, LabelNames
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.methods.matcher.candidates import ALL_LABELS, FEATURES, MAX_RANK, VOTE_FLOOR, VectorSearch, project
from xmtc.methods.matcher.matcher import Matcher

projection = pytest.importorskip("xmtc.methods.matcher.projection", reason="needs PyTorch: pip install 'xmtc[neural]'")

ONE = Run(threads=1, device="cpu")
N_DOCS, N_LABELS, WIDTH = 60, 80, 16


def unit_rows(rng: np.random.Generator, n: int) -> np.ndarray:
    rows = rng.standard_normal((n, WIDTH)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def data() -> Dataset:
    """Random documents near the names of their labels; the last ten labels have no document, the last one no name."""
    rng = np.random.default_rng(0)
    labels = np.sort(np.concatenate([np.arange(N_LABELS - 1), rng.integers(0, N_LABELS - 1, 20)])).astype(np.int32)
    names = unit_rows(rng, len(labels))
    Y = rng.random((N_DOCS, N_LABELS)) < 0.03
    Y[:, -10:] = False
    documents = unit_rows(rng, N_DOCS) + 2 * Y @ np.stack([names[labels == i].sum(axis=0) for i in range(N_LABELS)])
    documents /= np.linalg.norm(documents, axis=1, keepdims=True)
    order = rng.permutation(len(labels))  # names may come in any order
    given = LabelNames(None, labels[order], np.ones(len(labels), bool), Bag(names[order]))
    return Dataset({"dense": Bag(documents)}, csr_array(Y.astype(np.float32)), names=given)


@pytest.fixture(scope="module")
def model(data):
    return Matcher(candidates=10, neighbours=7).fit(data, run=ONE)


def compute_features(model, query: np.ndarray, label: int) -> list[float]:
    """Return the features of one pair of a text and a label, computed one by one."""
    index = model.index
    query = query + query @ index.projection
    query /= np.linalg.norm(query)
    best = np.zeros(N_LABELS)
    for i in range(N_LABELS):
        own = [float(query @ name) for name in index.names[index.name_labels == i].astype(np.float64)]
        best[i] = max(own, default=0.0)
    rank = sorted(range(N_LABELS), key=lambda i: (-best[i], i)).index(label)
    similarities = index.documents.astype(np.float64) @ query
    nearest = np.argsort(-similarities)[: index.n_neighbours]
    votes = np.exp(similarities[nearest] / index.temperature)
    votes /= votes.sum()
    owners = [label in index.labels[index.offsets[i] : index.offsets[i + 1]] for i in nearest]
    share = votes[owners].sum()
    return [
        best[label],
        best[label] - best.max(),
        np.log1p(min(rank, MAX_RANK)),
        np.sqrt(share),
        np.log(share + VOTE_FLOOR),
        max(similarities[nearest][owners], default=0.0),
        similarities.max(),
        np.log1p((index.labels == label).sum()),
    ]


def test_features_are_those_of_a_plain_computation(model, data):
    queries = data.X.toarray()[:4]
    rows, labels, features = VectorSearch(model.index).find_candidates(queries, ALL_LABELS)
    assert len(rows) == 4 * N_LABELS
    unseen = np.bincount(model.index.labels, minlength=N_LABELS) == 0
    assert unseen.sum() > 5
    for row, label, found in zip(rows.tolist(), labels.tolist(), features, strict=True):
        expected = compute_features(model, queries[row].astype(np.float64), label)
        seen_part, unseen_part = found[: len(FEATURES)], found[len(FEATURES) : 2 * len(FEATURES)]
        right, wrong = (unseen_part, seen_part) if unseen[label] else (seen_part, unseen_part)
        np.testing.assert_allclose(right, expected, atol=1e-4)
        assert not wrong.any()
        assert found[-1] == unseen[label]


def test_candidates_are_the_labels_of_similar_names_and_of_neighbours(model, data):
    queries = data.X.toarray()[:4]
    search = VectorSearch(model.index)
    every, few = search.find_candidates(queries, ALL_LABELS), search.find_candidates(queries, 10)
    keys, chosen = (part.rows * N_LABELS + part.labels for part in (every, few))
    similarities = search.score_names(project(queries, model.index.projection))
    is_expected = (similarities >= np.sort(similarities)[:, [-10]]).ravel()
    share = every.features[:, [3, 3 + len(FEATURES)]].sum(axis=1)
    np.testing.assert_array_equal(chosen, keys[is_expected | (share > 0)])
    np.testing.assert_allclose(few.features, every.features[np.isin(keys, chosen)], rtol=1e-6)


def test_exhaustive_search_ranks_all_labels_with_the_same_scores(model, data):
    few, every = model.predict(data, N_LABELS, ONE), model.to_exhaustive().predict(data, N_LABELS, ONE)
    assert (every.labels >= 0).all()
    assert (few.labels[:, -1] < 0).all()
    scores = np.take_along_axis(every.scores, np.argsort(every.labels, axis=1), axis=1)
    is_label = few.labels >= 0
    np.testing.assert_allclose(
        few.scores[is_label], np.take_along_axis(scores, np.maximum(few.labels, 0), axis=1)[is_label], rtol=1e-5
    )


@pytest.mark.parametrize("label", [3, 30, N_LABELS - 2, N_LABELS - 1])
def test_explanation_is_the_derivative_of_the_log_odds(model, data, label):
    document = data.select_rows(np.array([5]))
    explanation = model.explain(document, label)
    query, step = document.X.toarray()[0].astype(np.float64), 1e-4
    derivative = np.zeros(WIDTH)
    places = [2, 2 + len(FEATURES)]  # of the rank, which is constant
    weights = np.where(np.isin(np.arange(len(model.weights) - 1), places), 0, model.weights[:-1])
    search = VectorSearch(model.index)
    search.names, search.documents = search.names.astype(np.float64), search.documents.astype(np.float64)
    for i in range(WIDTH):
        moved = query + step * np.eye(WIDTH)[[i, i]] * [[1], [-1]]
        features = search.find_candidates(moved, ALL_LABELS).features.reshape(2, N_LABELS, -1)[:, label]
        derivative[i] = np.subtract(*(features @ weights)) / (2 * step)
    found = np.zeros(WIDTH)
    found[explanation.ids] = explanation.weights
    np.testing.assert_allclose(found, query * derivative, atol=2e-2 * np.abs(query * derivative).max() + 1e-4)


def test_batches_hold_the_names_of_their_labels_and_others():
    n_names = projection.MAX_BATCH_NAMES + 2000
    targets = csr_array(([1.0, 1, 1], ([0, 1, 1], [5, 7, n_names - 1])), shape=(2, n_names))
    names = projection.sample_names(targets, n_names, np.random.default_rng(0))
    assert {5, 7, n_names - 1} <= set(names.tolist())
    assert len(set(names.tolist())) == len(names)
    assert projection.MAX_BATCH_NAMES <= len(names) <= projection.MAX_BATCH_NAMES + 3
    few = projection.sample_names(targets[:, :100], 100, np.random.default_rng(0))
    np.testing.assert_array_equal(few, np.arange(100))


def test_projection_reduces_the_loss(data):
    documents, Y, names = data.X.toarray(), csr_array(data.Y), data.names.vectors.matrix.toarray()
    matrix = projection.train_projection(documents, Y, names, data.names.labels, 400, 0, ONE)
    targets = Y.toarray()[:, data.names.labels]

    def loss(matrix: np.ndarray) -> float:
        parts = (matrix, documents, names, targets)
        return float(projection.compute_loss(*map(projection.torch.from_numpy, parts)))

    assert loss(matrix) < 0.7 * loss(np.zeros_like(matrix))
    again = projection.train_projection(documents, Y, names, data.names.labels, 400, 0, ONE)
    np.testing.assert_array_equal(again, matrix)
    none = projection.train_projection(documents, Y, names, data.names.labels, 0, 0, ONE)
    assert not none.any()


def test_loss_is_the_decoupled_softmax():
    rng = np.random.default_rng(1)
    documents, names, matrix = unit_rows(rng, 3), unit_rows(rng, 5), 0.1 * rng.standard_normal((WIDTH, WIDTH))
    targets = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]], np.float32)
    logits = project(documents, matrix) @ project(names, matrix).T / projection.LOSS_TEMPERATURE
    expected = []
    for row, target in zip(logits, targets, strict=True):
        others = np.exp(row[target == 0]).sum()
        losses = [-np.log(np.exp(value) / (np.exp(value) + others)) for value in row[target > 0]]
        expected.append(np.mean(losses) if losses else 0)
    tensors = (projection.torch.from_numpy(part.astype(np.float32)) for part in (matrix, documents, names, targets))
    assert float(projection.compute_loss(*tensors)) == pytest.approx(np.mean(expected), rel=1e-4)


def test_labels_are_hidden_if_few_are_unseen():
    Y = csr_array(np.tile(np.eye(40, dtype=np.float32), (20, 1)))
    held_out, rest = Matcher().split(Dataset({"dense": Bag(np.ones((800, 2), np.float32))}, Y))
    assert (held_out.n_docs, rest.n_docs) == (160, 640)
    assert held_out.Y.sum() == 160
    assert 0 < (rest.Y.sum(axis=0) == 0).sum() < 20
    many = csr_array(np.eye(1000, dtype=np.float32))
    _, rest = Matcher().split(Dataset({"dense": Bag(np.ones((1000, 2), np.float32))}, many))
    assert rest.Y.sum() == 800


def test_names_are_required():
    with pytest.raises(XmtcError, match="has no vectors of label names, which matcher needs"):
        Matcher().fit(Dataset.from_matrix(np.eye(4), np.eye(4)), run=ONE)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"projection": np.eye(WIDTH - 1, dtype=np.float32)}, "its projection has the shape"),
        ({"n_labels": 3}, "another number of labels"),
        ({"temperature": 0.0}, "no temperature"),
        ({"names": np.zeros((2, WIDTH + 1), np.float16)}, "expected 16"),
        ({"labels": np.full(9, N_LABELS, np.int32)}, "labels out of range"),
        ({"name_labels": np.array([1, 0], np.int32)}, "in ascending order"),
        ({"offsets": np.array([0, 5], np.int64)}, "one range of labels each"),
    ],
)
def test_damaged_index_is_refused(changes, problem, model):
    model.check()
    with pytest.raises(ValueError, match=problem):
        replace(model, index=replace(model.index, **changes)).check()
    with pytest.raises(ValueError, match="weights; expected 18"):
        replace(model, weights=model.weights[1:]).check()


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """Names of 40 labels, and of one that no document has."""
    path = tmp_path_factory.mktemp("names") / "names.tsv"
    rows = [f"label-{i:02d}\t{' '.join(planted_words(i)[:2])}" for i in range(40)]
    path.write_text("\n".join(["id\tname", *rows, "unseen\tnoise1 noise2 noise3"]) + "\n")
    return str(path)


@pytest.mark.parametrize("method", ["matcher", "consensus"])
def test_label_without_documents_is_found_by_its_name(method, vocabulary, tmp_path):
    pytest.importorskip("transformers", reason="encoders need transformers: pip install 'xmtc[neural]'")
    from tiny_encoders import tiny_sentence_encoder

    from xmtc import Classifier

    names = {"vocabulary": vocabulary}
    if method == "consensus":  # whose members read names in different views
        names = {"members": ("matcher", "lexical")} | {
            f"{name}.vocabulary": vocabulary for name in ("matcher", "lexical")
        }
    classifier = Classifier(method, sentence_encoder=tiny_sentence_encoder(), **names)
    classifier.fit(*make_planted_corpus(300, seed=1), run=ONE)
    [[first]] = classifier.predict_labels(["noise1 noise2 noise3"], k=1, run=ONE)
    assert first.label == "unseen"
    classifier.save(tmp_path / "model")
    loaded = Classifier.load(tmp_path / "model", verify=True)
    assert loaded.predict_labels(["noise1 noise2 noise3"], k=1, run=ONE) == [[first]]
    words = dict(classifier.explain("noise1 noise2 word3alpha", "unseen"))
    assert (words["noise1"] + words["noise2"]) / 2 > words["word3alpha"]


@pytest.fixture(scope="module")
def fine_tuned(vocabulary):
    pytest.importorskip("transformers", reason="encoders need transformers: pip install 'xmtc[neural]'")
    from tiny_encoders import tiny_sentence_encoder

    from xmtc import Classifier

    parameters = {"fine_tune": 3, "encoder": tiny_sentence_encoder(256), "encoder_rate": 1e-3}
    classifier = Classifier("matcher", vocabulary=vocabulary, calibrate=False, **parameters)
    return classifier.fit(*make_planted_corpus(300, seed=1), run=ONE)


def test_encoder_is_trained_and_finds_a_label_without_documents(fine_tuned, tmp_path):
    from tiny_encoders import tiny_sentence_encoder

    from xmtc import Classifier
    from xmtc.features.encoders.sentence_vectors import read_encoder

    model, name = fine_tuned.tagger_.model, "embeddings.word_embeddings.weight"
    before, after = read_encoder(tiny_sentence_encoder(256)).weights[name], model.encoder.weights[name]
    assert np.abs(after.astype(np.float32) - before).max() > 1e-3
    scores = fine_tuned.evaluate(*make_planted_corpus(100, seed=2), ["P@1"], run=ONE)
    assert scores["P@1"] > 0.9
    [[first]] = fine_tuned.predict_labels(["noise1 noise2 noise3"], k=1, run=ONE)
    assert first.label == "unseen"
    fine_tuned.save(tmp_path / "model")
    loaded = Classifier.load(tmp_path / "model", verify=True)
    assert loaded.predict_labels(["noise1 noise2 noise3"], k=1, run=ONE) == [[first]]
    words = dict(fine_tuned.explain(" ".join([*planted_words(3)[:2], "noise5"]), "label-03"))
    assert words[planted_words(3)[0]] > words["noise5"]


def test_training_of_the_encoder_resumes_within_an_epoch(vocabulary, tmp_path, monkeypatch):
    fine_tuning = pytest.importorskip("xmtc.methods.matcher.fine_tuning", reason="needs transformers")
    from tiny_encoders import tiny_sentence_encoder

    from xmtc import Classifier
    from xmtc.core.checkpoint import Checkpoint

    parameters = {"fine_tune": 2, "encoder": tiny_sentence_encoder(64), "encoder_rate": 1e-2, "batch": 16}
    parameters["calibrate"] = False
    classifier, documents = Classifier("matcher", vocabulary=vocabulary, **parameters), make_planted_corpus(150, seed=1)
    whole = classifier.fit(*documents, run=ONE).tagger_.model.encoder.weights
    sample, steps = fine_tuning.sample_step_names, iter(range(10))

    def stop(*arguments):
        if next(steps, None) is None:
            raise KeyboardInterrupt
        return sample(*arguments)

    run = replace(ONE, checkpoint=Checkpoint(tmp_path / "parts", interval_seconds=0))
    monkeypatch.setattr(fine_tuning, "sample_step_names", stop)
    with pytest.raises(KeyboardInterrupt):
        classifier.fit(*documents, run=run)
    monkeypatch.setattr(fine_tuning, "sample_step_names", sample)
    resumed = classifier.fit(*documents, run=run).tagger_.model.encoder.weights
    for name, values in whole.items():
        np.testing.assert_array_equal(resumed[name], values)


def test_names_of_a_step_are_those_of_labels_and_similar_ones():
    fine_tuning = pytest.importorskip("xmtc.methods.matcher.fine_tuning", reason="needs transformers")
    targets = csr_array(np.array([[1, 1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 0, 0]], np.float32))
    similar = np.array([[5, 6], [6, 5]])
    rng = np.random.default_rng(0)
    for _ in range(10):
        chosen = fine_tuning.sample_step_names(targets, similar, 1, rng)
        assert len(set(chosen) & {0, 1, 2, 3}) == fine_tuning.NAMES_PER_DOCUMENT
        assert 4 in chosen
        assert 1 <= len(set(chosen) & {5, 6}) <= 2
    np.testing.assert_array_equal(fine_tuning.sample_step_names(targets[[1]], similar[[1], :0], 3, rng), [4])


def test_similar_names_are_the_most_similar_wrong_ones(fine_tuned, monkeypatch):
    fine_tuning = pytest.importorskip("xmtc.methods.matcher.fine_tuning", reason="needs transformers")
    monkeypatch.setattr(fine_tuning, "SIMILAR_NAMES", 3)
    tagger = fine_tuned.tagger_
    view, encoder = tagger.views["subwords"], tagger.model._text_encoder
    names = view.transform([" ".join(planted_words(i)[:2]) for i in range(10)], ONE)
    documents = view.transform(["word1alpha word2beta", "word7alpha noise3"], ONE)
    targets = csr_array(np.eye(10, dtype=np.float32)[[1, 7]])
    found = fine_tuning.find_similar_names(encoder, documents, names, targets, ONE)
    queries, keys = (fine_tuning.encode_tokens(encoder, part, ONE) for part in (documents, names))
    similarities = np.where(targets.toarray() > 0, -np.inf, queries @ keys.T)
    for row, own in zip(similarities, found, strict=True):
        assert set(own) == set(np.argsort(-row)[:3])


def test_damaged_fine_tuned_model_is_refused(fine_tuned):
    model = fine_tuned.tagger_.model
    model.check()
    with pytest.raises(ValueError, match="it reads the views words"):
        replace(model, views={"words": 3}).check()
    with pytest.raises(ValueError, match="its matcher reads"):
        replace(model, matcher=replace(model.matcher, views={"dense": 3})).check()


@pytest.mark.parametrize("hard_negatives", [0, 3])
def test_training_learns_names_without_words_of_the_texts(hard_negatives):
    fine_tuning = pytest.importorskip("xmtc.methods.matcher.fine_tuning", reason="needs transformers")
    from tiny_encoders import tiny_sentence_encoder

    from xmtc.features.encoders.model_loader import load_encoder
    from xmtc.features.subwords import Subwords
    from xmtc.nn.text_encoder import TextEncoder

    texts, tags = make_planted_corpus(300, seed=1)
    source = tiny_sentence_encoder(64)
    view, documents = Subwords(encoder=source, max_subwords=40).fit(texts, ONE)
    names = view.transform([planted_words((i + 1) % 40)[0] for i in range(40)], ONE)  # words of the next label
    Y = csr_array(np.array([[f"label-{i:02d}" in labels for i in range(40)] for labels in tags], np.float32))
    encoder = TextEncoder(load_encoder(source), "mean")

    def measure_precision() -> float:
        queries, keys = (fine_tuning.encode_tokens(encoder, tokens, ONE) for tokens in (documents, names))
        return float(Y.toarray()[np.arange(300), (queries @ keys.T).argmax(axis=1)].mean())

    assert measure_precision() < 0.1
    method = Matcher(fine_tune=6, encoder_rate=5e-3, hard_negatives=hard_negatives)
    fine_tuning.train_encoder(method, encoder, documents, names, Y, ONE)
    assert measure_precision() > 0.6
