"""Tests that methods get their views from the Tagger, the Classifier and the commands."""

from __future__ import annotations

import json
import re
from dataclasses import fields

import numpy as np
import pytest
from commands import lines_of
from planted import make_planted_corpus, planted_words
from scipy.sparse import csr_array
from sklearn.base import clone
from test_damaged_models import set_about_value
from typer.testing import CliRunner
from voting import AllVotes, WordVotes, enter

from xmtc import Classifier, Tagger, XmtcError, train
from xmtc.cli import app
from xmtc.data.document import Document
from xmtc.data.in_memory import to_documents
from xmtc.features import FEATURES, TEXTS, VIEWS, select_views, view_class
from xmtc.features.columns import Columns
from xmtc.features.tfidf import Tfidf
from xmtc.features.words import FittedWords, Words
from xmtc.methods.label_tree.parabel import Parabel
from xmtc.pipeline import Pipeline

TRAIN, TEST = make_planted_corpus(400, seed=1), make_planted_corpus(100, seed=2)
NAMES = ["wordvotes", "allvotes"]
READ = {"wordvotes": ["words"], "allvotes": ["tfidf", "words"]}


@pytest.fixture(autouse=True)
def methods(monkeypatch):
    enter(monkeypatch)


def run(*words) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception and not isinstance(done.exception, (SystemExit, XmtcError)):
        raise done.exception
    return done.exit_code, done.output + (str(done.exception) if isinstance(done.exception, XmtcError) else "")


def test_a_method_chooses_its_views():
    assert select_views(Parabel.required_views) == {"tfidf": Tfidf}
    assert select_views(Parabel.required_views, FEATURES) == {"columns": Columns}
    assert select_views(WordVotes.required_views, TEXTS) == {"words": Words}
    assert select_views(AllVotes.required_views) == {"tfidf": Tfidf, "words": Words}


def test_shared_view_parameters_have_one_definition():
    shared = {}
    for name in VIEWS:
        for field in fields(view_class(name)):
            meaning = field.default, field.metadata
            assert shared.setdefault(field.name, meaning) == meaning, field.name


def test_shared_parameter_is_set_for_all_views():
    pipeline = Pipeline.from_parameters("allvotes", parameters={"lowercase": False, "min_df": 3})
    assert pipeline.views == {"tfidf": Tfidf(min_df=3, lowercase=False), "words": Words(lowercase=False)}


@pytest.mark.parametrize("name", NAMES)
def test_model_of_words_is_trained_saved_and_loaded(name, tmp_path):
    classifier = Classifier(name, max_tokens=300, lowercase=False).fit(*TRAIN, valid=TEST)
    assert list(classifier.tagger_.views) == READ[name]
    assert isinstance(classifier.tagger_.views["words"], FittedWords)
    assert classifier.evaluate(*TEST, ["P@1"])["P@1"] > 0.9
    assert classifier.rank(["", "unheard-of"]).labels.shape == (2, 5)
    classifier.save(tmp_path / "model")
    loaded = Classifier.load(tmp_path / "model", verify=True)
    assert loaded.get_params() == classifier.get_params() == clone(classifier).get_params()
    assert (loaded.max_tokens, loaded.lowercase) == (300, False)
    np.testing.assert_array_equal(loaded.rank(TEST[0]).labels, classifier.rank(TEST[0]).labels)


def test_about_lists_the_views():
    about = {name: Classifier(name).fit(*TRAIN).tagger_.about for name in ("parabel", *NAMES)}
    assert [list(about[name]["views"]) for name in about] == [["tfidf"], ["words"], ["tfidf", "words"]]
    assert [list(about[name]["sizes"]) for name in about] == [["tfidf"], ["words"], ["tfidf", "words"]]


def test_tagger_keeps_the_views_that_its_method_requires():
    documents = [Document(str(i), text, tags) for i, (text, tags) in enumerate(zip(*TRAIN, strict=True))]
    assert list(train(iter(documents), WordVotes()).views) == ["words"]
    assert train(documents, WordVotes(), max_words=50).views["words"].size == 51
    assert train(documents, "wordvotes", power=2.0).about["parameters"] == {"power": 2.0}
    with pytest.raises(XmtcError, match="wordvotes has no parameter 'min_df' for a corpus of texts"):
        train(documents, WordVotes(), min_df=1)
    with pytest.raises(XmtcError, match="parabel has no parameter 'max_tokens'"):
        train(documents, Parabel(), max_tokens=10)


@pytest.mark.parametrize("name", NAMES)
def test_method_of_words_rejects_a_feature_matrix(name):
    X = csr_array(np.eye(4, dtype=np.float32))
    with pytest.raises(
        XmtcError, match="reads words, but the corpus holds features; give a corpus of texts, or choose a"
    ):
        Classifier(name).fit(X, [["a"], ["b"]] * 2)
    with pytest.raises(XmtcError, match="holds features, but this model reads text"):
        Classifier(name).fit(*TRAIN).predict(X)


def test_parameters_are_those_of_the_required_views():
    assert {"power", "max_words", "max_tokens"} < Classifier("wordvotes").get_params().keys()
    with pytest.raises(XmtcError, match="wordvotes has no parameter 'min_df'"):
        Classifier("wordvotes", min_df=1)
    with pytest.raises(XmtcError, match="parabel has no parameter 'max_tokens'"):
        Classifier("parabel", max_tokens=1)
    names = list(Classifier("allvotes").get_params())
    assert {"min_df", "max_words"} < set(names)
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", NAMES)
def test_inconsistent_sizes_are_reported_as_damage(name, tmp_path):
    Classifier(name).fit(*TRAIN).save(tmp_path / "model")
    set_about_value(tmp_path / "model", "parts.model.views.mapping.words", 7)
    with pytest.raises(XmtcError, match=r"is damaged: its labels and views are not those of its model"):
        Tagger.load(tmp_path / "model")


@pytest.mark.parametrize("name", NAMES)
def test_damaged_vocabulary_is_detected_before_use(name, tmp_path):
    Classifier(name).fit(*TRAIN).save(tmp_path / "model")
    set_about_value(tmp_path / "model", "parts.views.mapping.words.max_tokens", 2**70)
    with pytest.raises(XmtcError, match=r"is damaged: its maximum number of words, .*, is out of range"):
        Tagger.load(tmp_path / "model").predict_labels(["text"])


def test_words_are_explained():
    classifier = Classifier("wordvotes").fit(*TRAIN)
    words = classifier.tagger_.views["words"].vocabulary.words()
    assert classifier.explain(f"{words[0]} {words[1]}", "label-03") == [(words[0], 1), (words[1], 1)]


def test_terms_beside_words_are_explained():
    explained = Classifier("allvotes").fit(*TRAIN).explain(" ".join(planted_words(3)), "label-03")
    assert explained[0][0] in planted_words(3)


def test_commands(tmp_path):
    corpus, model = tmp_path / "train.jsonl", tmp_path / "model"
    corpus.write_text(lines_of(100, seed=0))
    code, message = run("train", corpus, "-m", "wordvotes", "-o", model, "-p", "max_words=150", "-p", "power=2")
    assert code == 0
    assert "with 39 labels and 151 words in" in message
    about = json.loads((model / "about.json").read_text())
    assert (about["parameters"], about["views"]["words"]["max_words"]) == ({"power": 2.0}, 150)
    assert "P@1" in run("evaluate", model, corpus)[1]
    assert (
        "wordvotes has no parameter 'min_df'"
        in run("train", corpus, "-m", "wordvotes", "-o", model, "-p", "min_df=1")[1]
    )


def test_feature_corpus_is_rejected_before_it_is_read(tmp_path):
    (tmp_path / "given.txt").write_text("2 3 2\n0 0:1 2:1\n1 1:1\n")
    message = run("train", tmp_path / "given.txt", "-m", "wordvotes", "-o", tmp_path / "model")[1]
    assert (
        "WordVotes reads words, but the corpus holds features; give a corpus of texts, or choose a linear method."
        in message
    )


def test_methods_command_shows_the_parameters_of_the_required_views():
    shown = run("methods", "wordvotes")[1]
    assert "Sequences of words:\n\n  max_words" in shown
    assert "min_df" not in shown
    shown = run("methods", "allvotes")[1]
    assert "Text features:\n\n  min_df" in shown
    assert "Sequences of words:\n\n  max_words" in shown


def test_parameters_of_other_views_are_rejected_everywhere(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "train.jsonl").write_text(lines_of(20, seed=0))
    message = "rank_ae( with these parameters)? has no parameter 'encoder'"
    with pytest.raises(XmtcError, match=message):
        Classifier("rank_ae", encoder="nonsense")
    command = ("train", tmp_path / "train.jsonl", "-m", "rank_ae", "-o", tmp_path / "model", "-p", "encoder=nonsense")
    assert re.search(message, run(*command)[1])
    with pytest.raises(XmtcError, match=message):
        train(to_documents(*TRAIN), "rank_ae", encoder="nonsense")
    with pytest.raises(XmtcError, match="rank_ae has no parameter 'min_df'"):
        Classifier("rank_ae", input="lstm", min_df=1)
    assert Classifier("rank_ae", input="lstm", max_tokens=9).get_params()["max_tokens"] == 9
