"""Measure how much the score of a label falls when the strongest words of its explanation are deleted.

For each test document, the first label is explained. All occurrences of its n strongest words are deleted, and the
label is scored again; beside it, n random words of the same text. The fall is (Σ before − Σ after) / Σ before over the
documents, where a label that is no longer predicted has the score 0. A mean of the documents' own ratios would depend
on the few with a score near 0, which can rise many times.

    python benchmarks/faithfulness.py cve-libraries ../shared/data/cve-libraries/train.jsonl.gz \\
        ../shared/data/cve-libraries/test.jsonl.gz dismec parabel --train-documents 5000
"""

from __future__ import annotations

import argparse
import json
import platform
import random
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import xmtc
from xmtc import Classifier, Run
from xmtc.data.corpus import open_corpus
from xmtc.data.document import Document
from xmtc.explain.highlights import Highlight
from xmtc.tagger import Tagger

DELETIONS = (1, 2, 3, 5, 10)
N_PREDICTED = 100
RESULTS = Path(__file__).parent / "results" / "faithfulness.json"


def delete_words(found: Highlight, words: set[str]) -> str:
    """Return the text without the occurrences of words, given in case-folded form."""
    return "".join(piece.text for piece in found.pieces if piece.text.casefold() not in words)


def rank_words(found: Highlight) -> list[str]:
    """Return the words with a positive weight, the strongest first."""
    total: dict[str, float] = {}
    for piece in found.pieces:
        word = piece.text.casefold()
        total[word] = total.get(word, 0.0) + piece.weight
    return sorted((word for word, weight in total.items() if weight > 0), key=lambda word: -total[word])


def measure_document(tagger: Tagger, text: str, rng: random.Random) -> np.ndarray | None:
    """Return the score before, and the scores after deleting strongest and random words, shape (1 + 2 n_deletions,)."""
    found = next(iter(tagger.highlight(text, k=1, run=Run(threads=1))), None)
    if found is None or not found.score:
        return None
    ranked = rank_words(found)
    words = sorted({piece.text.casefold() for piece in found.pieces if any(map(str.isalnum, piece.text))})
    if len(words) <= DELETIONS[0]:
        return None
    rng.shuffle(words)
    texts = [delete_words(found, set(order[:n])) for order in (ranked, words) for n in DELETIONS]
    tags = tagger.predict_labels(texts, N_PREDICTED, run=Run(threads=1))
    after = [next((tag.score for tag in row if tag.label == found.label), 0.0) for row in tags]
    return np.array([found.score, *after])


def measure(classifier: Classifier, texts: list[str]) -> dict[str, Any]:
    rng = random.Random(0)
    rows = [row for text in texts if (row := measure_document(classifier.tagger_, text, rng)) is not None]
    before, *after = np.sum(rows, axis=0)
    strongest, others = (1 - np.array(after) / before).round(4).reshape(2, -1).tolist()
    return {"documents": len(rows), "deleted": DELETIONS, "strongest": strongest, "random": others}


def build_classifier(method: str, vocabulary: str | None) -> Classifier:
    parameters: dict[str, Any] = {"members": ("dismec", "lexical")} if method == "consensus" else {}
    if vocabulary and method in ("consensus", "lexical"):
        parameters["vocabulary" if method == "lexical" else "lexical.vocabulary"] = vocabulary
    return Classifier(method, **parameters)


def read(path: str, n: int) -> list[Document]:
    return list(islice(open_corpus(path), n))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("methods", nargs="+", help="Methods; consensus has the members dismec and lexical.")
    parser.add_argument("--vocab", help="Vocabulary with the label names that lexical looks for.")
    parser.add_argument("--train-documents", type=int, default=5000)
    parser.add_argument("--documents", type=int, default=200)
    arguments = parser.parse_args()
    train, test = read(arguments.train, arguments.train_documents), read(arguments.test, arguments.documents)
    for method in arguments.methods:
        classifier = build_classifier(method, arguments.vocab)
        classifier.fit(
            [document.text for document in train], [document.labels for document in train], run=Run(threads=1)
        )
        result = measure(classifier, [document.text for document in test])
        stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
        entry = {
            "corpus": arguments.name, "method": method, "train_documents": len(train), **result,
            "date": date.today().isoformat(), "machine": platform.machine(), "xmtc": xmtc.__version__,
            "python": platform.python_version(), "numpy": np.__version__,
        }  # fmt: skip
        stored = [old for old in stored if (old["corpus"], old["method"]) != (entry["corpus"], method)]
        RESULTS.write_text(json.dumps([*stored, entry], indent=1) + "\n")
        print(arguments.name, method, result, flush=True)


if __name__ == "__main__":
    main()
