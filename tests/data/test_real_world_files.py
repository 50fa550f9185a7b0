"""Files as libraries, shops and archives have them: each is read correctly, or rejected with an error that names the
remedy. All files contain the same three documents."""
# ruff: noqa: E501 — one line per kind of file keeps the tables readable as tables

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from paper import pdf
from pyarrow.parquet import write_table

from xmtc.data import label_checks as suspicion
from xmtc.data.corpus import open_corpus, remove_duplicate_paths
from xmtc.data.document import Document
from xmtc.data.encodings import detect_encoding
from xmtc.data.layout import CorpusWarning, Layout, Notifier
from xmtc.data.records import Fields
from xmtc.errors import XmtcError

HEADER = ["ID", "Title", "Abstract", "Subjects"]
DOCUMENTS = [
    Document("b1", "Rosen, rot Der Käfer in der Blüte; über Gärten", ["Gärten", "Küche"]),
    Document("b2", 'Der "Mond" Flüge zum Mond', ["Raumfahrt"]),
    Document("b3", "Öfen Mehl und Käse", []),
]
ROWS = [
    ["b1", "Rosen, rot", "Der Käfer in der Blüte; über Gärten"],
    ["b2", 'Der "Mond"', "Flüge zum Mond"],
    ["b3", "Öfen", "Mehl und Käse"],
]
FIELDS = {"text": "title,abstract", "labels": "subjects"}
WESTERN = "windows-1252"

STYLES: dict[str, Callable[[list[str]], str]] = {
    "|": "|".join,
    "; ": "; ".join,
    ",": ",".join,
    "line break": "\n".join,
    "JSON": lambda labels: json.dumps(labels, ensure_ascii=False),
    "Python": repr,
    "numpy": lambda labels: "[" + " ".join(map(repr, labels)) + "]",
}
HEADERS = {
    "as it is": HEADER,
    "small": [name.lower() for name in HEADER],
    "LARGE": [name.upper() for name in HEADER],
    "with blanks": [f" {name} " for name in HEADER],
}


def cells(style: str = "|", header: str = "as it is") -> list[list[str]]:
    labels = [STYLES[style](document.labels) for document in DOCUMENTS]
    return [HEADERS[header], *([*row, cell] for row, cell in zip(ROWS, labels, strict=True))]


def text_of(rows: list[list[str]], delimiter: str = ",", newline: str = "\n", quoting: int = csv.QUOTE_MINIMAL) -> str:
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter, lineterminator=newline, quoting=quoting).writerows(rows)
    return stream.getvalue()


def table(delimiter: str, encoding: str, style: str = "|", header: str = "as it is", newline: str = "\n") -> bytes:
    return text_of(cells(style, header), delimiter, newline).encode(encoding)


def workbook(rows: list[list[Any]], sheets: tuple[str, ...] = ("Sheet1",), last: bool = True) -> bytes:
    """Return a workbook with the rows in its last or first sheet."""
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("python_calamine")
    book = openpyxl.Workbook()
    book.active.title = sheets[0]
    for name in sheets[1:]:
        book.create_sheet(name).append(["something", "else"])
    if last and len(sheets) > 1:
        book.active.append(["notes"])
    for row in rows:
        book[sheets[-1 if last else 0]].append(row)
    stream = io.BytesIO()
    book.save(stream)
    return stream.getvalue()


def parquet(**columns: Any) -> bytes:
    stream = pyarrow.BufferOutputStream()
    write_table(pyarrow.table(columns), stream)
    return stream.getvalue().to_pybytes()


@dataclass(frozen=True)
class Kind:
    """Kind of file, its reading options, and the expected message."""

    what: str
    name: str
    content: Callable[[], bytes]
    said: str = ""  # part of the message; no message if empty
    options: dict[str, Any] = field(default_factory=dict)


def kind(what: str, name: str, content: Callable[[], bytes] | bytes, said: str = "", **options: Any) -> Kind:
    return Kind(what, name, (lambda: content) if isinstance(content, bytes) else content, said, options)


BETWEEN = {",": "", ";": "semicolons", "\t": "tabs", "|": "bars"}
ENCODINGS = {
    "utf-8": "",
    "utf-8-sig": "",
    "utf-16": "utf-16",
    "utf-16-le": "utf-16-le",
    "latin-1": WESTERN,
    "cp1252": WESTERN,
}

READ = [
    # delimiter × encoding
    *(kind(f"CSV with {delimiter!r} in {encoding}", "c.csv", table(delimiter, encoding, "JSON", newline="\r\n"), between or known) for delimiter, between in BETWEEN.items() for encoding, known in ENCODINGS.items()),
    kind("TSV in UTF-16, as Excel's Unicode text", "c.txt", table("\t", "utf-16", newline="\r\n"), "is read as utf-16; --encoding"),
    kind("TSV that has semicolons", "c.tsv", table(";", "utf-8"), "read with semicolons"),
    kind("CSV in Mac Roman, told", "c.csv", table(",", "mac-roman"), layout=Layout(encoding="mac-roman")),
    kind("CSV in Latin-1, compressed", "c.csv.gz", gzip.compress(table(",", "latin-1")), "is read as windows-1252 (Käfer"),
    kind("a given encoding", "c.csv", table(",", "cp850"), layout=Layout(encoding="cp850")),
    kind("a given delimiter", "c.csv", table("^", "utf-8"), layout=Layout(delimiter="^")),
    kind("a delimiter told by its name", "c.dat", table("\t", "utf-8"), layout=Layout(delimiter="tab")),
    kind("Excel's first line sep=;", "c.csv", b"sep=;\r\n" + table(";", "utf-8", newline="\r\n")),
    kind("no extension, semicolons", "export", table(";", "utf-8"), "read with semicolons"),
    # label cells
    *(kind(f"labels as {style}", "c.csv", table(",", "utf-8", style)) for style in ("|", "JSON", "Python", "numpy")),
    kind("labels with ; told", "c.csv", table(",", "utf-8", "; "), separator=";"),
    kind("labels with , told", "c.csv", table(";", "utf-8", ","), "semicolons", separator=","),
    kind("labels with line breaks told", "c.csv", table(",", "utf-8", "line break"), separator="\n"),
    # headers
    *(kind(f"header {header}", "c.csv", table(",", "utf-8", header=header)) for header in HEADERS),
    kind("a header in quotes", "c.csv", text_of(cells(), quoting=csv.QUOTE_ALL).encode()),
    kind("blank lines and rows of empty cells", "c.csv", lambda: b"\n" + table(",", "utf-8").replace(b"b2,", b",,,\n\n , ,,\nb2,") + b",,,\n"),
    kind("a second header", "c.csv", lambda: table(",", "utf-8").replace(b"b2,", b"id,TITLE,Abstract,Subjects\nb2,"), "repeats its header once, first in line 3"),
    kind("further columns", "c.csv", text_of([[*row, "x"] for row in cells()]).encode()),
    # containers
    kind("JSON Lines with other capitals", "c.jsonl", "".join(json.dumps({"ID": d.id, "Title": r[1], "ABSTRACT": r[2], "Subjects": d.labels}) + "\n" for d, r in zip(DOCUMENTS, ROWS, strict=True)).encode()),
    kind("JSON Lines in Windows-1252", "c.jsonl", "".join(json.dumps(dict(zip(["title", "abstract", "id", "subjects"], [*r[1:], d.id, d.labels], strict=True)), ensure_ascii=False) + "\n" for d, r in zip(DOCUMENTS, ROWS, strict=True)).encode("cp1252"), WESTERN),
    kind("JSON Lines where a field is null or absent", "c.jsonl", "".join(json.dumps({"id": d.id, "title": d.text, **extra, "subjects": d.labels}) + "\n" for d, extra in zip(DOCUMENTS, ({}, {"abstract": None}, {"abstract": ""}), strict=True)).encode()),
    kind("Parquet with lists", "c.parquet", lambda: parquet(ID=["b1", "b2", "b3"], Title=[r[1] for r in ROWS], Abstract=[r[2] for r in ROWS], Subjects=[d.labels for d in DOCUMENTS])),
    kind("Parquet with Python lists as text, and a row of nulls", "c.parquet", lambda: parquet(ID=["b1", "b2", None, "b3"], Title=[*[r[1] for r in ROWS[:2]], None, "Öfen"], Abstract=[*[r[2] for r in ROWS[:2]], None, ROWS[2][2]], Subjects=[*[repr(d.labels) for d in DOCUMENTS[:2]], None, "[]"])),
    kind("xlsx", "c.xlsx", lambda: workbook(cells())),
    kind("xlsx with a name that does not say it", "export", lambda: workbook(cells())),
    kind("xlsx with a title above its header", "c.xlsx", lambda: workbook([["Holdings of the library"], [], *cells()])),
    kind("xlsx with empty rows and a second header", "c.xlsx", lambda: workbook([*cells()[:2], [None] * 4, HEADER, *cells()[2:]]), "repeats its header once, first in line 4"),
    kind("xlsx whose second sheet has the table", "c.xlsx", lambda: workbook(cells(), ("Notes", "Books")), "the sheet 'Books' is read; --sheet overrides this"),
    kind("xlsx with a given sheet", "c.xlsx", lambda: workbook(cells(), ("Books", "Other"), last=False), layout=Layout(sheet="books")),
    kind("xlsx with Python lists", "c.xlsx", lambda: workbook(cells("Python"))),
]  # fmt: skip

REFUSED = [
    kind("no such column", "c.csv", table(";", "cp1252"), "c.csv, the header: there is no field 'body' among 'ID', 'Title', 'Abstract', 'Subjects'; name the right one with --text.", text="body"),
    kind("two columns but for capitals", "c.csv", b"Text,TEXT,labels\na,b,x\n", "there is no field 'text' among 'Text', 'TEXT', 'labels'", text="text", labels="labels"),
    kind("a second header in another order", "c.csv", lambda: table(",", "utf-8") + b"Title,ID,Subjects,Abstract\n", "line 5: a second header has the columns in another order; pass the joined files separately"),
    kind("old Mac line ends", "c.csv", table(",", "utf-8").replace(b"\n", b"\r"), "its lines end with carriage returns, expected line feeds; convert it with tr"),
    kind("UTF-8 with a line of Latin-1", "c.csv", table(",", "utf-8") + "b4,Öl,,\n".encode("latin-1"), "is not valid UTF-8, expected UTF-8 text, or the encoding of the file as --encoding"),
    kind("the wrong encoding told", "c.csv", table(",", "cp1252"), "is not valid UTF-8, expected UTF-8 text, or the encoding of the file as --encoding", layout=Layout(encoding="utf-8")),
    kind("UTF-16 cut in the middle", "c.csv", table(",", "utf-16")[:-1], "it is not valid UTF-16: truncated data"),
    kind("xlsx without the column", "c.xlsx", lambda: workbook(cells()), "the header of the sheet 'Sheet1': there is no field 'body' among 'ID', 'Title', 'Abstract', 'Subjects'; name the right one with --text.", text="body"),
    kind("xlsx without the sheet", "c.xlsx", lambda: workbook(cells()), "has no sheet 'Books'; its sheets are 'Sheet1'.", layout=Layout(sheet="Books")),
    kind("xlsx that is no workbook", "c.xlsx", lambda: workbook([]) and b"PK\x03\x04rubbish", "cannot be read as a workbook"),
    kind("an empty xlsx", "c.xlsx", lambda: workbook([]), "is empty, expected at least one document"),
    kind("labels between ; and strict", "c.csv", lambda: text_of([["id", "title", "abstract", "subjects"], *([str(i), "a", "b", f"x{i % 3};y{i % 4}"] for i in range(12))]).encode(), "12 of 12 labels occur once and contain ';', such as 'x0;y0': did you mean --separator ';'? That would make 7 labels.", strict=True),
    kind("a JSON array", "c.json", b'[{"title": "a"}, 1]', "element 2 is the number 1, expected an array of objects"),
    kind("a PDF of pictures", "c.pdf", lambda: pytest.importorskip("pypdf") and pdf("", ""), "its 2 pages have no text, expected text; if they are scanned, recognise their text first (OCR)", labels=None),
    kind("an invalid PDF", "c.pdf", lambda: pytest.importorskip("pypdf") and b"rubbish", "cannot be read as PDF", labels=None),
]  # fmt: skip


def read(kind: Kind, folder: Path) -> tuple[list[Document], list[str]]:
    options = dict(kind.options)
    fields = Fields(**FIELDS | {name: options.pop(name) for name in ("text", "labels", "separator") if name in options})
    said: list[str] = []
    (folder / kind.name).write_bytes(kind.content())
    voice = Notifier(said.append, options.pop("strict", False))
    corpus = open_corpus(folder / kind.name, None, fields, fields.labels is not None, notifier=voice, **options)
    return list(corpus), said


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.what)
def test_file_is_read_correctly(kind: Kind, tmp_path: Path) -> None:
    documents, said = read(kind, tmp_path)
    assert [document[:3] for document in documents] == [document[:3] for document in DOCUMENTS]
    assert kind.said in " ".join(said)
    assert bool(said) == bool(kind.said)


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.what)
def test_rejected_file_has_an_error_with_a_remedy(kind: Kind, tmp_path: Path) -> None:
    with pytest.raises(XmtcError) as error:
        read(kind, tmp_path)
    assert kind.said in str(error.value)


def test_at_least_forty_kinds_of_files_are_tested() -> None:
    assert len(READ) + len(REFUSED) >= 40
    assert len({kind.what for kind in READ + REFUSED}) == len(READ + REFUSED)


def test_guessed_encoding_is_a_warning_in_python(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_bytes(table(",", "cp1252"))
    with pytest.warns(CorpusWarning, match="is read as windows-1252"):
        assert len(list(open_corpus(tmp_path / "c.csv", fields=Fields(**FIELDS)))) == 3


LANGUAGES = {
    "windows-1252": "Überwachung der Gewässer; L’été à la montagne, garçon",
    "windows-1250": "Zażółć gęślą jaźń; książka o przyrodzie i środowisku",
    "windows-1251": "Съешь же ещё этих мягких французских булок, да выпей чаю",
    "windows-1253": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία και άλλα",
    "shift_jis": "吾輩は猫である。名前はまだ無い。どこで生れたか",
    "utf-8": "Überwachung, Ξεσκεπάζω, Съешь",
}


@pytest.mark.parametrize("encoding", LANGUAGES)
def test_encodings_are_distinguished(encoding: str, tmp_path: Path) -> None:
    text = LANGUAGES[encoding]
    (tmp_path / "c.csv").write_bytes(f'text,labels\n"{text}",x\n'.encode(encoding))
    said: list[str] = []
    (document,) = open_corpus(tmp_path / "c.csv", notifier=Notifier(said.append))
    assert document.text == text
    assert [encoding in sentence for sentence in said] == ([] if encoding == "utf-8" else [True])


@pytest.mark.parametrize("content", [b"text,labels\na,\xff\n", b"text,labels\nabc \x81 def,x\n"])
def test_single_invalid_byte_is_an_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_bytes(content)
    with pytest.raises(XmtcError, match=r"line 2: byte 0x.. at position .* is not valid UTF-8"):
        list(open_corpus(tmp_path / "c.csv"))


SUSPICIOUS = [
    ("; ", [f"a{i % 5}; b{i % 7}" for i in range(40)], "--separator ';'? That would make 12 labels."),
    (
        "names with commas",
        [f"name{i}, first{i}" for i in range(40)],
        "each of the 40 labels occurs in one document only",
    ),
    ("commas between labels", [f"a{i % 5},b{i % 4}" for i in range(40)], "--separator ','? That would make 9 labels."),
    ("codes and blanks", [f"{i % 5} {100 + i % 4}" for i in range(40)], "--separator ' '? That would make 9 labels."),
    ("torn lists", ["['a', 'b'"] * 20 + ["'c']"] * 20, "2 of 2 labels look like parts of a list, such as"),
    ("words with blanks", ["machine learning", "deep learning", "deep machine", "learning machine"] * 10, None),
    ("plain names", [f"name {i % 7}" for i in range(40)], None),
    ("a few with semicolons", [f"name{i % 30}" for i in range(90)] + ["AC;DC"], None),
]


@pytest.mark.parametrize(("what", "labels", "said"), SUSPICIOUS, ids=[what for what, *_ in SUSPICIOUS])
def test_suspicious_labels_are_reported(what: str, labels: list[str], said: str | None, tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text(text_of([["text", "labels"], *(["a", label] for label in labels)]))
    heard: list[str] = []
    corpus = open_corpus(tmp_path / "c.csv", notifier=Notifier(heard.append))
    assert len(list(corpus)) == len(labels)
    list(corpus)  # a second pass reports nothing again
    assert len(heard) == (said is not None)
    assert said is None or said in heard[0]
    if said is not None:
        with pytest.raises(XmtcError):
            list(open_corpus(tmp_path / "c.csv", notifier=Notifier(strict=True)))


def test_suspicious_labels_are_searched_in_the_first_documents() -> None:
    watch = suspicion.LabelChecker()
    for number in range(100_020):
        watch.add_document_labels([f"a;{number}"])
    (sentence,) = watch.find_problems()
    assert sentence.startswith("in the first 100,000 documents, 100,000 of 100,000 labels occur once and contain ';'")


def test_missing_text_field_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"title": "a", "labels": []}\n')
    with pytest.warns(CorpusWarning, match="no document has the field 'abstrakt'; check the names given with --text"):
        list(open_corpus(tmp_path / "c.jsonl", fields=Fields("title,abstrakt")))


def test_several_files_form_one_corpus(tmp_path: Path) -> None:
    (tmp_path / "part-1.csv").write_bytes(table(",", "utf-8"))
    (tmp_path / "part-2.csv").write_bytes(table(";", "cp1252", "JSON"))
    (tmp_path / "more.jsonl").write_text('{"title": "x", "subjects": ["y"]}\n')
    said: list[str] = []
    corpus = open_corpus(
        [tmp_path / "part-*.csv", tmp_path / "more.jsonl"], fields=Fields(**FIELDS), notifier=Notifier(said.append)
    )
    assert corpus.format == "csv, jsonl"
    found = list(corpus)
    assert [document[:3] for document in found[:6]] == [document[:3] for document in DOCUMENTS * 2]
    assert found[6] == Document("more.jsonl:1", "x", ["y"])  # a line number alone would be ambiguous
    assert any("part-2.csv is read as windows-1252" in sentence for sentence in said)
    for file in ("part-2.csv", "more.jsonl"):
        with pytest.raises(XmtcError, match="is part of the corpus that is read"):
            corpus.check_not_overwritten(tmp_path / file)
    with pytest.raises(XmtcError, match="no file matches this pattern; check it, and put it in quotes"):
        open_corpus(str(tmp_path / "none-*.csv"))
    (tmp_path / "sparse.txt").write_text("1 2 2\n0 1:1\n")
    with pytest.raises(XmtcError, match=r"contains features and .* contains texts; expected the same in all files"):
        open_corpus([tmp_path / "sparse.txt", tmp_path / "more.jsonl"])


@pytest.mark.parametrize(
    ("paths", "texts", "found"),
    [
        (["a.jsonl", "a.jsonl", "a.jsonl"], ["a"], "a.jsonl is named more than once, and read once"),
        (["a.jsonl", "./a.jsonl"], ["a"], "a.jsonl and ./a.jsonl are the same, and read once"),
        (["a.jsonl", "*.jsonl"], ["a", "b"], "a.jsonl is named more than once, and read once"),
        (
            ["./*.jsonl", "b.jsonl", "a.jsonl"],
            ["a", "b"],
            "./b.jsonl and b.jsonl are the same, and read once (and 1 more)",
        ),
        (["x.txt,y.txt", "./x.txt,./y.txt"], ["one"], "x.txt,y.txt and ./x.txt,./y.txt are the same, and read once"),
    ],
)
def test_repeated_file_is_read_once_and_reported(tmp_path: Path, monkeypatch, paths, texts, found) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(f'{{"text": "{name}", "labels": ["y"]}}\n')
    (tmp_path / "x.txt").write_text("one\n")
    (tmp_path / "y.txt").write_text("y\n")
    said: list[str] = []
    assert [document.text for document in open_corpus(paths, notifier=Notifier(said.append))] == texts
    expected = "expected each file once: remove the others, or copy the file if its documents should count twice."
    assert said == [f"{found}; {expected}"]
    with pytest.raises(XmtcError, match="expected each file once"):
        open_corpus(paths, notifier=Notifier(strict=True))


def test_file_named_minus_is_not_standard_input() -> None:
    assert remove_duplicate_paths(["-", "./-"], Notifier(strict=True)) == ["-", "./-"]


def test_rejects_of_several_files_name_the_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text('{"text": "x", "labels": ["y"]}\n{\n')
    corpus = open_corpus([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], on_error="skip")
    assert len(list(corpus)) == 2
    lines = (tmp_path / "a.jsonl.rejects").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines] == [f"{tmp_path}/{name}.jsonl:2" for name in ("a", "b")]


def make_folder(folder: Path) -> Path:
    (folder / "sub" / ".cache").mkdir(parents=True)
    files = {"a.txt": "Käse\nund mehr", "b.txt": "nothing odd", ".hidden.txt": "no", "notes.doc": "no", "a.pdf": "no"}
    for name, text in {**files, "sub/c.txt": "below", "sub/.cache/d.txt": "no"}.items():
        (folder / name).write_bytes(text.encode("cp1252"))
    return folder


def test_folder_of_texts_is_read(tmp_path: Path) -> None:
    said: list[str] = []
    options: dict[str, Any] = {
        "fields": Fields(labels=None),
        "labels_required": False,
        "notifier": Notifier(said.append),
    }
    folder = make_folder(tmp_path)
    found = [(document.id, document.text) for document in open_corpus(folder, **options)]
    assert found == [("a", "Käse\nund mehr"), ("b", "nothing odd")]
    assert said == [
        f"{folder}: 1 more document in subfolders is not read; pass --recursive to read them.",
        f"{folder}: 1 file is not read (1 .doc); expected .txt, .html, .htm, .pdf, .docx. `soffice --headless "
        "--convert-to docx FILE` converts documents of word processors.",
        f"1 of 2 files in {folder}, as a.txt, is read as windows-1252 (Käse); --encoding overrides this.",
    ]
    found = [document.id for document in open_corpus(folder, layout=Layout(recursive=True), **options)]
    assert found == ["a", "b", "sub/c"]


def test_text_file_is_one_document_with_a_label_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntext\n")
    (document,) = open_corpus(tmp_path / "a.txt", labels_required=False)
    assert document == Document("a", "one\n\ntext\n", [])
    with pytest.raises(XmtcError, match="its first line 'one' matches no known format"):
        open_corpus(tmp_path / "a.txt")
    (tmp_path / "a.key").write_text("x\ny\n")
    (document,) = open_corpus(tmp_path / "a.txt")
    assert document.labels == ["x", "y"]


HTML = """<html><head><title>Roses &amp; beetles</title><meta charset="{}"></head><body><nav>Home | Login</nav>
<article><h1>Roses</h1><p>{}</p></article><footer>cookies</footer></body></html>"""
PARAGRAPH = "The beetle lives in the café of the garden, where it eats roses and drinks tea. " * 4


@pytest.mark.parametrize("encoding", ["utf-8", "windows-1252"])
def test_html_text_is_extracted(encoding: str, tmp_path: Path) -> None:
    try:
        import trafilatura  # noqa: F401
    except ImportError:
        pytest.skip("trafilatura is not here")
    (tmp_path / "c.html").write_bytes(HTML.format(encoding, PARAGRAPH).encode(encoding))
    (document,) = open_corpus(tmp_path / "c.html", labels_required=False, notifier=Notifier(lambda sentence: None))
    assert document.id == "c"
    assert document.text.startswith("Roses & beetles\n")
    assert "café of the garden" in document.text
    assert "<" not in document.text


def test_pdf_pages_are_recorded(tmp_path: Path) -> None:
    pytest.importorskip("pypdf")
    (tmp_path / "c.pdf").write_bytes(pdf("roses and beetles", "the moon", "flour"))
    (document,) = open_corpus(tmp_path / "c.pdf", labels_required=False)
    assert document.text == "roses and beetles\n\nthe moon\n\nflour"
    assert [document.text[begin:].split()[0] for begin in document.page_offsets] == ["roses", "the", "flour"]


@pytest.mark.parametrize(("module", "name", "extra"), [
    ("python_calamine", "c.xlsx", "tables"), ("pypdf", "c.pdf", "documents"), ("trafilatura", "c.html", "documents"),
])  # fmt: skip
def test_missing_extra_is_named(module: str, name: str, extra: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, module, None)
    (tmp_path / name).write_bytes(b"anything")
    with pytest.raises(XmtcError, match=rf"pip install 'xmtc\[{extra}\]'"):
        list(open_corpus(tmp_path / name, labels_required=False))


@pytest.mark.parametrize(("layout", "sentence"), [
    ({"delimiter": ";;"}, "cannot separate the cells of a table; expected one character, such as ; or tab"),
    ({"encoding": "windows-1525"}, "There is no encoding 'windows-1525'; did you mean windows-125"),
    ({"encoding": "base64"}, "There is no encoding 'base64'; expected one such as utf-8"),
])  # fmt: skip
def test_invalid_layouts_are_rejected(layout: dict[str, str], sentence: str) -> None:
    with pytest.raises(XmtcError, match=sentence):
        Layout(**layout)


def test_remembered_code_page_is_not_used_for_another_language():
    russian, french = "кошка и собака, текст на русском языке\n" * 5, "déjà vu, garçon, où êtes-vous\n" * 5
    assert detect_encoding(russian.encode("windows-1251"), True, encoding_hint="windows-1252").name == "windows-1251"
    assert detect_encoding(french.encode("windows-1252"), True, encoding_hint="windows-1252").name == "windows-1252"
    assert detect_encoding(russian.encode("iso8859-5"), True, encoding_hint="iso8859-5").name == "iso8859-5"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Bolsa de Madrid Espanjan pörssin keskus", "windows-1252"),
        ("Kuvallinen vierailu Perniön kirkkoon", "windows-1252"),
        ("Kuvallinen vierailu Perniön kirkkoon", "mac-roman"),
        ("Sivulla on myös runsaasti askarteluohjeita", "cp850"),
        ("È necessario specificare una coppia", "windows-1252"),
        ("Une œuvre de cœur, où l'été est là", "iso8859-15"),
        ("używany do kopiowania pliku", "iso8859-2"),
    ],
)
def test_short_texts_in_old_code_pages(text: str, encoding: str) -> None:
    content = text.encode(encoding)
    assert content.decode(detect_encoding(content, is_whole=True).name) == text


def test_the_files_of_a_folder_vote_on_their_encoding(tmp_path: Path) -> None:
    texts = ["Återge", "Den här sidan är översatt till svenska", "Skriv ut hjälp och avsluta"]
    for i, text in enumerate(texts):
        (tmp_path / f"{i}.txt").write_bytes(text.encode("mac-roman"))
    (tmp_path / "utf.txt").write_text("På svenska", "utf-8")
    said: list[str] = []
    corpus = open_corpus(tmp_path, labels_required=False, notifier=Notifier(said.append))
    assert [document.text for document in corpus] == [*texts, "På svenska"]
    assert said[0].startswith(f"3 of 4 files in {tmp_path}, as 0.txt, are read as mac-roman (Återge")
    alone = detect_encoding(texts[0].encode("mac-roman"), is_whole=True)
    assert alone.name != "mac-roman", "otherwise the test shows nothing"
