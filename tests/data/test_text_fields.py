"""Weights of text fields, and side columns as words of the text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from xmtc import open_corpus, train
from xmtc.data.records import Fields
from xmtc.data.text_fields import TextField
from xmtc.errors import XmtcError

RECORD = {
    "title": "Herring",
    "abstract": "In the sea",
    "publisher": "Sea & Co",
    "year": 1998,
    "place": None,
    "labels": ["fish"],
}


def read(folder: Path, records: list[dict[str, Any]], text: str) -> list[str]:
    (folder / "corpus.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return [document.text for document in open_corpus(folder / "corpus.jsonl", fields=Fields(text=text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("title", "Herring"),
        ("title^2", "Herring Herring"),
        ("title^2, abstract", "Herring Herring In the sea"),
        ("title,publisher:category", "Herring publisher_Sea_Co"),
        ("title,year:number", "Herring year_1e3 year_19e2 year_199e1 year_1998e0"),
        ("title,year:category^2", "Herring year_1998 year_1998"),
        ("place:category,title", "Herring"),
    ],
)
def test_fields_have_weights_and_kinds(text, expected, tmp_path):
    assert read(tmp_path, [RECORD], text) == [expected]


def test_a_table_has_the_same_words_as_records(tmp_path):
    (tmp_path / "books.csv").write_text("title,year,publisher,labels\nHerring,1998,Sea & Co,fish\n")
    (document,) = open_corpus(tmp_path / "books.csv", fields=Fields(text="title^2,year:number,publisher:category"))
    assert document.text == "Herring Herring year_1e3 year_19e2 year_199e1 year_1998e0 publisher_Sea_Co"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "n_0e0 n_00em1 n_000em2 n_0000em3"),
        ("-0.0125", "n_m1em2 n_m12em3 n_m125em4 n_m1250em5"),
        (1e9, "n_1e9 n_10e8 n_100e7 n_1000e6"),
        (float("nan"), ""),
        (None, ""),
    ],
)
def test_numbers_become_nested_bins(value, words):
    assert TextField.parse("n:number").to_text(value) == words


def test_a_list_is_several_categories():
    assert TextField.parse("place:category").to_text(["Turku", "St. Louis"]) == "place_Turku place_St_Louis"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("year", "the field 'year' is the number 1998, expected a string"),
        ("title:number", "the field 'title' is the string 'Herring', expected a number"),
        ("nested:category", "the field 'nested' is an object, expected a category"),
    ],
)
def test_wrong_types_are_named(text, expected, tmp_path):
    with pytest.raises(XmtcError, match=expected):
        read(tmp_path, [RECORD | {"nested": {}}], text)


def test_other_names_are_fields():
    assert TextField.parse("dc:title").name == "dc:title"
    assert TextField.parse("x^y").name == "x^y"


def test_a_model_learns_from_a_side_column_and_remembers_it(tmp_path):
    rows = [{"text": "same text", "year": year, "labels": [str(year)[:3]]} for year in (1987, 1988, 1995, 1999) * 5]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    corpus = open_corpus(path, fields=Fields(text="text,year:number"))
    tagger = train(corpus, "dismec", calibrate=False)
    assert tagger.about["reading"]["text"] == "text,year:number"
    assert [
        labels[0].label for labels in tagger.predict_labels(["same text year_199e1", "same text year_198e1"], 1)
    ] == [
        "199",
        "198",
    ]
