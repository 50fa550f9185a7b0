"""Write a synthetic text corpus of the published size of Amazon-670K: 490,449 documents, 670,091 labels.

    python benchmarks/many_labels.py FOLDER [--labels 670091] [--documents 490449]
    xmtc train FOLDER/train.jsonl -m aplc_xlnet -p encoder=minilm-l6 -p clusters=1 ... -o model
    xmtc evaluate model FOLDER/test.jsonl

Every label has six words of its own, made of syllables and shared with a few other labels. A document has two to nine
labels, two of them drawn so that every label occurs, the others by Zipf's law; half of each one's words, and common
words. The same seed makes the same corpus.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

import numpy as np

MOST_LABELS, WORDS_A_LABEL, COMMON_WORDS, COMMON_A_DOC = 9, 6, 2000, 6  # 5.5 labels per document on average
SYLLABLES = ["".join(pair) for pair in product("bdfgklmnprstvz", "aeiou")]


def make_word(number: int) -> str:
    """Return a distinct word of at least three syllables for each number."""
    found = []
    while len(found) < 3 or number:
        number, last = divmod(number, len(SYLLABLES))
        found.append(SYLLABLES[last])
    return "".join(found)


def write(path: Path, n_docs: int, n_labels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shares = np.cumsum(1 / (np.arange(n_labels) + 10.0))
    labels = np.searchsorted(shares / shares[-1], rng.random((n_docs, MOST_LABELS))).clip(max=n_labels - 1)
    labels[:, :2] = np.resize(rng.permutation(n_labels), (n_docs, 2))
    n_words = COMMON_WORDS + n_labels // 2 + 1000
    own = np.random.default_rng(0).integers(COMMON_WORDS, n_words, size=(n_labels, WORDS_A_LABEL))
    common = rng.integers(COMMON_WORDS, size=(n_docs, COMMON_A_DOC))
    n_of = rng.integers(2, MOST_LABELS + 1, size=n_docs)
    words = [make_word(number) for number in range(n_words)]
    with path.open("w", encoding="utf-8") as file:
        for its_labels, usual, n in zip(labels.tolist(), common.tolist(), n_of.tolist(), strict=True):
            chosen = [number for label in its_labels[:n] for number in rng.permutation(own[label])[:3].tolist()]
            text = " ".join(words[number] for number in [*usual, *chosen])
            names = ", ".join(f'"{label}"' for label in dict.fromkeys(its_labels[:n]))
            file.write(f'{{"text": "{text}", "labels": [{names}]}}\n')


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--labels", type=int, default=670_091)
    parser.add_argument("--documents", type=int, default=490_449)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    write(args.folder / "train.jsonl", args.documents, args.labels, seed=1)
    write(args.folder / "test.jsonl", min(10_000, args.documents), args.labels, seed=2)
