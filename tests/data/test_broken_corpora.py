"""Broken corpora: every kind of broken input with its exact error message.

A message that begins with `line`, `row` or `file` is about one bad document among good ones; the path precedes it, and
`REMEDY` follows. These inputs are also read with on_error="skip": the good documents must be read, and the bad one must
be in the rejects file.
"""
# ruff: noqa: E501 — one line per kind of broken input keeps the table readable as a table

from __future__ import annotations

import bz2
import gzip
import os
import pickle
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.parquet import write_table
from scipy import sparse

from xmtc.data.corpus import open_corpus
from xmtc.data.document import Document
from xmtc.data.formats import FORMATS
from xmtc.data.records import Fields
from xmtc.errors import XmtcError

REMEDY = "; fix it, or skip such lines with --on-error skip."
FORMAT_NAMES = "jsonl, json, csv, tsv, parquet, xlsx, fasttext, annif, libmultilabel, sparse, svmlight, npz, paired, text, html, pdf, docx, marc, marcxml, mods, dc, ris, bibtex, folder"
JSON_LINE = b'{"text": "a", "labels": ["x"]}\n'


@dataclass(frozen=True)
class BrokenInput:
    what: str
    name: str
    content: bytes | Callable[[Path], Any] | None  # bytes, or a function that creates the file or folder, or no file
    message: str
    options: dict[str, Any]
    raw: bytes | None = None  # content of the rejects file if it differs from the line


def case(what: str, name: str, content: Any, message: str, raw: bytes | None = None, **options: Any) -> BrokenInput:
    return BrokenInput(what, name, content, message, options, raw)


def jsonl(what: str, bad: bytes, message: str, **options: Any) -> BrokenInput:
    """Return a bad second line between two good ones."""
    return case(what, "c.jsonl", JSON_LINE + bad + b"\n" + JSON_LINE, message, **options)


def csv(what: str, bad: bytes, message: str, **options: Any) -> BrokenInput:
    return case(what, "c.csv", b"id,text,labels\n1,a,x\n" + bad + b"\n3,c,y\n", message, **options)


def xmc(what: str, bad: bytes, message: str) -> BrokenInput:
    return case(what, "c.txt", b"3 5 4\n0,1 0:1 4:0.5\n" + bad + b"\n2 3:1\n", message)


def svmlight(what: str, bad: bytes, message: str) -> BrokenInput:
    return case(what, "c.svm", b"0,1 1:1 4:0.5\n" + bad + b"\n2 3:1\n", message)


def parquet(**columns: Any) -> Callable[[Path], None]:
    return lambda path: write_table(pyarrow.table(columns), path)


def npz(X: Any, Y: Any = None) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        sparse.save_npz(path, sparse.csr_array(np.array(X, dtype=float)))
        if Y is not None:
            sparse.save_npz(path.with_name("Y.npz"), sparse.csr_array(np.array(Y, dtype=float)))

    return write


def pair(texts: bytes, labels: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(texts)
        path.with_name("labels.txt").write_bytes(labels)

    return make


def pickled_npz(path: Path) -> None:
    np.savez(path, shape=np.array([{"an": "object"}], dtype=object), format=np.array(b"csr"))


def folder(**files: bytes) -> Callable[[Path], None]:
    """Create files in a folder; `a_txt` stands for a.txt."""

    def write(path: Path) -> None:
        path.mkdir()
        for name, content in files.items():
            (path / name.replace("_", ".")).write_bytes(content)

    return write


def no_utf8(*strings: bytes) -> pyarrow.Array:
    """Return strings with invalid UTF-8, as a program without validation writes them."""
    ends = np.cumsum([0, *map(len, strings)]).astype(np.int32)
    buffers = [None, pyarrow.py_buffer(ends.tobytes()), pyarrow.py_buffer(b"".join(strings))]
    return pyarrow.Array.from_buffers(pyarrow.string(), len(strings), buffers)


def one_each(strings: pyarrow.Array) -> pyarrow.Array:
    return pyarrow.ListArray.from_arrays(pyarrow.array(range(len(strings) + 1), pyarrow.int32()), strings)


def renamed_column(path: Path) -> None:
    parquet(text=["a"], labels=[["x"]])(path)
    path.write_bytes(path.read_bytes().replace(b"text", b"t\xffxt"))


def arrays(**changes: Any) -> Callable[[Path], None]:
    """Return the arrays of a scipy matrix with changes."""
    parts = {"format": b"csr", "shape": [2, 3], "data": [1.0, 1.0], "indices": [0, 2], "indptr": [0, 1, 2]}
    return lambda path: np.savez(path, **{name: np.array(part) for name, part in (parts | changes).items()})


def huge_header(path: Path) -> None:
    """Return an array of three numbers whose header declares 10¹²."""
    arrays()(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["indptr.npy"] = members["indptr.npy"].replace(b"(3,), }" + b" " * 12, b"(999999999999,), }" + b" ")
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


ODD_ARRAYS = {
    "strings": arrays(data=["a", "b"]),
    "complex numbers": arrays(data=[1j, 2.0]),
    "dates": arrays(data=np.zeros(2, "M8[s]")),
    "a number as its format": arrays(format=3),
    "a format that nobody knows": arrays(format=b"xyz"),
    "a shape of text": arrays(shape=["2", "3"]),
    "a shape of three": arrays(shape=[2, 3, 4]),
    "a negative shape": arrays(shape=[-1, 3]),
    "a shape beyond 32 bits": arrays(shape=[2, 2**40]),
    "rows without end": arrays(format=b"coo", shape=[2**31 - 1, 3], row=[0, 1], col=[0, 2]),
    "columns that are not there": arrays(indices=[0, 3]),
    "rows that end before they begin": arrays(indptr=[0, 3, 2]),
    "rows that end where nothing begins": arrays(indptr=[0, 2, 0]),  # scipy would write beyond its arrays
    "columns that are fractions": arrays(indices=[0.0, 1.5]),
    "columns of columns that are not there": arrays(format=b"csc", shape=[3, 2], indices=[0, 3]),
    "a header without bounds": huge_header,
}


# fmt: off
CASES = [
    # any file
    case("no such file", "c.jsonl", None, "{file}: there is no such file; check the path."),
    case("an empty file", "c.jsonl", b"", "{file} is empty, expected at least one document; check where it comes from."),
    case("an empty file, .txt", "c.txt", b"\n \n", "{file} is empty, expected at least one document; check where it comes from."),
    case("a folder, a file expected", "c", folder(a_txt=b""), "{file} is a folder, expected a file; name a file in it.", format="jsonl"),
    case("a folder of something else", "c", folder(a_doc=b""), "{file} is a folder without .txt, .html, .htm, .pdf, .docx files; expected documents, or the name of a corpus file in it."),
    case("a folder of folders", "c", lambda path: folder(a_txt=b"")(path / "d") if path.mkdir() is None else None, "{file} has .txt, .html, .htm, .pdf, .docx files only in subfolders; pass --recursive."),
    case("an unknown format", "c.jsonl", JSON_LINE, f"There is no corpus format 'jsonll'. Did you mean jsonl? The formats are {FORMAT_NAMES}.", format="jsonll"),
    case("no format recognised", "c.txt", b"Once upon a time\n", f"{{file}}: its first line 'Once upon a time' matches no known format; pass --input-format, one of {FORMAT_NAMES}."),
    case("a JSON array", "c.json", b'[{"text": "a"},\n ["b"]]', "{file}: element 2 is a list, expected an array of objects."),
    case("truncated gzip", "c.jsonl.gz", gzip.compress(JSON_LINE * 9)[:-9], "{file}, after line 9: the data is damaged or ends too early (Compressed file ended before the end-of-stream marker was reached), expected a complete file; download or compress it again."),
    case("truncated bzip2", "c.jsonl.bz2", bz2.compress(JSON_LINE)[:-9], "{file}, after line 0: the data is damaged or ends too early (Compressed file ended before the end-of-stream marker was reached), expected a complete file; download or compress it again."),
    case("truncated zstd", "c.jsonl.zst", pyarrow.compress(JSON_LINE * 9, "zstd", asbytes=True)[:-9], "{file}, after line 0: the data is damaged or ends too early (Truncated compressed stream), expected a complete file; download or compress it again."),
    case("an unknown way with bad lines", "c.jsonl", JSON_LINE, "on_error='ignore' is unknown, expected one of stop, skip.", on_error="ignore"),
    # JSON Lines
    case("wrong UTF-8", "c.jsonl", '{"text": "café", "labels": ["x"]}\n'.encode() + b'{"text": "caf\xe9", "labels": []}\n' + JSON_LINE, "line 2: byte 0xe9 at position 14 is not valid UTF-8, expected UTF-8 text, or the encoding of the file as --encoding"),
    jsonl("bad JSON", b'{"text": "b" "labels": []}', "line 2: this is not valid JSON (Expecting ',' delimiter at character 14), expected one JSON object per line"),
    jsonl("JSON cut off", b'{"text": "b", "labels": [', "line 2: this is not valid JSON (Expecting value), expected one JSON object per line"),
    jsonl("JSON too deep", b"[" * 100_000, "line 2: this is not readable JSON (maximum recursion depth exceeded while decoding a JSON array from a unicode string), expected one JSON object per line"),
    jsonl("a list, not an object", b'["b", "x"]', "line 2: this line is a list, expected one JSON object per line"),
    jsonl("half a character", b'{"text": "\\ud83d", "labels": []}', r"line 2: found a lone surrogate (\ud8… or \udc…), expected complete characters"),
    jsonl("no text", b'{"Txt": "b", "labels": []}', "line 2: there is no field 'text' among 'Txt', 'labels' (did you mean 'Txt'?); name the right one with --text"),
    jsonl("no labels", b'{"text": "b", "tags": []}', "line 2: there is no field 'labels' among 'text', 'tags'; name the right one with --labels"),
    jsonl("no fields", b"{}", "line 2: there is no field 'text' among no fields at all; name the right one with --text"),
    case("no such id", "c.jsonl", b'{"n": 1, "text": "a", "labels": []}\n{"text": "b", "labels": []}\n{"n": 3, "text": "c", "labels": []}', "line 2: there is no field 'n' among 'text', 'labels'; name the right one with --id", fields=Fields(id="n")),
    jsonl("text is a number", b'{"text": 12, "labels": []}', "line 2: the field 'text' is the number 12, expected a string"),
    jsonl("text is null", b'{"text": null, "labels": []}', "line 2: the field 'text' is null, expected a string"),
    jsonl("labels are null", b'{"text": "b", "labels": null}', "line 2: the field 'labels' is null, expected a list of names"),
    jsonl("labels are an object", b'{"text": "b", "labels": {"x": 1}}', "line 2: the field 'labels' is an object, expected a list of names"),
    jsonl("labels are a string", b'{"text": "b", "labels": "x;y"}', "line 2: the field 'labels' is the string 'x;y', expected a list of names (or a --separator to split the string by)"),
    jsonl("a label is an object", b'{"text": "b", "labels": [{"name": "x"}]}', "line 2: the field 'labels' contains an object, expected a list of names"),
    jsonl("a label is a fraction", b'{"text": "b", "labels": [1.5]}', "line 2: the field 'labels' contains the number 1.5, expected a list of names"),
    jsonl("a label is true", b'{"text": "b", "labels": [true]}', "line 2: the field 'labels' contains true, expected a list of names"),
    jsonl("a label is empty", b'{"text": "b", "labels": [""]}', "line 2: the field 'labels' contains an empty name, expected a list of names"),
    jsonl("the id is a list", b'{"id": [7], "text": "b", "labels": []}', "line 2: the field 'id' is a list, expected a string or a whole number"),
    # tables
    case("CSV without the text", "c.csv", b"id,texts,labels\n1,a,x\n", "{file}, the header: there is no field 'text' among 'id', 'texts', 'labels' (did you mean 'texts'?); name the right one with --text."),
    case("CSV without the labels", "c.csv", b"id,text\n1,a\n", "{file}, the header: there is no field 'labels' among 'id', 'text'; name the right one with --labels."),
    case("CSV with a column twice", "c.csv", b"text,text,labels\na,b,x\n", "{file}, the header: the column 'text' occurs 2 times, expected once; rename the others."),
    case("TSV with other names", "c.tsv", b"title\ttags\na\tx\n", "{file}, the header: there is no field 'text' among 'title', 'tags'; name the right one with --text."),
    csv("too few cells", b"2,b", "line 3: this row has 2 cells, expected 3 as in the header"),
    csv("too many cells", b"2,b,x,y", "line 3: this row has 4 cells, expected 3 as in the header"),
    csv("text after a quote", b'2,"b"b,x', "line 3: the quotes are not valid CSV (',' expected after '\"'), expected quotes around the whole cell"),
    csv("a quote never closed", b'2,"b,x', "line 3: a quote opened in this row is never closed, expected a closing quote", raw=b'2,"b,x\\n3,c,y'),
    csv("a wrong label list", b'2,b,[{}]', "line 3: the field 'labels' contains an object, expected a list of names"),
    # Parquet
    case("not Parquet", "c.parquet", b"text,labels\n", "{file} cannot be read as Parquet (Parquet magic bytes not found in footer. Either the file is corrupted or this is not a parquet file); check that it is a complete Parquet file, or pass --input-format."),
    case("Parquet without the text", "c.parquet", parquet(body=["a"], labels=[["x"]]), "{file}: there is no field 'text' among 'body', 'labels'; name the right one with --text."),
    case("a null in Parquet", "c.parquet", parquet(text=["a", None, "c"], labels=[["x"], ["é"], []]), "row 2: the field 'text' is null, expected a string", raw='{"text": null, "labels": ["é"]}'.encode()),
    case("a string in Parquet that is no UTF-8", "c.parquet", parquet(text=no_utf8(b"a", b"b\xff", b"c"), labels=[["x"], ["é"], []]), "row 2: this row cannot be read (byte 0xff is not valid UTF-8, expected UTF-8 text)", raw='{"text": "b\\\\xff", "labels": ["é"]}'.encode()),
    case("a label in Parquet that is no UTF-8", "c.parquet", parquet(text=["a", "b", "c"], labels=one_each(no_utf8(b"x", b"\xff", b"y"))), "row 2: this row cannot be read (byte 0xff is not valid UTF-8, expected UTF-8 text)", raw=b'{"text": "b", "labels": ["\\\\xff"]}'),
    case("a column of Parquet whose name is no UTF-8", "c.parquet", renamed_column, "{file} cannot be read as Parquet (byte 0xff is not valid UTF-8, expected UTF-8 text); check that it is a complete Parquet file, or pass --input-format."),
    # fastText, Annif, LibMultiLabel
    case("fastText label without a name", "c.ft", b"__label__x a\n__label__ b\n__label__y c\n", "line 2: found __label__ without a name, expected __label__name"),
    case("Annif without a tab", "c.tsv", b"a\t<http://x/1>\nb <http://x/2>\nc\t\n", "line 2: this line has 1 columns between tabs, expected text ⇥ <subject URIs>"),
    case("Annif without a URI", "c.tsv", b"a\t<http://x/1>\nb\tfish\nc\t\n", "line 2: found the subject 'fish', expected a URI in angle brackets"),
    case("Annif folder without labels", "c", folder(a_txt=b"a", b_txt=b"b"), "{file} contains 2 documents and no label files, expected a .tsv or .key file for each; add the label files."),
    case("Annif text without labels", "c", folder(a_txt=b"a", a_key=b"x", b_txt=b"b", c_txt=b"c", c_key=b""), "file b.txt: there is no label file b.tsv or b.key next to it, expected one", raw=b"{file}/b.txt"),
    case("Annif labels in wrong UTF-8", "c", folder(a_txt=b"a", a_key=b"x", b_txt=b"b", b_key=b"x\n\xff", c_txt=b"c", c_key=b""), "file b.txt: byte 0xff in line 2 of b.key is not valid UTF-8, expected UTF-8 text", raw=b"{file}/b.txt"),
    case("Annif file named in Latin-1", "c", folder(a_txt=b"a", a_key=b"x", b_txt=b"b", b_key=b"x", **{"caf\udce9_txt": b"c", "caf\udce9_key": b"x"}), "file caf\\xe9.txt: its name is not valid UTF-8, expected a name that can be the id of the document", raw=b"{file}/caf\xe9.txt"),
    case("LibMultiLabel with a tab in the text", "c.tsv", b"x y\tone two\nx\tb\tb\ny\tthree\n", "line 2: this line has 3 columns between tabs, expected 2 as in the first line"),
    # the XMC repository's sparse format
    case("sparse without a header", "c.txt", b"0,1 0:1\n", "{file}, line 1: found '0,1 0:1', expected the header `documents features labels`; add it, or pass --input-format svmlight for a file without a header.", format="sparse"),
    case("sparse with a header of 4,301 digits", "c.txt", b"1 5 " + b"9" * 4301 + b"\n0 1:1\n", f"{{file}}, line 1: found '1 5 {'9' * 35}…', expected the header `documents features labels`; add it, or pass --input-format svmlight for a file without a header."),
    xmc("a label of 5,000 digits", b"0" * 5000 + b" 2:1", f"line 3: found the label '{'0' * 39}…', expected a number below the header's 4"),
    case("sparse that ends too early", "c.txt", b"3 5 4\n0 1:1\n1 2:1\n", "{file} ends after 2 documents, expected 3 as in the header; download it again, or fix the header."),
    case("sparse that goes on too long", "c.txt", b"2 5 4\n0 1:1\n1 2:1\n2 3:1\n", "line 4: this is document 3, expected 2 as in the header"),
    xmc("a feature out of range", b"1 5:1", "line 3: found the feature 5, expected a number from 0 on below the header's 5"),
    xmc("a negative feature", b"1 -1:1 2:1", "line 3: found the feature -1, expected a number from 0 on below the header's 5"),
    xmc("a huge feature", b"1 99999999999999999999:1", "line 3: found the feature '99999999999999999999:1', expected a number that fits in 32 bits"),
    xmc("a feature by name", b"1 cat:1", "line 3: found the feature 'cat:1', expected a whole number before the colon"),
    xmc("a feature without a value", b"1 2:1 3", "line 3: found '3' without a colon, expected feature:value"),
    xmc("a value that is no number", b"1 2:1 3:x", "line 3: found '3:x', expected a number after the colon"),
    xmc("a value with an underscore", b"1 2:1_0", "line 3: found '2:1_0', expected a number after the colon"),
    xmc("a value that is nan", b"1 2:1 3:nan", "line 3: found the value '3:nan', expected a finite number"),
    xmc("a value too large", b"1 2:1e39", "line 3: found the value '2:1e39', expected a finite number"),
    xmc("a feature twice", b"1 2:1 3:1 2:5", "line 3: the feature 2 occurs twice, expected each feature once"),
    xmc("a label out of range", b"4 2:1", "line 3: found the label '4', expected a number below the header's 4"),
    xmc("a negative label", b"1,-1 2:1", "line 3: found the label '-1', expected a number below the header's 4"),
    xmc("a label missing", b"1,,2 2:1", "line 3: found the label '', expected a number below the header's 4"),
    # svmlight
    svmlight("a label by name", b"cat 2:1", "line 2: found the label 'cat', expected whole numbers separated by commas"),
    svmlight("a label that is a fraction", b"1.5 2:1", "line 2: found the label '1.5', expected whole numbers separated by commas"),
    svmlight("a negative feature in svmlight", b"1 -2:1", "line 2: found the feature -2, expected a number from 0 on that fits in 32 bits"),
    # npz
    case("npz of unequal rows", "X.npz", npz([[1], [2]], [[1]]), "{file} has 2 rows and {folder}/Y.npz has 1, expected one row per document in both; check that they are a pair."),
    case("npz without labels", "X.npz", npz([[1]]), "{file} contains features and there is no {folder}/Y.npz, expected a pair; pass both as {file},LABELS.npz."),
    case("npz of another name", "train.npz", npz([[1]]), "{file} contains features and the name of the label file cannot be derived from its name, expected a pair; pass both as {file},LABELS.npz."),
    *(case(f"an archive, {name}", name, b"PK\x03\x04", "{file} is an archive, expected a file or a folder; unpack it, and name what was in it.") for name in ("c.zip", "c.csv.zip", "c.tar.gz")),
    *(case(f"a text with markup, {name}", name, b"{\\rtf1 moon}", "{file} is a file of a word processor, expected text; save it as .pdf, .html or .txt.") for name in ("c.doc", "c.rtf")),
    case("npz that is a pickle", "X.npz", pickle.dumps({"X": 1}), "{file} is not a sparse matrix saved by scipy, and pickles are not loaded; save it with scipy.sparse.save_npz."),
    case("npz with a pickle in it", "X.npz", pickled_npz, "{file} is not a sparse matrix saved by scipy, and pickles are not loaded; save it with scipy.sparse.save_npz."),
    case("npz that is cut off", "X.npz", b"PK\x03\x04", "{file} is not a sparse matrix saved by scipy, and pickles are not loaded; save it with scipy.sparse.save_npz."),
    case("npz with nan", "X.npz", npz([[1], [np.nan], [1]], [[1], [1], [0]]), "row 2: found a value that is not finite, expected finite numbers", raw=b"0:nan"),
    case("npz with a value too large for 32 bits", "X.npz", npz([[1], [1e300], [1]], [[1], [1], [0]]), "row 2: found a value that is not finite, expected finite numbers", raw=b"0:inf"),
    *(case(f"npz with {what}", "X.npz", arrays, "{file} is not a sparse matrix saved by scipy, and pickles are not loaded; save it with scipy.sparse.save_npz.") for what, arrays in ODD_ARRAYS.items()),
    # paired
    case("pair of unequal lines", "texts.txt", pair(b"a\nb\n", b"x\n"), "{file} has 2 lines and {folder}/labels.txt has 1, expected one line per document in both; check that they are a pair, or pass --input-format if {file} contains the labels."),
    case("pair without labels", "c.txt", b"a\n", "{file} contains texts, and there is no label file with a matching name, such as train_labels.txt for train_texts.txt; pass both as {file},LABELS.txt.", format="paired"),
    case("pair with labels that are no UTF-8", "texts.txt", pair(b"a\nb\nc\n", b"x\n\xff\ny\n"), "line 2: byte 0xff in this line of labels.txt is not valid UTF-8, expected UTF-8 text"),
]
# fmt: on


def is_line(case: BrokenInput) -> bool:
    return case.message.startswith(("line ", "row ", "file "))


LINE_CASES = [case for case in CASES if is_line(case)]
FILE_CASES = [case for case in CASES if not is_line(case)]


def make(case: BrokenInput, folder: Path) -> Path:
    path = folder / case.name
    if isinstance(case.content, bytes):
        path.write_bytes(case.content)
    elif case.content is not None:
        case.content(path)
    return path


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_error_message_is_exact(case: BrokenInput, tmp_path: Path) -> None:
    path = make(case, tmp_path)
    with pytest.raises(XmtcError) as error:
        list(open_corpus(path, **case.options))
    sentence = f"{{file}}, {case.message}{REMEDY}" if is_line(case) else case.message
    assert str(error.value) == sentence.replace("{file}", str(path)).replace("{folder}", str(tmp_path))


@pytest.mark.parametrize("case", LINE_CASES, ids=lambda case: case.what)
def test_bad_documents_are_skipped_and_saved(case: BrokenInput, tmp_path: Path) -> None:
    path = make(case, tmp_path)
    corpus = open_corpus(path, on_error="skip", **case.options)
    location, _, reason = case.message.partition(" ")[2].partition(": ")
    raw = case.raw or path.read_bytes().split(b"\n")[int(location) - 1]
    rejects = Path(f"{path}.rejects")
    for _ in range(2):  # a second pass counts and writes again
        assert len(list(corpus)) == (1 if case.what == "a quote never closed" else 2)
        assert corpus.n_rejected == 1
        assert rejects.read_bytes() == f"{location}\t{reason}\t".encode() + raw.replace(b"{file}", bytes(path)) + b"\n"
    unit = case.message.partition(" ")[0]
    assert str(corpus.rejects) == f"1 {unit} of {path} set aside in {rejects}, the first at {case.message}."


@pytest.mark.parametrize("case", FILE_CASES, ids=lambda case: case.what)
def test_broken_file_is_an_error_with_skip(case: BrokenInput, tmp_path: Path) -> None:
    path = make(case, tmp_path)
    with pytest.raises(XmtcError):
        list(open_corpus(path, **{"on_error": "skip", **case.options}))
    assert not Path(f"{path}.rejects").exists()


def test_all_kinds_of_broken_input_are_tested() -> None:
    assert len(CASES) >= 32
    assert len({case.what for case in CASES}) == len(CASES)


WORDS = b'text labels , " { [ : 1 -1 <a> __label__ # e9 nan | PAR1'.split()
crumbs = st.sampled_from([*WORDS, b"1 2 3", b"\t", b"\n", b"\r", b" ", b"\0", b"PK\x03\x04", b"\x1f\x8b"])


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore::xmtc.data.layout.CorpusWarning")
@pytest.mark.parametrize("format", [None, *FORMATS])
@pytest.mark.parametrize("on_error", ["stop", "skip"])
@given(content=st.lists(crumbs | st.binary(max_size=8), max_size=25).map(b"".join))
@settings(max_examples=25, deadline=None)
def test_random_bytes_give_documents_or_one_error_message(format: str | None, on_error: str, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "corpus").write_bytes(content)
        with suppress(XmtcError):
            assert all(
                isinstance(document, Document)
                for document in open_corpus(f"{folder}/corpus", format, on_error=on_error)
            )


def test_corpus_of_only_bad_lines_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(b"{\n{\n")
    corpus = open_corpus(tmp_path / "c.jsonl", on_error="skip", rejects=tmp_path / "bad.tsv")
    with pytest.raises(XmtcError, match=r"No document is valid: 2 lines of .*c.jsonl set aside in .*bad.tsv, the"):
        list(corpus)
    assert (tmp_path / "bad.tsv").read_bytes().count(b"\n") == 2


def test_rejects_file_never_overwrites_the_corpus(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(JSON_LINE)
    with pytest.raises(XmtcError, match="is the corpus itself"):
        open_corpus(tmp_path / "c.jsonl", on_error="skip", rejects=tmp_path / "c.jsonl")


def test_unwritable_rejects_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(b"{\n" + JSON_LINE)
    corpus = open_corpus(tmp_path / "c.jsonl", on_error="skip", rejects=tmp_path / "no" / "c.rejects")
    with pytest.raises(
        XmtcError, match=r"cannot be written \(No such file or directory\); name another file with --rejects"
    ):
        list(corpus)


def test_file_names_with_invalid_utf8(tmp_path: Path) -> None:
    """Messages show the bytes escaped; the rejects file contains them unchanged."""
    path = tmp_path / os.fsdecode(b"c\xff.jsonl")
    try:
        path.write_bytes(b"{\n" + JSON_LINE)
    except OSError:
        pytest.skip("this system has no such names")
    corpus = open_corpus(path, on_error="skip")
    assert len(list(corpus)) == 1
    assert "c\\xff.jsonl set aside in" in str(corpus.rejects)
    assert Path(f"{path}.rejects").read_bytes().startswith(b"1\tthis is not valid JSON")

    folder(a_txt=b"a", a_key=b"x", **{"b\udcff\t\n_txt": b"\xff", "b\udcff\t\n_key": b"x"})(tmp_path / "texts")
    corpus = open_corpus(tmp_path / "texts", on_error="skip")
    assert len(list(corpus)) == 1
    location, reason, *raw = (tmp_path / "texts.rejects").read_bytes().split(b"\t")
    assert location == rb"b\xff\t\n.txt"
    assert reason.startswith(b"its name is not valid UTF-8") or b"byte 0xff in line" in reason
    assert b"\t".join(raw) == os.fsencode(tmp_path) + b"/texts/b\xff\t\\n.txt\n"


def test_broken_link_is_an_error(tmp_path: Path) -> None:
    """The link itself is not suggested as a similar name."""
    (tmp_path / "c.jsonl").symlink_to(tmp_path / "gone.jsonl")
    with pytest.raises(XmtcError, match=r"c.jsonl is a link to .*gone.jsonl, which is not there; check the link\."):
        open_corpus(tmp_path / "c.jsonl")
