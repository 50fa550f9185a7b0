"""Corpus formats: round trips, samples by hand, detection, and streaming."""

from __future__ import annotations

import codecs
import gzip
import io
import itertools
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.parquet import write_table
from scipy import sparse

from xmtc.core.run import Run
from xmtc.data.corpus import Corpus, open_corpus, open_corpus_writer
from xmtc.data.corpus_input import CorpusInput
from xmtc.data.document import Document
from xmtc.data.file_streams import read_blocks, read_lines
from xmtc.data.format_detection import detect_format
from xmtc.data.records import Fields
from xmtc.errors import XmtcError

DOCUMENTS = [
    Document("a", 'Überwachung von Luft, "Wasser" und 日本語 🐟', ["Umwelt", "ympäristö", "水"]),
    Document("b", "two\nlines, one\ttab, a CR\r, a NUL\0, and a \\ backslash", ["with space", "pipe|d", "[bracket]"]),
    Document("c", "", ["label of an empty text"]),
    Document("d", "no labels", []),
    Document("e", "", []),
]
SPARSE = b"4 6 5\n0,2 1:1 5:0.25\n 0:2\n3\n\n"  # document 2 has no labels, 3 no features, 4 neither


def save(path: Path, documents: list[Document], format: str | None = None) -> Path:
    with open_corpus_writer(path, format) as add:
        for document in documents:
            add(document)
    return path


def read_bytes(tmp_path: Path, name: str, content: bytes, **options: Any) -> list[Document]:
    (tmp_path / name).write_bytes(content)
    return list(open_corpus(tmp_path / name, **options))


def plain(document: Document) -> tuple:
    """Return a document that can be compared with ==."""
    features = document.features and [list(map(float, part)) for part in document.features]
    return document.id, document.text, document.labels, features


@pytest.mark.parametrize("compression", ["", ".gz", ".bz2", ".zst"])
@pytest.mark.parametrize("format", ["jsonl", "csv", "tsv", "parquet"])
def test_round_trip(format: str, compression: str, tmp_path: Path) -> None:
    path = save(tmp_path / f"c.{format}{compression}", DOCUMENTS)
    corpus = open_corpus(path)
    assert corpus.format == format
    assert list(corpus) == DOCUMENTS
    assert list(corpus) == DOCUMENTS  # documents can be read several times
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


characters = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
any_document = st.builds(
    Document,
    characters.filter(str.strip),  # a row of empty cells is not a document
    characters,
    st.lists(characters.filter(bool), unique=True, max_size=4),
    features=st.none(),
    extra=st.just(()),
    page_offsets=st.just(()),
)


@pytest.mark.parametrize("format", ["jsonl", "csv", "tsv", "parquet"])
@pytest.mark.filterwarnings("ignore::xmtc.data.layout.CorpusWarning")  # random labels can look suspicious
@given(documents=st.lists(any_document, min_size=1, max_size=4, unique_by=lambda document: document.id))
@settings(max_examples=60, deadline=None)
def test_round_trip_of_anything(format: str, documents: list[Document]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert list(open_corpus(save(Path(folder, "corpus"), documents, format), format)) == documents


def test_fasttext(tmp_path: Path) -> None:
    content = "__label__a __label__é one  two\nno labels\n\n\t__label__x mid __label__y\xa0z end __label__x\n".encode()
    documents = read_bytes(tmp_path, "c.txt", content)
    assert documents == [
        Document("1", "one  two", ["a", "é"]),
        Document("2", "no labels", []),
        Document("4", "mid end", ["x", "y\xa0z"]),
    ]
    again = list(open_corpus(save(tmp_path / "again.ft.zst", documents)))
    assert [document[1:] for document in again] == [document[1:] for document in documents]


def test_sparse(tmp_path: Path) -> None:
    documents = [
        ("2", "", ["0", "2"], [[1.0, 5.0], [1.0, 0.25]]),
        ("3", "", [], [[0.0], [2.0]]),
        ("4", "", ["3"], [[], []]),
        ("5", "", [], [[], []]),
    ]
    (tmp_path / "c.txt").write_bytes(SPARSE + b"\n \n")  # blank lines after the last document are ignored
    corpus = open_corpus(tmp_path / "c.txt")
    assert (corpus.format, corpus.has_features, corpus.n_features, corpus.n_labels) == ("sparse", True, 6, 5)
    assert list(map(plain, corpus)) == documents
    assert next(iter(corpus)).features[0].dtype == np.int32
    assert next(iter(corpus)).features[1].dtype == np.float32
    with open_corpus_writer(tmp_path / "again.txt.gz", source_corpus=corpus) as add:
        for document in corpus:
            add(document)
    assert gzip.decompress((tmp_path / "again.txt.gz").read_bytes()) == SPARSE


def test_sparse_keeps_every_digit(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random(50, dtype=np.float32)
    document = Document("2", "", ["0"], (np.arange(50, dtype=np.int32), values))
    again = next(iter(open_corpus(save(tmp_path / "c.txt", [document], "sparse"))))
    assert (again.features[1] == values).all()


def test_svmlight(tmp_path: Path) -> None:
    content = b"# a comment\n1,-2 3:1 1:0.5 # another\n\n+1 qid:7 2:1e-1\n1.0\n 2:1\n2:1\n"
    assert list(map(plain, read_bytes(tmp_path, "c.svm", content, format="svmlight"))) == [
        ("2", "", ["1", "-2"], [[1.0, 3.0], [0.5, 1.0]]),
        ("4", "", ["1"], [[2.0], [pytest.approx(0.1)]]),
        ("5", "", ["1"], [[], []]),
        ("6", "", [], [[2.0], [1.0]]),
        ("7", "", [], [[2.0], [1.0]]),
    ]
    assert open_corpus(tmp_path / "c.svm", "svmlight").n_features is None


@pytest.mark.parametrize(
    "names", ["X.npz Y.npz", "X.trn.npz Y.trn.npz", "features.npz labels.npz", "tr_x.npz tr_y.npz"]
)
def test_npz(names: str, tmp_path: Path) -> None:
    features, labels = (tmp_path / name for name in names.split())
    sparse.save_npz(features, sparse.csc_matrix([[0.0, 2.0], [0.0, 0.0], [1.0, 0.5]]))
    sparse.save_npz(labels, sparse.csr_array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    corpus = open_corpus(features)
    assert (corpus.format, corpus.n_features, corpus.n_labels) == ("npz", 2, 3)
    assert list(map(plain, corpus)) == [
        ("1", "", ["0", "2"], [[1.0], [2.0]]),
        ("2", "", ["1"], [[], []]),
        ("3", "", [], [[0.0, 1.0], [1.0, 0.5]]),
    ]
    assert [document.labels for document in open_corpus(f"{features},{labels}")] == [["0", "2"], ["1"], []]
    labels.unlink()
    assert [document.labels for document in open_corpus(features, labels_required=False)] == [[], [], []]


def test_annif_tsv(tmp_path: Path) -> None:
    content = b"a fish\t<http://x/1> <http://x/2> <http://x/1>\r\nno subject\t\nbare\thttp://x/3\n"
    assert read_bytes(tmp_path, "c.tsv.gz", gzip.compress(content)) == [
        Document("1", "a fish", ["http://x/1", "http://x/2"]),
        Document("2", "no subject", []),
        Document("3", "bare", ["http://x/3"]),
    ]


def test_annif_folder(tmp_path: Path) -> None:
    files = {"b.txt": "two\nlines", "b.key": "fish\n\nwater\n", "a.txt": "\ufeffone", "a.tsv": "<http://x/1>\tfish\n"}
    for name, content in {**files, "a.key": "not read: a.tsv is there", "c.txt": "no labels"}.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    corpus = open_corpus(tmp_path, labels_required=False)
    assert corpus.format == "folder"
    assert list(open_corpus(tmp_path, "annif", labels_required=False)) == list(corpus)
    assert list(corpus) == [
        Document("a", "one", ["http://x/1"]),
        Document("b", "two\nlines", ["fish", "water"]),
        Document("c", "no labels", []),
    ]


def test_libmultilabel(tmp_path: Path) -> None:
    assert read_bytes(tmp_path, "c.tsv", b"x y x\tsome words\n\tno labels\n") == [
        Document("1", "some words", ["x", "y"]),
        Document("2", "no labels", []),
    ]
    assert read_bytes(tmp_path, "d.tsv", b'7\tx\t"some words\n8\t\t\n') == [
        Document("7", '"some words', ["x"]),
        Document("8", "", []),
    ]


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("c.ndjson.gz", b"{}", "jsonl"),
        ("c", b'\xef\xbb\xbf\n  {"text": ""}', "jsonl"),
        ("c", b"__label__a b", "fasttext"),
        ("c.txt", b"some text __label__b", "fasttext"),
        ("c.txt", b"10 20 30\n", "sparse"),
        ("c.svm", b"10 20 30\n", "sparse"),
        ("c.txt", b"1,2 3:1 4:-1e-3 # x\n", "svmlight"),
        ("c.txt", b" 3:1\n", "svmlight"),
        ("c.tsv", b"id\ttext\tlabels\n", "tsv"),
        ("c.tsv", b"title\tsubjects\n", "tsv"),
        ("c", b"a text\t<http://x/1> <http://x/2>\n", "annif"),
        ("c.tsv", b"a text\t\n", "annif"),
        ("c.tsv", b"x y\ta text\n", "libmultilabel"),
        ("c.txt", b"7\tx y\ta text\n", "libmultilabel"),
        ("c", b'"id","text","labels"\n', "csv"),
        ("c", b"PAR1...", "parquet"),
        ("c", b"PK\x03\x04...", "npz"),
    ],
)
def test_format_is_detected(name: str, content: bytes, format: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert detect_format(CorpusInput(str(tmp_path / name))) == format


def test_line_endings_blank_lines_and_byte_order_mark(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf{"text": "a", "labels": []}\r\n \r\n\r\n{"text": "b", "labels": []}\n\n'
    assert [document[:2] for document in read_bytes(tmp_path, "c.jsonl.gz", content)] == [("1", "a"), ("4", "b")]
    table = b"\xef\xbb\xbftext,labels\r\n\r\na,x|y\r\n  \r\nb,\r\n"
    assert read_bytes(tmp_path, "c.csv", table) == [Document("3", "a", ["x", "y"]), Document("5", "b", [])]


def test_row_of_several_lines_has_the_number_of_its_first_line(tmp_path: Path) -> None:
    documents = read_bytes(tmp_path, "c.csv", b'text,labels\n"a\n\nb",x\nc,y\n')
    assert documents == [Document("2", "a\n\nb", ["x"]), Document("5", "c", ["y"])]


FIELDS = Fields(text="title, abstract", labels="subjects", id="n", separator=";")


def test_field_names(tmp_path: Path) -> None:
    content = b'{"n": 7, "title": "A", "abstract": null, "subjects": [1, "x", 1]}\n' * 2
    assert read_bytes(tmp_path, "c.jsonl", content, fields=FIELDS)[1] == Document("7", "A", ["1", "x"])
    table = b'n;title,n,abstract,title,subjects\nz,7,B,A,x; y ;;x\nz,8,,A,"[""p;q"", 3]"\n'
    assert read_bytes(tmp_path, "c.csv", table, fields=FIELDS) == [
        Document("7", "A B", ["x", "y"]),
        Document("8", "A", ["p;q", "3"]),
    ]


def test_parquet_columns_of_other_types(tmp_path: Path) -> None:
    table = pyarrow.table({"text": ["a", "b"], "labels": ["x|y", ""], "id": [1, None], "more": [{"k": 1}, None]})
    write_table(table, tmp_path / "c.pq")
    assert list(open_corpus(tmp_path / "c.pq")) == [Document("1", "a", ["x", "y"]), Document("2", "b", [])]
    write_table(pyarrow.table({"text": ["a"], "labels": [[1, 2]]}), tmp_path / "d.pq")
    assert list(open_corpus(tmp_path / "d.pq")) == [Document("1", "a", ["1", "2"])]


@pytest.mark.parametrize(
    ("name", "content"),
    [("c.jsonl", b'{"text": "a"}'), ("c.jsonl", b'{"text": "a", "labels": null}'), ("c.csv", b"text\na")],
)
def test_labels_are_optional_for_prediction(name: str, content: bytes, tmp_path: Path) -> None:
    assert [document[1:3] for document in read_bytes(tmp_path, name, content, labels_required=False)] == [("a", [])]


def standard_input(monkeypatch: pytest.MonkeyPatch, content: bytes) -> Corpus:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    return open_corpus("-")


def test_standard_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("c.jsonl", "c.csv", "c.parquet", "c.jsonl.zst", "c.parquet.gz"):
        corpus = standard_input(monkeypatch, save(tmp_path / name, DOCUMENTS).read_bytes())
        assert list(corpus) == DOCUMENTS
        with pytest.raises(XmtcError, match="can be read only once"):
            list(corpus)
    corpus = standard_input(monkeypatch, SPARSE)
    assert (corpus.n_features, len(list(corpus))) == (6, 4)
    with pytest.raises(XmtcError, match="standard input is empty"):
        standard_input(monkeypatch, b"\n")


class Endless(io.RawIOBase):
    """Endless file that counts the bytes read."""

    def __init__(self, header: bytes, line: bytes) -> None:
        self.lines = itertools.chain([header], itertools.repeat(line))
        self.n_read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        line = next(self.lines)
        buffer[: len(line)] = line
        self.n_read += len(line)
        return len(line)


@pytest.mark.parametrize(
    ("header", "line"),
    [
        (b"", b'{"text": "a", "labels": ["x"]}\n'),
        (b"text,labels\n", b"a,x\n"),
        (b"999999999 9 9\n", b"1 2:3\n"),
        (b"", b"__label__x a\n"),
        (b"", b"a\t<http://x/1>\n"),
    ],
)
def test_readers_read_only_what_they_need(header: bytes, line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Endless(header or line, line)
    monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"buffer": endless}))
    assert len(list(itertools.islice(open_corpus("-"), 3))) == 3
    assert endless.n_read <= len(header) + 5 * len(line)


LINES = b"".join(b"%d %d\n" % (i, i**7) for i in range(40_000))
ZIPPED = {
    "of several members": gzip.compress(LINES[:500_000]) + gzip.compress(b"") + gzip.compress(LINES[500_000:]),
    "with zeros between and after": gzip.compress(LINES[:9])
    + bytes(300_000)
    + gzip.compress(LINES[9:])
    + bytes(700_000),
    "of nothing but zeros after it": gzip.compress(LINES) + bytes(1),
}


@pytest.fixture(params=["zlib", "zlib_ng.zlib_ng"])
def unzipping(request, monkeypatch):
    """Select each of the two gzip libraries."""
    found = pytest.importorskip(request.param)
    monkeypatch.setattr("xmtc.data.file_streams.zlib_backend", found)
    return found


@pytest.mark.parametrize("kind", ZIPPED)
def test_gzip_equals_python(tmp_path, kind, unzipping):
    path = tmp_path / "lines.gz"
    path.write_bytes(ZIPPED[kind])
    assert gzip.decompress(ZIPPED[kind]) == LINES
    assert b"".join(read_lines(str(path))) == LINES
    assert b"".join(bytes(block.lines) for block in read_blocks(str(path), size=10_000)) == LINES


GZIPPED_LINES = gzip.compress(LINES, mtime=0)  # without the time, so that test ids are stable


@pytest.mark.parametrize("end", [b"no gzip", GZIPPED_LINES[:-1], GZIPPED_LINES[:5]])
def test_damage_in_a_later_gzip_member_is_reported(tmp_path, end, unzipping):
    path = tmp_path / "lines.gz"
    path.write_bytes(gzip.compress(LINES) + end)
    with pytest.raises(XmtcError, match=r"after line (4|8)0000: the data is damaged or ends too early"):
        list(read_blocks(str(path)))
    wrong = bytearray(gzip.compress(LINES))
    wrong[-5] ^= 1  # byte of the checksum
    path.write_bytes(wrong)
    with pytest.raises(XmtcError, match="incorrect data check"):
        list(read_lines(str(path)))


def damaged_gzip(seed: int) -> bytes:
    """Return gzip data with changed bytes, a missing end, or bytes appended."""
    rng = random.Random(seed)
    found = bytearray(gzip.compress(LINES[: rng.randrange(10, 30_000)], rng.choice([1, 6, 9])))
    if seed % 4 == 0:
        return bytes(found[: rng.randrange(2, len(found))])
    if seed % 4 == 1:
        return bytes(found) + rng.randbytes(rng.randrange(1, 20))
    for _ in range(rng.choice([1, 3])):
        found[rng.randrange(2, len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


@pytest.mark.parametrize("seed", range(60))
def test_both_gzip_libraries_give_the_same_error(tmp_path, monkeypatch, seed):
    path = tmp_path / "lines.gz"
    path.write_bytes(damaged_gzip(seed))

    def outcome(reader: str) -> tuple[bytes, str]:
        monkeypatch.setattr("xmtc.data.file_streams.zlib_backend", pytest.importorskip(reader))
        lines = bytearray()
        try:
            for block in read_blocks(str(path), size=5_000):
                lines += block.lines
        except XmtcError as error:
            return bytes(lines), str(error)
        return bytes(lines), ""

    assert outcome("zlib_ng.zlib_ng") == outcome("zlib")


@pytest.mark.parametrize(
    ("format", "content", "number"),
    [
        ("fasttext", b"__label__x a\n", 1),
        ("annif", b"a text\t<http://x/1>\n", 1),
        ("libmultilabel", b"x\ta text\n", 1),
        ("svmlight", b"1 2:1\n", 1),
        ("sparse", b"1 3 2\n1 2:1\n", 2),
        ("paired", b"a text\n", 1),
    ],
)
def test_ids_from_line_numbers_are_distinct_in_several_files(
    tmp_path: Path, format: str, content: bytes, number: int
) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}_texts.txt").write_bytes(content)
        (tmp_path / f"{name}_labels.txt").write_bytes(b"x\n")
    corpus = open_corpus([tmp_path / "a_texts.txt", tmp_path / "b_texts.txt"], format)
    assert [document.id for document in corpus] == [f"a_texts.txt:{number}", f"b_texts.txt:{number}"]


def test_ids_of_several_npz_files_are_distinct(tmp_path: Path) -> None:
    for part in ("trn", "tst"):
        for name in ("X", "Y"):
            sparse.save_npz(tmp_path / f"{name}.{part}.npz", sparse.csr_array([[1.0]]))
    corpus = open_corpus([tmp_path / "X.trn.npz", tmp_path / "X.tst.npz"])
    assert [document.id for document in corpus] == ["X.trn.npz:1", "X.tst.npz:1"]


def test_libmultilabel_without_labels(tmp_path: Path) -> None:
    (tmp_path / "c.tsv").write_bytes(b"1\tx y\ta text\n")
    (document,) = open_corpus(tmp_path / "c.tsv", "libmultilabel", Fields(labels=None), labels_required=False)
    assert document == Document("1", "a text", [])


def test_byte_order_mark_is_removed_from_lines_and_blocks(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(codecs.BOM_UTF8 + b'{"text": "a", "labels": ["x"]}\n')
    assert list(read_lines(str(path))) == [b'{"text": "a", "labels": ["x"]}\n']
    (batch,) = open_corpus(path).iter_batches(Run(threads=1))
    assert list(batch.texts) == ["a"]
    path.write_bytes(codecs.BOM_UTF8)
    assert list(read_blocks(str(path))) == []
