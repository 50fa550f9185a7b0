"""What kept predictions of several networks are worth together, and with Parabel, trained here: AttentionXML's Tables 4
and 5, and the same with APLC-XLNet. Calibrated: by development documents, as `-m consensus -p calibrated=true` does.

python experiments/combine.py eurlex57k kept --of attention=flat-0,flat-1,flat-2 --of aplc=mpnet --out combined.json
"""

from __future__ import annotations

import argparse
import json
from itertools import combinations
from pathlib import Path

import numpy as np
from common import CORPORA, KEPT, NAMES, kept_predictions

from xmtc.base.predictions import Predictions
from xmtc.data.corpus import open_corpus
from xmtc.evaluation import evaluate
from xmtc.evaluation.overlap import overlap
from xmtc.methods.ensemble.calibrated import curve, on_curve
from xmtc.methods.ensemble.model import MEAN, NOISY_OR, merged
from xmtc.methods.label_tree.parabel import Parabel
from xmtc.pipeline import train

PARABEL = "parabel"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("kept", type=Path)
    parser.add_argument("--of", action="append", required=True, help="NAME=network,network: an ensemble, and its name")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--corpora", type=Path, default=CORPORA)
    args = parser.parse_args()
    folder = args.corpora / args.data
    parabel = train(open_corpus(str(folder / "train.jsonl.gz")), Parabel())
    _, Y = parabel.rank_labelled(open_corpus(str(folder / "train.jsonl.gz")), 1)
    frequencies, n_train, n_labels = np.bincount(Y.indices, minlength=Y.shape[1]), *Y.shape
    ensembles = {name: networks.split(",") for name, _, networks in (said.partition("=") for said in args.of)}
    curves: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    results: dict[str, object] = {}
    for part in ("dev", "test"):
        linear, Y = parabel.rank_labelled(open_corpus(str(folder / f"{part}.jsonl.gz")), 100)
        found: dict[str, Predictions] = {PARABEL: linear}
        for name, networks in ensembles.items():
            kept = {network: kept_predictions(args.kept / f"{network}-{part}.npz") for network in networks}
            found |= kept if len(kept) > 1 else {}
            found[name] = merged(list(kept.values()), MEAN, n_labels, KEPT)
        if part == "dev":
            curves = {name: curve(predictions, Y) for name, predictions in found.items()}
        level = {name: on_curve(predictions, *curves[name]) for name, predictions in found.items()}
        groups = [names for n in range(2, len(ensembles) + 2) for names in combinations([PARABEL, *ensembles], n)]
        groups += [(PARABEL, network) for networks in ensembles.values() for network in networks if len(networks) > 1]
        for names in groups:
            for kind, scores in (("consensus", found), ("calibrated consensus", level)):
                together = merged([scores[name] for name in names], NOISY_OR, n_labels, KEPT)
                found[f"{kind} of {', '.join(names)}"] = together
        for name, predictions in found.items():
            figures = evaluate(predictions, Y, NAMES, frequencies, n_train=n_train)
            results[f"{part}: {name}"] = {metric: round(100 * value, 2) for metric, value in figures.items()}
            print(f"{part}: {name:60}", *results[f"{part}: {name}"].values(), flush=True)
        for one, other in combinations([PARABEL, *ensembles], 2):
            shared = [round(100 * overlap(found[one], found[other], k)) for k in range(1, 6)]
            results[f"{part}: overlap of {one} and {other}, top 1 to 5"] = shared
    args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
