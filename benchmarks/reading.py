"""Measure time and memory of reading a million rows from every container, each in its own process.

python benchmarks/reading.py FOLDER          makes the files there (0.6 GB) where they are missing, and reads them
"""

from __future__ import annotations

import csv
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np

N_ROWS, N_WORDS, N_LABELS, WORDS_PER_TEXT = 1_000_000, 50_000, 10_000, 12
HEADER = ["id", "text", "labels"]
FILES = {
    "rows.jsonl": "JSON Lines",
    "rows.csv": "CSV, commas, UTF-8",
    "rows-1252.csv": "CSV, semicolons, Windows-1252",
    "rows-utf16.csv": "CSV, tabs, UTF-16",
    "lists.csv": "CSV, labels as Python lists",
    "rows.parquet": "Parquet",
    "rows.xlsx": "xlsx",
}


def make_rows() -> Iterator[tuple[str, str, list[str]]]:
    """Yield reproducible rows: words and labels follow Zipf's law, one word in ten has an umlaut."""
    rng = np.random.default_rng(0)
    words = [f"{'wör' if i % 10 == 0 else 'wor'}{i}" for i in range(N_WORDS)]
    for i in range(N_ROWS):
        drawn = (rng.zipf(1.3, WORDS_PER_TEXT) - 1) % N_WORDS
        labels = dict.fromkeys(f"label {n}" for n in (rng.zipf(1.3, 1 + i % 4) - 1) % N_LABELS)
        yield f"d{i}", " ".join(words[word] for word in drawn), list(labels)


def write_csv(path: Path, delimiter: str, encoding: str, as_cell=("|").join) -> None:
    with path.open("w", encoding=encoding, newline="") as stream:
        writer = csv.writer(stream, delimiter=delimiter)
        writer.writerow(HEADER)
        writer.writerows([id, text, as_cell(labels)] for id, text, labels in make_rows())


def write_jsonl(path: Path) -> None:
    with path.open("w", encoding="utf-8") as stream:
        for row in make_rows():
            stream.write(json.dumps(dict(zip(HEADER, row, strict=True)), ensure_ascii=False) + "\n")


def write_parquet(path: Path) -> None:
    import pyarrow
    from pyarrow.parquet import write_table

    write_table(pyarrow.table(dict(zip(HEADER, map(list, zip(*make_rows(), strict=True)), strict=True))), path)


def write_xlsx(path: Path) -> None:
    import openpyxl

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("rows")
    sheet.append(HEADER)
    for id, text, labels in make_rows():
        sheet.append([id, text, "|".join(labels)])
    book.save(path)


def write(path: Path) -> None:
    if path.name == "rows.jsonl":
        write_jsonl(path)
    elif path.name == "rows.parquet":
        write_parquet(path)
    elif path.name == "rows.xlsx":
        write_xlsx(path)
    elif path.name == "lists.csv":
        write_csv(path, ",", "utf-8", repr)
    else:
        how = {"rows.csv": (",", "utf-8"), "rows-1252.csv": (";", "cp1252"), "rows-utf16.csv": ("\t", "utf-16")}
        write_csv(path, *how[path.name])


def read(path: str) -> None:
    """Read a file like a command, and print time and memory."""
    from xmtc.data.corpus import open_corpus
    from xmtc.data.layout import Notifier

    start, n_docs, n_labels = time.perf_counter(), 0, 0
    for document in open_corpus(path, notifier=Notifier(lambda sentence: None)):
        n_docs += 1
        n_labels += len(document.labels)
    used = {"seconds": time.perf_counter() - start, "cpu": time.process_time()}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(json.dumps({"documents": n_docs, "labels": n_labels, **used, "memory": memory}))


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        if not (folder / name).exists():  # in its own process, because peak memory is inherited
            subprocess.run([sys.executable, __file__, "--write", str(folder / name)], check=True)
    versions = ", ".join(f"{name} {version(name)}" for name in ("pyarrow", "python-calamine"))
    print(f"Python {platform.python_version()}, {versions}; {len(os.sched_getaffinity(0))} cores\n")
    print("| | MB | s | CPU s | MB of memory |\n|---|---|---|---|---|")
    for name, what in FILES.items():
        words = [sys.executable, __file__, "--read", str(folder / name)]
        found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
        assert found["documents"] == N_ROWS, found
        size = (folder / name).stat().st_size / 1e6
        print(
            f"| {what} | {size:.0f} | {found['seconds']:.1f} | {found['cpu']:.1f} | {found['memory']:.0f} |", flush=True
        )


if __name__ == "__main__":
    if sys.argv[1] == "--read":
        read(sys.argv[2])
    elif sys.argv[1] == "--write":
        write(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]))
