"""Train a network on the first documents of a corpus and print each epoch, to see the effect of many rare labels.

    python experiments/rare_labels.py bow_cnn tibkat-gnd-en -n 6000 -p epochs=4 -p maps=300 -p output_norm=false

The first `-m` documents of the corpus' dev file, or the ones after the first n where it has none, decide which pass is
kept, and are what figures are of: they compare settings, and are no estimate for new documents. One thread, CPU.
"""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path
from typing import Any

from xmtc.core.hyperparameters import UnparsedValue
from xmtc.core.run import Run
from xmtc.data.corpus import open_corpus
from xmtc.evaluation import evaluate
from xmtc.pipeline import Pipeline

DATA = Path("../shared/data")
MEASURES = ["P@1", "P@3", "P@5", "nDCG@5"]


def print_event(event: Any) -> None:
    done = event.as_json()
    if done["event"] == "pass":
        print(f"pass {done['pass']}: loss {done['loss']:.4g}, nDCG@5 {100 * done['nDCG@5']:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method")
    parser.add_argument("corpus")
    parser.add_argument("-n", type=int, default=6000, help="documents to train on")
    parser.add_argument("-m", type=int, default=1000, help="documents to compare by")
    parser.add_argument("-p", "--param", action="append", default=[], metavar="NAME=VALUE")
    args = parser.parse_args()
    run = Run(threads=1, device="cpu", callbacks=print_event)
    folder, settings = DATA / args.corpus, dict(param.split("=", 1) for param in args.param)
    pipeline = Pipeline.from_parameters(
        args.method, parameters={name: UnparsedValue(value) for name, value in settings.items()}
    )
    documents = list(islice(iter(open_corpus(folder / "train.jsonl.gz")), args.n + args.m))
    dev = folder / "dev.jsonl.gz"
    others = list(islice(iter(open_corpus(dev)), args.m)) if dev.exists() else documents[args.n :]
    prepared = pipeline.prepare(documents[: args.n], run)
    valid = prepared.build_labelled_dataset(others, run)
    print(f"{args.n:,} documents, {prepared.data.n_labels:,} labels", flush=True)
    model = pipeline.method.fit(prepared.data, valid, run)
    assert valid.Y is not None
    found = evaluate(model.predict(valid, 5, run), valid.Y, MEASURES)
    print(", ".join(f"{name} {100 * value:.2f}" for name, value in found.items()))


if __name__ == "__main__":
    main()
