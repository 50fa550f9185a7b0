"""Evaluate FastXML and PfastreXML on Delicious with binary features: on Mulan's split, on random splits of the same
sizes, as in the published results, and on a fifth of the training documents, for choosing settings.

python experiments/delicious_splits.py --splits 2 --out results/delicious-splits.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from common import CORPORA
from scipy.sparse import csr_array, vstack

from xmtc.core.dataset import Dataset
from xmtc.core.run import Run
from xmtc.data.corpus import open_corpus
from xmtc.evaluation import evaluate
from xmtc.features import FEATURES
from xmtc.methods import method_class
from xmtc.pipeline import Pipeline

NAMES = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")
DEV_SHARE = 0.2
METHODS = {
    "FastXML": ("fastxml", {}),
    "PfastreXML, nDCG, plain leaves": ("pfastrexml", {"objective": "ndcg", "weighted_leaves": False}),
    "PfastreXML, DCG, plain leaves": ("pfastrexml", {"objective": "dcg", "weighted_leaves": False}),
    "PfastreXML, nDCG, weighted leaves": ("pfastrexml", {"objective": "ndcg", "weighted_leaves": True}),
    "PfastreXML, DCG, weighted leaves (the authors')": ("pfastrexml", {"preset": "authors"}),
}


def make_splits(folder: Path, n_random: int) -> Iterator[tuple[str, Dataset, Dataset]]:
    corpora = (open_corpus(str(folder / f"{part}.txt.gz")) for part in ("train", "test"))
    prepared = Pipeline.from_parameters("fastxml", FEATURES, {"unit_length": False}).prepare(next(corpora))
    train, test = prepared.data, prepared.build_labelled_dataset(next(corpora))
    yield "development", *split_at_random(train, round(DEV_SHARE * train.n_docs), seed=0)
    yield "Mulan", train, test
    whole = Dataset.from_matrix(*(csr_array(vstack(pair)) for pair in ((train.X, test.X), (train.Y, test.Y))))
    for seed in range(n_random):
        yield f"random {seed}", *split_at_random(whole, test.n_docs, seed)


def split_at_random(data: Dataset, n_test: int, seed: int) -> tuple[Dataset, Dataset]:
    order = np.random.default_rng(seed).permutation(data.n_docs)
    return data.select_rows(np.sort(order[n_test:])), data.select_rows(np.sort(order[:n_test]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--corpora", type=Path, default=CORPORA)
    args = parser.parse_args()
    rows = []
    for split, train, test in make_splits(args.corpora / "delicious", args.splits):
        frequencies = np.bincount(train.Y.indices, minlength=train.n_labels)
        for title in args.methods:
            name, parameters = METHODS[title]
            found = method_class(name)(**parameters).fit(train, run=Run()).predict(test, 5)
            scores = evaluate(found, test.Y, NAMES, frequencies, n_train=train.n_docs)
            percent = {key: round(100 * value, 2) for key, value in scores.items()}
            rows.append({"split": split, "method": title, **percent})
            print(json.dumps(rows[-1]), flush=True)
            args.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
