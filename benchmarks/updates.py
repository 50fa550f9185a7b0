"""Replay a corpus in steps: nDCG@5 and CPU seconds of `update_tagger` beside a new training after every step.

    python benchmarks/updates.py ../shared/data/cve-libraries --method parabel --steps 10

Documents are in the order of their ids. Prints a Markdown table, and JSON with --json FILE."""

from __future__ import annotations

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from xmtc import Document, Run, open_corpus, train
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


def measure_new_labels(documents, test, method, n_examples, n_labels, run):
    """Return how often labels with few examples are among the first five for test documents that have them, after an
    update and after a new training.

    The labels are drawn at random (seed 0) from those with five training documents and a test document. The first
    training does not see them; other labels of their documents stay."""
    with_label: dict[str, list[Document]] = {}
    for document in documents:
        for label in document.labels:
            with_label.setdefault(label, []).append(document)
    in_test = {label for document in test for label in document.labels}
    candidates = sorted(label for label, own in with_label.items() if len(own) >= 5 and label in in_test)
    chosen = set(np.random.default_rng(0).choice(candidates, n_labels, replace=False).tolist())
    examples = {d.id: d for label in sorted(chosen) for d in with_label[label][:n_examples]}
    hidden = [d._replace(labels=[label for label in d.labels if label not in chosen]) for d in documents]
    base = train([d for d in hidden if d.labels], method, run=run, keep_training=True)
    updated = update_tagger(base, examples.values(), run=run).tagger
    full = train([d for d in (examples.get(d.id, d) for d in hidden) if d.labels], method, run=run)
    shares = []
    for tagger in (updated, full):
        found = total = 0
        for document, tags in zip(test, tagger.predict_labels([d.text for d in test], 5, run=run), strict=True):
            wanted = chosen & set(document.labels)
            total, found = total + len(wanted), found + len(wanted & {tag.label for tag in tags})
        shares.append(found / total)
    return *shares, total


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--method", default="parabel")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--first", type=float, default=0.0, help="share of the documents of the first training")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--new-labels", type=int, default=0, metavar="N", help="measure N labels with few examples")
    options = parser.parse_args()
    run = Run(threads=1, device="cpu")
    documents = sorted(open_corpus(str(options.corpus / "train.jsonl.gz")), key=lambda document: document.id)
    test, n, steps = list(open_corpus(str(options.corpus / "test.jsonl.gz"))), len(documents), options.steps
    if options.new_labels:
        for n_examples in (1, 2, 5):
            result = measure_new_labels(documents, test, options.method, n_examples, options.new_labels, run)
            print(f"{n_examples} examples: update {result[0]:.1%}, training {result[1]:.1%} of {result[2]} labels")
        return
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
