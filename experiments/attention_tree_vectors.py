"""Compare features for AttentionXML's label tree: word counts or their tf-idf. Each tree is evaluated with a linear
classifier per node (Parabel's training, one tree) on tf-idf features, which takes seconds on a CPU.

python experiments/attention_tree_vectors.py ../shared/data/tibkat-gnd-en --part dev
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scipy.sparse import csr_array

from xmtc.core.dataset import Dataset
from xmtc.core.run import Run
from xmtc.core.sparse import normalise_rows
from xmtc.data.corpus import open_corpus
from xmtc.data.label_collector import LabelCollector
from xmtc.errors import XmtcError
from xmtc.evaluation import evaluate
from xmtc.features.tfidf import Tfidf
from xmtc.features.words import Words
from xmtc.labels.tree import build_balanced_trees, compress_tree
from xmtc.labels.vectors import LabelVectors
from xmtc.methods.label_tree.parabel import Parabel

MEASURES = ("P@1", "P@3", "P@5", "nDCG@5")


def read(path: Path, names: list[str] | None = None) -> tuple[list[str], list[str], csr_array]:
    collector = LabelCollector()
    texts = [document.text for document in collector.collect(open_corpus(str(path)))]
    names = names or sorted(collector.id_by_label)
    return texts, names, collector.to_matrix(names)[:, : len(names)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", default="dev", help="documents to judge by")
    parser.add_argument("--max-leaf", type=int, default=8)
    args = parser.parse_args()
    try:
        texts, names, Y = read(args.folder / "train.jsonl.gz")
        judged, _, true = read(args.folder / f"{args.part}.jsonl.gz", names)
    except XmtcError as error:
        sys.exit(str(error))
    tfidf, bag = Tfidf().fit(texts)
    data, test, tokens = Dataset.from_matrix(bag.matrix, Y), tfidf.transform(judged), Words().fit(texts)[1]
    counts = Dataset.from_matrix(normalise_rows(tokens.to_count_matrix()), Y)
    grown_from = {"counts": LabelVectors.from_documents(counts), "tf-idf": LabelVectors.from_words(tokens, Y)}
    for seed in (0, 1):
        for kind, vectors in grown_from.items():
            tree = build_balanced_trees(vectors, args.max_leaf, [(seed, 0)])[0]
            leaves = compress_tree(tree, 1, 1).memberships(Y)[0].nnz / Y.nnz
            model = Parabel(n_trees=1, max_leaf=args.max_leaf, seed=seed).train(data, [tree], Run())
            figures = evaluate(model.predict(Dataset.from_matrix(test.matrix), 5), true, MEASURES)
            shown = "  ".join(f"{name} {100 * value:.2f}" for name, value in figures.items())
            print(f"seed {seed}, from {kind}: {shown}  leaves for each label of a document {leaves:.3f}", flush=True)


if __name__ == "__main__":
    main()
