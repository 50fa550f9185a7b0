"""Active learning with the queue of the review desk: nDCG@5 after n reviewed documents, with true labels as decisions.

python experiments/active_learning.py ../shared/data/makupalat-fi --analyzer snowball:finnish --seed 0 \
    --json experiments/results/active-learning.json
python experiments/active_learning.py ../shared/data/eurlex57k --analyzer words --seed 0 \
    --json experiments/results/active-learning.json
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from xmtc import Document, Run, Tagger, open_corpus, train
from xmtc.core.predictions import NO_LABEL
from xmtc.review.estimates import estimate_values
from xmtc.review.store import Decision, ReviewStore

MODEL, PERSON = "model", "annotator"
FIRST = 500  # documents of the first training, in random order
EXPECTED_ERRORS = "expected-errors"  # Σ min(p, 1 − p) over the ten best labels
MAX_CHARACTERS = 3000  # of a text
RUN = Run(threads=1)


def read(folder: Path, part: str) -> list[Document]:
    (path,) = folder.glob(f"{part}.*.gz")
    return [d._replace(text=d.text[:MAX_CHARACTERS]) for d in open_corpus(str(path)) if d.labels]


def estimate(order: str, tagger: Tagger, texts: Sequence[str]) -> list[tuple[float, float | None, float]]:
    """Return the estimates of the desk; the rule EXPECTED_ERRORS replaces the one of the order uncertainty."""
    if order != EXPECTED_ERRORS:
        return [tuple(values) for values in estimate_values(tagger, texts, RUN)]
    predictions = tagger.predict(texts, 10, RUN)
    scores = np.where(predictions.labels == NO_LABEL, 0.0, np.clip(predictions.scores, 0.0, 1.0))
    return [(float(value), None, 0.0) for value in np.minimum(scores, 1 - scores).sum(axis=1)]


def review(order: str, pool: list[Document], sizes: Sequence[int], method: str, analyzer: str) -> Iterator[Tagger]:
    """Yield the models trained on sizes[0], sizes[1], … documents, each of which the desk has given to one person."""
    with tempfile.TemporaryDirectory() as folder:
        store = ReviewStore(Path(folder) / "desk.sqlite")
        person = store.find_person(store.add_person(PERSON))
        assert person is not None
        numbers = store.add_documents(MODEL, [(f"d{i}", document.text) for i, document in enumerate(pool)])
        documents = dict(zip(numbers, pool, strict=True))
        queue_order = "uncertainty" if order == EXPECTED_ERRORS else order
        chosen = numbers[: sizes[0]]
        for number in chosen:
            store.record(MODEL, number, person, f"k{number}", Decision(accepted=documents[number].labels))
        for version, size in enumerate(sizes):
            while len(chosen) < size:
                number = store.find_next(MODEL, person, queue_order)
                assert number is not None
                store.record(MODEL, number, person, f"k{number}", Decision(accepted=documents[number].labels))
                chosen.append(number)
            labelled = [documents[number] for number in chosen]
            tagger = train(labelled, method, run=RUN, analyzer=analyzer, calibrate=False, name_documents="never")
            yield tagger
            if order != "random" and size < sizes[-1]:
                stale = store.list_stale(MODEL, str(version), len(pool))
                values = estimate(order, tagger, [document.text or "" for document in stale])
                rows = [(document.number, *value) for document, value in zip(stale, values, strict=True)]
                store.save_estimates(str(version), rows)
        store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--orders", nargs="+", default=["random", "uncertainty", EXPECTED_ERRORS, "rare"])
    parser.add_argument("--method", default="parabel")
    parser.add_argument("--analyzer", default="words")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pool", type=int, default=8000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 1000, 1500, 2000, 3000, 4000])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    documents, test = read(options.folder, "train"), read(options.folder, "test")[:2000]
    pool = [documents[i] for i in np.random.default_rng(options.seed).permutation(len(documents))[: options.pool]]
    for order in options.orders:
        models = review(order, pool, options.sizes, options.method, options.analyzer)
        scores = [round(100 * tagger.evaluate(test, ["nDCG@5"], run=RUN)["nDCG@5"], 2) for tagger in models]
        row = {"corpus": options.folder.name, "order": order, "seed": options.seed, "sizes": options.sizes}
        row |= {"method": options.method, "nDCG@5": scores}
        print(json.dumps(row), flush=True)
        if options.json:
            rows = json.loads(options.json.read_text()) if options.json.exists() else []
            options.json.write_text(json.dumps([*rows, row], indent=1) + "\n")


if __name__ == "__main__":
    main()
