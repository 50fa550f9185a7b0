"""Predictions, and feedback of the web page, are read as corpora."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from xmtc.data.corpus import open_corpus
from xmtc.data.layout import CorpusWarning, Notifier
from xmtc.data.records import Fields
from xmtc.errors import XmtcError
from xmtc.output import Prediction, PredictionTable, choose_prediction_format, open_prediction_writer
from xmtc.output.side_files import SideFiles
from xmtc.tagger import Tag

pytest.importorskip("xlsxwriter")
pytest.importorskip("python_calamine")

DOCUMENTS = [
    ("a", 'Käfer, "rot"\nund Blüten', ["http://example.org/1", "Gärten, Küche"]),
    ("b", "=1+1 is a formula", ["a|b", "=x", "-1"]),
    ("c", "no label", []),
    ("d", "the last", ["['odd']"]),
]


def write_predictions(path: Path, text: str = "text", **options) -> None:
    names = {"wide": False, "has_names": True} | options
    table = PredictionTable(k=4, kept_fields=(text,), **names)
    answers = [
        Prediction(id, [Tag(label, 0.5, f"name of {label}") for label in labels], (words,))
        for id, words, labels in DOCUMENTS
    ]
    with open_prediction_writer(str(path), choose_prediction_format(str(path), None), table) as write:
        write(answers)


def read(path: Path, said: list[str] | None = None, **options) -> list[tuple[str, str, list[str]]]:
    notifier = Notifier((said if said is not None else []).append)
    return [tuple(document[:3]) for document in open_corpus(path, notifier=notifier, **options)]


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("has_names", [False, True])
@pytest.mark.parametrize("name", ["p.jsonl", "p.jsonl.gz", "p.csv", "p.csv.zst", "p.tsv", "p.xlsx", "p.parquet"])
def test_predictions_are_read_as_a_corpus(tmp_path: Path, name: str, wide: bool, has_names: bool) -> None:
    if wide and "jsonl" in name:
        pytest.skip("JSON Lines have one object per document")
    write_predictions(tmp_path / name, wide=wide, has_names=has_names)
    assert read(tmp_path / name) == DOCUMENTS


@pytest.mark.parametrize("name", ["p.csv", "p.xlsx", "p.parquet"])
def test_label_columns_can_be_named(tmp_path: Path, name: str) -> None:
    write_predictions(tmp_path / name, wide=True)
    found = read(tmp_path / name, fields=Fields(labels="label_1,label_2"))
    assert found == [(id, text, labels[:2]) for id, text, labels in DOCUMENTS]


def test_several_label_columns_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("text,subject,genre,place\none,a|b,c,\ntwo,,,\nthree,a,a,d\n")
    fields = Fields(labels="subject,genre,place")
    labels = [document[2] for document in read(tmp_path / "c.csv", fields=fields)]
    assert labels == [["a", "b", "c"], [], ["a", "d"]]
    with pytest.raises(XmtcError, match="there is no field 'colour'"):
        read(tmp_path / "c.csv", fields=Fields(labels="subject,colour"))


@pytest.mark.parametrize("name", ["p.csv", "p.xlsx", "p.parquet", "p.jsonl", "joined.csv"])
def test_predictions_without_texts_say_how_to_write_them(tmp_path: Path, name: str) -> None:
    write_predictions(tmp_path / name, text="title", joined=name.startswith("joined"))
    with pytest.raises(XmtcError, match="--keep text"):
        read(tmp_path / name)


def test_adjacent_rows_with_one_id_are_one_document(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("id,text,subject\n1,one,a\n1,one,b\n2,two,a\n1,one,c\n3,other,x\n3,text,y\n")
    said: list[str] = []
    found = read(tmp_path / "c.csv", said, fields=Fields(labels="subject"))
    assert [(id, labels) for id, _, labels in found] == [
        ("1", ["a", "b"]),
        ("2", ["a"]),
        ("1", ["c"]),
        ("3", ["x"]),
        ("3", ["y"]),
    ]
    assert "6 rows are 5 documents" in said[0]
    assert "rows with the id '1' and the same text are not next to each other" in said[1]


def test_feedback_has_its_own_fields_beside_any_corpus(tmp_path: Path) -> None:
    (tmp_path / "books.csv").write_text("shelf,title,subjects\nA,Roses,garden; soil\n")
    lines = [{"text": "The moon", "labels": ["space"], "rejected": ["soil"]}]
    (tmp_path / "feedback.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    fields = Fields(text="title", labels="subjects", id="shelf", separator=";")
    corpus = open_corpus([tmp_path / "books.csv", tmp_path / "feedback.jsonl"], fields=fields)
    found = [(document.text, document.labels) for document in corpus]
    assert found == [("Roses", ["garden", "soil"]), ("The moon", ["space"])]


def test_results_next_to_documents_are_label_files(tmp_path: Path) -> None:
    labels = {"a": ["http://example.org/1", "plain"], "b": []}
    results = SideFiles(tmp_path, ".tags.tsv", PredictionTable(k=2, has_names=True))
    with results.open_writer() as write:
        write([Prediction(id, [Tag(label, 0.5, "name") for label in each]) for id, each in labels.items()])
    for id in labels:
        (tmp_path / f"{id}.txt").write_text("some text")
        (tmp_path / f"{id}.tags.tsv").rename(tmp_path / f"{id}.tsv")
    assert {document[0]: document[2] for document in read(tmp_path)} == labels


def test_a_row_per_label_is_told_in_python(tmp_path: Path) -> None:
    write_predictions(tmp_path / "p.csv")
    with pytest.warns(CorpusWarning, match="7 rows are 4 documents"):
        assert len(list(open_corpus(tmp_path / "p.csv"))) == 4


@pytest.mark.parametrize("name", ["p.csv", "p.xlsx", "p.parquet"])
def test_one_cell_per_document_in_two_languages(tmp_path: Path, name: str) -> None:
    names = {"x": "fisk", "y": "hav"}
    table = PredictionTable(
        k=2,
        kept_fields=("text",),
        has_names=True,
        joined=True,
        languages=("sv",),
        find_name=lambda label, language: names.get(label),
    )
    answers = [
        Prediction("a", [Tag("x", 0.5, "fish"), Tag("y", 0.4, "sea")], ("words",)),
        Prediction("b", [], ("none",)),
    ]
    with open_prediction_writer(str(tmp_path / name), choose_prediction_format(name, None), table) as write:
        write(answers)
    assert read(tmp_path / name) == [("a", "words", ["x", "y"]), ("b", "none", [])]
    fields = Fields(labels="names_sv")
    assert [document[2] for document in read(tmp_path / name, fields=fields)] == [["fisk", "hav"], []]


def test_links_of_concepts_in_a_workbook(tmp_path: Path) -> None:
    write_predictions(tmp_path / "p.xlsx")
    with zipfile.ZipFile(tmp_path / "p.xlsx") as book:
        links = book.read("xl/worksheets/_rels/sheet1.xml.rels").decode()
    assert 'Target="http://example.org/1"' in links


def test_files_of_a_folder_have_fields(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo " + "x" * 1000)
    fields = Fields(labels=None, keep=("file", "beginning"))
    (document,) = open_corpus(tmp_path, fields=fields, labels_required=False)
    assert document.extra == ("a.txt", ("one two " + "x" * 1000)[:300])
    with pytest.raises(XmtcError, match="Files have no field 'title'; expected file, text, beginning"):
        list(open_corpus(tmp_path, fields=Fields(labels=None, keep=("title",)), labels_required=False))
