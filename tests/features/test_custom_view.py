"""Tests of a custom view: a View and a FittedView (letters.py), and an entry of VIEWS."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from importlib.metadata import EntryPoint

import letters
import numpy as np
import pytest
from commands import lines_of
from planted import make_planted_corpus, planted_words
from test_features import run as xmtc

from xmtc import Classifier, XmtcError
from xmtc.features import VIEW_REGISTRY, VIEWS
from xmtc.methods import METHODS
from xmtc.methods.label_tree.parabel import Parabel


@dataclass(frozen=True)
class LetterParabel(Parabel):
    """Parabel on letter n-grams."""

    required_views = ("letters",)


@pytest.fixture(autouse=True)
def register_view_and_method(monkeypatch):
    monkeypatch.setitem(VIEWS, "letters", "letters:Letters")
    monkeypatch.setitem(METHODS, "letter_parabel", f"{__name__}:LetterParabel")


def test_method_with_custom_view_is_trained_saved_loaded_and_explained(tmp_path):
    classifier = Classifier("letter_parabel", length=5, max_leaf=8).fit(*make_planted_corpus(400, seed=1))
    assert list(classifier.tagger_.views) == ["letters"]
    texts, tags = make_planted_corpus(100, seed=2)
    assert classifier.evaluate(texts, tags, ["P@1"])["P@1"] > 0.9
    classifier.save(tmp_path / "model")
    loaded = Classifier.load(tmp_path / "model", verify=True)
    assert loaded.get_params()["length"] == 5
    np.testing.assert_array_equal(loaded.rank(texts).scores, classifier.rank(texts).scores)
    text = " ".join(planted_words(3))
    assert "".join(piece.text for piece in loaded.highlight(text, "label-03")[0].pieces) == text
    assert loaded.highlight(text, "label-03")[0].relative_weights()[0] > 0.5
    assert loaded.explain(text, "label-03")[0][1] > 0


def test_custom_view_is_combined_with_others_in_a_consensus():
    classifier = Classifier("consensus", members=("letter_parabel", "dismec")).fit(*make_planted_corpus(200, seed=1))
    assert sorted(classifier.tagger_.views) == ["letters", "tfidf"]
    assert classifier.evaluate(*make_planted_corpus(50, seed=2), ["P@1"])["P@1"] > 0.9


def test_commands_accept_parameters_of_the_custom_view(tmp_path):
    (tmp_path / "train.jsonl").write_text(lines_of(100, seed=0))
    command = ("train", tmp_path / "train.jsonl", "-m", "letter_parabel", "-o", tmp_path / "model")
    assert xmtc(*command, "-p", "length=3")[0] == 0
    assert "has no parameter 'min_df'" in xmtc(*command, "-p", "min_df=1")[1]
    assert "Runs of letters:\n\n  length" in xmtc("methods", "letter_parabel")[1]
    with pytest.raises(XmtcError, match="LetterParabel reads letters, but the corpus holds features"):
        Classifier("letter_parabel").fit(np.eye(4, dtype=np.float32), [["a"], ["b"]] * 2)


def test_custom_view_is_short():
    source = inspect.getsource(letters)
    assert source[source.index("@dataclass") :].count("\n") < 40
    assert [field.name for field in fields(letters.Letters)] == ["length"]


def test_a_broken_plug_in_is_ignored_until_it_is_used(monkeypatch):
    point = EntryPoint("broken", "no_such_module:View", "xmtc.views")
    monkeypatch.setitem(VIEW_REGISTRY.__dict__, "plugins", {"broken": point})
    with pytest.warns(UserWarning, match="The view broken of no_such_module:View cannot be imported and is ignored"):
        Classifier("parabel").fit(np.eye(4, dtype=np.float32), [["a"], ["b"]] * 2)
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        VIEW_REGISTRY.find("broken")
