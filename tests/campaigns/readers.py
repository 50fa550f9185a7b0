"""Damaged and hostile corpora, read like commands read them: every format with every compression and with changed bytes
and lines; and the files of hostile_files.py, valid and changed.

    python tests/campaigns/readers.py --minutes 2 --seed 0

Allowed are documents that can be written again, or one sentence. No case opens another file, a connection, or a process
but the child that parses its file."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow
from pyarrow.parquet import write_table
from scipy import sparse

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import cases
from audited import watch_access
from hostile_files import hostile_files
from paper import pdf

from xmtc.core.run import Run
from xmtc.data.batch import DocumentBatch
from xmtc.data.corpus import Corpus, open_corpus
from xmtc.data.document import Document
from xmtc.data.layout import Layout, Notifier
from xmtc.data.records import Fields
from xmtc.errors import escape_controls

Files = dict[str, bytes]  # files by name; the first one is opened
Mutation = Callable[[bytes, np.random.Generator], bytes]

HOSTILE_EVERY = 10  # number of cases per hostile file
TEXTS = ["a red fox", "der Bär, “quoted”", "", 'comma, tab and "quote"', "数字 42 and 1e5", "last\u200e one"]
LABELS = [["x"], ["x", "y"], [], ["ä|b", "z"], ["=1+1"], ["y", "0"]]


@cache
def make_corpora() -> dict[str, Files]:
    """Return a small valid corpus of each format."""
    rows = list(zip(TEXTS, LABELS, strict=True))
    lines = [json.dumps({"id": str(i), "text": t, "labels": y}, ensure_ascii=False) for i, (t, y) in enumerate(rows)]
    tables = {end: make_table(rows, separator) for end, separator in (("csv", ","), ("tsv", "\t"))}
    plain = [(text.replace("\t", " ") or "none", labels or ["w"]) for text, labels in rows]
    return {
        "jsonl": {"c.jsonl": ("\n".join(lines) + "\n").encode()},
        "csv": {"c.csv": tables["csv"]},
        "tsv": {"c.tsv": tables["tsv"]},
        "parquet": {"c.parquet": make_parquet(rows, None)},
        "parquet, packed": {"c.parquet": make_parquet(rows, "snappy")},
        "fasttext": {"c.ft": join_lines(" ".join([*(f"__label__{y}" for y in ys), text]) for text, ys in plain)},
        "annif": {"c.txt": join_lines(f"{text}\t{' '.join(f'<http://e/{y}>' for y in ys)}" for text, ys in plain)},
        "annif, a folder": make_annif_folder(plain),
        "libmultilabel": {"c.txt": join_lines(f"{i}\t{' '.join(ys)}\t{t}" for i, (t, ys) in enumerate(plain))},
        "sparse": {"c.txt": b"4 6 5\n0,1 0:1 5:0.5\n 1:2\n4 2:1e-3 3:7\n\n"},
        "svmlight": {"c.svm": b"# a comment\n1,2 qid:1 1:1 4:0.5 # more\n-1 3:1e30\n 2:1\n+3.0\n"},
        "npz": {"X.npz": make_matrix(np.eye(4, 6)), "Y.npz": make_matrix(np.tri(4, 5))},
        "paired": {
            "texts.txt": join_lines(t for t, _ in plain),
            "labels.txt": join_lines(" ".join(ys) for _, ys in plain),
        },
        "text": {"c.txt": join_lines(t for t, _ in plain), "c.key": b"x\ny\n"},
        **make_document_files(rows),
    }  # fmt: skip


def make_document_files(rows: list) -> dict[str, Files]:
    """Return workbooks, PDF and HTML if the extras are installed."""
    found: dict[str, Files] = {}
    with suppress(ImportError):
        import openpyxl
        import python_calamine  # noqa: F401

        book, stream = openpyxl.Workbook(), io.BytesIO()
        for row in [["id", "text", "labels"], *([i, t, "|".join(y)] for i, (t, y) in enumerate(rows))]:
            book.active.append(row)
        book.save(stream)
        found["xlsx"] = {"c.xlsx": stream.getvalue()}
    with suppress(ImportError):
        import trafilatura  # noqa: F401

        found["html"] = {"c.html": b"<title>A</title><p>some text, and more</p>", "c.key": b"x\n"}
    with suppress(ImportError):
        import pypdf  # noqa: F401

        found["pdf"] = {"c.pdf": pdf("some text", "and more"), "c.key": b"x\n"}
    return found


def join_lines(lines) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def make_table(rows: list, separator: str) -> bytes:
    def quote(cell: str) -> str:
        return '"' + cell.replace('"', '""') + '"'

    cells = [["id", "text", "labels"], *([str(i), quote(t), quote("|".join(y))] for i, (t, y) in enumerate(rows))]
    return join_lines(separator.join(row) for row in cells)


def make_parquet(rows: list, compression: str | None) -> bytes:
    columns = {"id": [str(i) for i in range(len(rows))], "text": [t for t, _ in rows], "labels": [y for _, y in rows]}
    stream = io.BytesIO()
    write_table(pyarrow.table(columns), stream, compression=compression or "none", use_dictionary=False)
    return stream.getvalue()


def make_matrix(dense: np.ndarray) -> bytes:
    stream = io.BytesIO()
    sparse.save_npz(stream, sparse.csr_array(dense), compressed=False)
    return stream.getvalue()


def make_annif_folder(plain: list) -> Files:
    files = {}
    for i, (text, labels) in enumerate(plain):
        files[f"f/{i}.txt"] = text.encode()
        files[f"f/{i}.{'tsv' if i % 2 else 'key'}"] = join_lines(
            f"<http://e/{y}>\tname" if i % 2 else y for y in labels
        )
    return files


CRUMBS = [
    b"\xff", b"\xed\xa0\x80", b"\xc3", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"\0", b"\r", b"\r\n", b"\n", b"\t", b",",
    b'"', b"|", b"\x1b[2J", "\u202e".encode(), "\u2028".encode(), b"\x85", b"nan", b"inf", b"-inf", b"1e400", b"-1",
    b"1_0", b"9" * 30, b"9" * 4301, b"1" * 5000, b"0x10", "٣".encode(), "²".encode(), b"2147483646", b"2147483647",
    b"4294967296", b"9223372036854775808", b"[" * 100_000, b'{"a":' * 50_000, b"\\ud800", b"\\u0000", b"null", b"true",
    b"{}", b"[[]]", b"1.5",
    b'{"text": 1}', b"__label__", b"<>", b"< >", b"<http://e/x", b"PAR1", b"PK\x03\x04", b"\x1f\x8b", b"BZh91AY&SY",
    b"\x28\xb5\x2f\xfd", b":", b"1:", b":1", b"0:0", b"qid:", b"#", b"text", b"labels", b"id",
]  # fmt: skip
NUMBER, STRING = re.compile(rb"\d+(\.\d+)?"), re.compile(rb'"[^"\n]*"')
HEADERS = [
    b"",
    b"text",
    b"labels",
    b"id\ttext\tlabels",
    b"id,text,labels",
    b"text,text,labels",
    b'"text',
    b"9 9 9",
    b"1 1 1",
]


def choose_place(content: bytes, rng: np.random.Generator) -> int:
    return int(rng.integers(len(content) + 1))


def choose(options, rng: np.random.Generator):
    return options[int(rng.integers(len(options)))]


def flip_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    changed = np.frombuffer(content, np.uint8).copy()
    for _ in range(int(rng.integers(1, 4)) if len(changed) else 0):
        changed[rng.integers(len(changed))] = rng.integers(256)
    return changed.tobytes()


def flip_bits(content: bytes, rng: np.random.Generator) -> bytes:
    changed = np.frombuffer(content, np.uint8).copy()
    if len(changed):
        changed[rng.integers(len(changed))] ^= 1 << rng.integers(8)
    return changed.tobytes()


def truncate(content: bytes, rng: np.random.Generator) -> bytes:
    return content[: choose_place(content, rng)]


def cut_out(content: bytes, rng: np.random.Generator) -> bytes:
    begin = choose_place(content, rng)
    return content[:begin] + content[begin + int(rng.integers(1, 40)) :]


def insert_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    at = choose_place(content, rng)
    return content[:at] + rng.bytes(int(rng.integers(1, 9))) + content[at:]


def insert_crumb(content: bytes, rng: np.random.Generator) -> bytes:
    at = choose_place(content, rng)
    return content[:at] + choose(CRUMBS, rng) + content[at:]


def repeat_line(content: bytes, rng: np.random.Generator) -> bytes:
    lines = content.splitlines(keepends=True)
    return b"".join([*lines, choose(lines, rng)]) if lines else content


def remove_line(content: bytes, rng: np.random.Generator) -> bytes:
    lines = content.splitlines(keepends=True)
    del lines[int(rng.integers(len(lines) or 1)) :][:1]
    gone = int(rng.integers(len(lines) or 1))
    return b"".join(lines[:gone] + lines[gone + 1 :])


def replace_number(content: bytes, rng: np.random.Generator) -> bytes:
    return replace_found(NUMBER, content, choose(CRUMBS, rng), rng)


def replace_string(content: bytes, rng: np.random.Generator) -> bytes:
    return replace_found(STRING, content, choose(CRUMBS, rng), rng)


def replace_found(pattern: re.Pattern[bytes], content: bytes, by: bytes, rng: np.random.Generator) -> bytes:
    found = list(pattern.finditer(content))
    if not found:
        return content
    one = choose(found, rng)
    return content[: one.start()] + by + content[one.end() :]


def replace_header(content: bytes, rng: np.random.Generator) -> bytes:
    return choose(HEADERS, rng) + b"\n" + content.partition(b"\n")[2]


def empty(content: bytes, rng: np.random.Generator) -> bytes:
    return choose([b"", b"\n\n", b" ", b"\0", b"\xef\xbb\xbf", *CRUMBS], rng)


MUTATIONS: list[Mutation] = [
    flip_bytes, flip_bits, truncate, cut_out, insert_bytes, insert_crumb, insert_crumb, repeat_line, remove_line,
    replace_number, replace_number, replace_string, replace_header, empty,
]  # fmt: skip


# Sizes in a pair of matrices. Checksums detect changed bytes of an archive, so members are changed before packing.

TYPES = [
    "'<f8'",
    "'<i8'",
    "'|S5'",
    "'<U9'",
    "'|O'",
    "'<c16'",
    "'<M8[s]'",
    "'|b1'",
    "'|V8'",
    "[('a', '<i4')]",
    "'>i4'",
    "'<f2'",
]
SHAPES = [
    "()",
    "(1,)",
    "(0,)",
    "(-1,)",
    "(999999999999,)",
    "(9223372036854775807, 2)",
    "(2, 2)",
    "(1e3,)",
    "None",
    "(" * 500,
]
ODD = [
    b"csr", "csr", "xyz", 3, 2.5, [], [1], ["csr"], [[b"csr"]], 10**18, -1, np.nan, [2**40, 2**40], [2**62, 2**62],
    [-1, 5],
    [4, 6, 1], [4.5, 6.0], ["4", "6"], [2**31, 2**31], [0, 0], [0, 10**15], [10**15, 0], np.zeros((2, 2)), True, 1j,
]  # fmt: skip


def mutate_member(archive: bytes, rng: np.random.Generator) -> bytes:
    """Return an archive with one changed member."""
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    name = choose(sorted(members), rng)
    how = int(rng.integers(7))
    if how == 0:
        del members[name]
    elif how == 1:
        members[name] = npy(choose(ODD, rng))
    elif how == 2:
        members[name] = re.sub(rb"'descr': [^,]*", lambda _: b"'descr': " + choose(TYPES, rng).encode(), members[name])
    elif how == 3:
        members[name] = re.sub(rb"\([^)]*\)", lambda _: choose(SHAPES, rng).encode(), members[name], count=1)
    elif how == 4:
        members[name] = change_numbers(members[name], rng)
    else:
        members[name] = choose(MUTATIONS, rng)(members[name], rng)
    if rng.random() < 0.1:
        members = {f"{'../' if rng.random() < 0.5 else 'x/'}{name}": content for name, content in members.items()}
    stream = io.BytesIO()
    with zipfile.ZipFile(
        stream, "w", choose([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA], rng)
    ) as file:
        for each, content in members.items():
            file.writestr(each, content)
    return stream.getvalue()


def npy(value) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.asarray(value), allow_pickle=False)
    return stream.getvalue()


def change_numbers(content: bytes, rng: np.random.Generator) -> bytes:
    """Return an array with other numbers of the same or another type."""
    array = np.load(io.BytesIO(content)).copy()
    if not array.size or array.dtype.kind not in "iuf":
        return content
    kind = choose(
        [array.dtype, np.int8, np.uint64, np.float16, np.float32, np.longdouble, np.complex64, np.bool_, "S3"], rng
    )
    numbers = [-1, 0, 1, 10**6, 2**31 - 1, 2**31, 2**63 - 1] + (
        [np.nan, np.inf, 1e300] if array.dtype.kind == "f" else []
    )
    array.flat[int(rng.integers(array.size))] = np.array(choose(numbers, rng)).astype(array.dtype)
    with np.errstate(all="ignore"):
        return npy(array.astype(kind))


def mutate_columns(rng: np.random.Generator) -> bytes:
    """Return a Parquet file with invalid UTF-8, or columns of unusual types or names."""
    bad = pyarrow.Array.from_buffers(
        pyarrow.string(),
        3,
        [None, *map(pyarrow.py_buffer, (np.array([0, 1, 2, 4], np.int32).tobytes(), b"a\xff\xed\xa0"))],
    )
    odd = [
        bad, pyarrow.array([1, None, 3]), pyarrow.array([["a"], None, [None]]), pyarrow.array([b"a", b"\xff", None]),
        pyarrow.array([{"a": 1}, None, {"a": 2}]), pyarrow.array([1.5, float("nan"), None]), pyarrow.nulls(3),
        pyarrow.array([True, False, None]), pyarrow.array(["a", "", None]),
        pyarrow.array(["a", "b", "a"]).dictionary_encode(),
        pyarrow.ListArray.from_arrays(pyarrow.array([0, 1, 2, 3], pyarrow.int32()), bad),
        pyarrow.array([10**18, 1, 2], pyarrow.timestamp("ns")), pyarrow.array([2**40, 1, 2], pyarrow.timestamp("s")),
        pyarrow.array([[1, 2], [3], []]), pyarrow.array([1, 2, 3], pyarrow.duration("s")),
    ]  # fmt: skip
    names = ["id", "text", "labels", "text", "x", "", "té", "\u202e", "a\nb"]
    n = int(rng.integers(1, 5))
    arrays, called = [choose(odd, rng) for _ in range(n)], [choose(names, rng) for _ in range(n)]
    stream = io.BytesIO()
    write_table(pyarrow.Table.from_arrays(arrays, called), stream, compression="none", store_schema=rng.random() < 0.5)
    content = stream.getvalue()
    if rng.random() < 0.4:  # all occurrences of the name of a column
        content = content.replace(choose([b"text", b"labels", b"id"], rng), choose([b"t\xffxt", b"\xc3\xc3"], rng))
    return content


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": lambda content: gzip.compress(content, 1),
    ".bz2": bz2.compress,
    ".zst": lambda content: pyarrow.compress(content, "zstd", asbytes=True),
}


def damage_corpus(name: str, rng: np.random.Generator) -> Files:
    """Return a corpus with one of its files changed once or several times, possibly compressed and changed again."""
    files = dict(make_corpora()[name])
    which = choose(sorted(files), rng)
    content = files[which]
    if name == "npz" and rng.random() < 0.8:
        content = mutate_member(content, rng)
    elif name == "parquet" and rng.random() < 0.4:
        content = mutate_columns(rng)
    for _ in range(int(rng.choice([0, 1, 1, 1, 2, 5]))):
        content = choose(MUTATIONS, rng)(content, rng)
    end = choose([*COMPRESSIONS], rng)
    content = COMPRESSIONS[end](content)
    if end and rng.random() < 0.4:
        content = choose(MUTATIONS, rng)(content, rng)
    files[which] = content
    return files


def case(seed: int, number: int) -> None:
    rng = np.random.default_rng([seed, number])
    if number % HOSTILE_EVERY == 0:
        hostile_case(number // HOSTILE_EVERY, rng)
        return
    name = choose(sorted(make_corpora()), rng)
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        path = write(Path(folder), damage_corpus(name, rng), name, rng)
        format = name.partition(",")[0] if rng.random() < 0.7 else None
        labels = choose(["labels", "labels", "labels", "x", None], rng)
        corpus = open_corpus(
            path,
            format,
            Fields(
                choose(["text", "text", "text", "text,id", "t"], rng), labels, separator=choose([None, None, " "], rng)
            ),
            labels_required=labels is not None and rng.random() < 0.7,
            on_error=choose(["stop", "skip"], rng),
            layout=Layout(choose([None, None, ";", "\t"], rng), choose([None, None, "utf-16", "latin-1"], rng)),
            notifier=Notifier(lambda sentence: escape_controls(sentence).encode()),
        )
        with watch_access(folder):
            for document in read_in_batches(corpus) if rng.random() < 0.5 else corpus:
                check(document)
        str(corpus.rejects).encode()


def hostile_case(number: int, rng: np.random.Generator) -> None:
    """Read hostile files, first unchanged, then with changed bytes."""
    files = list_hostile_files()
    name, content = files[number % len(files)]
    for _ in range(int(rng.integers(1, 4)) if number >= len(files) else 0):
        content = choose((flip_bytes, truncate, cut_out, insert_bytes), rng)(content, rng)
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder, watch_access(folder):
        path = Path(folder, name)
        path.write_bytes(content)
        for document in open_corpus(
            path,
            None,
            Fields(labels=None),
            False,
            notifier=Notifier(lambda sentence: escape_controls(sentence).encode()),
        ):
            check(document)


@cache
def list_hostile_files() -> list[tuple[str, bytes]]:
    return list(hostile_files())


def read_in_batches(corpus: Corpus) -> Iterator[Document]:
    """Read in batches, as training does."""
    for each in corpus.iter_batches(Run(threads=1)):
        if isinstance(each, DocumentBatch):
            names, labels = each.label_names.to_pylist(), np.split(each.label_ids, each.label_offsets[1:-1])
            found = zip(each.texts, labels, strict=True)
            yield from (Document("", text, [names[n] for n in numbers]) for text, numbers in found)
        else:
            yield each


def write(folder: Path, files: Files, name: str, rng: np.random.Generator) -> str:
    """Return the path of the corpus, sometimes with invalid UTF-8."""
    odd = rng.random() < 0.1
    for each, content in files.items():
        target = folder / each
        target.parent.mkdir(exist_ok=True)
        if odd and "/" in each:
            target = target.with_name(os.fsdecode(b"\xff" + target.name.encode()))
        target.write_bytes(content)
    first = folder / next(iter(files))
    if odd and "/" not in first.relative_to(folder).as_posix() and len(files) == 1:
        first = first.rename(first.with_name(os.fsdecode(b"\xfe" + first.name.encode())))
    if name == "paired":
        return f"{folder}/texts.txt,{folder}/labels.txt"
    return str(folder / "f" if name == "annif, a folder" else first)


def check(document: Document) -> None:
    """Check that the documents can be written and that their numbers are finite."""
    assert all(isinstance(each, str) for each in (document.id, document.text, *document.labels))
    json.dumps(document[:3], ensure_ascii=False).encode()
    assert len(set(document.labels)) == len(document.labels)
    if document.features is not None:
        columns, values = document.features
        assert columns.dtype == np.int32
        assert values.dtype == np.float32
        assert np.isfinite(values).all(), values
        assert (columns >= 0).all()
        assert (np.diff(columns) > 0).all()


if __name__ == "__main__":
    cases.main(__file__, case, __doc__)
