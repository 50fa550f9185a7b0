"""Texts in one file and labels in another, line by line, as published by the authors of AttentionXML."""

from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path

import pytest
from test_data_commands import call
from typer.testing import CliRunner

from xmtc.cli import app
from xmtc.data.corpus import open_corpus, open_corpus_writer
from xmtc.data.document import Document
from xmtc.data.formats.paired import find_paired_labels
from xmtc.data.records import Fields
from xmtc.errors import XmtcError

TEXTS = b"fish in the sea /SEP/ herring\n\nbirds of the air\ntrees\n"
LABELS = b"sea fish\n  air\n\nwood sea wood\n"
DOCUMENTS = [
    Document("1", "fish in the sea /SEP/ herring", ["sea", "fish"]),
    Document("2", "", ["air"]),
    Document("3", "birds of the air", []),
    Document("4", "trees", ["wood", "sea"]),
]


def save(folder: Path, texts: bytes = TEXTS, labels: bytes | None = LABELS, name: str = "train_texts.txt") -> Path:
    (folder / name).write_bytes(texts)
    if labels is not None:
        (folder / "train_labels.txt").write_bytes(labels)
    return folder / name


@pytest.mark.parametrize("name", ["train_texts.txt", "train_raw_texts.txt"])
def test_label_file_is_found_next_to_the_texts(name: str, tmp_path: Path) -> None:
    corpus = open_corpus(save(tmp_path, name=name))
    assert corpus.format == "paired"
    assert list(corpus) == DOCUMENTS
    assert list(corpus) == DOCUMENTS  # documents can be read several times
    assert repr(corpus) == f"Corpus('{tmp_path}/{name},{tmp_path}/train_labels.txt', format='paired')"


def test_both_files_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "a,b").mkdir()
    (tmp_path / "a,b" / "x.txt").write_bytes(TEXTS)
    (tmp_path / "y.bz2").write_bytes(bz2.compress(LABELS))
    assert list(open_corpus(f"{tmp_path}/a,b/x.txt,{tmp_path}/y.bz2")) == DOCUMENTS
    (tmp_path / "x").write_bytes(TEXTS)
    assert list(open_corpus(f"{tmp_path}/x,{tmp_path}/y.bz2", "paired")) == DOCUMENTS


def test_file_with_a_comma_in_its_name_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt,b").write_text("__label__x a\n")
    assert open_corpus(tmp_path / "a.txt,b").format == "fasttext"


@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        ("texts.txt", "labels.txt"),
        ("text.txt", "label.txt"),
        ("train_texts.txt.gz", "train_labels.txt.gz"),
        ("train_texts.txt.gz", "train_labels.txt"),
        ("train_texts.txt", "train_labels.txt.zst"),
        ("wiki-texts-10.txt", "wiki-labels-10.txt"),
        ("train_raw_texts.txt", "train_labels.txt"),
        ("train_contexts.txt", None),
        ("train.txt", None),
    ],
)
def test_names_of_label_files(texts: str, labels: str | None, tmp_path: Path) -> None:
    for other in ("train_labels.csv", "labels", "test_labels.txt", "train_textlabels.txt"):
        (tmp_path / other).touch()
    assert find_paired_labels(str(tmp_path / texts)) is None
    if labels:
        (tmp_path / labels).touch()
        assert find_paired_labels(str(tmp_path / texts)) == str(tmp_path / labels)


def test_label_file_with_the_same_compression_is_preferred(tmp_path: Path) -> None:
    for name in ("labels.txt", "labels.txt.gz"):
        (tmp_path / name).touch()
    assert find_paired_labels(str(tmp_path / "texts.txt.gz")) == str(tmp_path / "labels.txt.gz")
    assert find_paired_labels(str(tmp_path / "texts.txt")) == str(tmp_path / "labels.txt")


def test_compression_byte_order_marks_and_line_endings(tmp_path: Path) -> None:
    bom = b"\xef\xbb\xbf"
    (tmp_path / "texts.txt.gz").write_bytes(gzip.compress(bom + TEXTS.replace(b"\n", b"\r\n")))
    (tmp_path / "labels.txt").write_bytes(bom + LABELS.replace(b"\n", b"\r\n").removesuffix(b"\r\n"))
    assert list(open_corpus(tmp_path / "texts.txt.gz")) == DOCUMENTS


@pytest.mark.parametrize(("texts", "labels"), [(4, 3), (3, 4), (1, 4), (4, 1), (4, 0)])
def test_unequal_numbers_of_lines(texts: int, labels: int, tmp_path: Path) -> None:
    path = save(tmp_path, b"a\n" * texts, b"x\n" * labels)
    for on_error in ("stop", "skip"):
        with pytest.raises(XmtcError) as error:
            list(open_corpus(path, on_error=on_error))
        assert str(error.value) == (
            f"{path} has {texts} lines and {tmp_path}/train_labels.txt has {labels}, expected one line per document in "
            f"both; check that they are a pair, or pass --input-format if {path} contains the labels."
        )
    with pytest.raises(XmtcError, match=r"in both; check that they are a pair\.$"):
        list(open_corpus(f"{path},{tmp_path}/train_labels.txt"))


def test_bad_line_skips_the_line_of_the_other_file(tmp_path: Path) -> None:
    path = save(tmp_path, b"a\n\xff\nc\nd\n", b"x\ny\n\xfe\nz\n")
    with pytest.raises(XmtcError, match="line 2: byte 0xff at position 1 is not valid UTF-8"):
        list(open_corpus(path))
    corpus = open_corpus(path, on_error="skip")
    assert list(corpus) == [Document("1", "a", ["x"]), Document("4", "d", ["z"])]
    reason = "byte 0xfe in this line of train_labels.txt is not valid UTF-8, expected UTF-8 text"
    rejects = (tmp_path / "train_texts.txt.rejects").read_bytes().splitlines()
    assert rejects[1] == f"3\t{reason}\tc".encode()
    assert (corpus.n_rejected, len(rejects)) == (2, 2)


def test_label_separators(tmp_path: Path) -> None:
    path = save(tmp_path, b"a\nb\n", b"open sea; fish;\n\n")
    documents = open_corpus(path, fields=Fields(separator=";"))
    assert [document.labels for document in documents] == [["open sea", "fish"], []]


def test_other_formats_are_not_detected_as_paired(tmp_path: Path) -> None:
    for content, format in ((b"__label__x a\n", "fasttext"), (b'{"text": "a"}\n', "jsonl"), (b"text\tlabels\n", "tsv")):
        assert open_corpus(save(tmp_path, content)).format == format
    for content in (b"a tab\tin the text\n", b"{curly\n", b"1 2 3\n"):
        assert open_corpus(save(tmp_path, content)).format == "paired"


def test_texts_without_labels_are_an_error(tmp_path: Path) -> None:
    path = save(tmp_path, labels=None)
    with pytest.raises(XmtcError, match="matches no known format"):
        open_corpus(path)
    with pytest.raises(XmtcError) as error:
        list(open_corpus(path, "paired"))
    assert str(error.value).endswith(f"train_texts.txt; pass both as {path},LABELS.txt.")
    with pytest.raises(XmtcError, match=r"train_labels\.txt: there is no such file"):
        list(open_corpus(f"{path},{tmp_path}/train_labels.txt"))
    with pytest.raises(XmtcError, match="paired is a pair of files, which standard input cannot contain"):
        open_corpus("-", "paired")
    assert [document.labels for document in open_corpus(path, "paired", labels_required=False)] == [[]] * 4


def test_labels_are_not_read_for_prediction(tmp_path: Path) -> None:
    path = save(tmp_path, labels=b"\xff\n")
    unread = Fields(labels=None)
    pair = open_corpus(f"{path},{tmp_path}/train_labels.txt", None, unread, False)
    assert [document[:3] for document in pair] == [(number, text, []) for number, text, *_ in DOCUMENTS]
    assert open_corpus(path, None, unread, False).format == "fasttext"


def test_round_trip(tmp_path: Path) -> None:
    pair = f"{tmp_path}/texts.txt.gz,{tmp_path}/labels.txt"
    with open_corpus_writer(pair) as add:
        for document in [*DOCUMENTS, Document("e", "two\r\nlines", ["é"])]:
            add(document)
    assert list(open_corpus(tmp_path / "texts.txt.gz")) == [*DOCUMENTS, Document("5", "two lines", ["é"])]
    assert gzip.decompress((tmp_path / "texts.txt.gz").read_bytes()) == TEXTS + b"two lines\n"
    before = (tmp_path / "labels.txt").read_bytes()
    with (
        pytest.raises(XmtcError, match="has the label 'open sea' with white space"),
        open_corpus_writer(pair) as add,
    ):
        add(Document("1", "a", ["open sea"]))
    assert (tmp_path / "labels.txt").read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["labels.txt", "texts.txt.gz"]


@pytest.mark.parametrize("target", ["texts.txt", "texts.txt,texts.txt", "a,b"])
def test_pair_is_written_to_two_files(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with (
        pytest.raises(XmtcError, match="paired writes two files; name both, as in"),
        open_corpus_writer(target, "paired"),
    ):
        pass
    assert not list(tmp_path.iterdir())


def test_corpus_is_never_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save(tmp_path)
    for target in ("train_labels.txt", "a.txt,train_labels.txt", "train_texts.txt,b.txt"):
        with pytest.raises(XmtcError, match=r"train_\w+\.txt is part of the corpus that is read"):
            call("convert", "train_texts.txt", target)
    with pytest.raises(XmtcError, match="must be two files"):
        call("split", "train_texts.txt", "a.txt,l.txt", "b.txt,l.txt")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["train_labels.txt", "train_texts.txt"]


def test_commands_read_and_write_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save(tmp_path, TEXTS * 10, LABELS * 10)
    run = CliRunner().invoke

    done = run(app, ["data", "stats", "train_texts.txt", "--json"])
    assert "Labels are read from train_labels.txt." in done.stderr
    found = json.loads(done.stdout)
    assert [found[key] for key in ("documents", "labels", "empty_documents", "unlabelled_documents")] == [40, 4, 10, 10]

    done = run(app, ["data", "split", "train_texts.txt,train_labels.txt", "a_texts.txt,a_labels.txt", "b.jsonl"])
    assert (done.exit_code, "Labels are read" in done.stderr) == (0, False)
    assert len(list(open_corpus("a_texts.txt"))) + len(list(open_corpus("b.jsonl"))) == 40

    assert run(app, ["data", "convert", "train_raw_texts.txt", "c.jsonl"]).exit_code != 0  # the file does not exist
    assert run(app, ["data", "convert", "train_texts.txt", "c.jsonl"]).exit_code == 0
    assert list(open_corpus("c.jsonl"))[:4] == DOCUMENTS

    done = run(app, ["train", "train_texts.txt,train_labels.txt", "-o", "model", "-p", "min_df=1"])
    assert done.exit_code == 0, done.stderr
    assert run(app, ["evaluate", "model", "train_texts.txt", "P@1"]).stdout.startswith("P@1")
    done = run(app, ["predict", "model", "train_texts.txt"])
    assert (done.exit_code, "Labels are read" in done.stderr) == (0, False)


def test_table_of_the_authors_of_aplc_xlnet(tmp_path: Path) -> None:
    """It has an id, a text and comma-separated labels, under any column names."""
    (tmp_path / "train.csv").write_text('id,comment_text,tags\n7,"fish, in the sea","12,3"\n8,birds,\n')
    fields = Fields(text="comment_text", labels="tags", separator=",")
    assert list(open_corpus(tmp_path / "train.csv", fields=fields)) == [
        Document("7", "fish, in the sea", ["12", "3"]),
        Document("8", "birds", []),
    ]
