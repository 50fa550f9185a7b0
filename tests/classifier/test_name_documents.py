"""Label names as training documents (xmtc/name_documents.py)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import invoke
from scipy.sparse import csr_array

from xmtc import Classifier, Document, Tagger
from xmtc.core.dataset import Bag, Dataset, LabelNames
from xmtc.core.method import LabelName
from xmtc.core.run import Run
from xmtc.data.splits import drop_rows, find_labelled_rows, sample_folds, sample_rows_keeping_labels
from xmtc.errors import XmtcError
from xmtc.features.tfidf import Tfidf
from xmtc.methods import FastXML
from xmtc.name_documents import (
    TRIAL_WEIGHTS,
    UNSEEN_FACTOR,
    NameScale,
    NameTraining,
    NameTrial,
    build_catalogue,
    choose_name_weight,
    has_word_labels,
    join_names,
    sample_documents,
)
from xmtc.pipeline import Pipeline

ONE = Run(threads=1)
N_LABELS, N_UNSEEN = 400, 40


def make_word(number: int) -> str:
    """Return a word of letters, different for each number."""
    return "".join("abcdefghij"[int(digit)] for digit in f"{number:05}") + "ium"


def make_documents(n: int, seed: int, labels: range) -> list[Document]:
    """Return documents of one label each, whose text has the word of the label and noise."""
    rng = np.random.default_rng(seed)
    documents = []
    for i in range(n):
        label = int(rng.choice(labels))
        noise = " ".join(make_word(1000 + each) for each in rng.integers(0, 200, 8))
        documents.append(Document(str(i), f"{noise} {make_word(label)}", [f"{make_word(label)} thing"]))
    return documents


TRAIN = make_documents(700, 0, range(N_LABELS - N_UNSEEN))
TEST = make_documents(100, 1, range(N_LABELS - N_UNSEEN, N_LABELS))


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a table of all labels, also of those without training documents."""
    path = tmp_path_factory.mktemp("vocabulary") / "names.tsv"
    path.write_text("".join(f"{make_word(i)} thing\t{make_word(i)} thing\n" for i in range(N_LABELS)))
    return path


def fit(method: str = "dismec", documents: list[Document] = TRAIN, **parameters: object) -> Tagger:
    options = {"calibrate": False, "analyzer": "words"} | parameters
    return Pipeline.from_parameters(method, parameters=options).fit(documents, run=ONE)


@pytest.fixture(scope="module")
def named(vocabulary: Path) -> Tagger:
    return fit(vocabulary=str(vocabulary))


@pytest.mark.parametrize("method", ["dismec", "parabel", "bonsai", "ppd_sparse", "proxml", "plt"])
def test_labels_without_documents_are_predicted_by_linear_methods(method: str, vocabulary: Path) -> None:
    tagger = fit(method, vocabulary=str(vocabulary), name_documents="always", name_weight=3, name_length=0.3)
    assert tagger.evaluate(TEST, ["unseen@5"], run=ONE)["unseen@5"] > 0.75
    assert fit(method, name_documents="never").evaluate(TEST, ["unseen@5"], run=ONE)["unseen@5"] == 0


def test_names_are_used_if_held_out_documents_show_a_gain(named: Tagger) -> None:
    chosen = named.about["chosen_names"]
    assert chosen["weight"] == TRIAL_WEIGHTS[chosen["length"]]
    assert (chosen["names"], chosen["unseen_labels"]) == (N_LABELS, len(named.labels) - count_labels(TRAIN))
    assert chosen["because"].startswith("nDCG@5 of 140 held-out documents is ")


def count_labels(documents: list[Document]) -> int:
    return len({label for document in documents for label in document.labels})


def test_statistics_count_documents_only(named: Tagger) -> None:
    without = fit(name_documents="never")
    assert named.about["n_docs"] == len(TRAIN)
    assert named.about["data"] == without.about["data"]
    frequencies = dict(zip(named.labels.words(), named.frequencies.tolist(), strict=True))
    assert sum(frequencies.values()) == len(TRAIN)
    assert {label: n for label, n in frequencies.items() if n} == dict(
        zip(without.labels.words(), without.frequencies.tolist(), strict=True)
    )


def test_labels_that_are_words_need_no_vocabulary() -> None:
    tagger = fit()
    assert tagger.about["chosen_names"]["weight"] > 0
    assert len(tagger.labels) == count_labels(TRAIN)


def test_names_that_do_not_help_are_not_used() -> None:
    labels = {label for document in TRAIN for label in document.labels}
    unrelated = {label: f"{make_word(50_000 + i)} thing" for i, label in enumerate(sorted(labels))}
    documents = [document._replace(labels=[unrelated[document.labels[0]]]) for document in TRAIN]
    tagger, without = fit(documents=documents), fit(documents=documents, name_documents="never")
    assert tagger.about["chosen_names"]["weight"] == 0
    assert tagger.model.predict(tagger.transform(TEST), 5, ONE).scores.tolist() == (
        without.model.predict(without.transform(TEST), 5, ONE).scores.tolist()
    )


def test_few_documents_need_no_trial(vocabulary: Path) -> None:
    chosen = fit(documents=TRAIN[:50], vocabulary=str(vocabulary)).about["chosen_names"]
    assert chosen == {
        "weight": 0.0,
        "length": 0.0,
        "because": "50 labelled documents are too few for a trial; 500 are needed",
    }
    forced = fit(documents=TRAIN[:50], vocabulary=str(vocabulary), name_documents="always").about["chosen_names"]
    assert (forced["weight"], forced["names"]) == (3.0, N_LABELS)


def test_only_labels_of_the_vocabulary_are_known_without_documents(vocabulary: Path) -> None:
    """A label that only held-out documents have is unseen in the trial: its own name must not be known."""
    sample = sample_documents(TRAIN, np.ones(len(TRAIN), bool))
    labels = sorted({label for document in TRAIN for label in document.labels})
    n_held_out = len(sample) // 5
    train = {label for document in sample[n_held_out:] for label in document.labels}
    held_out = {label for document in sample[:n_held_out] for label in document.labels} - train
    assert held_out
    own = build_catalogue(NameTraining(), labels, [], None)
    trial = NameTrial.from_documents(sample, own, Tfidf(), ONE)
    assert {name.label for name in trial.names} == train
    assert {document.id for document in trial.train}.isdisjoint(document.id for document in trial.held_out)
    listed = build_catalogue(NameTraining(vocabulary=str(vocabulary)), [*labels, "not listed"], [], None)
    known = {name.label for name in NameTrial.from_documents(sample, listed, Tfidf(), ONE).names}
    assert len(known) == N_LABELS
    assert held_out < known
    assert "not listed" not in known


def test_too_many_further_labels_are_left_out(vocabulary: Path) -> None:
    labels = sorted({label for document in TRAIN for label in document.labels})
    options = NameTraining(vocabulary=str(vocabulary), max_unseen_labels=N_UNSEEN - 1)
    catalogue = build_catalogue(options, labels, [], None)
    assert {name.label for name in catalogue.names} == set(labels)
    assert (len(catalogue.listed), catalogue.n_left_out) == (0, N_LABELS - len(labels))
    choice = choose_name_weight(
        options.replace(name_documents="always", name_weight=2, name_length=1), catalogue, Tfidf(), TRAIN, ONE
    )
    assert "max_unseen_labels" in choice.reason


def test_classes_limit_the_labels(vocabulary: Path) -> None:
    labels = sorted({label for document in TRAIN for label in document.labels})
    catalogue = build_catalogue(NameTraining(vocabulary=str(vocabulary)), labels, [], {*labels[:5], TEST[0].labels[0]})
    assert {name.label for name in catalogue.names} == {*labels[:5], TEST[0].labels[0]}


def make_joined_dataset() -> Dataset:
    """Return five documents and two names of weight 3; a third name has no known word."""
    from xmtc.data.label_collector import LabelCollector

    collector = LabelCollector()
    list(collector.collect(Document(str(i), "", ["a" if i % 2 else "b"]) for i in range(5)))
    names = [LabelName("a", "a"), LabelName("c", "c"), LabelName("d", "unknown")]
    X = np.ones((8, 2), np.float32)
    X[-1] = 0
    labels, data = join_names(Dataset.from_matrix(X), X.any(axis=1), collector, names, NameScale(3.0, 0.5))
    assert labels == ["a", "b", "c"]
    return data


def test_names_follow_the_documents() -> None:
    data = make_joined_dataset()
    assert data.Y is not None
    assert data.is_name is not None
    assert data.weights is not None
    assert data.Y.toarray().tolist() == [*([[0, 1, 0], [1, 0, 0]] * 3)[:5], [1, 0, 0], [0, 0, 1]]
    assert data.is_name.tolist() == [False] * 5 + [True] * 2
    assert data.weights.tolist() == [1] * 5 + [3, 3 * UNSEEN_FACTOR]  # label c has no document
    assert data.X.toarray()[:, 0] == pytest.approx([1] * 5 + [0.5] * 2)
    assert data.document_labels.shape == (5, 3)


def test_names_are_never_held_out() -> None:
    data = make_joined_dataset()
    assert find_labelled_rows(data).tolist() == [0, 1, 2, 3, 4]
    assert np.concatenate(sample_folds(data, 0, 2, 3)).max() < 5
    assert sample_rows_keeping_labels(data, 0, 5).max() < 5
    rows = np.array([5, 0, 6])
    assert data.select_rows(rows).is_name.tolist() == [True, False, True]  # type: ignore[union-attr]


def test_document_weights_leave_the_weight_of_names(vocabulary: Path) -> None:
    options = {
        "vocabulary": str(vocabulary),
        "name_documents": "always",
        "name_weight": 2,
        "name_length": 1,
        "analyzer": "words",
    }
    prepared = Pipeline.from_parameters("dismec", parameters=options).prepare(TRAIN, ONE)
    weighted = prepared.with_document_weights(np.full(len(TRAIN), 0.5)).data.weights
    assert weighted is not None
    assert weighted[: len(TRAIN)].tolist() == [0.5] * len(TRAIN)
    assert weighted[len(TRAIN) :].tolist() == [2] * N_LABELS
    with pytest.raises(XmtcError, match="expected one number for each of the 700 documents"):
        prepared.with_document_weights(np.ones(len(TRAIN) + N_LABELS))


def test_a_stream_and_threads_give_the_same_model(named: Tagger, vocabulary: Path) -> None:
    options = {"calibrate": False, "analyzer": "words", "vocabulary": str(vocabulary)}
    streamed = Pipeline.from_parameters("dismec", parameters=options).fit(iter(TRAIN), run=Run(threads=2))
    assert streamed.about == named.about
    scores, again = (tagger.predict(tagger.transform(TEST), 5, ONE).scores for tagger in (named, streamed))
    assert scores.tolist() == again.tolist()


def test_only_labels_with_letters_are_words() -> None:
    def are_words(*labels: str) -> bool:
        return has_word_labels(labels)

    assert are_words("apache tomcat", "python", "4711")
    assert not are_words("4711", "78.2", "118500775")
    assert not are_words("http://www.yso.fi/onto/yso/p10", "<http://example.org/fish>", "urn:nbn:fish")


def test_saved_model_repeats_its_parameters(named: Tagger, vocabulary: Path, tmp_path: Path) -> None:
    named.save(tmp_path / "model")
    classifier = Classifier.load(tmp_path / "model")
    assert classifier.get_params(deep=False)["vocabulary"] == str(vocabulary)
    assert "name_weight" not in classifier.get_params(deep=False)
    assert Classifier("lexical").get_params()["vocabulary"] == ""
    assert "name_weight" not in Classifier("lexical").get_params()
    with pytest.raises(XmtcError, match="name_documents='sometimes' is invalid; expected one of"):
        Classifier(name_documents="sometimes").fit(["one text", "more text"], [["a"], ["b"]])


def test_train_uses_the_names_of_vocab(vocabulary: Path, tmp_path: Path) -> None:
    lines = [json.dumps({"text": document.text, "labels": document.labels}) for document in TRAIN]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    result = invoke("train", "train.jsonl", "-o", "model", "--vocab", str(vocabulary), cwd=tmp_path)
    assert f"{N_LABELS} label names (" in result.stderr.decode()
    assert "labels have no document) are training documents of weight" in result.stderr.decode()
    quiet = invoke("train", "train.jsonl", "-o", "model", "-p", "name_documents=never", cwd=tmp_path)
    assert "label names" not in quiet.stderr.decode()


@pytest.mark.parametrize("is_listed", [False, True])
def test_names_of_labels_without_documents_are_dropped_unless_a_vocabulary_lists_such_labels(is_listed):
    """Rows 0 to 2 are documents, row 3 on are the names of labels 0, 1 and, with a vocabulary, 2."""
    Y = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])[: 6 if is_listed else 5]
    data = Dataset.from_matrix(np.eye(len(Y)), csr_array(Y))
    data = replace(data, is_name=np.arange(len(Y)) >= 3)
    kept = drop_rows(data, np.array([2]))
    assert kept.X.indices.tolist() == ([0, 1, 3, 4, 5] if is_listed else [0, 1, 3])
    assert drop_rows(data, np.array([0])).n_docs == len(Y) - 1


@pytest.mark.parametrize("is_listed", [False, True])
def test_matched_names_of_labels_without_documents_are_dropped_unless_a_vocabulary_lists_such_labels(is_listed):
    labels = np.array([1, 0, 2] if is_listed else [1, 0])
    names = LabelNames(None, labels, np.ones(len(labels), bool), Bag(np.eye(len(labels))))
    data = replace(Dataset.from_matrix(np.eye(3), csr_array([[1, 0, 0], [1, 0, 0], [0, 1, 0]])), names=names)
    kept = drop_rows(data, np.array([2])).names
    assert kept.labels.tolist() == (labels.tolist() if is_listed else [0])
    assert kept.vectors.matrix.toarray().tolist() == np.eye(len(labels))[labels >= 0 if is_listed else [1]].tolist()
    assert drop_rows(data, np.array([0])).names.labels.tolist() == labels.tolist()


def test_methods_without_names_train_on_documents_only():
    rng = np.random.default_rng(0)
    X, Y = rng.random((40, 6)), np.eye(4)[rng.integers(0, 4, 40)]
    documents = Dataset.from_matrix(X, Y)
    joined = Dataset.from_matrix(
        np.vstack([X, np.eye(4, 6)]), np.vstack([Y, np.eye(4)]), np.append(np.ones(40), [3] * 4)
    )
    joined = replace(joined, is_name=np.arange(44) >= 40)
    alone, beside = (FastXML(n_trees=2).fit(data, run=ONE).predict(documents, 4, ONE) for data in (documents, joined))
    np.testing.assert_array_equal(alone.scores, beside.scores)
    with pytest.raises(XmtcError, match="does not support document weights"):
        FastXML(n_trees=2).fit(replace(joined, is_name=None), run=ONE)
