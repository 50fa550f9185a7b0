"""Compute the mean score and the fraction of correct labels in ten bins, for the 20 best labels of each test document
and models of `python -m experiments run calibration`. `experiments/plots.py calibration` draws them.

python experiments/calibration_bins.py build/experiments/calibration
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from common import CORPORA

from xmtc.core.predictions import NO_LABEL
from xmtc.core.run import Run
from xmtc.data.corpus import open_corpus
from xmtc.evaluation import RankedResults
from xmtc.evaluation.metrics.calibration import BINS, assign_bins
from xmtc.tagger import Tagger

K = 20
MODELS = {
    "Parabel, cve-libraries": "parabel-{}cve-libraries",
    "DiSMEC, cve-libraries": "dismec-{}cve-libraries",
    "Parabel, delicious": "parabel-{}delicious",
    "DiSMEC, delicious": "dismec-{}delicious",
    "Parabel, imdb-meka": "parabel-{}imdb-meka",
    "DiSMEC, imdb-meka": "dismec-{}imdb-meka",
    "Parabel, eurlex57k": "parabel-large-{}eurlex57k",
    "Parabel, tibkat-gnd-en": "parabel-large-{}tibkat-gnd-en",
}


def compute_bins(model: Path, corpus: str) -> list[tuple[float, float, int]]:
    """Return mean score, fraction of correct labels, and number of labels of each bin."""
    documents = open_corpus(str(CORPORA / corpus / "test.jsonl.gz"))
    tagger = Tagger.load(model)
    data, Y, _ = tagger.transform_labelled(documents, Run(threads=2))
    found = tagger.predict(data, K, Run(threads=2))
    named = found.labels != NO_LABEL
    scores, right = found.scores[named].astype(np.float64), RankedResults(found, Y).hits[named]
    which = assign_bins(found.scores[named])
    counts, sums, hits = (np.bincount(which, weights, BINS) for weights in (None, scores, right))
    return [
        (round(total / n, 4), round(hit / n, 4), int(n)) for n, total, hit in zip(counts, sums, hits, strict=True) if n
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results" / "calibration-bins.json")
    given = parser.parse_args()
    found = {}
    for name, folder in MODELS.items():
        pair = {"raw": given.models / folder.format("raw-"), "calibrated": given.models / folder.format("")}
        if all(path.exists() for path in pair.values()):
            found[name] = {kind: compute_bins(path, name.partition(", ")[2]) for kind, path in pair.items()}
            print(name, found[name], flush=True)
    given.results.write_text(json.dumps(found, indent=1) + "\n")
