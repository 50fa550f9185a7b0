"""Replay a corpus in steps: nDCG@5 and CPU seconds of `update_tagger` beside a new training after every step.

    python benchmarks/updates.py ../shared/data/cve-libraries --method parabel --steps 10

Documents are in the order of their ids. Prints a Markdown table, and JSON with --json FILE."""

from __future__ import annotations

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path

from xmtc import Run, open_corpus, train
from xmtc.maintenance.update import update_tagger


def measure(function, *arguments, **options):
    """Return the result of a call and its CPU seconds."""
    start = time.process_time()
    result = function(*arguments, **options)
    return result, time.process_time() - start


def replay(documents, test, method, bounds, run):
    """Yield a row of figures for each step; `bounds` are the numbers of documents after each."""
    updated = train(documents[: bounds[0]], method, run=run, keep_training=True)
    for begin, end in pairwise(bounds):
        result, update_seconds = measure(update_tagger, updated, documents[begin:end], run=run)
        updated = result.tagger
        full, full_seconds = measure(train, documents[:end], method, run=run, keep_training=True)
        scores = [100 * tagger.evaluate(test, ["nDCG@5"], run=run)["nDCG@5"] for tagger in (updated, full)]
        yield {
            "documents": end,
            "new": end - begin,
            "nDCG@5 update": scores[0],
            "nDCG@5 training": scores[1],
            "CPU s update": update_seconds,
            "CPU s training": full_seconds,
            "how": result.report.training,
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--method", default="parabel")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--first", type=float, default=0.0, help="share of the documents of the first training")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    run = Run(threads=1, device="cpu")
    documents = sorted(open_corpus(str(options.corpus / "train.jsonl.gz")), key=lambda document: document.id)
    test, n, steps = list(open_corpus(str(options.corpus / "test.jsonl.gz"))), len(documents), options.steps
    first = options.first or 1 / steps
    n_updates = steps - 1 if not options.first else steps
    bounds = [round(n * (first + i * (1 - first) / n_updates)) for i in range(n_updates + 1)]
    train(documents[:200], options.method, run=run, keep_training=True)  # loads compiled code
    rows = []
    print("| documents | new | nDCG@5 update | training | CPU s update | training | share | |\n|" + "---|" * 8)
    for row in replay(documents, test, options.method, bounds, run):
        rows.append(row)
        share = row["CPU s update"] / row["CPU s training"]
        cells = [f"{row['documents']:,}", f"{row['new']:,}"]
        cells += [f"{row[name]:.2f}" for name in list(row)[2:6]] + [f"{share:.0%}", row["how"]]
        print("| " + " | ".join(cells) + " |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
