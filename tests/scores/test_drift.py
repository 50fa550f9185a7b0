"""Drift of new texts: unknown words, labels, scores and estimated accuracy."""

import json
from dataclasses import replace

import numpy as np
import pytest
from commands import invoke, lines_of
from scipy.sparse import csr_array

from xmtc import Document, XmtcError, train
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.features.unknown_words import measure_unknown_words
from xmtc.maintenance.update import update_tagger
from xmtc.pipeline import Pipeline
from xmtc.scores.calibration import calibrate_tagger
from xmtc.scores.drift import (
    MAX_REFERENCE_DOCUMENTS,
    DriftReference,
    Observations,
    compare_with_reference,
    predict_by_probability,
    predict_by_threshold,
)
from xmtc.tagger import Tagger

N_LABELS = 30


def draw(n_docs: int, seed: int, sharpness: float = 1.0, first_label: int = 0) -> tuple[Predictions, csr_array]:
    """Return predictions whose scores are the true probabilities, and the true labels."""
    rng = np.random.default_rng(seed)
    labels = (first_label + np.stack([rng.permutation(N_LABELS)[:8] for _ in range(n_docs)])) % (2 * N_LABELS)
    scores = -np.sort(-(rng.random(labels.shape) ** (1 / sharpness)), axis=1).astype(np.float32)
    is_true = rng.random(labels.shape) < scores
    rows = np.repeat(np.arange(n_docs), 8)[is_true.ravel()]
    truth = csr_array((np.ones(len(rows)), (rows, labels[is_true])), shape=(n_docs, 2 * N_LABELS))
    return Predictions.from_valid_arrays(labels.astype(np.int32), scores), truth


def compare(new: Predictions, unknown_reference=None, unknown_new=None):
    reference = DriftReference.from_predictions(*draw(1500, seed=0), unknown_reference)
    return compare_with_reference(reference, Observations.from_predictions(new, unknown_new))


def test_texts_of_the_same_kind_show_no_drift():
    rng, n_warnings = np.random.default_rng(0), 0
    for seed in range(1, 11):
        unknown = rng.beta(1, 20, 1500), rng.beta(1, 20, 400)
        n_warnings += len(compare(draw(400, seed)[0], *unknown).warnings)
    assert n_warnings <= 2  # of 30 comparisons with a chance of 1 % each


@pytest.mark.parametrize(
    ("new", "unknown", "warning"),
    [
        (draw(400, 1)[0], 0.1, "unknown words"),
        (draw(400, 1, sharpness=0.8)[0], 0.05, "scores"),
        (draw(400, 1, first_label=10)[0], 0.05, "labels"),
    ],
)
def test_planted_shifts_are_found(new, unknown, warning):
    rng = np.random.default_rng(0)
    report = compare(new, rng.beta(1, 19, 1500), rng.beta(20 * unknown, 20 * (1 - unknown), 400))
    assert warning in report.warnings


def test_label_with_the_largest_change_is_first():
    new, _ = draw(400, 1)
    labels = new.labels.copy()
    labels[:, 0] = 2 * N_LABELS - 1
    report = compare(Predictions.from_valid_arrays(labels, new.scores))
    assert report.shifted_labels[0].label == 2 * N_LABELS - 1
    assert report.shifted_labels[0].reference == 0
    total = np.clip(new.scores[:, :5], 0, 1).sum()
    assert report.shifted_labels[0].new == pytest.approx(new.scores[:, 0].sum() / total, rel=1e-5)


@pytest.mark.parametrize(("sharpness", "low"), [(0.7, 0.06), (1.0, 0.03), (3.0, 0.03)])
def test_estimated_accuracy_follows_the_scores(sharpness, low):
    """The estimate is too low where scores fall and still mean the same, which is rare in real texts."""
    new, truth = draw(1500, 7, sharpness)
    report = compare(new)
    for k, name in ((1, "P@1"), (5, "P@5")):
        hits = [truth[[row]].toarray()[0][new.labels[row, :k]] for row in range(1500)]
        estimate, true = report.accuracy[name], float(np.mean(hits))
        assert true - low < estimate.new < true + 0.03
        assert estimate.low < estimate.new < estimate.high


def test_threshold_leaves_as_many_scores_of_the_reference_as_hits():
    scores, hits = np.array([[0.9], [0.5], [0.5], [0.2]]), np.array([[True], [False], [True], [False]])
    labels = np.zeros((4, 1), int)
    assert predict_by_threshold(scores, hits, scores, labels) == 0.5
    assert predict_by_threshold(scores, hits, np.array([[0.5], [0.4]]), labels[:2]) == 0.25  # half of the equal scores
    assert predict_by_threshold(scores, hits, scores, np.full((4, 1), NO_LABEL)) == 0
    for every in (True, False):  # all or no labels of the reference are correct
        assert predict_by_threshold(scores, np.full((4, 1), every), scores, labels) == every


def test_documents_without_predictions_count_as_wrong():
    scores, hits = np.array([[0.2], [0.8]]), np.array([[False], [True]])
    both = predict_by_probability(scores, hits, np.array([[0.8], [0.8]]), np.array([[3], [3]]))
    assert predict_by_probability(scores, hits, np.array([[0.8], [0.0]]), np.array([[3], [NO_LABEL]])) == both / 2


def make_documents(n_docs: int, seed: int) -> list[Document]:
    return [Document(**json.loads(line)) for line in lines_of(n_docs, seed).splitlines()]


@pytest.fixture(scope="module")
def tagger() -> Tagger:
    return train(make_documents(1500, 0), "parabel", max_leaf=10, keep_training=True)


@pytest.mark.parametrize("parameters", [{"analyzer": "words"}, {"analyzer": "words+chars"}, {"analyzer": "chars"}])
def test_unknown_words_of_the_training_are_those_of_new_documents(parameters):
    tagger = train(make_documents(1200, 0), "parabel", max_leaf=10, **parameters)
    assert tagger.reference is not None
    new = measure_unknown_words(tagger.views, [document.text for document in make_documents(500, 1)])
    assert new.mean() == pytest.approx(tagger.reference.unknown.mean(), abs=0.02)


def test_equal_shares_of_unknown_words_are_no_drift():
    share = np.full(100, 0.1)
    assert compare(draw(100, 1)[0], share.astype(np.float32), share).unknown_words.p_value == 1


@pytest.mark.parametrize("method", ["parabel", "fasttext"])
def test_rare_words_of_the_training_count_as_unknown_beside_names_and_in_repetitions(method):
    """A word that only two documents, or that a single document has twice, is unknown without the document."""
    documents = [Document(str(i), "old apples", ["fruit tree"]) for i in range(600)]
    texts = [(f"{i}{j}", f"old pears rare{i} only{i}{j} only{i}{j}") for i in range(300) for j in "ab"]
    documents += [Document(name, text, ["pear tree"]) for name, text in texts]
    parameters = {"name_documents": "always", "analyzer": "words"} if method == "parabel" else {"epochs": 1}
    reference = train(documents, method, **parameters).reference
    expected = {"parabel": [0, 2 / 4], "fasttext": [0, 2 / 5]}[method]
    assert sorted({round(float(share), 3) for share in reference.unknown}) == pytest.approx(expected)


def test_unknown_words_are_counted_once_per_document():
    documents = [Document(str(i), "apples and pears", ["fruit"]) for i in range(4)]
    tagger = train(documents, "parabel", analyzer="words")
    shares = measure_unknown_words(tagger.views, ["apples apples pears plums", "unheard of", "", "pears"])
    assert shares.tolist() == pytest.approx([1 / 3, 1, 0, 0])


def test_training_keeps_a_reference_of_held_out_documents(tagger, tmp_path):
    reference = tagger.reference
    assert reference.n_docs <= MAX_REFERENCE_DOCUMENTS
    assert reference.labels.max() < len(tagger.labels)
    tagger.save(tmp_path / "model")
    loaded = Tagger.load(tmp_path / "model")
    loaded.check()
    assert np.array_equal(loaded.reference.labels, reference.labels)
    assert loaded.measure_drift([d.text for d in make_documents(200, 5)]).warnings == ()


def test_models_without_reference_say_what_to_do(tagger, tmp_path):
    raw = train(make_documents(300, 0), "parabel", calibrate=False)
    texts = [document.text for document in make_documents(200, 5)]
    with pytest.raises(XmtcError, match=r"has no reference for drift.*xmtc calibrate"):
        raw.measure_drift(texts)
    calibrated = calibrate_tagger(raw, make_documents(300, 2))
    assert calibrated.measure_drift(texts).n_reference == 300
    with pytest.raises(XmtcError, match="expected at least 20"):
        tagger.measure_drift(texts[:3])


def test_classes_and_updates_renumber_the_labels_of_the_reference(tagger):
    documents = make_documents(1500, 0)
    names = sorted({label for document in documents for label in document.labels})
    classes = ["never", *names]
    pipeline = Pipeline.from_parameters("parabel", parameters={"max_leaf": 10})
    renumbered = pipeline.fit(documents, classes=classes)

    def best_names(other: Tagger) -> list[str]:
        return [other.labels[number] for number in other.reference.labels[:50, 0]]

    assert best_names(renumbered) == best_names(tagger)
    added = [Document("new", "a new word of a new kind", ["a-new-label"])]
    updated = update_tagger(tagger, added).tagger
    assert updated.labels[0] == "a-new-label"
    assert best_names(updated) == best_names(tagger)


def test_command_prints_and_returns_the_comparison(tagger, tmp_path):
    tagger.save(tmp_path / "model")
    (tmp_path / "same.jsonl").write_text(lines_of(300, seed=4))
    lines = [json.loads(line) for line in lines_of(300, seed=4).splitlines()]
    changed = [line | {"text": f"{line['text']} unheard words nobody wrote before"} for line in lines]
    (tmp_path / "changed.jsonl").write_text("".join(json.dumps(line) + "\n" for line in changed))
    same = invoke("drift", "model", "same.jsonl", cwd=tmp_path)
    assert same.stdout.decode().splitlines()[-1] == "No drift was found."
    done = invoke("drift", "model", "changed.jsonl", cwd=tmp_path)
    assert done.stdout.decode().splitlines()[-1].startswith("Drift: unknown words")
    result = json.loads(invoke("drift", "model", "changed.jsonl", "--json", cwd=tmp_path).stdout)
    assert result["unknown_words"]["new"] > result["unknown_words"]["reference"] + 0.1
    assert result["n_docs"] == 300
    assert "unknown words" in result["drift"]


def test_damaged_reference_is_refused(tagger):
    damaged = replace(tagger.reference, hits=tagger.reference.hits[:-1])
    with pytest.raises(ValueError, match="arrays of different sizes"):
        damaged.check()
