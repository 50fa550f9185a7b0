"""Tokens as matches of a regular expression, compared with Python's re."""

from __future__ import annotations

import re
import unicodedata

import pytest
from cpu_time import limited_cpu_time
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from xmtc import Classifier, Tagger
from xmtc.errors import XmtcError
from xmtc.features.tfidf import Tfidf
from xmtc.text.token_pattern import NAME_PATTERN, locate_tokens
from xmtc.text.tokenizer import CHUNK_UNIT, Tokenizer

NAMES = "Use C++, C# or .NET 3.11 (e-mail: a.b@c.org); don't mix TCP/IP -- R and x."


def tokenize(text: str, pattern: str) -> list[str]:
    tokenizer = Tokenizer(min_chars=1, unit=CHUNK_UNIT, pattern=pattern)
    words = tokenizer._split_words([text])
    return [bytes(words.text[b:e]).decode() for b, e in zip(words.begins, words.ends, strict=True)]


@settings(max_examples=200, deadline=None)
@given(
    st.text(alphabet="ab äÖß9_.-\n+東", max_size=40) | st.text(st.characters(codec="utf-8"), max_size=20),
    st.sampled_from([r"\w\w+", r"[\w.]+", r"[^\W_]+|\+", r"\S+", r"a b", r"x*", r"\w+(?:[-.]\w+)*"]),
)
def test_tokens_are_the_matches_of_the_pattern(text, pattern):
    normal = unicodedata.normalize("NFC", text).lower()
    if any(
        unicodedata.category(c) in {"Cn", "Mn", "Mc", "Me", "Cc", "Zs", "Zl", "Zp"} and c not in " \n" for c in normal
    ):
        return  # marks belong to \w here, \s is ASCII, and Unicode versions differ
    if pattern == r"[^\W_]+|\+":
        with pytest.raises(XmtcError, match="not supported"):
            Tfidf(token_pattern=pattern)
        return
    expected = [re.sub(r"\s+", "_", match) for match in re.findall(pattern, normal) if match]
    assert tokenize(text, pattern) == expected
    assert [re.sub(r"\s+", "_", normal[b:e]) for b, e in locate_tokens(normal, pattern)] == expected


def test_names_keep_their_punctuation():
    assert tokenize(NAMES, NAME_PATTERN) == (
        "use c++ c# or .net 3.11 e-mail a.b@c.org don't mix tcp/ip r and x".split()
    )
    assert Tfidf(tokens="names").build_tokenizer("words").pattern == NAME_PATTERN


@pytest.mark.parametrize("pattern", [r"\bword\b", "(", "(?=a)", r"(a)\1", "a{1000}{1000}", "x" * 1001])
def test_other_patterns_are_refused(pattern):
    with pytest.raises(XmtcError, match="regular expression of RE2"):
        Tfidf(token_pattern=pattern)


def test_no_pattern_takes_exponential_time():
    with limited_cpu_time(5):
        assert tokenize("a" * 5000 + "!", r"(?:a+)+b|(?:a|a)*c") == []


def test_a_model_with_a_pattern_is_saved_and_explained(tmp_path):
    texts, labels = ["I write C++ code", "A .NET course"] * 10, [["cpp"], ["net"]] * 10
    classifier = Classifier("dismec", tokens="names", calibrate=False).fit(texts, labels)
    classifier.save(tmp_path / "model")
    tagger = Tagger.load(tmp_path / "model")
    assert tagger.predict_labels(["c++?", ".NET!"], 1)[0][0].label == "cpp"
    pieces = Classifier.load(tmp_path / "model").highlight("So, .NET!", "net")[0].pieces
    assert ".NET" in [piece.text for piece in pieces]


def test_a_callable_tokenizer_runs_before_the_classifier():
    def tokenize_texts(texts):
        return [" ".join(word[:3] for word in text.split()) for text in texts]

    texts, labels = ["horses run", "fishes swim"] * 10, [["horse"], ["fish"]] * 10
    steps = FunctionTransformer(tokenize_texts), Classifier("dismec", tokens="chunks", calibrate=False)
    model = make_pipeline(*steps).fit(texts, labels)
    assert [found[0] for found in model.predict(["hor", "fishing"])] == ["horse", "fish"]
    with pytest.raises(XmtcError, match="a model folder contains no code"):
        Classifier("dismec", tokenizer=str.split).fit(texts, labels)


def test_stop_words_are_a_list():
    assert Tfidf(stop_words=["the", "of"]) == Tfidf(stop_words="of,the,")
    assert Tfidf(stop_words=["of"]).build_tokenizer("words").stop_words == ("of",)
    assert Tfidf(stop_words=[]).build_tokenizer("words").stop_words == ()
    with pytest.raises(XmtcError, match="expected text"):
        Tfidf(stop_words=[1])
