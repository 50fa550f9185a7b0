"""Tutorials of the docs on real corpora. Run with `make slow`."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from serving import running

DATA = Path(__file__).parents[2].parent / "shared" / "data"
CORPUS, YKL = DATA / "makupalat-fi", DATA / "vocabularies" / "ykl-skos.ttl.gz"
CLASS = "http://urn.fi/URN:NBN:fi:au:ykl:"
XMTC = [sys.executable, "-m", "xmtc"]


def xmtc(folder: Path, *words: object) -> str:
    done = subprocess.run([*XMTC, *map(str, words)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def workbook(part: str, path: Path) -> None:
    """Write a workbook like a library's: its own column names, classes separated by semicolons."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("Aineisto")
    sheet.append(["ID", "Kuvaus", "Luokat"])
    (source,) = CORPUS.glob(f"{part}*")
    with gzip.open(source, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            text, _, uris = line.rstrip("\n").partition("\t")
            sheet.append([f"{part}-{number}", text, "; ".join(uri.strip("<>") for uri in uris.split())])
    book.save(path)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Return a folder with the workbooks, the vocabulary and a model of docs/tutorial/library.md."""
    if not CORPUS.exists() or not YKL.exists():
        pytest.skip(f"{CORPUS} or {YKL} is not on this machine")
    folder = tmp_path_factory.mktemp("library")
    workbook("train", folder / "makupalat.xlsx")
    workbook("test", folder / "new.xlsx")
    assert "2,406 concepts" in xmtc(folder, "vocab", "import", YKL, "ykl")
    columns = ["--text", "kuvaus", "--labels", "luokat", "--separator", ";"]
    message = xmtc(folder, "train", "makupalat.xlsx", *columns, "--vocab", "ykl", "-m", "dismec", "-o", "tagger")
    assert "2,406 of 2,407 labels are in the vocabulary" in message  # also labels without documents
    assert "analyzer=chars" in message
    return folder


def test_library_tutorial(library):
    """docs/tutorial/library.md"""
    result = json.loads(xmtc(library, "evaluate", "tagger", "new.xlsx", "P@1", "P@3", "P@5", "--json").splitlines()[0])
    assert (result["P@1"], result["P@3"], result["P@5"]) > (0.43, 0, 0)
    assert result["P@3"] >= 0.215
    assert result["P@5"] >= 0.145

    words = ["predict", "tagger", "new.xlsx", "-o", "tagged.xlsx", "--wide", "--keep", "Kuvaus", "--language", "en"]
    assert "537 documents labelled." in xmtc(library, *words, "--broader", "-k", 3)
    openpyxl = pytest.importorskip("openpyxl")
    header, first, *_ = openpyxl.load_workbook(library / "tagged.xlsx", read_only=True).active.iter_rows(
        values_only=True
    )
    assert header[:6] == ("id", "Kuvaus", "label_1", "name_1", "broader_1", "score_1")
    assert first[3] == "LITERARY STUDIES"

    explained = xmtc(
        library, "explain", "tagger", "--string", "Kuvataidetta ja veistoksia", "--language", "en", "-k", 1
    )
    assert "ART" in explained
    assert "kuvataidetta" in explained


def test_a_library_goes_the_whole_way(library):
    """The second half of docs/tutorial/library.md, on the descriptions of makupalat-fi"""
    train, dev, test = (next(CORPUS.glob(f"{part}*")) for part in ("train", "dev", "test"))
    message = xmtc(library, "train", train, "-m", "lexical", "--vocab", "ykl", "-o", "names")
    assert "stemming=finnish" in message
    figures = json.loads(xmtc(library, "evaluate", "names", test, "P@1", "--json").splitlines()[0])
    assert figures["P@1"] > 0.17  # 0.07 with English plurals and names of all languages
    xmtc(library, "combine", "tagger", "names", "-o", "both", "--valid", dev)
    assert "Five-fold cross-validation on 398 documents" in xmtc(library, "thresholds", "both", dev)
    xmtc(library, "report", "both", test, "-o", "report.html")

    texts = {"lapset.txt": "Lastenkirjallisuuden ilta, jossa lastenkirjailijat lukevat.", "runot.txt": "Ilta runoja."}
    (library / "uudet").mkdir()
    for name, text in texts.items():
        (library / "uudet" / name).write_text(text, encoding="utf-8")
    words = ["predict", "both", "uudet", "-o", "uudet.xlsx", "--threshold", "tuned", "--wide", "--language", "fi"]
    assert "2 documents labelled." in xmtc(library, *words)
    openpyxl = pytest.importorskip("openpyxl")
    rows = list(openpyxl.load_workbook(library / "uudet.xlsx").active.iter_rows(values_only=True))
    assert rows[1][:3] == ("lapset", f"{CLASS}86.11", "Lasten- ja nuortenkirjallisuuden historia ja tutkimus")

    with running(library / "both", "--report", library / "report.html") as service:
        children = ask_for_words(service.url, texts["lapset.txt"], f"{CLASS}86.11")
        assert {"lastenkirjallisuuden", "lastenkirjailijat"} == {each["word"].lower() for each in children["words"][:2]}
        poems = ask_for_words(service.url, texts["runot.txt"], f"{CLASS}82")
        assert poems["words"][0]["word"].lower() == "runoja"
        assert "lexical" in [member["name"] for member in poems["members"]]

    correction = {"text": texts["lapset.txt"], "labels": [f"{CLASS}86.11"], "rejected": [f"{CLASS}78"]}
    (library / "feedback-both.jsonl").write_text(json.dumps(correction) + "\n")
    message = xmtc(library, "train", train, "feedback-both.jsonl", "-m", "lexical", "--vocab", "ykl", "-o", "names")
    assert "trained on 15,213 documents with 2,407 labels" in message


def ask_for_words(url: str, text: str, label: str) -> dict:
    body = json.dumps({"text": text, "label": label}).encode()
    request = Request(f"{url}/v1/models/both/explain", body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as answer:
        return json.load(answer)
