"""Texts without any known word get no label, unless `always` is set: in every view, method and interface."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commands import invoke, make_place
from planted import make_planted_corpus, planted_words
from scipy.sparse import csr_array

from xmtc import Classifier, Run
from xmtc.core.dataset import Bag, Tokens
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.data.in_memory import to_documents
from xmtc.features.columns import FittedColumns
from xmtc.features.tfidf import Tfidf
from xmtc.features.words import Words
from xmtc.methods.embedding.fasttext import FastText
from xmtc.methods.ensemble.calibrated_model import build_calibrated_model
from xmtc.methods.ensemble.consensus import Consensus
from xmtc.methods.label_tree.parabel import Parabel

TEXTS, TAGS = make_planted_corpus(200, seed=0)
UNKNOWN, KNOWN = "zzz unheard-of", " ".join(planted_words(7))
ONE = Run(threads=1, device="cpu")


@pytest.fixture(scope="module")
def linear() -> Classifier:
    return Classifier("parabel", max_leaf=10).fit(TEXTS, TAGS, run=ONE)


def known(view, texts: list[str]) -> list[bool]:
    return view.mark_known_documents(view.transform(texts)).tolist()


def test_bag_knows_documents_with_a_term():
    fitted, _ = Tfidf(stop_words="english").fit(["apple tree", "apple pie tree"])
    assert known(fitted, ["an apple", "", "pear", "the", "pie", "TREE"]) == [True, False, False, False, False, True]


def test_words_view_knows_documents_with_a_word_of_the_vocabulary():
    fitted, _ = Words(max_words=2).fit(["apple tree", "apple pie tree"])
    assert known(fitted, ["pear apple", "", "pear", "pear plum", "tree"]) == [True, False, False, False, True]
    assert known(fitted, []) == []


@pytest.mark.parametrize("kind", ["bert", "xlnet"])
def test_subwords_view_knows_documents_with_a_known_piece(kind):
    pytest.importorskip("tokenizers")
    from tiny_encoders import tiny

    from xmtc.features.subwords import Subwords

    fitted, _ = Subwords(encoder=tiny(kind)).fit(["noise1"])
    texts = ["noise1", "", " \n ", "qz", "数字 かな", "数字 noise1", "▁"]
    assert known(fitted, texts) == [True, False, False, True, False, True, False]


def test_documents_of_zero_features_are_known():
    fitted = FittedColumns(n_columns=2, unit_length=False)
    assert fitted.mark_known_documents(Bag(csr_array(np.zeros((3, 2), np.float32)))).all()


def test_tokens_without_an_unknown_id_are_known():
    from letters import Letters

    fitted, _ = Letters(length=2).fit(["abc"])
    assert fitted.mark_known_documents(Tokens(np.zeros(3, np.int32), np.array([0, 1, 3]), 4)).tolist() == [True, True]


def test_mask_documents_removes_predictions_of_other_documents():
    found = Predictions(np.array([[1, 2], [0, 3]]), np.array([[0.9, 0.5], [0.8, 0.1]]))
    left = found.mask_documents(np.array([False, True]))
    assert left.labels.tolist() == [[NO_LABEL, NO_LABEL], [0, 3]]
    assert left.scores.tolist() == [[0, 0], pytest.approx([0.8, 0.1])]
    assert (left.labels.dtype, left.scores.dtype) == (np.int32, np.float32)
    assert found.mask_documents(np.array([True, True])) is found


def test_tagger_predicts_nothing_unless_always(linear):
    tagger = linear.tagger_
    nothing, something = tagger.predict_labels([UNKNOWN, KNOWN], k=2)
    assert nothing == []
    assert something[0].label == "label-07"
    guessed, same = tagger.predict_labels([UNKNOWN, KNOWN], k=2, always=True)
    assert len(guessed) == 2
    assert same == something
    assert (tagger.has_known_words(UNKNOWN), tagger.has_known_words(KNOWN)) == (False, True)


def test_classifier_predicts_nothing_unless_always(linear):
    assert linear.predict([UNKNOWN, KNOWN], k=1) == [[], ["label-07"]]
    assert [len(labels) for labels in linear.predict([UNKNOWN], always=True)] == [5]
    assert [len(tags) for tags in linear.predict_labels([UNKNOWN], k=3)] == [0]
    assert [len(tags) for tags in linear.predict_labels([UNKNOWN], k=3, always=True)] == [3]
    scores = linear.predict_proba([UNKNOWN, KNOWN])
    assert scores[0].max() == 0 < scores[1].max()
    assert linear.predict_proba([UNKNOWN], always=True).max() > 0
    assert linear.predict_proba([UNKNOWN], k=3).nnz == 0 < linear.predict_proba([UNKNOWN], k=3, always=True).nnz


def test_indicators_agree_with_their_scores():
    """One label has nearly all documents, so its score is above 0.5 for any text."""
    texts = [f"apple number{i % 9}" for i in range(40)]
    Y = np.zeros((40, 2), int)
    Y[:36, 0], Y[36:, 1] = 1, 1
    classifier = Classifier("dismec").fit(texts, Y, run=ONE)
    assert classifier.predict(["zzz"], always=True).tolist() == [[1, 0]]
    assert classifier.predict(["zzz"]).tolist() == [[0, 0]]
    assert (classifier.decision_function(["zzz", "apple"]) > 0).tolist() == classifier.predict(
        ["zzz", "apple"]
    ).tolist()


def test_single_label_output_always_has_a_label():
    texts = ["red apple", "green pear", "red berry"] * 4
    classifier = Classifier("dismec").fit(texts, np.array([[7], [3], [7]] * 4), run=ONE)
    assert classifier.predict(["zzz", "green pear"]).tolist() == [[7], [3]]
    assert classifier.classes_[classifier.predict_proba(["zzz"]).argmax()] == 7
    assert classifier.score(["zzz"], np.array([[7]])) == 1


@pytest.mark.parametrize("shape", [(12,), (12, 1)])
def test_single_labels_without_scores_agree_with_predict(shape):
    """A name that is never right has a calibrated score of 0, and a text without any name has no scores."""
    y = np.array([7, 3, 7] * 4).reshape(shape)
    classifier = Classifier("dismec").fit(["red apple", "green pear", "red berry"] * 4, y)
    model = classifier.tagger_.model
    calibrated = build_calibrated_model(model, np.array([0.0, 1.0]), np.array([0.0, 0.0]))
    classifier.tagger_ = classifier.tagger_.with_model(calibrated)
    texts = ["green pear", "red apple"]
    scores = classifier.predict_proba(texts)
    assert classifier.classes_[scores.argmax(axis=1)].tolist() == classifier.predict(texts).ravel().tolist() == [3, 7]
    assert scores.sum(axis=1).tolist() == [1, 1]
    lexical = Classifier("lexical").fit(["a cat", "a dog", "my dog"], np.array([["cat"], ["dog"], ["dog"]]))
    assert lexical.predict(["a fish"]).tolist() == [["dog"]]
    assert lexical.classes_[lexical.predict_proba(["a fish"]).argmax()] == "dog"


def test_feature_rows_are_always_predicted():
    X = csr_array(np.eye(4, dtype=np.float32))
    classifier = Classifier("dismec").fit(X, [["a"], ["a"], ["b"], ["a"]], run=ONE)
    assert len(classifier.predict(csr_array((1, 4), dtype=np.float32))[0]) == 2


def test_text_known_to_one_member_is_predicted():
    members = [Parabel(max_leaf=10), FastText(epochs=1)]
    tagger = Classifier(Consensus(members=members), max_features=100).fit(TEXTS, TAGS, run=ONE).tagger_
    assert list(tagger.views) == ["tfidf", "words"]
    words = [word for label in range(40) for word in planted_words(label)]
    rare = next(word for word in words if known(tagger.views["tfidf"], [word]) == [False])
    assert len(tagger.predict_labels([rare], k=2)[0]) == 2
    assert tagger.predict_labels([UNKNOWN]) == [[]]


def test_evaluation_counts_unknown_texts_as_empty(linear):
    texts, tags = [KNOWN, UNKNOWN], [["label-07"], [linear.predict([UNKNOWN], k=1, always=True)[0][0]]]
    assert linear.evaluate(texts, tags, "P@1") == {"P@1": 0.5}
    assert linear.tagger_.evaluate(to_documents(texts, tags), ["P@1"], always=True) == {"P@1": 1.0}
    assert linear.score(texts, tags) == linear.score(texts, tags, [1, 1]) == 0.5


def test_unknown_text_has_no_explanation(linear):
    assert linear.highlight(UNKNOWN) == []
    (named,) = linear.highlight(UNKNOWN, "label-07")
    assert (named.score, named.words) == (None, [])


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = make_place(tmp_path_factory.mktemp("unknown"))
    rows = [{"text": KNOWN, "labels": ["label-07"]}, {"text": UNKNOWN, "labels": ["label-01"]}]
    (folder / "two.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_commands_report_texts_without_labels(place):
    answers = [
        json.loads(line)["labels"] for line in invoke("predict", "model", "two.jsonl", cwd=place).stdout.splitlines()
    ]
    assert [len(labels) for labels in answers] == [5, 0]
    always = invoke("predict", "model", "two.jsonl", "--always", "--format", "csv", cwd=place).stdout
    assert len(always.splitlines()) == 11

    done = invoke("evaluate", "model", "two.jsonl", "P@1", "--json", cwd=place)
    assert json.loads(done.stdout) == {"P@1": 0.5}
    said = (
        b"Documents without any known word in two.jsonl: 1 of 2. They get no label and count as missed (see --always)."
    )
    assert said in done.stderr
    assert invoke("evaluate", "model", "two.jsonl", "P@1", "--always", cwd=place).stderr == b""

    done = invoke("explain", "model", "--string", UNKNOWN, cwd=place)
    assert (done.stdout, done.returncode) == (b"", 0)
    assert done.stderr == b"The model knows no word of this text, so it predicts no label.\n"
