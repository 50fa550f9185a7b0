"""Output of `xmtc predict`: formats and layouts, files per document, terminals, and complete files."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import pty
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow.parquet
import pytest
from commands import XMTC, invoke, make_place

from xmtc.errors import MissingExtra, XmtcError
from xmtc.output import Prediction, PredictionTable, choose_prediction_format, open_prediction_writer, workbook
from xmtc.output.text import is_formula
from xmtc.tagger import Tag

EXCEL = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"

TWO_OF_THREE = "2 of 3 documents labelled; the model knows no word of the others, or finds no label (see --always)."


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = make_place(tmp_path_factory.mktemp("answers"))
    lines = [
        {"id": "a", "title": "=Ärger, 1", "year": 1999, "text": "word1alpha word1beta", "labels": ["x", "y"]},
        {"id": "b", "title": None, "year": -5, "text": "nothing of this is known", "labels": []},
        {"id": "c", "title": "-", "text": "word7alpha word7gamma word7beta", "labels": ["z"]},
    ]
    (folder / "three.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def sheets_of(path: Path) -> list[list[list[Any]]]:
    """Return the cells of a workbook as in Excel: texts, numbers, None for empty cells."""
    with zipfile.ZipFile(path) as book:
        names = sorted(name for name in book.namelist() if re.fullmatch(r"xl/worksheets/sheet\d+\.xml", name))
        trees = [ElementTree.fromstring(book.read(name)) for name in names]
    return [[cells_of(row) for row in tree.iter(f"{EXCEL}row")] for tree in trees]


def cells_of(row: ElementTree.Element) -> list[Any]:
    found: dict[int, Any] = {}
    for cell in row.iter(f"{EXCEL}c"):
        assert cell.find(f"{EXCEL}f") is None, "a formula"
        letters = re.sub(r"\d", "", cell.get("r", ""))
        text, number = cell.find(f"{EXCEL}is/{EXCEL}t"), cell.find(f"{EXCEL}v")
        value = text.text if text is not None else None if number is None else float(number.text or "nan")
        found[ord(letters) - ord("A")] = value
    return [found.get(i) for i in range(max(found, default=-1) + 1)]


def rows_in(path: Path) -> list[list[Any]]:
    """Return the rows of any table; in text tables, numbers are converted and empty cells are None."""
    if path.suffix == ".xlsx":
        (sheet,) = sheets_of(path)
        return [row + [None] * (len(sheet[0]) - len(row)) for row in sheet]
    if path.suffix == ".parquet":
        table = pyarrow.parquet.read_table(path)
        return [table.column_names, *([row[name] for name in table.column_names] for row in table.to_pylist())]
    rows = csv.reader(
        io.StringIO(path.read_text("utf-8"), newline=""), delimiter="\t" if path.suffix == ".tsv" else ","
    )
    head, *others = rows
    return [head, *([as_value(cell, name) for cell, name in zip(row, head, strict=True)] for row in others)]


def as_value(cell: str, name: str) -> Any:
    is_number = cell and name.startswith(("rank", "score"))
    return float(cell) if is_number else cell or None


TABLES = ["x.csv", "x.tsv", "x.xlsx", "x.parquet"]


@pytest.mark.parametrize("name", TABLES)
def test_long_layout_has_a_row_per_label(place, name):
    done = invoke("predict", "model", "three.jsonl", "-k", 2, "-o", name, cwd=place)
    assert done.returncode == 0, done.stderr
    assert done.stdout == b""
    assert f"{TWO_OF_THREE}\n".encode() in done.stderr
    head, *rows = rows_in(place / name)
    assert head == ["id", "rank", "label", "score"]
    assert [row[:3] for row in rows[:3]] == [["a", 1, "label-01"], ["a", 2, rows[1][2]], ["b", None, None]]
    assert [row[0] for row in rows] == ["a", "a", "b", "c", "c"]
    assert rows[3][2] == "label-07"
    assert rows[2][3] is None
    assert 0.2 < rows[0][3] <= 1
    assert isinstance(rows[0][3], float)


@pytest.mark.parametrize("name", TABLES)
def test_wide_layout_has_a_row_per_document_and_kept_fields(place, name):
    words = ("predict", "model", "three.jsonl", "-k", 2, "--wide", "--keep", "title, year,labels", "-o", name)
    done = invoke(*words, cwd=place)
    assert done.returncode == 0, done.stderr
    head, *rows = rows_in(place / name)
    assert head == ["id", "title", "year", "input_labels", "label_1", "score_1", "label_2", "score_2"]
    is_text = name in ("x.csv", "x.tsv")
    mark = "'" if is_text else ""
    years = [1999, -5, None] if name == "x.xlsx" else ["1999", "-5", None]
    assert [row[0] for row in rows] == ["a", "b", "c"]
    assert [row[1] for row in rows] == [f"{mark}=Ärger, 1", None, f"{mark}-"]
    assert [row[2] for row in rows] == years
    assert [row[3] for row in rows] == ['["x", "y"]', "[]", '["z"]']
    assert [row[4] for row in rows] == ["label-01", None, "label-07"]
    assert rows[1][4:] == [None] * 4
    assert (b"2 cells start like a formula" in done.stderr) == is_text


def test_json_lines_keep_types_of_fields(place):
    invoke("predict", "model", "three.jsonl", "--keep", "title,year,labels", "-k", 1, "-o", "x.ndjson", cwd=place)
    first, second, third = map(json.loads, (place / "x.ndjson").read_text("utf-8").splitlines())
    assert list(first) == ["id", "title", "year", "input_labels", "labels"]
    assert (first["title"], first["year"], first["input_labels"]) == ("=Ärger, 1", 1999, ["x", "y"])
    assert second == {"id": "b", "title": None, "year": -5, "input_labels": [], "labels": []}
    assert third["year"] is None
    assert [tag["label"] for tag in third["labels"]] == ["label-07"]


@pytest.mark.parametrize("source", ["table.csv", "table.parquet"])
def test_fields_of_tables_are_kept(place, source):
    (place / "table.csv").write_text("id,text,Shelf\n1,word1alpha word1beta,Top\n2,word7alpha,\n")
    table = {"id": ["1", "2"], "text": ["word1alpha word1beta", "word7alpha"], "Shelf": ["Top", None]}
    pyarrow.parquet.write_table(pyarrow.table(table), place / "table.parquet")
    done = invoke("predict", "model", source, "--keep", "Shelf", "-k", 1, "-o", "kept.csv", cwd=place)
    assert done.returncode == 0, done.stderr
    assert [row[:2] for row in rows_in(place / "kept.csv")] == [["id", "Shelf"], ["1", "Top"], ["2", None]]


def test_names_column_exists_if_the_model_has_names(tmp_path):
    table = PredictionTable(k=2, has_names=True)
    answers = [Prediction("d", [Tag("q1", 0.5, "Äpfel"), Tag("q2", 0.25)])]
    assert [column.name for column in table.columns] == ["id", "rank", "label", "name", "score"]
    assert table.rows(answers[0]) == [["d", 1, "q1", "Äpfel", 0.5], ["d", 2, "q2", None, 0.25]]
    wide = PredictionTable(k=2, wide=True, has_names=True)
    assert [column.name for column in wide.columns][1:] == [
        "label_1",
        "name_1",
        "score_1",
        "label_2",
        "name_2",
        "score_2",
    ]
    assert wide.rows(answers[0]) == [["d", "q1", "Äpfel", 0.5, "q2", None, 0.25]]
    assert wide.rows(Prediction("e", [])) == [["e", *[None] * 6]]
    assert table.to_record(answers[0])["labels"][0] == {"label": "q1", "name": "Äpfel", "score": 0.5}
    for name in TABLES:
        with open_prediction_writer(str(tmp_path / name), choose_prediction_format(name, None), wide) as write:
            write(answers)
        assert rows_in(tmp_path / name)[1][2] == "Äpfel"


def test_byte_order_mark_and_compression(place):
    for name, delimiter in (("x.csv", ","), ("x.tsv", "\t")):
        assert invoke("predict", "model", "three.jsonl", "-o", name, "--bom", cwd=place).returncode == 0
        assert (place / name).read_bytes().startswith(f"\ufeffid{delimiter}rank".encode())
    done = invoke("predict", "model", "three.jsonl", "--format", "csv", "--bom", cwd=place)
    assert done.stdout.startswith(b"\xef\xbb\xbfid,rank,label,score\n")
    invoke("predict", "model", "three.jsonl", "-o", "x.csv.gz", cwd=place)
    assert gzip.decompress((place / "x.csv.gz").read_bytes()).startswith(b"id,rank,label,score\na,1,label-01,")


def test_format_option_overrides_the_extension(place):
    assert invoke("predict", "model", "three.jsonl", "-o", "x.dat", "--format", "tsv", cwd=place).returncode == 0
    assert (place / "x.dat").read_text().startswith("id\trank\t")
    piped = invoke("predict", "model", "three.jsonl", "--format", "parquet", cwd=place).stdout
    assert piped.startswith(b"PAR1")


@pytest.mark.parametrize("text", ["=1+1", "+A1", "-A1", "@SUM(A1)", "\t=1", "\r=1", "-1+2", "--1", "＝1", "-", "+49 1"])
def test_formulas_are_escaped(text):
    assert is_formula(text)


@pytest.mark.parametrize(
    "text", ["-1", "+1.5", "-0.25", "-1e-05", ".5", "-.5", "1", "a=b", "", " =1", "'=1", "http://x"]
)
def test_other_texts_are_not_escaped(text):
    assert not is_formula(text)


@pytest.mark.parametrize("name", TABLES)
def test_negative_numbers_are_numbers(tmp_path, name):
    """Only methods of other packages have negative scores."""
    table = PredictionTable(kept_fields=("n", "list", "no"))
    answers = [Prediction("-7", [Tag("-1", -0.25), Tag("=x", -1e-7)], (-3.5, ["=x"], float("nan")))]
    with open_prediction_writer(str(tmp_path / name), choose_prediction_format(name, None), table) as write:
        write(answers)
    rows = rows_in(tmp_path / name)[1:]
    assert [row[-1] for row in rows] == pytest.approx([-0.25, -1e-7])
    assert [row[-2] for row in rows] == ["-1", "'=x" if name in ("x.csv", "x.tsv") else "=x"]
    assert rows[0][:4] == ["-7", -3.5 if name == "x.xlsx" else "-3.5", '["=x"]', None]


def test_texts_in_a_workbook_are_not_converted(tmp_path, capsys):
    table = PredictionTable(kept_fields=("much", "long"))
    text = "half {} and far more" + " than that" * 4000
    kept = (10**17, text.format("\ud83d"))
    with open_prediction_writer(str(tmp_path / "x.xlsx"), "xlsx", table) as write:
        write([Prediction("1", [Tag("=1+1", 0.5), Tag("\x1b_x0041_ & <b>", 0.25)], kept)])
    (rows,) = sheets_of(tmp_path / "x.xlsx")
    assert rows[1][:5] == ["1", "1" + 17 * "0", text.format("\\ud83d")[:32_766] + "…", 1, "=1+1"]
    assert "2 texts are longer than the 32,767 characters of a cell and truncated" in capsys.readouterr().err
    with zipfile.ZipFile(tmp_path / "x.xlsx") as book:
        styles = ElementTree.fromstring(book.read("xl/styles.xml"))
        sheet = ElementTree.fromstring(book.read("xl/worksheets/sheet1.xml"))
    marked = [xf.get("quotePrefix") == "1" for xf in styles.find(f"{EXCEL}cellXfs") or []]
    style = {cell.get("r"): int(cell.get("s", 0)) for cell in sheet.iter(f"{EXCEL}c")}
    assert [marked[style[place]] for place in ("A2", "E2", "E3")] == [False, True, False]


def test_workbook_continues_in_another_sheet(tmp_path):
    xlsxwriter = pytest.importorskip("xlsxwriter")
    with xlsxwriter.Workbook(tmp_path / "x.xlsx", {"constant_memory": True}) as book:
        sheet = workbook.SheetWriter(book, PredictionTable(), max_rows=4)
        sheet.write(Prediction(str(i), [Tag("a", 0.5)]) for i in range(7))
        sheet.finish_sheet()
    sheets = sheets_of(tmp_path / "x.xlsx")
    assert [len(sheet) for sheet in sheets] == [4, 4, 2]
    assert [row[0] for sheet in sheets for row in sheet[1:]] == list("0123456")
    assert {tuple(sheet[0]) for sheet in sheets} == {("id", "rank", "label", "score")}


def test_limits_of_workbooks_are_checked_before_writing(tmp_path):
    (tmp_path / "x.xlsx").write_text("old")
    writer = open_prediction_writer(str(tmp_path / "x.xlsx"), "xlsx", PredictionTable(k=10_000, wide=True))
    with pytest.raises(XmtcError, match=r"A workbook has at most 16,384 columns, and this one needs 20,001"), writer:
        pass
    assert (tmp_path / "x.xlsx").read_text() == "old"
    assert os.listdir(tmp_path) == ["x.xlsx"]


def test_workbook_needs_an_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    writer = open_prediction_writer(str(tmp_path / "x.xlsx"), "xlsx", PredictionTable())
    with (
        pytest.raises(MissingExtra, match=r"A workbook \(.xlsx\) needs XlsxWriter: pip install 'xmtc\[tables\]'"),
        writer,
    ):
        pass


@pytest.mark.parametrize("name", ["x.jsonl", *TABLES])
def test_existing_output_is_kept_if_prediction_fails(place, name):
    """The last of many lines is damaged, after predictions were written."""
    (place / name).write_text("old")
    (place / "torn.jsonl").write_text((place / "test.jsonl").read_text() * 100 + "{torn\n")
    done = invoke("predict", "model", "torn.jsonl", "-o", name, cwd=place)
    assert done.returncode == 2
    assert b"torn.jsonl, line 6001: " in done.stderr
    assert (place / name).read_text() == "old"
    assert not [path.name for path in place.iterdir() if path.name.endswith(".part")]
    done = invoke("predict", "model", "torn.jsonl", "-o", name, "--on-error", "skip", cwd=place)
    assert b"6,000 documents labelled.\n1 line of torn.jsonl set aside" in done.stderr
    assert (place / name).read_bytes()[:3] != b"old"


@pytest.mark.parametrize("format", ["jsonl", "csv", "xlsx", "parquet"])
def test_full_disk_is_a_one_line_error(place, format):
    done = invoke("predict", "model", "test.jsonl", "-o", "/dev/full", "--format", format, cwd=place)
    assert done.returncode == 2
    assert done.stderr == b"xmtc: /dev/full cannot be written (No space left on device); choose another place.\n"


def run_on_a_terminal(*words, cwd: Path, columns: int = 100) -> tuple[str, str]:
    """Return what a command prints to a terminal, without colours, and to standard error."""
    master, end = pty.openpty()
    variables = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "xterm"}
    done = subprocess.run([*XMTC, *map(str, words)], cwd=cwd, stdout=end, stderr=subprocess.PIPE, env=variables)
    os.close(end)
    shown = b""
    try:
        while part := os.read(master, 65536):
            shown += part
    except OSError:  # how reading a closed terminal ends
        pass
    os.close(master)
    return re.sub(r"\x1b\[[\d;]*m", "", shown.decode()).replace("\r\n", "\n"), done.stderr.decode()


def test_terminal_shows_a_table(place):
    shown, said = run_on_a_terminal("predict", "model", "three.jsonl", "-k", 2, cwd=place)
    lines = [line.split() for line in shown.splitlines() if line.strip(" ─")]
    assert lines[0] == ["id", "text", "rank", "label", "score"]
    assert lines[1][:5] == ["a", "word1alpha", "word1beta", "1", "label-01"]
    assert lines[2][0] == "2"
    assert lines[3] == ["b", "nothing", "of", "this", "is", "known"]
    assert said == f"{TWO_OF_THREE}\n"
    kept, _ = run_on_a_terminal("predict", "model", "three.jsonl", "-k", 1, "--keep", "title", cwd=place)
    assert "=Ärger, 1" in kept
    assert "word1alpha" not in kept
    wide, _ = run_on_a_terminal("predict", "model", "three.jsonl", "-k", 2, "--wide", cwd=place)
    assert wide.split()[:6] == ["id", "text", "label_1", "score_1", "label_2", "score_2"]


def test_format_option_applies_on_a_terminal(place):
    shown, _ = run_on_a_terminal("predict", "model", "three.jsonl", "-k", 1, "--format", "jsonl", cwd=place)
    assert [json.loads(line)["id"] for line in shown.splitlines()] == ["a", "b", "c"]
    _, said = run_on_a_terminal("predict", "model", "three.jsonl", "--format", "xlsx", cwd=place)
    assert said == "xmtc: xlsx cannot be shown in a terminal; name a file with -o, such as predictions.xlsx.\n"


def test_single_text_is_predicted(place):
    done = invoke("predict", "model", "--string", "word7alpha\nword7gamma", "-k", 1, cwd=place)
    assert done.stderr == b""
    (answer,) = map(json.loads, done.stdout.splitlines())
    assert answer["id"] == "1"
    assert [tag["label"] for tag in answer["labels"]] == ["label-07"]
    assert json.loads(invoke("predict", "model", "--string", "", cwd=place).stdout) == {"id": "1", "labels": []}
    invoke("predict", "model", "--string", "word7alpha", "-o", "one.csv", cwd=place)
    assert len(rows_in(place / "one.csv")) == 6
    odd = subprocess.run([*XMTC, "predict", "model", "--string", b"word7alpha \xff"], cwd=place, capture_output=True)
    assert odd.returncode == 0
    assert b"label-07" in odd.stdout


def test_per_file_results_are_written_next_to_the_texts(place):
    folder = place / "texts"
    folder.mkdir()
    (folder / "a.b.txt").write_text("word1alpha word1beta")
    (folder / "c.txt").write_text("nothing known")
    (folder / "c.tags.tsv").write_text("mine")
    done = invoke("predict", "model", "texts", "--per-file", "-k", 2, cwd=place)
    assert done.returncode == 0, done.stderr
    assert done.stdout == b""
    assert b"1 existing file was kept; --force replaces them.\n1 document labelled.\n" in done.stderr
    lines = (folder / "a.b.tags.tsv").read_text().splitlines()
    assert len(lines) == 2
    label, score = lines[0].split("\t")
    assert label == "label-01"
    assert 0 < float(score) <= 1
    assert (folder / "c.tags.tsv").read_text() == "mine"
    invoke("predict", "model", "texts", "--per-file", "-k", 2, "--suffix", ".annif", cwd=place)
    assert (folder / "a.b.annif").read_text().splitlines() == lines
    invoke("predict", "model", "texts", "--per-file", "--force", cwd=place)
    assert (folder / "c.tags.tsv").read_text() == ""
    assert sorted(os.listdir(folder)) == ["a.b.annif", "a.b.tags.tsv", "a.b.txt", "c.annif", "c.tags.tsv", "c.txt"]


def test_annif_files_have_uris_in_brackets_and_names(tmp_path):
    from xmtc.output.side_files import SideFiles

    results = SideFiles(tmp_path, ".annif", PredictionTable(has_names=True))
    with results.open_writer() as write:
        write([Prediction("d", [Tag("http://x/1", 0.5, "Äpfel"), Tag("urn:n:2", 0.25), Tag("=3", 0.125)])])
    lines = (tmp_path / "d.annif").read_text("utf-8").splitlines()
    assert lines == ["<http://x/1>\tÄpfel\t0.5", "<urn:n:2>\t\t0.25", "=3\t\t0.125"]


def test_kept_fields_have_unique_names():
    table = PredictionTable(kept_fields=("label", "id", "input_label", "title"))
    names = [column.name for column in table.document_columns]
    assert names == ["id", "input_label", "input_id", "input_input_label", "title"]


def test_missing_fields_are_reported(place):
    done = invoke("predict", "model", "three.jsonl", "--keep", "title,titel,title", "-k", 1, cwd=place)
    assert done.returncode == 0
    assert done.stderr == b"The field 'titel' is empty in all documents; check --keep.\n"
    assert list(json.loads(done.stdout.splitlines()[0])) == ["id", "title", "titel", "labels"]


def test_k_is_limited_by_the_number_of_labels(place):
    assert invoke("predict", "model", "three.jsonl", "-k", 10**6, "--wide", "-o", "all.csv", cwd=place).returncode == 0
    assert len(rows_in(place / "all.csv")[0]) == 1 + 2 * 40


def test_link_is_kept_and_interrupted_command_leaves_no_file(place):
    (place / "target.csv").write_text("old")
    (place / "link.csv").symlink_to("target.csv")
    assert invoke("predict", "model", "three.jsonl", "-o", "link.csv", cwd=place).returncode == 0
    assert (place / "link.csv").is_symlink()
    assert (place / "target.csv").read_text().startswith("id,rank,")

    command = [*XMTC, "predict", "model", "-", "-o", "cut.csv"]
    process = subprocess.Popen(command, cwd=place, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"word1alpha\n" * 9000)
    process.stdin.flush()
    while not (parts := list(place.glob(".cut.csv.*"))):
        assert process.poll() is None
        time.sleep(0.05)
    assert len(parts) == 1
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert not list(place.glob("*cut.csv*")) + list(place.glob(".cut.csv*"))
