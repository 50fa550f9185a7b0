"""Updates of every method, and of methods that read the names of labels."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from planted import make_planted_corpus
from quick_methods import quick

from xmtc import METHODS, Classifier, Document, Run, Tagger, XmtcError, train
from xmtc.maintenance.update import update_tagger
from xmtc.methods import Lexical, Parabel
from xmtc.vocabulary import import_files

ONE = Run(threads=1)
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "update.md"
BIRDS = [Document(f"b{i}", f"the heron stands in the water {i}", ["heron"]) for i in range(2)]


def read_documented_methods() -> set[str]:
    """Return the methods of which a small update trains some classifiers, in the table of the page."""
    rows = re.findall(r"^\| (.+?) \| (.+?) \| .+? \|$", PAGE.read_text(), re.MULTILINE)
    return {
        name
        for methods, small in rows
        if "stored features" not in small
        for name in re.findall(r"`(\w+)`", methods)
        if name in METHODS
    }


def make_documents(n: int) -> list[Document]:
    return [Document(str(i), *each) for i, each in enumerate(zip(*make_planted_corpus(n, seed=0), strict=True))]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_as_documented(method):
    own = quick(method)
    one_pass = {"epochs": 1} if "epochs" in own else {}
    tagger = train(make_documents(120), method, run=ONE, keep_training=True, calibrate=False, **own | one_pass)
    updated = update_tagger(tagger, BIRDS, run=ONE)
    assert updated.report.new_labels == ("heron",)
    is_partial = "classifiers" in updated.report.training
    assert is_partial == (updated.tagger.about["method"] in read_documented_methods()), updated.report.training
    assert updated.tagger.predict_labels([make_documents(1)[0].text], k=2, run=ONE)[0]
    assert update_tagger(updated.tagger, forget=["b0"], run=ONE).report.n_docs == 121


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "names.tsv"
    path.write_text("id\tname\naardvark\tanteater\nlynx\tlynx (animal)\ncrane\tcrane\n")
    return path


def make_animals(n: int) -> list[Document]:
    animals = {"aardvark": "an anteater digs", "lynx": "a lynx in the wood"}
    return [Document(f"{label}{i}", f"{text} {i}", [label]) for i in range(n) for label, text in animals.items()]


def predict(tagger: Tagger, text: str) -> list[str]:
    return [tag.label for tag in tagger.predict_labels([text], k=1, run=ONE)[0]]


@pytest.mark.parametrize("method", ["lexical", "stacked"])
def test_names_of_new_labels_are_learnt_and_stay(method, table, tmp_path):
    lexical = Lexical(vocabulary=str(table))
    own = {"vocabulary": str(table)} if method == "lexical" else {"members": (Parabel(n_trees=1), lexical)}
    tagger = train(make_animals(300), method, run=ONE, keep_training=True, **own)
    updated = update_tagger(tagger, BIRDS, run=ONE).tagger
    assert predict(updated, "one heron") == ["heron"]
    assert predict(updated, "one lynx") == ["lynx"]
    updated.save(tmp_path / "model")
    again = update_tagger(Tagger.load(tmp_path / "model"), remove_labels=["lynx"], run=ONE).tagger
    assert predict(again, "one heron") == ["heron"]
    assert predict(again, "one lynx") == []


def test_an_update_of_names_gives_the_same_labels_as_a_training(table):
    whole = train([*make_animals(20), *BIRDS], "lexical", run=ONE, vocabulary=str(table), stemming="plural")
    base = train(make_animals(20), "lexical", run=ONE, vocabulary=str(table), keep_training=True, stemming="plural")
    updated = update_tagger(base, BIRDS, run=ONE).tagger
    texts = ["a lynx and a heron", "an anteater", "crane", "aardvarks and herons stand"]
    first, second = (
        [[(tag.label, round(tag.score, 6)) for tag in tags] for tags in tagger.predict_labels(texts, 5, run=ONE)]
        for tagger in (whole, updated)
    )
    assert first == second


def test_names_of_the_attached_vocabulary_are_those_of_new_labels(table, tmp_path):
    newer = tmp_path / "newer.tsv"
    newer.write_text(table.read_text() + "b-17\theron\n")
    tagger = train(make_animals(20), "lexical", run=ONE, vocabulary=str(table), keep_training=True)
    birds = [document._replace(labels=["b-17"]) for document in BIRDS]
    updated = update_tagger(tagger.with_vocabulary(import_files([str(newer)])), birds, run=ONE).tagger
    assert predict(updated, "one heron") == ["b-17"]


def test_labels_of_a_vocabulary_stay_without_documents_and_others_go(table):
    documents, lynxes = [*make_animals(20), *BIRDS], [f"lynx{i}" for i in range(20)]
    tagger = train(documents, "lexical", run=ONE, vocabulary=str(table), keep_training=True)
    tagger = tagger.with_vocabulary(import_files([str(table)]))
    updated = update_tagger(tagger, forget=[*lynxes, "b0", "b1"], run=ONE)
    assert updated.report.removed_labels == ("heron",)
    assert predict(updated.tagger, "one lynx") == ["lynx"]
    unnamed = train(make_animals(20), "lexical", run=ONE, keep_training=True)
    assert update_tagger(unnamed, forget=lynxes, run=ONE).report.removed_labels == ("lynx",)


def test_a_classifier_of_names_keeps_its_classes():
    texts, labels = ["a lynx", "an aardvark", "the lynx"], [["lynx"], ["aardvark"], ["lynx"]]
    classifier = Classifier("lexical").partial_fit(texts, labels, run=ONE)
    assert classifier.partial_fit(["one heron"], [["heron"]], run=ONE).classes_.tolist() == [
        "aardvark",
        "heron",
        "lynx",
    ]


def test_a_model_without_stored_names_says_what_to_do(table):
    tagger = train(make_animals(20), "lexical", run=ONE, keep_training=True)
    older = replace(tagger, training=replace(tagger.training, names=()))
    with pytest.raises(XmtcError, match="train it again on the old and the new documents"):
        update_tagger(older, BIRDS)


@pytest.mark.parametrize("damage", ["labels", "rows"])
def test_damaged_names_in_the_store_are_refused(damage):
    tagger = train(make_animals(20), "lexical", run=ONE, keep_training=True)
    (names,) = tagger.training.names
    if damage == "labels":
        names = replace(names, labels=names.labels + np.int32(2))
    else:
        names = replace(names, labels=names.labels[:1], preferred=names.preferred[:1])
    damaged = replace(tagger, training=replace(tagger.training, names=(names,)))
    with pytest.raises(XmtcError, match="damaged"):
        update_tagger(damaged, BIRDS)
