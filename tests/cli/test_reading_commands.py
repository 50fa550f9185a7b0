"""Commands on real-world files: a model remembers how its corpus was read."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from commands import invoke, xmtc
from paper import pdf
from planted import make_planted_corpus
from test_real_world_files import workbook

from xmtc.tagger import Tagger

HEADER = ["Nr", "Title", "Abstract", "Subjects"]
TRAIN = ["--text", "title,abstract", "--labels", "subjects", "--id", "nr", "--separator", ";"]


def rows(n_docs: int, seed: int) -> list[list[str]]:
    pairs = zip(*make_planted_corpus(n_docs, seed), strict=True)
    return [[f"n{i}", "über", text, "; ".join(labels)] for i, (text, labels) in enumerate(pairs)]


def table(rows: list[list[str]], delimiter: str, encoding: str) -> bytes:
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter, lineterminator="\r\n").writerows([HEADER, *rows])
    return stream.getvalue().encode(encoding)


def run(*words, **how) -> tuple[str, str]:
    done = xmtc(*words, **how)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode(), done.stderr.decode()


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reading")
    train, test = rows(300, 0), rows(40, 1)
    (folder / "train.csv").write_bytes(table(train, ";", "cp1252"))
    (folder / "test.csv").write_bytes(table(test, ";", "cp1252"))
    (folder / "modern.csv").write_bytes(table(test, ",", "utf-8"))
    (folder / "part-1.csv").write_bytes(table(train[:100], ";", "cp1252"))
    (folder / "part-2.csv").write_bytes(table(train[100:], ";", "cp1252"))
    said = run("train", "train.csv", "-o", "model", *TRAIN, cwd=folder)[1]
    assert "train.csv is read as windows-1252 (über); --encoding overrides this." in said
    assert "train.csv is read with semicolons between its cells; --delimiter overrides this." in said
    return folder


def test_model_remembers_reading_options(place):
    reading = Tagger.load(place / "model").about["reading"]
    assert reading == {
        "text": "title,abstract",
        "labels": "subjects",
        "id": "nr",
        "separator": ";",
        "delimiter": ";",
        "encoding": "windows-1252",
    }
    figures, said = run("evaluate", "model", "test.csv", "P@1", "--json", cwd=place)
    assert json.loads(figures)["P@1"] > 0.9
    assert said == ""  # same as in training
    assert json.loads(run("predict", "model", "test.csv", cwd=place)[0].splitlines()[3])["id"] == "n3"
    assert "overlap" in run("compare", "model", "model", "--test", "test.csv", cwd=place)[0]


def test_remembered_options_do_not_apply_to_other_files(place):
    """A file in UTF-8 is never read with the code page of another."""
    assert run("evaluate", "model", "modern.csv", cwd=place) == run("evaluate", "model", "test.csv", cwd=place)
    (place / "other.jsonl").write_text('{"body": "word1 word2", "nr": 5}\n')
    refused = xmtc("predict", "model", "other.jsonl", cwd=place)
    assert refused.returncode == 2
    assert b"there is no field 'title' among 'body', 'nr'; name the right one with --text" in refused.stderr
    assert json.loads(run("predict", "model", "other.jsonl", "--text", "body", cwd=place)[0])["id"] == "5"


def test_combined_models_remember_reading_options(place):
    run("combine", "model", "model", "-o", "both", "--valid", "test.csv", cwd=place)
    assert run("evaluate", "both", "test.csv", "P@1", cwd=place)[0].startswith("P@1")


def test_damaged_reading_options_are_rejected(place):
    Tagger.load(place / "model").save(place / "damaged")
    about = json.loads((place / "damaged/about.json").read_text())
    (place / "damaged/about.json").write_text(json.dumps(about | {"reading": {"text": 7}}))
    refused = xmtc("evaluate", "damaged", "test.csv", cwd=place)
    assert refused.returncode == 2
    sentence = b"damaged is damaged: its reading.text is 7, expected text; copy or train it again."
    assert refused.stderr == b"xmtc: %s\n" % sentence


def test_default_reading_options_are_not_stored(place):
    (place / "plain.jsonl").write_text("".join(f'{{"text": "a{i % 3}", "labels": ["{i % 3}"]}}\n' for i in range(30)))
    run("train", "plain.jsonl", "-o", "plain", "-p", "min_df=1", cwd=place)
    assert "reading" not in Tagger.load(place / "plain").about


def test_suspicious_labels_are_reported_or_rejected(place):
    words = ["train", "train.csv", "-o", "wrong", *TRAIN[:-2]]
    said = run(*words, cwd=place)[1]
    assert "labels contain ';' (" in said
    assert (
        f"did you mean --separator ';'? That would make {Tagger.load(place / 'model').about['n_labels']} labels."
        in said
    )
    refused = xmtc(*words[:3], "strict", *words[4:], "--strict", cwd=place)
    assert refused.returncode == 2
    assert b"did you mean --separator ';'?" in refused.stderr
    assert not (place / "strict").exists()


@pytest.mark.parametrize("files", [["part-1.csv", "part-2.csv"], ["part-*.csv"]])
def test_training_reads_several_files(files, place):
    said = run("train", *files, "-o", "parts", *TRAIN, cwd=place)[1]
    assert "trained on 300 documents" in said
    assert Tagger.load(place / "parts").about["data"] == Tagger.load(place / "model").about["data"]


def test_repeated_file_is_reported_or_rejected(place):
    words = ["train", "train.csv", "./train.csv", "-o", "twice", *TRAIN]
    said = run(*words, cwd=place)[1]
    assert "train.csv and ./train.csv are the same, and read once; expected each file once" in said
    assert "trained on 300 documents" in said
    refused = xmtc(*words, "--strict", cwd=place)
    assert refused.returncode == 2
    assert b"train.csv and ./train.csv are the same" in refused.stderr


def test_workbook_is_predicted(place):
    (place / "train.xlsx").write_bytes(workbook([HEADER, *rows(300, 0)], ("Notes", "Books")))
    said = run("train", "train.xlsx", "-o", "sheet", *TRAIN, cwd=place)[1]
    assert "train.xlsx: the sheet 'Books' is read; --sheet overrides this." in said
    assert Tagger.load(place / "sheet").about["data"] == Tagger.load(place / "model").about["data"]
    (place / "test.xlsx").write_bytes(workbook([HEADER, *rows(40, 1)]))
    assert run("evaluate", "sheet", "test.xlsx", cwd=place)[0] == run("evaluate", "model", "test.csv", cwd=place)[0]


def ids(answers: str) -> list[str]:
    return [json.loads(line)["id"] for line in answers.splitlines()]


def test_texts_are_read_whole_or_by_line(place):
    two_lines = b"one line\nanother line\n"
    assert ids(run("predict", "model", "-", input=two_lines, cwd=place)[0]) == ["1", "2"]
    assert ids(run("predict", "model", "-", "--whole", input=two_lines, cwd=place)[0]) == ["1"]
    (place / "texts/sub").mkdir(parents=True, exist_ok=True)
    for name in ("a.txt", "sub/b.txt", ".c.txt"):
        (place / "texts" / name).write_bytes(two_lines)
    assert ids(run("predict", "model", "texts/a.txt", cwd=place)[0]) == ["a"]
    assert ids(run("predict", "model", "texts/a.txt", "--input-format", "fasttext", cwd=place)[0]) == ["1", "2"]
    assert ids(run("predict", "model", "texts", cwd=place)[0]) == ["a"]
    _, told = run("predict", "model", "texts", cwd=place)
    assert "texts: 1 more document in subfolders is not read; pass --recursive to read them." in told
    answers, told = run("predict", "model", "texts", "--recursive", cwd=place)
    assert ids(answers) == ["a", "sub/b"]
    assert "folders within" not in told


def test_explanation_names_the_page(place):
    pytest.importorskip("pypdf")
    text = rows(1, 1)[0][2]
    (place / "report.pdf").write_bytes(pdf("nothing of interest here", text))
    shown = run("explain", "model", "report.pdf", "-k", "1", cwd=place)[0]
    assert "page 2: " in shown
    assert "page 1: " not in shown
    (answer,) = json.loads(run("explain", "model", "report.pdf", "-k", "1", "--json", cwd=place)[0])["labels"]
    assert {piece["page"] for piece in answer["pieces"] if piece["weight"]} == {2}
    html = run("explain", "model", "report.pdf", "-k", "1", "--html", "-", cwd=place)[0]
    assert "<p>Page 2: " in html


def test_explain_takes_other_encodings(place):
    text = f"über {rows(1, 1)[0][2]}"
    (place / "text.txt").write_bytes(text.encode("utf-16"))
    shown, said = run("explain", "model", "text.txt", "-k", "1", cwd=place)
    assert text in shown
    assert "text.txt is read as utf-16; --encoding overrides this." in said


@pytest.mark.parametrize(
    ("encoding", "sentence"),
    [
        ("cp1252", "standard input is read as windows-1252 (über); --encoding overrides this."),
        ("utf-16", ""),
        ("utf-16-le", ""),
        ("utf-8", ""),
    ],
)
def test_standard_input_is_read_like_a_file(place, encoding, sentence):
    corpus = table(rows(60, 0), ";", encoding)
    (place / "same.csv").write_bytes(corpus)
    words = [*TRAIN, "-p", "min_df=1", "--input-format", "csv"]
    said = run("train", "-", "-o", "piped", *words, input=corpus, cwd=place)[1]
    assert sentence in said
    run("train", "same.csv", "-o", "read", *words, cwd=place)
    piped, read = (Tagger.load(place / name).views["tfidf"].vocabulary.words() for name in ("piped", "read"))
    assert "über" in piped
    assert piped == read
    asked = ["predict", "model", "--input-format", "csv", "--format", "jsonl"]
    assert run(*asked, "-", input=corpus, cwd=place)[0] == run(*asked, "same.csv", cwd=place)[0]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            "--rejects bad.tsv",
            "--rejects needs --on-error skip; without it, malformed lines stop the command.",
        ),
        ("--whole --input-format csv", "--whole reads plain text, but --input-format is csv; leave one out."),
    ],
)
def test_options_without_effect_are_rejected(place, options, sentence):
    done = invoke("predict", "model", "test.csv", *options.split(), cwd=place)
    assert (done.returncode, done.stderr.decode()) == (2, f"xmtc: {sentence}\n")


def test_options_of_other_formats_are_reported(place):
    (place / "plain.jsonl").write_text('{"nr": "1", "title": "word1alpha", "abstract": "", "subjects": []}\n')
    said = run("data", "stats", "plain.jsonl", *TRAIN, "--sheet", "Books", "--delimiter", ";", cwd=place)[1]
    assert said.splitlines() == [
        "--sheet has no effect: plain.jsonl is read as jsonl.",
        "--delimiter has no effect: plain.jsonl is read as jsonl.",
    ]


@pytest.mark.parametrize(("separator", "character"), [(r"\n", "\n"), (r"\t", "\t"), ("\n", "\n"), (";", ";")])
def test_separators_that_shells_cannot_pass(separator, character, tmp_path):
    (tmp_path / "c.csv").write_text(f'text,labels\na cat,"cats{character}pets"\na dog,"dogs{character}pets"\n')
    printed = run("data", "stats", "c.csv", "--separator", separator, "--json", cwd=tmp_path)[0]
    assert json.loads(printed)["labels"] == 3
