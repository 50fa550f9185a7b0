"""Tutorials of the docs on real corpora. Run with `make slow`."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

DATA = Path(__file__).parents[2].parent / "shared" / "data"
CORPUS, YKL = DATA / "makupalat-fi", DATA / "vocabularies" / "ykl-skos.ttl.gz"
XMTC = str(Path(sys.executable).parent / "xmtc")


def xmtc(folder: Path, *words: object) -> str:
    done = subprocess.run([XMTC, *map(str, words)], cwd=folder, capture_output=True, text=True)
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
    assert "analyzer=grams" in message
    result = json.loads(xmtc(tmp_path, "evaluate", "tagger", "new.xlsx", "P@1", "P@3", "P@5", "--json").splitlines()[0])
    assert (result["P@1"], result["P@3"], result["P@5"]) > (0.43, 0, 0)
    assert result["P@3"] >= 0.215
    assert result["P@5"] >= 0.145

    words = ["predict", "tagger", "new.xlsx", "-o", "tagged.xlsx", "--wide", "--keep", "Kuvaus", "--language", "en"]
    assert "537 documents tagged." in xmtc(tmp_path, *words, "--broader", "-k", 3)
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
