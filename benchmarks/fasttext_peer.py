"""Compare our fastText with the package `fasttext`: same parameters, words and labels.

    python benchmarks/fasttext_peer.py ../shared/data/cve-libraries --peer python -p loss=ova -p rate=0.5 -p epochs=25

The package (0.9.3, which wants numpy < 2) may live in another environment: --peer is the Python that has it. Both read
the same words, at most 500 of a text; the package gets them as a file. Seconds are of processors and of a clock: the
package's own threads work on each other's numbers, so that on two free cores it takes half of its processor seconds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np

from xmtc import Classifier
from xmtc.core.run import Run
from xmtc.data.corpus import open_corpus
from xmtc.text.string_index import StringIndex
from xmtc.text.tokenizer import Tokenizer

PEER = """
import fasttext, json, sys, time
settings, train, test = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
clock, cpu = time.perf_counter(), time.process_time()
model = fasttext.train_supervised(train, verbose=0, **settings)
seconds = time.perf_counter() - clock, time.process_time() - cpu
texts = [line.rstrip("\\n") for line in open(test, encoding="utf-8")]
clock = time.perf_counter()
found = [[name.removeprefix("__label__") for name in names] for names in model.predict(texts, k=5)[0]]
print(json.dumps({"found": found, "seconds": seconds, "predicting": time.perf_counter() - clock}))
"""


def join_known_words(texts: list[str]) -> list[str]:
    """Yield our words, separated by spaces."""
    found = Tokenizer(min_chars=1).index_words(texts, 500)
    words = ["", *StringIndex(found.text, found.ends, np.empty(0, np.int32)).words()]
    return [" ".join(words[i] for i in found.ids[a:b]) for a, b in zip(found.starts, found.starts[1:], strict=False)]


def read_documents(folder: Path, part: str, n: int) -> tuple[list[str], list[list[str]]]:
    (path,) = [path for path in folder.glob(f"{part}.*") if path.name.endswith((".jsonl.gz", ".tsv.gz"))]
    found = list(islice(iter(open_corpus(path)), n))
    return join_known_words([document.text or "" for document in found]), [list(document.labels) for document in found]


def compute_precision(found: list[list[str]], true: list[list[str]], k: int) -> float:
    return 100 * float(np.mean([len(set(a[:k]) & set(b)) / k for a, b in zip(found, true, strict=True)]))


def run_ours(train, test, settings: dict) -> dict:
    # compile first
    Classifier("fasttext", **settings | {"epochs": 1}).fit(train[0][:50], train[1][:50], run=Run(threads=1))
    clock, cpu = time.perf_counter(), time.process_time()
    trained = Classifier("fasttext", **settings, calibrate=False).fit(*train, run=Run(threads=2))  # once, like fastText
    seconds = time.perf_counter() - clock, time.process_time() - cpu
    clock = time.perf_counter()
    found = trained.predict(test[0], k=5)
    return {"found": [list(row) for row in found], "seconds": seconds, "predicting": time.perf_counter() - clock}


def run_peer(train, test, settings: dict, python: str) -> dict:
    names = {"rate": "lr", "epochs": "epoch", "dimension": "dim", "word_ngrams": "wordNgrams", "negatives": "neg"}
    given = {names.get(name, name): value for name, value in settings.items()} | {"thread": 2}
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "train.txt", Path(folder) / "test.txt"
        lines = (" ".join([f"__label__{i}" for i in labels] + [text]) for text, labels in zip(*train, strict=True))
        files[0].write_text("\n".join(lines) + "\n", encoding="utf-8")
        files[1].write_text("\n".join(test[0]) + "\n", encoding="utf-8")
        command = [python, "-c", PEER, json.dumps(given), *map(str, files)]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peer", default="python")
    parser.add_argument("-p", action="append", default=[], help="of the method: loss=ova")
    parser.add_argument("-n", type=int, default=None, help="documents to train on, from the first")
    given = parser.parse_args()
    settings = {name: json.loads(v) if v[0].isdigit() else v for name, v in (each.split("=") for each in given.p)}

    train, test = read_documents(given.folder, "train", given.n), read_documents(given.folder, "test", None)
    names = {
        label: str(number) for number, label in enumerate(sorted({i for row in (*train[1], *test[1]) for i in row}))
    }
    train, test = ((texts, [[names[i] for i in row] for row in labels]) for texts, labels in (train, test))
    for who, result in (
        ("xmtc", run_ours(train, test, settings)),
        ("fasttext", run_peer(train, test, settings, given.peer)),
    ):
        measured = {f"P@{k}": round(compute_precision(result["found"], test[1], k), 2) for k in (1, 3, 5)}
        wall, cpu = result["seconds"]
        seconds = {"clock": round(wall, 1), "processor": round(cpu, 1), "predicting": round(result["predicting"], 2)}
        print(json.dumps({"data": given.folder.name, "who": who, **settings, **measured, **seconds}), flush=True)


if __name__ == "__main__":
    main()
