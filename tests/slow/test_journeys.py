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


def test_library_tutorial(tmp_path):
    """docs/tutorial/library.md"""
    if not CORPUS.exists() or not YKL.exists():
        pytest.skip(f"{CORPUS} or {YKL} is not on this machine")
    workbook("train", tmp_path / "makupalat.xlsx")
    workbook("test", tmp_path / "new.xlsx")

    assert "2,406 concepts" in xmtc(tmp_path, "vocab", "import", YKL, "ykl")
    columns = ["--text", "kuvaus", "--labels", "luokat"]
    words = ["train", "makupalat.xlsx", *columns, "--separator", ";", "--vocab", "ykl", "-m", "dismec", "-o", "tagger"]
    message = xmtc(tmp_path, *words)
    assert "1,178 of 1,179 labels are in the vocabulary" in message
    assert "analyzer=chars" in message
    result = json.loads(xmtc(tmp_path, "evaluate", "tagger", "new.xlsx", "P@1", "P@3", "P@5", "--json").splitlines()[0])
    assert (result["P@1"], result["P@3"], result["P@5"]) > (0.43, 0, 0)
    assert result["P@3"] >= 0.215
    assert result["P@5"] >= 0.145

    words = ["predict", "tagger", "new.xlsx", "-o", "tagged.xlsx", "--wide", "--keep", "Kuvaus", "--language", "en"]
    assert "537 documents labelled." in xmtc(tmp_path, *words, "--broader", "-k", 3)
    openpyxl = pytest.importorskip("openpyxl")
    header, first, *_ = openpyxl.load_workbook(tmp_path / "tagged.xlsx", read_only=True).active.iter_rows(
        values_only=True
    )
    assert header[:6] == ("id", "Kuvaus", "label_1", "name_1", "broader_1", "score_1")
    assert first[3] == "LITERARY STUDIES"

    explained = xmtc(
        tmp_path, "explain", "tagger", "--string", "Kuvataidetta ja veistoksia", "--language", "en", "-k", 1
    )
    assert "ART" in explained
    assert "kuvataidetta" in explained


def test_a_library_goes_the_whole_way(tmp_path):
    """The second half of docs/tutorial/library.md, on the descriptions of makupalat-fi"""
    if not CORPUS.exists() or not YKL.exists():
        pytest.skip(f"{CORPUS} or {YKL} is not on this machine")
    train, dev, test = (next(CORPUS.glob(f"{part}*")) for part in ("train", "dev", "test"))
    xmtc(tmp_path, "vocab", "import", YKL, "ykl")
    assert "analyzer=grams" in xmtc(tmp_path, "train", train, "-m", "dismec", "--vocab", "ykl", "-o", "tagger")
    message = xmtc(tmp_path, "train", train, "-m", "lexical", "--vocab", "ykl", "-o", "names")
    assert "stemming=finnish" in message
    figures = json.loads(xmtc(tmp_path, "evaluate", "names", test, "P@1", "--json").splitlines()[0])
    assert figures["P@1"] > 0.17  # 0.07 with English plurals and names of all languages
    xmtc(tmp_path, "combine", "tagger", "names", "-o", "both", "--valid", dev)
    assert "Five-fold cross-validation on 398 documents" in xmtc(tmp_path, "thresholds", "both", dev)
    xmtc(tmp_path, "report", "both", test, "-o", "report.html")

    texts = {"lapset.txt": "Lastenkirjallisuuden ilta, jossa lastenkirjailijat lukevat.", "runot.txt": "Ilta runoja."}
    (tmp_path / "uudet").mkdir()
    for name, text in texts.items():
        (tmp_path / "uudet" / name).write_text(text, encoding="utf-8")
    words = ["predict", "both", "uudet", "-o", "uudet.xlsx", "--threshold", "tuned", "--wide", "--language", "fi"]
    assert "2 documents labelled." in xmtc(tmp_path, *words)
    openpyxl = pytest.importorskip("openpyxl")
    rows = list(openpyxl.load_workbook(tmp_path / "uudet.xlsx").active.iter_rows(values_only=True))
    assert rows[1][:3] == ("lapset", f"{CLASS}86.11", "Lasten- ja nuortenkirjallisuuden historia ja tutkimus")

    with running(tmp_path / "both", "--report", tmp_path / "report.html") as service:
        children = ask_for_words(service.url, texts["lapset.txt"], f"{CLASS}86.11")
        assert {"lastenkirjallisuuden", "lastenkirjailijat"} == {each["word"].lower() for each in children["words"][:2]}
        poems = ask_for_words(service.url, texts["runot.txt"], f"{CLASS}82")
        assert poems["words"][0]["word"].lower() == "runoja"
        assert "lexical" in [member["name"] for member in poems["members"]]

    correction = {"text": texts["lapset.txt"], "labels": [f"{CLASS}86.11"], "rejected": [f"{CLASS}78"]}
    (tmp_path / "feedback-both.jsonl").write_text(json.dumps(correction) + "\n")
    message = xmtc(tmp_path, "train", train, "feedback-both.jsonl", "-m", "lexical", "--vocab", "ykl", "-o", "names")
    assert "trained on 15,213 documents with 2,407 labels" in message


def ask_for_words(url: str, text: str, label: str) -> dict:
    body = json.dumps({"text": text, "label": label}).encode()
    request = Request(f"{url}/v1/models/both/explain", body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as answer:
        return json.load(answer)
