"""Texts with thousands of combining characters on one letter; `unicodedata.normalize` takes quadratic time for them."""

from __future__ import annotations

import unicodedata

import pytest
from cpu_time import limited_cpu_time

from xmtc.tagger import is_visually_equal
from xmtc.text.normalisation import MAX_MARKS, normalize_text, normalize_unicode
from xmtc.text.tokenizer import Tokenizer
from xmtc.text.word_spans import find_spans
from xmtc.vocabulary.vocabulary import normalize_name

MARKS = "\u0315" * 100_000 + "\u0327" * 100_000  # in reverse of the canonical order
WORKS = {
    "tokens": lambda: normalize_text(f"a{MARKS} b", True),
    "spans": lambda: find_spans(Tokenizer(), f"a{MARKS} b"),
    "names": lambda: normalize_name(f"a{MARKS}"),
    "labels": lambda: is_visually_equal(f"a{MARKS}", "a"),
}


@pytest.mark.parametrize("name", WORKS)
def test_normalization_takes_linear_time(name):
    with limited_cpu_time(2):  # quadratic time would be 50 s
        WORKS[name]()


def test_common_marks_are_kept():
    for text in ("e\u0301", "a" + "\u0327\u0301" * (MAX_MARKS // 2), "\u0915\u094d\u0937" * 100, "Åé" * 100):
        assert normalize_unicode("NFC", text) == unicodedata.normalize("NFC", text)
    assert len(normalize_unicode("NFC", "a" + "\u0315" * 1000)) == 1 + MAX_MARKS


def test_spans_of_words_with_many_marks():
    text = "one a" + "\u0315" * 100 + " two"
    assert [text[span.begin : span.end] for span in find_spans(Tokenizer(), text)][::2] == ["one", "two"]
