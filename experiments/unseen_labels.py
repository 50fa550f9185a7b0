"""Print how many test assignments of labels that no training document has are among a model's first predictions.

python experiments/unseen_labels.py MODEL ../shared/data/tibkat-gnd-en
python experiments/unseen_labels.py MODEL ../shared/data/tibkat-gnd-en --names   # matcher, similarity of names alone
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from xmtc import Classifier
from xmtc.core.run import Run
from xmtc.data.corpus import open_corpus
from xmtc.data.in_memory import to_documents
from xmtc.methods.matcher.candidates import project

DEPTHS = (5, 20)


def rank_by_names(classifier: Classifier, texts: list[str], run: Run) -> list[list[str]]:
    """Return the labels of the most similar names, by the projected vectors of a matcher."""
    tagger, n = classifier.tagger_, 10 * max(DEPTHS)  # a label may have several names
    index, vectors = tagger.model.index, tagger.transform(to_documents(texts), run).X.toarray()
    similarities = project(vectors, index.projection) @ index.names.astype(np.float32).T
    best = index.name_labels[np.argsort(-similarities, axis=1, kind="stable")[:, :n]]
    return [[tagger.labels[label] for label in dict.fromkeys(row.tolist())] for row in best]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("corpus", type=Path, help="folder of train.jsonl.gz and test.jsonl.gz")
    parser.add_argument("--names", action="store_true", help="rank labels by the similarity of their names alone")
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    train, test = (open_corpus(str(args.corpus / f"{part}.jsonl.gz")) for part in ("train", "test"))
    seen = {label for document in train for label in document.labels}
    pairs = [(document.text, unseen) for document in test if (unseen := set(document.labels) - seen)]
    run = Run(threads=args.threads or None, device="cpu")
    classifier, texts = Classifier.load(args.model), [text for text, _ in pairs]
    found = rank_by_names(classifier, texts, run) if args.names else classifier.predict(texts, k=max(DEPTHS), run=run)
    n = sum(len(labels) for _, labels in pairs)
    row = {"documents": len(pairs), "unseen": n}
    for k in DEPTHS:
        n_found = sum(len(labels & set(best[:k])) for (_, labels), best in zip(pairs, found, strict=True))
        row |= {f"found@{k}": n_found, f"unseen R@{k}": round(100 * n_found / n, 2)}
    print(json.dumps(row))


if __name__ == "__main__":
    main()
