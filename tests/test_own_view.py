"""A view of one's own: one class for the recipe, one for what it has learnt, one line in VIEWS."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
import pytest
from commands import lines_of
from planted import own_words, planted
from sklearn.feature_extraction.text import CountVectorizer
from test_features import run as xmtc

from xmtc import Classifier, XmtcError, param
from xmtc.base.dataset import Bag
from xmtc.features import VIEWS
from xmtc.features.view import FittedView, View
from xmtc.methods import METHODS
from xmtc.methods.label_tree.parabel import Parabel
from xmtc.text.spans import Span
from xmtc.text.vocabulary import FREE, Vocabulary


# --- from here on: a view, in fewer than 40 lines ---
@dataclass(frozen=True)
class Letters(View):
    """Runs of letters within words, counted."""

    title: ClassVar[str] = "Runs of letters"

    length: int = param(4, "letters of a run", low=1)

    def fit(self, contents, run=None):
        counter = CountVectorizer(analyzer="char_wb", ngram_range=(self.length, self.length))
        counts = counter.fit_transform(contents).astype(np.float32)
        fitted = FittedLetters(length=self.length, runs=Vocabulary.of(counter.get_feature_names_out()))
        return fitted, Bag(counts, fitted.runs)


@dataclass(frozen=True, kw_only=True)
class FittedLetters(FittedView):
    length: int
    runs: Vocabulary

    @property
    def size(self):
        return len(self.runs)

    def transform(self, contents, run=None):
        sizes = (self.length, self.length)
        counter = CountVectorizer(analyzer="char_wb", ngram_range=sizes, vocabulary=self.runs.words())
        return Bag(counter.transform(contents).astype(np.float32), self.runs)

    def term(self, number):
        return self.runs[number]

    def spans(self, text):
        pieces = [(i, text[i : i + self.length]) for i in range(0, len(text), self.length)]
        found = [(i, piece, self.runs.number(piece.lower())) for i, piece in pieces]
        return [Span(i, i + len(piece), piece, (n,) if n != FREE else ()) for i, piece, n in found]


# --- to here ---


@dataclass(frozen=True)
class LetterParabel(Parabel):
    """Parabel on runs of letters."""

    reads = ("letters",)


@pytest.fixture(autouse=True)
def tables(monkeypatch):
    monkeypatch.setitem(VIEWS, "letters", f"{__name__}:Letters")
    monkeypatch.setitem(METHODS, "letter_parabel", f"{__name__}:LetterParabel")


def test_a_method_is_trained_on_it_saved_loaded_and_explained(tmp_path):
    classifier = Classifier("letter_parabel", length=5, max_leaf=8).fit(*planted(400, seed=1))
    assert list(classifier.tagger_.views) == ["letters"]
    texts, tags = planted(100, seed=2)
    assert classifier.evaluate(texts, tags, ["P@1"])["P@1"] > 0.9
    classifier.save(tmp_path / "model")
    loaded = Classifier.load(tmp_path / "model", verify=True)
    assert loaded.get_params()["length"] == 5
    np.testing.assert_array_equal(loaded.rank(texts).scores, classifier.rank(texts).scores)
    text = " ".join(own_words(3))
    assert "".join(piece.text for piece in loaded.highlight(text, "label-03")[0].pieces) == text
    assert loaded.explain(text, "label-03")[0][1] > 0


def test_it_stands_beside_others_in_a_consensus():
    classifier = Classifier("consensus", members=("letter_parabel", "dismec")).fit(*planted(200, seed=1))
    assert sorted(classifier.tagger_.views) == ["letters", "tfidf"]
    assert classifier.evaluate(*planted(50, seed=2), ["P@1"])["P@1"] > 0.9


def test_commands_know_its_parameters(tmp_path):
    (tmp_path / "train.jsonl").write_text(lines_of(100, seed=0))
    command = ("train", tmp_path / "train.jsonl", "-m", "letter_parabel", "-o", tmp_path / "model")
    assert xmtc(*command, "-p", "length=3")[0] == 0
    assert "has no parameter 'min_df'" in xmtc(*command, "-p", "min_df=1")[1]
    assert "Runs of letters:\n\n  length" in xmtc("methods", "letter_parabel")[1]
    with pytest.raises(XmtcError, match="LetterParabel reads letters, but the corpus holds features"):
        Classifier("letter_parabel").fit(np.eye(4, dtype=np.float32), [["a"], ["b"]] * 2)


def test_it_is_short():
    with open(__file__, encoding="utf-8") as file:
        source = file.read()
    view = source[source.index("# --- from here on") : source.index("# --- to here")]
    assert view.count("\n") - 1 < 40
    assert [field.name for field in fields(Letters)] == ["length"]
