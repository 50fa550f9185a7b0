"""Predicted subjects are added to the MARC records of the corpus."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import invoke, make_place

from xmtc.data.corpus import open_corpus
from xmtc.errors import XmtcError
from xmtc.output import Prediction, PredictionTable, choose_prediction_format, open_prediction_writer
from xmtc.tagger import Tag

pymarc = pytest.importorskip("pymarc")
URI = "http://example.org/"


def make_record(number: int, title: str, *subjects: str, links: tuple[str, ...] = ()) -> pymarc.Record:
    def make_field(tag: str, *subfields: tuple[str, str]) -> pymarc.Field:
        return pymarc.Field(tag, pymarc.Indicators(" ", " "), [pymarc.Subfield(*each) for each in subfields])

    record = pymarc.Record(force_utf8=True)
    record.add_field(pymarc.Field("001", data=f"m{number}"))
    record.add_field(make_field("245", ("a", title)))
    record.add_field(*(make_field("650", ("a", subject)) for subject in subjects))
    record.add_field(*(make_field("700", ("8", link), ("a", "Ääkkönen, Åke")) for link in links))
    return record


def read_marc(path: Path) -> list[pymarc.Record]:
    if path.suffix == ".xml":
        return pymarc.parse_xml_to_array(str(path))
    with path.open("rb") as file:
        return list(pymarc.MARCReader(file))


def write(path: Path, records: list[pymarc.Record], tags: list[list[Tag]]) -> list[pymarc.Record]:
    with open_prediction_writer(str(path), choose_prediction_format(str(path), None), PredictionTable()) as write:
        pairs = enumerate(zip(records, tags, strict=True))
        write(Prediction(str(number), each, (record.as_json(),)) for number, (record, each) in pairs)
    return read_marc(path)


@pytest.mark.parametrize("name", ["out.mrc", "out.xml"])
def test_subjects_have_name_uri_and_score(tmp_path: Path, name: str) -> None:
    record = make_record(1, "Silakka", "meret.", links=("4\\u",))
    tags = [Tag(f"{URI}1", 0.75, "kalat"), Tag(f"{URI}2", 0.5, "meret"), Tag("järvet", 0.25, None)]
    (found,) = write(tmp_path / name, [record], [tags])
    assert [str(field) for field in found.fields if field.tag not in ("001", "245")] == [
        "=650  \\\\$ameret.",
        "=650  \\4$85\\p$akalat$0http://example.org/1",
        "=650  \\4$86\\p$ajärvet",
        "=700  \\\\$84\\u$aÄäkkönen, Åke",
        "=883  0\\$85\\p$axmtc$c0.75",
        "=883  0\\$86\\p$axmtc$c0.25",
    ]
    assert found.leader[9] == "a"


@pytest.mark.parametrize("name", ["out.mrc", "out.xml"])
def test_delimiters_in_labels_do_not_damage_records(tmp_path: Path, name: str) -> None:
    records = [make_record(number, "a\x01b") for number in range(2)]
    tags = [[Tag("kala\x1e\x1d\x1f0meri\ud800", 0.5, None)], []]
    first, second = write(tmp_path / name, records, tags)
    assert first.get_fields("650")[0].get_subfields("a") == ["kala0meri"]
    assert second["001"].data == "m1"


def test_record_that_is_too_long_is_refused(tmp_path: Path) -> None:
    record = make_record(1, "x" * 10_000)
    with pytest.raises(XmtcError, match=r"record m1 is longer .* write MARCXML"):
        write(tmp_path / "a.mrc", [record], [[]])
    (found,) = write(tmp_path / "a.xml", [record], [[]])
    assert len(found["245"]["a"]) == 10_000


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = make_place(tmp_path_factory.mktemp("marc"))
    records = [make_record(1, "word1alpha word1beta"), make_record(2, "word7alpha word7beta", "label7")]
    (folder / "in.mrc").write_bytes(b"".join(record.as_marc() for record in records))
    return folder


def test_command_adds_subjects_once_and_train_reads_them(place: Path) -> None:
    predicted = invoke("predict", "model", "in.mrc", "-k", 1, "--format", "csv", cwd=place).stdout.decode()
    labels = [line.split(",")[2] for line in predicted.splitlines()[1:]]
    for source, target in [("in.mrc", "a.mrc"), ("a.mrc", "b.xml"), ("b.xml", "c.xml.gz")]:
        done = invoke("predict", "model", source, "-k", 1, "-o", target, cwd=place)
        assert done.returncode == 0, done.stderr
        documents = list(open_corpus(place / target))
        assert [document.labels for document in documents] == [[labels[0]], ["label7", labels[1]]]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["test.jsonl", "-o", "no.mrc"], "is not a MARC record"),
        (["--string", "a", "-o", "no.xml"], "--string does not apply to marcxml"),
        (["in.mrc", "--wide", "-o", "no.mrc"], "--wide does not apply to marc"),
        (["in.mrc", "--keep", "245", "--format", "marcxml"], "--keep does not apply to marcxml"),
        (["in.mrc", "--broader", "-o", "no.mrc"], "--broader does not apply to marc"),
        (["in.mrc", "--bom", "-o", "no.mrc"], "--bom marks csv or tsv files"),
    ],
)
def test_options_that_do_not_apply_are_refused(place: Path, words: list[str], sentence: str) -> None:
    done = invoke("predict", "model", *words, cwd=place)
    assert done.returncode == 2
    assert sentence in done.stderr.decode()
    assert not list(place.glob("no.*"))


def test_extra_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pymarc", None)
    with pytest.raises(XmtcError, match=r"MARC records needs .*xmtc\[library\]"):
        write(place / "no.mrc", [], [])
