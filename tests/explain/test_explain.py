"""Highlighted explanations: word weights, terminal output, HTML and the explain command."""

from __future__ import annotations

import io
import json
import unicodedata
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from commands import invoke, xmtc
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import make_planted_corpus, planted_label, planted_words
from rich.console import Console

from xmtc import Classifier
from xmtc.core.method import Explanation
from xmtc.errors import XmtcError
from xmtc.explain.highlights import Highlight, WeightedText, highlight, split_text
from xmtc.explain.html import render_page
from xmtc.explain.terminal import render_terminal
from xmtc.explain.word_weights import WordWeight, weigh_words
from xmtc.features.tfidf import Tfidf
from xmtc.features.words import Words
from xmtc.text.tokenizer import Tokenizer
from xmtc.text.word_spans import find_spans, split_composing_units

TRAIN = make_planted_corpus(400, seed=0)
TEXT = f"Some <b>noise</b>, then {planted_words(3)[0].upper()}; {planted_words(3)[1]} & more.\n"
SMALL_NETWORK = {"hidden": 8, "layers": (8,), "dimension": 8, "epochs": 2, "batch": 16}
ODD = ["é", "e\u0301", "İ", "=\u0338", "\u0338", "\u1112\u1161\u11ab", "한", "ΑΣ", "क\u093c", "\u0958", "\u212b", "𝒳"]
ODD += [*" \n\r\t\x00_aB1<&\ud800\U000e0100ש字ßﬁ", "\x1b[31m"]
texts = st.one_of(st.lists(st.sampled_from(ODD)).map("".join), st.text())
tokenizers = st.builds(Tokenizer, st.booleans(), st.integers(1, 3), stop_words=st.sampled_from([(), ("a", "İ", "ΑΣ")]))


@pytest.fixture(scope="module")
def linear() -> Classifier:
    return Classifier("parabel", max_leaf=10).fit(*TRAIN)


@pytest.fixture(scope="module")
def network() -> Classifier:
    pytest.importorskip("torch")
    return Classifier("attention_xml", max_tokens=12, **SMALL_NETWORK).fit(*TRAIN)


def test_composing_units_are_composed_one_by_one():
    for text in ("", "e\u0301\u0323 o", "\u1112\u1161\u11ab\u11ab", "x=\u0338y", "क\u093c\u0958"):
        units = list(split_composing_units(text))
        assert "".join(units) == text
        assert "".join(unicodedata.normalize("NFC", unit) for unit in units) == unicodedata.normalize("NFC", text)


@settings(max_examples=300, deadline=None)
@given(tokenizers, texts)
def test_spans_hold_the_words_that_the_tokenizer_finds(tokenizer, text):
    spans = find_spans(tokenizer, text)
    sequences = tokenizer.index_words([text], max_words=10**6)
    words = [bytes(sequences.text[a:b]).decode() for a, b in zip(sequences.ends[:-1], sequences.ends[1:], strict=True)]
    assert [span.word for span in spans] == [words[i - 1] for i in sequences.ids if i]
    edges = [edge for span in spans for edge in (span.begin, span.end)]
    assert edges == sorted(edges)
    assert "".join(piece.text for piece in split_text(text, [WordWeight(*span[:3], 1.0) for span in spans])[0]) == text


def test_a_span_is_the_word_as_it_was_written():
    text = "Cafe\u0301 İzmir, ΣΟΦΟΣ 각!"
    result = [text[span.begin : span.end] for span in find_spans(Tokenizer(), text)]
    assert result == ["Cafe\u0301", "İzmir", "ΣΟΦΟΣ"]


def test_occurrences_divide_the_weight_of_their_term():
    fitted, _ = Tfidf(min_df=1).fit(["red apple", "green pear"])
    numbers = {fitted.term(i): i for i in range(4)}
    explanation = Explanation("tfidf", np.array([numbers["red"], numbers["pear"]]), np.array([0.5, -1], np.float32))
    result = highlight("Red, red: PEAR? a plum", "l", 0.25, {"tfidf": fitted}, explanation)
    pieces = [("Red", 0.25), (", ", 0), ("red", 0.25), (": ", 0), ("PEAR", -1), ("? a ", 0), ("plum", 0)]
    assert result.pieces == pieces
    assert result.words == [("pear", -1), ("red", 0.5)]
    assert result.relative_weights() == [0.25, 0, 0.25, 0, -1, 0, 0]


def test_words_divide_the_weights_of_their_terms():
    fitted, _ = Tfidf(min_df=1, ngrams=2, ngram_min_df=1, ngram_min_lift=0).fit(["new york city"])
    weights = {"new": 0.1, "new york": 0.9, "york": -0.2, "york city": -0.4}
    ids = [fitted.vocabulary.find(term) for term in weights]
    explanation = Explanation("tfidf", np.array(ids), np.array([*weights.values()]))
    result = weigh_words("new york city new", {"tfidf": fitted}, explanation)
    expected = [0.05 + 0.9 * 3 / 7, -0.2 + 0.9 * 4 / 7 - 0.2, -0.2, 0.05]
    assert [word.word for word in result] == ["new", "york", "city", "new"]
    assert [word.weight for word in result] == pytest.approx(expected)
    assert sum(word.weight for word in result) == pytest.approx(sum(weights.values()))


def test_token_weights_are_used_by_position():
    fitted, _ = Words(max_tokens=3).fit(["to be or not to be"])
    per_token = np.array([0.5, 0.25, 0.125], np.float32)
    explanation = Explanation("words", np.zeros(0, int), np.zeros(0), per_token)
    result = highlight("To go to be", "l", None, {"words": fitted}, explanation)
    words = [piece for piece in result.pieces if piece.text != " "]
    assert words == [("To", 0.5), ("go", 0.25), ("to", 0.125), (" be", 0)]


def test_weights_of_a_word_are_summed():
    fitted, _ = Words(max_tokens=3).fit(["to be or not to be"])
    number = fitted.vocabulary.find("to") + 1
    ids, weights = np.array([number, 0, number]), np.array([0.25, 0.25, 0.5])
    explanation = Explanation.from_occurrences("words", ids, weights, per_token=True)
    result = highlight("to go to to", "l", None, {"words": fitted}, explanation)
    assert [piece.weight for piece in result.pieces if piece.text.strip()] == [0.25, 0.25, 0.5, 0]
    assert result.words == [("to", 0.75), ("go", 0.25)]


@settings(max_examples=100, deadline=None)
@given(texts)
def test_pieces_join_to_the_text(linear, text):
    for result in linear.highlight(text, k=1):
        assert "".join(piece.text for piece in result.pieces) == text
        assert render_terminal(result, Console(file=io.StringIO())) == text
        render_page(linear.highlight(text, k=2)).encode("utf-8", "replace")


@pytest.mark.parametrize("kind", ["linear", "network"])
def test_planted_word_has_the_largest_weight(kind, request):
    if kind == "network":
        pytest.importorskip("torch")
    classifier = request.getfixturevalue(kind)
    (result,) = classifier.highlight(TEXT, planted_label(3))
    assert "".join(piece.text for piece in result.pieces) == TEXT
    assert result.words == sorted(result.words, key=lambda pair: -abs(pair[1]))
    if kind == "linear":  # two epochs are too few for a network
        assert max(result.pieces, key=lambda piece: piece.weight).text.lower() in planted_words(3)
        assert result.score == pytest.approx(dict(classifier.predict_labels([TEXT], k=1)[0])[planted_label(3)])
    else:
        assert sum(piece.weight for piece in result.pieces) == pytest.approx(1, abs=1e-4)


def test_attention_weights_end_at_max_tokens(network):
    (result,) = network.highlight("noise1 " * 14, planted_label(0))
    weights = [piece.weight for piece in result.pieces if piece.text == "noise1"]
    assert len(weights) == 12
    assert all(weights)
    assert len(set(weights)) > 1
    assert result.pieces[-1] == (" noise1 noise1 ", 0)


def test_without_labels_the_best_are_explained(linear):
    assert [h.label for h in linear.highlight(TEXT, k=2)] == linear.predict([TEXT], k=2)[0]
    assert [h.label for h in linear.highlight("", planted_label(1), planted_label(2))] == [
        planted_label(1),
        planted_label(2),
    ]


@pytest.mark.parametrize("analyzer", ["words", "grams", "snowball:finnish", "words+grams"])
@pytest.mark.parametrize("method", ["dismec", "proxml", "pd_sparse", "ppd_sparse"])
def test_words_and_base_add_up_to_the_margin(method, analyzer):
    tagger = Classifier(method, analyzer=analyzer, calibrate=False).fit(*TRAIN).tagger_
    text, number = f"{TEXT} {TEXT}", tagger.labels.find(planted_label(3))
    X = tagger.transform([text]).X.toarray()[0]
    tree = tagger.model.trees[0]
    ((chunk, slot),) = tree.find_path(number)
    features, weights = tree.slot_weights(chunk, slot)
    (found,) = tagger.highlight(text, planted_label(3))
    margin = float(X[features] @ weights) + float(tree.bias[slot])
    assert sum(piece.weight for piece in found.pieces) + found.bias == pytest.approx(margin, abs=1e-4)


TREES = {  # small leaves, because a tree of one level is explained like one-vs-all
    "parabel": {"n_trees": 1, "max_leaf": 10},
    "bonsai": {"n_trees": 1, "max_leaf": 10, "arity": 4},
    "plt": {"max_leaf": 10, "arity": 4},
}


@pytest.mark.parametrize("analyzer", ["words", "grams"])
@pytest.mark.parametrize("method", [*TREES, "parabel:paper"])
def test_words_and_base_add_up_to_the_log_probability(method, analyzer):
    method, _, preset = method.partition(":")
    parameters = TREES[method] | ({"preset": preset} if preset else {})
    tagger = Classifier(method, analyzer=analyzer, calibrate=False, **parameters).fit(*TRAIN).tagger_
    for found in tagger.highlight(f"{TEXT} {TEXT}", k=3):
        total = sum(piece.weight for piece in found.pieces) + found.bias
        assert total == pytest.approx(np.log(found.score), abs=1e-4)


ONE_VS_ALL = ["dismec", "proxml", "pd_sparse", "ppd_sparse"]
OTHERS = ["parabel", "plt", "bonsai", "fastxml", "pfastrexml", "sleec", "annexml", "fasttext", "consensus", "ensemble"]
EXTREMETEXT = {"max_leaf": 8, "dimension": 32, "epochs": 30}


@pytest.mark.parametrize("method", [*ONE_VS_ALL, *OTHERS, "extremetext"])
def test_deleting_the_strongest_word_lowers_the_score(method):
    parameters = {"consensus": {"members": ("dismec", "parabel")}, "extremetext": EXTREMETEXT}.get(method, {})
    tagger = Classifier(method, **parameters).fit(*TRAIN).tagger_
    is_lower = []
    for text in TRAIN[0][:20]:
        (found,) = tagger.highlight(text, k=1)
        strongest = max(found.words, key=lambda pair: pair[1])[0]
        rest = " ".join(word for word in text.split() if word.lower() != strongest)
        scores = {tag.label: tag.score for tag in tagger.predict_labels([rest], k=40)[0]}
        is_lower.append(scores.get(found.label, 0.0) < found.score)
    assert np.mean(is_lower) >= 0.8


def test_error_suggests_similar_label(linear):
    with pytest.raises(XmtcError, match="The model has no label 'lable-03'; did you mean 'label-03' or "):
        linear.highlight(TEXT, "lable-03")


PIECES = [
    WeightedText("<script>", 1.0),
    WeightedText(" & ", 0),
    WeightedText("b\x1b[2J", -0.3),
    WeightedText("c", 0.01),
]
FOUND = Highlight("<i>", 0.5, PIECES, [("b", -0.3)])


def test_terminal_colours_and_replaced_control_characters():
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", no_color=False)
    shown = render_terminal(FOUND, console)
    assert shown.startswith("\x1b[1;38;2;255;255;255;48;2;204;17;0m<script>\x1b[0m & \x1b[")
    assert "b␛[2J\x1b[0mc" in shown
    assert (
        render_terminal(FOUND, Console(file=io.StringIO(), force_terminal=True, no_color=True)) == "<script> & b␛[2Jc"
    )


def test_sixteen_colours_distinguish_the_sign():
    both = replace(FOUND, pieces=[WeightedText("a", 1.0), WeightedText("b", 0.3), WeightedText("c", -0.3)])
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", no_color=False)
    assert render_terminal(both, console) == "\x1b[1;97;41ma\x1b[0m\x1b[30;43mb\x1b[0m\x1b[30;46mc\x1b[0m"


class Reader(HTMLParser):
    """HTML parser that collects the text and checks that every element is closed."""

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += data


def test_page_is_well_formed_and_escaped():
    reader = Reader()
    reader.feed(render_page([FOUND, FOUND]))
    reader.close()
    assert reader.open == []
    assert "script" not in reader.seen
    assert reader.seen.count("section") == 2
    assert "<script> & b\ufffd[2Jc" in reader.text
    assert "<i>, <i>" in reader.text
    assert reader.text.count("<i> score 0.500") == 2
    assert "://" not in render_page([FOUND])  # no external resources
    assert '<mark class="against" style="--w:0.30" title="−0.3">' in render_page([FOUND])


def test_page_has_a_legend():
    assert "evidence against" in render_page([FOUND])
    assert "evidence against" not in render_page([Highlight("l", 0.5, FOUND.pieces[:2], [])])
    nothing = render_page([Highlight("l", None, [WeightedText("text", 0)], [])])
    assert "No word of this text has a weight" in nothing
    assert "not among the predicted labels" in nothing
    assert "The model predicts no label for this text, usually because it knows none of its words." in render_page([])


def test_a_page_lists_words_with_their_signs():
    shown = render_page([Highlight("l", 0.5, [WeightedText("ש", -0.5)], [("ש", -0.5), ("b", 0.001)])])
    # isolated from the number, whose direction a right-to-left word would change
    word = '<bdi lang=""><mark class="against" style="--w:1.00" title="−0.5">ש</mark></bdi>'
    assert f"<li>{word} −0.5</li>" in shown
    assert '<mark style="--w:0.00" title="0.001">b</mark>' in shown
    assert "<ol" not in render_page([replace(FOUND, words=[])])


def test_page_is_accessible():
    shown = render_page([FOUND, FOUND])
    assert '<html lang="en">' in shown
    assert shown.count("<h1") == 1
    assert shown.count('<h2 lang="" dir="auto">') == 2
    assert shown.count('<div class="text" lang="" dir="auto">') == 2


@pytest.fixture(scope="module")
def place(tmp_path_factory, linear):
    folder = tmp_path_factory.mktemp("explain")
    linear.save(folder / "model")
    (folder / "text.txt").write_text(TEXT)
    return folder


def test_command_shows_label_score_text_and_words(place, linear):
    done = invoke("explain", "model", "--string", TEXT, "--label", planted_label(3), "-n", "2", cwd=place)
    assert done.returncode == 0, done.stderr
    title, _, text, _, words, base = done.stdout.decode().splitlines()
    assert base.startswith("Base, without any word: ")
    assert title == f"label-03  {linear.predict_labels([TEXT], k=1)[0][0].score:.4f}"
    assert text == TEXT.strip()
    assert {word.split()[0] for word in words.split(", ")} == set(planted_words(3)[:2])
    for words, given_text in ((["-"], TEXT.encode()), (["text.txt"], None)):
        again = invoke("explain", "model", *words, "--label", planted_label(3), "-n", "2", input=given_text, cwd=place)
        assert again.stdout == done.stdout


def test_command_in_colour(place):
    env = {"PATH": "/usr/bin:/bin", "FORCE_COLOR": "1", "COLORTERM": "truecolor", "TERM": "xterm"}
    assert b"\x1b[1;38;2;255" in xmtc("explain", "model", "--string", TEXT, "-k", "1", cwd=place, env=env).stdout
    assert (
        b"\x1b"
        not in xmtc("explain", "model", "--string", TEXT, "-k", "1", cwd=place, env=env | {"NO_COLOR": "1"}).stdout
    )


def test_command_as_json(place):
    done = invoke("explain", "model", "--string", TEXT, "-k", "2", "--json", cwd=place)
    answer = json.loads(done.stdout)["labels"]
    assert answer[0]["label"] == planted_label(3)
    assert len(answer) == 2
    assert "".join(piece["text"] for piece in answer[0]["pieces"]) == TEXT
    assert answer[0]["words"][0]["weight"] > 0


def test_command_writes_a_page_and_replaces_only_its_own(place):
    done = invoke("explain", "model", "--string", TEXT, "--html", "page.html", cwd=place)
    assert done.stderr == b"page.html written.\n"
    first = (place / "page.html").read_text()
    assert first.count("<section>") == 3
    assert invoke("explain", "model", "--string", TEXT, "-k", "1", "--html", "page.html", cwd=place).returncode == 0
    assert (place / "page.html").read_text().count("<section>") == 1
    assert invoke("explain", "model", "--string", TEXT, "--html", "-", cwd=place).stdout.decode() == first
    refused = invoke("explain", "model", "--string", TEXT, "--html", "text.txt", cwd=place)
    assert refused.returncode == 2
    assert (place / "text.txt").read_text() == TEXT


def test_command_explains_a_network(place, network):
    network.save(place / "network")
    done = invoke("explain", "network", "--string", TEXT, "-k", "1", "--json", cwd=place)
    assert done.returncode == 0, done.stderr
    (answer,) = json.loads(done.stdout)["labels"]
    assert sum(piece["weight"] for piece in answer["pieces"]) == pytest.approx(1, abs=1e-4)


MISTAKES = [
    (["model", "--string", "text", "--label", "label-3"], "The model has no label 'label-3'; did you mean 'label-"),
    (["model"], "Found no text; give one: a FILE, - for standard input, or --string TEXT."),
    (["model", "text.txt", "--string", "text"], "Found both FILE and --string; give one"),
    (["model", "txt.txt"], "txt.txt: there is no such file; did you mean text.txt?"),
    (
        ["model", "mixed.txt"],
        "mixed.txt, file mixed.txt: byte 0xe9 in line 2 is not valid UTF-8",
    ),
    (["model", "text.txt", "--encoding", "utf8x"], "There is no encoding 'utf8x'; did you mean utf-8?"),
    (
        ["model", "--string", "text", "--html", "latin.txt"],
        "latin.txt exists and is not a page of `xmtc explain`; choose another",
    ),
    (["model", "--string", "text", "--html", "-", "--json"], "--html - and --json both write to standard output;"),
]


@pytest.mark.parametrize(("words", "sentence"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_errors_are_one_line(place, words, sentence):
    (place / "latin.txt").write_bytes("café".encode("latin-1"))
    (place / "mixed.txt").write_bytes("é\n".encode() + b"caf\xe9")
    done = invoke("explain", *words, cwd=place)
    assert done.returncode == 2
    assert done.stderr.decode().startswith(f"xmtc: {sentence}")
    assert done.stderr.count(b"\n") == 1
