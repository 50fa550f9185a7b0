"""xmtc data stats, convert and split: worked examples, complete output files, and guarantees of a split."""

from __future__ import annotations

import gzip
import json
import os
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from xmtc.cli.data import app
from xmtc.data.corpus import open_corpus, open_corpus_writer
from xmtc.data.document import Document
from xmtc.data.file_streams import open_output
from xmtc.data.splits import choose_test_documents, split_corpus
from xmtc.data.statistics import Statistics, compute_corpus_statistics, top_fifth_share
from xmtc.errors import XmtcError

FISH = """\
{"id": "1", "text": "One fish, two fish", "labels": ["fish", "number"]}
{"id": "2", "text": "Red fish", "labels": ["fish"]}
{"id": "3", "text": "", "labels": ["nothing"]}
{"id": "4", "text": "Red fish", "labels": []}
{"id": "5", "text": "   ", "labels": ["fish", "colour"]}
"""
WRITABLE = "jsonl, csv, tsv, parquet, fasttext, sparse, paired"
SPARSE = "3 9 4\n0,1 1:1 8:2\n1 1:1 8:2\n 3:1\n"


@pytest.fixture
def fish(tmp_path: Path) -> Path:
    path = tmp_path / "fish.jsonl"
    path.write_text(FISH, encoding="utf-8")
    return path


def call(*arguments: object, input: bytes | None = None) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), input=input, catch_exceptions=False)


def test_statistics_match_a_worked_example(fish: Path) -> None:
    assert compute_corpus_statistics(open_corpus(fish)) == Statistics(
        documents=5,
        features=5,  # one, fish, "fish,", two, red
        labels=4,
        labels_per_document=6 / 5,
        documents_per_label=6 / 4,
        words_per_document=8 / 5,
        features_per_document=None,
        duplicates=1,
        empty_documents=2,
        unlabelled_documents=1,
        labels_seen_once=3,
        top_fifth_share=3 / 6,  # the most frequent fifth of the four labels
        rejected=0,
    )


def test_statistics_of_features(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text(SPARSE)
    found = compute_corpus_statistics(open_corpus(tmp_path / "c.txt"))
    assert (found.features, found.features_per_document, found.words_per_document) == (9, 5 / 3, None)
    assert (found.labels, found.duplicates, found.unlabelled_documents) == (2, 1, 1)
    (tmp_path / "c.svm").write_text(SPARSE.partition("\n")[2])
    assert compute_corpus_statistics(open_corpus(tmp_path / "c.svm")).features == 9


def test_top_fifth_is_rounded_up() -> None:
    assert top_fifth_share(Counter(a=5, b=3, c=1, d=1)) == 0.5
    assert top_fifth_share(Counter(a=5, b=3, c=1, d=1, e=1, f=1)) == 8 / 12
    assert top_fifth_share(Counter()) == 0


def test_stats_prints_a_table(fish: Path) -> None:
    result = call("stats", fish)
    rows = [line.rsplit(maxsplit=1) for line in result.stdout.splitlines()]
    assert ["documents", "5"] in rows
    assert ["words per document", "1.60"] in rows
    assert "share of the top 20 % of labels  50.0 %" in result.stdout
    assert result.stdout.isascii()  # no plot in a pipe
    assert result.stderr == ""


def test_stats_as_json_from_standard_input_with_a_bad_line(tmp_path: Path) -> None:
    rejects = tmp_path / "bad"
    result = call("stats", "-", "--json", "--on-error", "skip", "--rejects", rejects, input=FISH.encode() + b"{\n")
    found = json.loads(result.stdout)
    assert (found["documents"], found["rejected"], found["features_per_document"]) == (5, 1, None)
    assert result.stderr.startswith(
        f"1 line of standard input set aside in {rejects}, the first at line 6: this is not valid JSON"
    )
    assert rejects.read_bytes().endswith(b"\t{\n")


@pytest.mark.parametrize("content", [FISH, SPARSE, SPARSE.partition("\n")[2]])
def test_stats_of_a_named_pipe(content: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text(content, encoding="utf-8")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[content.encode()], daemon=True)
    writer.start()
    assert call("stats", tmp_path / "pipe").stdout == call("stats", tmp_path / "file").stdout
    writer.join()


@pytest.mark.parametrize("name", ["out.csv.gz", "out.tsv", "out.parquet", "out.jsonl.zst"])
def test_convert_changes_the_format(name: str, fish: Path, tmp_path: Path) -> None:
    result = call("convert", fish, tmp_path / name)
    assert result.stderr == f"5 documents written to {tmp_path / name}.\n"
    assert list(open_corpus(tmp_path / name)) == list(open_corpus(fish))


def test_convert_names_fields_and_formats(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("n,title,tags\n7,a fish,x y\n", encoding="utf-8")
    names = ["--text", "title", "--labels", "tags", "--id", "n", "--separator", " "]
    call("convert", source, target, "--format", "fasttext", *names)
    assert target.read_text(encoding="utf-8") == "__label__x __label__y a fish\n"
    result = call("convert", target, "-", "--format", "jsonl")
    assert json.loads(result.stdout) == {"id": "1", "text": "a fish", "labels": ["x", "y"]}


def test_convert_without_labels(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("text\na\n")
    assert call("convert", tmp_path / "c.csv", "-", "--format", "jsonl", "--unlabelled").stdout.endswith(
        '"labels": []}\n'
    )


@pytest.mark.parametrize(
    ("source", "target", "options", "message"),
    [
        (
            "c.jsonl",
            "out.txt",
            ["--format", "sparse"],
            "{source} contains text, but sparse is a format for features; "
            "expected jsonl, csv, tsv, parquet or fasttext.",
        ),
        ("c.txt", "out.jsonl", [], "{source} contains features, but jsonl is a format for text; expected sparse."),
        ("c.jsonl", "out", [], f"{{target}} does not say which format to write; pass --format, one of {WRITABLE}."),
        (
            "c.jsonl",
            "out",
            ["--format", "annif"],
            f"{{target}}: annif can be read but not written; expected one of {WRITABLE}.",
        ),
        ("c.jsonl", "no/out.csv", [], "{target} cannot be written (No such file or directory); choose another place."),
    ],
)
def test_invalid_conversions_are_rejected(
    source: str, target: str, options: list[str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "c.jsonl").write_text(FISH, encoding="utf-8")
    (tmp_path / "c.txt").write_text(SPARSE)
    with pytest.raises(XmtcError) as error:
        call("convert", tmp_path / source, tmp_path / target, *options)
    assert str(error.value) == message.format(source=tmp_path / source, target=tmp_path / target)
    assert not (tmp_path / target).exists()


def save(path: Path, document: Document) -> None:
    with open_corpus_writer(path) as add:
        add(document)


@pytest.mark.parametrize(
    ("document", "trait"),
    [
        (Document("7", "t", ["a b"]), "the label 'a b' with white space"),
        (Document("7", "see __label__x", []), "a word that starts with __label__ in its text"),
        (Document("7", " \n", []), "neither text nor labels"),
    ],
)
def test_fasttext_rejects_what_it_cannot_represent(document: Document, trait: str, tmp_path: Path) -> None:
    with pytest.raises(XmtcError) as error:
        save(tmp_path / "c.ft", document)
    assert str(error.value) == f"Document '7' has {trait}, which fastText cannot represent; write jsonl instead."
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("name", ["c.jsonl", "c.csv.gz", "c.parquet", "c.txt.zst"])
def test_output_file_is_complete_or_absent(name: str, error: type[BaseException], tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"old")

    def break_off() -> None:
        with open_corpus_writer(tmp_path / name) as add:
            add(Document("1", "text", ["x"]))
            raise error

    with pytest.raises(error):
        break_off()
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [(name, b"old")]


def test_links_and_devices_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "link.gz").symlink_to(tmp_path / "file.gz")
    with open_output(str(tmp_path / "link.gz")) as stream:
        stream.write(b"x")
    assert (tmp_path / "link.gz").is_symlink()
    assert gzip.decompress((tmp_path / "file.gz").read_bytes()) == b"x"
    with open_output("/dev/null") as stream:
        stream.write(b"x")
    assert not Path("/dev/null").is_file()


label_sets = st.lists(st.sets(st.integers(0, 12), max_size=4), min_size=1, max_size=40)


@given(label_sets, st.integers(0, 40), st.integers(0, 5))
def test_split_keeps_every_label_in_training(documents: list[set[int]], n_test: int, seed: int) -> None:
    labels = np.array([label for document in documents for label in sorted(document)], dtype=np.int64)
    ends = np.cumsum([len(document) for document in documents])
    in_test = choose_test_documents(labels, ends, n_test, seed)
    training = Counter(
        label for document, tests in zip(documents, in_test, strict=True) if not tests for label in document
    )
    assert set(training) == set().union(*documents)
    assert in_test.sum() <= n_test
    if in_test.sum() < n_test:  # because every remaining document holds the last training document of a label
        left = [document for document, tests in zip(documents, in_test, strict=True) if not tests]
        assert all(any(training[label] == 1 for label in document) for document in left)
    assert (in_test == choose_test_documents(labels, ends, n_test, seed)).all()


@pytest.fixture
def hundred(tmp_path: Path) -> Path:
    path = tmp_path / "hundred.jsonl"
    with open_corpus_writer(path) as add:
        for i in range(100):
            add(Document(f"d{i}", f"text {i}", [f"l{i % 7}", *(["rare"] if i == 50 else [])]))
    return path


def test_split_writes_two_corpora(hundred: Path, tmp_path: Path) -> None:
    train, test = tmp_path / "train.jsonl.gz", tmp_path / "test.csv"
    result = call("split", hundred, train, test, "--share", 0.3, "--seed", 1)
    assert result.stderr.startswith(f"70 documents written to {train}, 30 to {test}.\n")
    parts = [list(open_corpus(path)) for path in (train, test)]
    assert sorted(parts[0] + parts[1]) == sorted(open_corpus(hundred))
    numbers = [int(document.id[1:]) for document in parts[1]]
    assert numbers == sorted(numbers)  # in the order of the corpus
    assert "d50" in {document.id for document in parts[0]}
    again, other = tmp_path / "again.csv", tmp_path / "other.csv"
    call("split", hundred, train, again, "--share", 0.3, "--seed", 1)
    call("split", hundred, train, other, "--count", 30, "--seed", 2)
    assert again.read_bytes() == test.read_bytes() != other.read_bytes()
    assert len(list(open_corpus(other))) == 30


def test_plain_split_can_hold_out_the_only_document_of_a_label(tmp_path: Path) -> None:
    corpus, train, test = (tmp_path / f"{name}.jsonl" for name in ("all", "train", "test"))
    corpus.write_text("".join(f'{{"text": "t{i}", "labels": ["label {i}"]}}\n' for i in range(10)))
    result = call("split", corpus, train, test, "--count", 4, "--random")
    assert len(test.read_text().splitlines()) == 4
    assert "metrics on" not in result.stderr
    result = call("split", corpus, train, test, "--count", 4)
    assert not test.read_text()
    assert "higher than on new documents; --random" in result.stderr


def test_split_of_features_keeps_the_header(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text(SPARSE)
    call("split", tmp_path / "c.txt", tmp_path / "train.txt", tmp_path / "test.txt", "--count", 1)
    assert (tmp_path / "train.txt").read_text().startswith("2 9 4\n")
    assert (tmp_path / "test.txt").read_text().startswith("1 9 4\n")


def test_split_reports_too_few_documents(fish: Path, tmp_path: Path) -> None:
    result = call("split", fish, tmp_path / "train.jsonl", tmp_path / "test.jsonl", "--count", 4)
    assert "was to get 4 documents" in result.stderr
    training_labels = {label for document in open_corpus(tmp_path / "train.jsonl") for label in document.labels}
    assert training_labels == {"fish", "number", "nothing", "colour"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 1.5}, "share=1.5 is out of range; expected a number between 0 and 1."),
        ({"count": 5}, "count=5 is out of range; expected 1 to 4 of 5 documents."),
        ({"share": 0.5, "count": 2}, "Found both a share (0.5) and a count (2) for the test part; pass one of them."),
        ({"test": "train.jsonl"}, "The parts train.jsonl and train.jsonl must be two files; choose two names."),
    ],
)
def test_invalid_splits_are_rejected(options: dict, message: str, fish: Path) -> None:
    with pytest.raises(XmtcError) as error:
        split_corpus(open_corpus(fish), **{"train": "train.jsonl", "test": "test.jsonl", **options})
    assert str(error.value) == message
