"""Tests of updates of a trained Tagger."""

from __future__ import annotations

import json

import numpy as np
import pytest
from commands import invoke

from xmtc import Classifier, Document, Run, Tagger, XmtcError, train
from xmtc.maintenance.document_changes import Feedback
from xmtc.maintenance.update import update_tagger
from xmtc.model_folder import TRAINING_FILE
from xmtc.pipeline import Pipeline
from xmtc.scores.calibration import calibrate_tagger
from xmtc.scores.quality import parse_promise
from xmtc.scores.tagger_thresholds import tune_tagger_thresholds
from xmtc.vocabulary import import_files

ONE = Run(threads=1)
TOPICS = {"cat": "purr meow paw", "dog": "bark growl paw", "sun": "light warm sky", "rain": "wet cloud sky"}


def make_documents(n: int, seed: int = 0, topics=TOPICS, prefix: str = "d") -> list[Document]:
    rng = np.random.default_rng(seed)
    names, documents = list(topics), []
    for i in range(n):
        labels = sorted({names[i % len(names)], names[int(rng.integers(len(names)))]})
        words = [word for label in labels for word in rng.permutation(topics[label].split())[:2]]
        documents.append(Document(f"{prefix}{i}", " ".join(rng.permutation(words)), labels))
    return documents


def train_keeping(documents, method="parabel", **parameters) -> Tagger:
    return train(documents, method, run=ONE, keep_training=True, min_df=1, **parameters)


@pytest.fixture(scope="module")
def tagger():
    return train_keeping(make_documents(80))


def predict(tagger: Tagger, text: str) -> dict[str, float]:
    return dict(tagger.predict_labels([text], k=10, run=ONE)[0])


def test_new_documents_teach_new_labels(tagger):
    birds = [Document(f"b{i}", "purr sky wet", ["bird"]) for i in range(5)]
    updated, report = astuple(update_tagger(tagger, birds, run=ONE))
    assert updated.labels.words() == ["bird", "cat", "dog", "rain", "sun"]
    assert max(predict(updated, "purr sky wet"), key=predict(updated, "purr sky wet").get) == "bird"
    assert (report.n_new, report.n_corrected, report.n_docs, report.new_labels) == (5, 0, 85, ("bird",))
    assert updated.about["parameters"] == tagger.about["parameters"]
    assert (updated.about["n_docs"], updated.about["n_labels"]) == (85, 5)
    assert updated.about["data"] != tagger.about["data"]
    assert updated.frequencies.sum() == tagger.frequencies.sum() + 5


def astuple(updated):
    return updated.tagger, updated.report


def test_an_update_gives_the_same_bytes_as_the_same_history(tagger, tmp_path):
    new = make_documents(20, seed=1, prefix="n")
    for name, threads in (("a", 1), ("b", 2)):
        update_tagger(tagger, new, run=Run(threads=threads)).tagger.save(tmp_path / name)
    for file in ("about.json", "arrays.safetensors", TRAINING_FILE):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_a_known_id_replaces_the_old_version(tagger):
    before = tagger.training.to_dataset()
    corrected = Document("d3", "light warm", ["cat"])
    updated, report = astuple(update_tagger(tagger, [Document("d3", "x", ["dog"]), corrected], run=ONE))
    assert (report.n_new, report.n_corrected, report.n_docs) == (0, 1, 80)
    after = updated.training.to_dataset()
    others = np.delete(np.arange(80), 3)
    assert (after.X[others] != before.X[others]).nnz == 0
    assert (after.Y[others] != before.Y[others]).nnz == 0
    assert [updated.labels[i] for i in after.Y[[3]].indices] == ["cat"]
    assert (after.X[[3]] != tagger.transform([corrected]).X).nnz == 0
    assert updated.training.read_ids() == [f"d{i}" for i in range(80)]


def test_documents_without_ids_are_found_by_their_text():
    texts, labels = ["apple tree", "blue sky", "apple pie", "grey sky"], [["garden"], ["sky"], ["food"], ["sky"]]
    classifier = Classifier(min_df=1).partial_fit(texts, labels, run=ONE)
    classifier.partial_fit(["grey sky", "more apple"], [["rain"], ["food"]], run=ONE)
    store = classifier.tagger_.training
    assert store.n_docs == 5
    rows = np.split(store.labels, store.label_ends[1:-1])
    assert [[str(classifier.classes_[i]) for i in row] for row in rows] == [
        ["garden"], ["sky"], ["food"], ["rain"], ["food"],
    ]  # fmt: skip
    assert classifier.predict(["apple pie"], k=1) == [["food"]]


def test_feedback_adds_accepted_and_removes_rejected_labels(tagger):
    old = tagger.training.to_dataset().Y
    names = [tagger.labels[i] for i in old[[5]].indices]
    wrong, other = names[0], next(label for label in TOPICS if label not in names)
    document = make_documents(80)[5]._replace(labels=[other])
    updated = update_tagger(tagger, feedback=[Feedback(document, [wrong])], run=ONE).tagger
    store = updated.training
    assert {updated.labels[i] for i in store.to_dataset().Y[[5]].indices} == {*names, other} - {wrong}
    assert [updated.labels[i] for i in store.rejected_matrix()[[5]].indices] == [wrong]
    again = update_tagger(updated, feedback=[Feedback(document._replace(labels=[wrong]), [])], run=ONE).tagger
    assert {again.labels[i] for i in again.training.to_dataset().Y[[5]].indices} == {*names, other}
    assert not again.training.rejected_matrix().nnz


def test_documents_and_labels_are_forgotten(tagger):
    updated, report = astuple(update_tagger(tagger, forget=["d0", "d7"], remove_labels=["sun"], run=ONE))
    assert report.n_forgotten == 2
    assert report.removed_labels == ("sun",)
    assert not {"d0", "d7"} & set(updated.training.read_ids())
    assert "sun" not in predict(updated, "light warm sky")
    expected = [document for document in make_documents(80) if document.id not in ("d0", "d7")]
    assert updated.training.read_ids() == [document.id for document in expected]
    with pytest.raises(XmtcError, match="keeps no document with the id 'd99'"):
        update_tagger(tagger, forget=["d99"])
    with pytest.raises(XmtcError, match="There is nothing to update"):
        update_tagger(tagger)
    with pytest.raises(XmtcError, match="No document with a label would be left"):
        update_tagger(tagger, forget=[f"d{i}" for i in range(80)])


def test_names_of_labels_stay_training_documents():
    """Names are no documents: they are not counted, and go with their label."""
    words = {"purring": "cat", "barking": "dog", "shining": "sun", "raining": "rain"}
    topics = {name: TOPICS[topic] for name, topic in words.items()}
    parameters = {"name_documents": "always", "name_weight": 2.0, "name_length": 0.5}
    tagger = train_keeping(make_documents(80, topics=topics), **parameters)
    assert tagger.training.is_name.sum() == 4
    updated, report = astuple(update_tagger(tagger, make_documents(20, 1, topics, "n"), remove_labels=["raining"]))
    assert (report.n_docs, updated.about["n_docs"]) == (100, 100)
    store = updated.training.to_dataset()
    assert (store.n_docs, store.is_name.sum(), store.document_labels.shape[0]) == (103, 3, 100)
    np.testing.assert_array_equal(updated.frequencies, np.bincount(store.document_labels.indices, minlength=3))
    lengths = np.sqrt(store.X.multiply(store.X).sum(axis=1))[store.is_name]
    np.testing.assert_allclose(lengths, 0.5, rtol=1e-5)
    np.testing.assert_allclose(store.weights[store.is_name], 2.0)
    assert max(predict(updated, "shining"), key=predict(updated, "shining").get) == "shining"
    with pytest.raises(XmtcError, match="keeps no document with the id ''"):
        update_tagger(updated, forget=[""])


NAMED_TOPICS = {f"{name} topic": words for name, words in TOPICS.items()}
NAMES_ALWAYS = {"name_documents": "always", "name_weight": 2.0, "name_length": 0.5}


def train_with_unseen_names(folder, n_unseen: int = 40, n_docs: int = 80) -> Tagger:
    names = [*NAMED_TOPICS, *(f"purr topic {number}" for number in range(n_unseen))]
    (folder / "names.tsv").write_text("".join(f"{name}\t{name}\n" for name in names))
    vocabulary = {"vocabulary": str(folder / "names.tsv")}
    return train_keeping(make_documents(n_docs, topics=NAMED_TOPICS), "dismec", **NAMES_ALWAYS, **vocabulary)


def test_names_of_labels_do_not_count_for_the_calibration_of_an_update(tmp_path):
    tagger = train_with_unseen_names(tmp_path, n_unseen=400, n_docs=800)  # a tenth of documents and names is above 100
    assert (tagger.training.n_docs, tagger.training.is_name.sum()) == (1204, 404)
    new = make_documents(5, 1, NAMED_TOPICS, "n")
    assert tagger.about["scores"]["because"] == "calibration needs 100 held-out documents, and 80 are available"
    assert update_tagger(tagger, new, run=ONE).report.training == "Trained again on the stored documents."


@pytest.mark.parametrize("change", ["forget", "correct"])
def test_the_name_of_a_label_goes_with_its_last_document(change):
    documents = [*make_documents(80, topics=NAMED_TOPICS), Document("b", "wing beak", ["bird topic"])]
    tagger = train_keeping(documents, **NAMES_ALWAYS)
    assert tagger.training.is_name.sum() == 5
    if change == "forget":
        updated, report = astuple(update_tagger(tagger, forget=["b"], run=ONE))
    else:
        updated, report = astuple(update_tagger(tagger, [Document("b", "wing", ["cat topic"])], run=ONE))
    assert report.removed_labels == ("bird topic",)
    assert updated.labels.words() == sorted(NAMED_TOPICS)
    assert updated.training.is_name.sum() == 4
    assert (updated.training.n_docs, len(updated.training.hashes)) == (4 + report.n_docs,) * 2
    with pytest.raises(XmtcError, match="No document with a label would be left"):
        update_tagger(tagger, forget=[document.id for document in documents])
    again = update_tagger(updated, make_documents(2, 1, NAMED_TOPICS, "n"), run=ONE).tagger
    assert again.predict_labels(["purr"], k=1, run=ONE)[0]


def test_a_label_of_the_vocabulary_stays_without_documents(tmp_path):
    tagger = train_with_unseen_names(tmp_path)
    forgotten = [document.id for document in make_documents(80, topics=NAMED_TOPICS) if "cat topic" in document.labels]
    updated, report = astuple(update_tagger(tagger, forget=forgotten, run=ONE))
    assert report.removed_labels == ()
    assert updated.labels.words() == tagger.labels.words()
    assert updated.training.is_name.sum() == 44
    assert updated.frequencies[updated.find_label("cat topic")] == 0


def test_corrected_documents_keep_their_weights():
    documents, weights = make_documents(80), np.linspace(0.5, 2, 80)
    pipeline = Pipeline.from_parameters("parabel", "texts", {"min_df": 1})
    tagger = pipeline.fit(documents, run=ONE, weights=weights, keep_training=True)
    changes = [documents[3]._replace(labels=["cat"]), Document("n", "purr sky", ["cat"])]
    store = update_tagger(tagger, changes, run=ONE).tagger.training
    assert store.weights.dtype == np.float32
    np.testing.assert_array_equal(store.weights, np.append(weights, 1).astype(np.float32))


def test_word_ngrams_keep_their_weight_in_a_rebuild():
    documents = make_documents(80)
    tagger = train_keeping(documents, analyzer="words:1-2", ngram_weight=0.25, ngram_min_df=1, ngram_min_lift=0.0)
    rebuilt = update_tagger(tagger, [Document("x", "purr meow", ["cat"])], rebuild=True, run=ONE).tagger
    before, after = (
        dict(zip(t.views["tfidf"].vocabulary.words(), t.views["tfidf"].idf, strict=True)) for t in (tagger, rebuilt)
    )
    pairs = [term for term in after if " " in term]
    assert pairs
    assert {term: after[term] for term in pairs} == {term: before[term] for term in pairs}
    assert after["purr"] != before["purr"]


def test_a_label_without_documents_is_left_out(tagger):
    only = update_tagger(tagger, [Document("b", "purr sky", ["bird"])], run=ONE).tagger
    report = update_tagger(only, forget=["b"], run=ONE).report
    assert report.removed_labels == ("bird",)


def test_vocabulary_filter_thresholds_and_calibration_stay(tmp_path):
    documents = make_documents(1200)
    path = tmp_path / "concepts.tsv"
    path.write_text("uri\tlabel_en\n" + "".join(f"{name}\tthe {name}\n" for name in (*TOPICS, "bird")))
    tagger = train_keeping(documents, n_trees=1).with_vocabulary(import_files([str(path)]), "en")
    assert tagger.about["scores"]["are"] == "probabilities"
    tagger = tune_tagger_thresholds(tagger, make_documents(100, seed=2), by="label", run=ONE).tagger
    tagger = tagger.with_filter(deny=["rain"])
    tagger.save(tmp_path / "model")
    loaded = Tagger.load(tmp_path / "model")
    updated = update_tagger(loaded, [Document("b", "purr sky", ["bird"])], run=ONE).tagger
    assert np.array_equal(updated.model.scores, tagger.model.scores)
    assert updated.about["scores"] == tagger.about["scores"]
    assert updated.allowed.tolist() == [label != "rain" for label in updated.labels.words()]
    thresholds = dict(zip(updated.labels.words(), updated.decision.thresholds.tolist(), strict=True))
    old = dict(zip(tagger.labels.words(), tagger.decision.thresholds.tolist(), strict=True))
    assert thresholds == old | {"bird": pytest.approx(np.median(tagger.decision.thresholds))}
    assert updated.predict_labels(["purr sky"], threshold="tuned", run=ONE)[0] != []
    assert updated.label_name("bird") == "the bird"
    rebuilt = update_tagger(loaded, rebuild=True, run=ONE)
    assert rebuilt.tagger.training.n_changed == 0
    assert "calibrated on" in rebuilt.report.training
    before, after = (t.predict(["purr sky", "bark"], 4, ONE) for t in (loaded, rebuilt.tagger))
    assert np.array_equal(before.labels, after.labels)
    assert np.array_equal(before.scores, after.scores)


def test_new_documents_replace_the_oldest_of_the_reference_for_drift():
    tagger = train_keeping(make_documents(1200), n_trees=1)
    bird = [Document(f"b{i}", f"purr sky zebra{i}", ["a bird", "cat"]) for i in range(200)]  # label numbers change
    learnt = update_tagger(tagger, bird, run=ONE).tagger.reference
    assert learnt.n_docs == min(2000, tagger.reference.n_docs + 200)
    n_kept = learnt.n_docs - 200
    assert np.array_equal(learnt.labels[:n_kept], tagger.reference.with_labels([1, 2, 3, 4]).labels[-n_kept:])
    predicted = tagger.observe(bird, ONE)
    assert np.array_equal(learnt.scores[n_kept:], predicted.scores)
    assert np.array_equal(learnt.hits[n_kept:], predicted.labels == tagger.labels.find("cat"))
    assert np.array_equal(learnt.unknown[-200:], predicted.unknown.astype(np.float32))


def test_feedback_does_not_change_the_reference_for_drift():
    tagger = train_keeping(make_documents(1200), n_trees=1)
    reviewed = [Feedback(document, ()) for document in make_documents(20, 5, prefix="n")]
    updated = update_tagger(tagger, feedback=reviewed, run=ONE).tagger
    assert np.array_equal(updated.reference.scores, tagger.reference.scores)


def test_a_new_calibration_has_a_new_reference_for_drift():
    tagger = train_keeping(make_documents(1200), n_trees=1)
    bird = [Document(f"b{i}", "purr sky wet", ["a bird"]) for i in range(200)]
    rebuilt = update_tagger(tagger, bird, rebuild=True, run=ONE).tagger
    assert rebuilt.labels.find("a bird") in rebuilt.reference.labels
    assert np.array_equal(rebuilt.reference.unknown, update_tagger(tagger, bird, run=ONE).tagger.reference.unknown)
    first = update_tagger(train_keeping(make_documents(80)), make_documents(1200, 1, prefix="n"), run=ONE).tagger
    assert first.about["scores"]["are"] == "probabilities"
    assert first.reference is not None


def test_thresholds_of_probabilities_do_not_stay_for_raw_scores():
    tagger = calibrate_tagger(train_keeping(make_documents(80)), make_documents(200, seed=2), run=ONE)
    tagger = tune_tagger_thresholds(tagger, make_documents(200, seed=3), run=ONE).tagger
    learnt, report = astuple(update_tagger(tagger, make_documents(1, 4, prefix="n"), run=ONE))
    assert learnt.decision is not None
    assert "thresholds" not in report.training
    rebuilt, report = astuple(update_tagger(tagger, rebuild=True, run=ONE))  # too few documents to calibrate
    assert rebuilt.about["scores"]["are"] == "raw"
    assert rebuilt.decision is None
    assert "decision" not in rebuilt.about
    assert "thresholds are for scores of another kind" in report.training


def test_an_update_says_that_it_removes_the_gate():
    tagger = train_keeping(make_documents(1200), n_trees=1)
    promise = parse_promise("precision=0.5")
    tagger = tune_tagger_thresholds(tagger, make_documents(300, seed=2), promise=promise, run=ONE).tagger
    for rebuild in (False, True):
        updated = update_tagger(tagger, make_documents(1, 3, prefix="n"), rebuild=rebuild, run=ONE)
        assert not updated.tagger.has_gate
        assert "The gate was removed" in updated.report.training


def test_a_classifier_keeps_its_classes_and_columns():
    X, Y = np.eye(6, dtype=np.float32), np.eye(6, 4)[:, [0, 1, 2, 0]] * [1, 1, 1, 0]
    classifier = Classifier(n_trees=1).partial_fit(X, Y, run=ONE).partial_fit(X[:2], Y[[2, 0]], run=ONE)
    assert classifier.predict_proba(X).shape == (6, 4)
    assert classifier.tagger_.training.n_docs == 6
    with pytest.raises(XmtcError):
        classifier.partial_fit(X[:, :3], Y)


def test_a_model_without_documents_says_what_to_do(tmp_path):
    plain = train(make_documents(20), run=ONE)
    assert plain.training is None
    with pytest.raises(XmtcError, match="train it with --keep-training"):
        update_tagger(plain, make_documents(2))


# model folders


@pytest.fixture
def folder(tagger, tmp_path):
    tagger.save(tmp_path / "model")
    return tmp_path / "model"


def test_documents_are_stored_beside_the_model_without_texts(folder, tagger):
    content = b"".join(path.read_bytes() for path in folder.iterdir())
    assert make_documents(80)[0].text.encode() not in content
    loaded = Tagger.load(folder, verify=True)
    assert loaded.training.read_ids() == tagger.training.read_ids()
    (folder / TRAINING_FILE).unlink()
    without = Tagger.load(folder, verify=True)
    assert without.training is None
    assert predict(without, "purr") == predict(tagger, "purr")


def damage_size(folder):
    (folder / TRAINING_FILE).write_bytes((folder / TRAINING_FILE).read_bytes()[:-4])


def damage_kind(folder):
    edit(folder, lambda attached: attached.update({"form": "string-index"}))


def damage_labels(folder):
    edit(folder, lambda attached: attached.update({"n_labels": 3}))


def edit(folder, change):
    about = json.loads((folder / "about.json").read_text())
    change(about["attached"][TRAINING_FILE])
    (folder / "about.json").write_text(json.dumps(about))


@pytest.mark.parametrize("damage", [damage_size, damage_kind, damage_labels])
def test_a_damaged_store_is_refused(folder, damage):
    damage(folder)
    with pytest.raises(XmtcError, match="damaged"):
        Tagger.load(folder)


@pytest.mark.parametrize(
    ("name", "value"),
    [("labels", 4), ("labels", -1), ("label_ends", 1000), ("id_ends", -1), ("views.tfidf.indices", 10**6)],
)
def test_invalid_numbers_in_the_store_are_refused_before_an_update(folder, name, value):
    tagger = Tagger.load(folder)
    form = tagger.training.views["tfidf"] if "." in name else tagger.training
    getattr(form, name.rpartition(".")[2])[2] = value  # memory-mapped copy on write
    with pytest.raises(XmtcError, match="training documents of the model are damaged"):
        update_tagger(tagger, make_documents(2))


def write_corpus(path, documents, **fields):
    rows = [{"id": d.id, "text": d.text, "labels": d.labels} | fields for d in documents]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_commands_train_update_and_list_themselves(tmp_path):
    corpus = write_corpus(tmp_path / "train.jsonl", make_documents(60))
    new = write_corpus(tmp_path / "new.jsonl", make_documents(5, 5, TOPICS | {"bird": "wing beak"}, "n"))
    feedback = tmp_path / "feedback.jsonl"
    text = make_documents(60)[0].text
    feedback.write_text(json.dumps({"text": text, "labels": ["dog"], "rejected": ["cat"]}) + "\n")
    model, updated = tmp_path / "model", tmp_path / "updated"
    done = invoke("train", corpus, "-o", model, "-p", "min_df=1")
    assert b"The model keeps ids, features and labels of its documents for updates" in done.stderr
    done = invoke("update", model, new, "--feedback", feedback, "--forget", "d3", "-o", updated)
    assert done.returncode == 0, done.stderr
    assert b"New labels: bird.\n" in done.stderr
    assert b"5 new, 0 corrected and 1 forgotten documents" in done.stderr or b"1 corrected" in done.stderr
    commands = json.loads(invoke("info", updated).stdout)["commands"]
    assert [command.split()[1] for command in commands] == ["train", "update"]
    assert f"--feedback {feedback}" in commands[1]
    done = invoke("update", updated, new, "-o", updated, "--no-keep-training")  # in place
    assert done.returncode == 0, done.stderr
    assert not (updated / TRAINING_FILE).exists()
    done = invoke("train", corpus, "-o", model, "--no-keep-training")
    assert not (model / TRAINING_FILE).exists()
