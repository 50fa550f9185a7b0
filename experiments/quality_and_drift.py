"""Gates and drift on real corpora: promised and reached quality on test documents; estimated and true P@1 by year.

python experiments/quality_and_drift.py gate ../shared/data/cve-libraries --analyzer words --seed 0
python experiments/quality_and_drift.py gate ../shared/data/makupalat-fi --analyzer snowball:finnish --random-test
python experiments/quality_and_drift.py years ../shared/data/cve-libraries --analyzer words --last 2016
python experiments/quality_and_drift.py planted ../shared/data/cve-libraries --analyzer words --seed 0
python experiments/quality_and_drift.py updates ../shared/data/cve-libraries --analyzer words --seed 0
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from xmtc import Document, Run, Tagger, open_corpus, train
from xmtc.maintenance.update import update_tagger
from xmtc.scores.drift import predict_by_probability, predict_by_threshold
from xmtc.scores.quality import QUALITY_METRICS, compute_document_metrics, parse_promise
from xmtc.scores.tagger_thresholds import tune_tagger_thresholds

HELD_OUT_SHARE = 0.2
GATES = [("f1", promise) for promise in ("precision=0.9", "precision=0.8", "precision=0.7", "f1=0.7")]
GATES += [("precision=0.8", "precision=0.9")]  # goal of the thresholds, and promise
RUN = Run(threads=1)
MIN_YEAR_DOCUMENTS = 100


def read(folder: Path, *parts: str) -> list[Document]:
    files = (file for part in parts for file in sorted(folder.glob(f"{part}.*.gz")))
    return [document for file in files for document in open_corpus(str(file))]


def train_model(documents: list[Document], analyzer: str) -> Tagger:
    return train(documents, "parabel", run=RUN, analyzer=analyzer, name_documents="never")


def measure_gates(folder: Path, analyzer: str, seed: int, random_test: bool) -> Iterator[list[object]]:
    """Yield goal, promise, coverage, and the reached mean of the metric, on test documents, in percent."""
    documents = read(folder, "train")
    order, n_held_out = list(range(len(documents))), int(HELD_OUT_SHARE * len(documents))
    random.Random(seed).shuffle(order)
    held_out, others = ([documents[row] for row in rows] for rows in (order[:n_held_out], order[n_held_out:]))
    test = others[:n_held_out] if random_test else read(folder, "test", "dev")
    tagger = train_model(others[n_held_out:] if random_test else others, analyzer)
    labelled = tagger.transform_labelled(test)
    for goal, promise in GATES:
        tuned = tune_tagger_thresholds(tagger, held_out, goal, "all", RUN, promise=parse_promise(promise))
        selected, quality = tuned.tagger.predict_with_quality(labelled.data, RUN)
        values = compute_document_metrics(selected, labelled.Y)[QUALITY_METRICS.index(promise.partition("=")[0])]
        reached = values[quality.is_published].mean() if quality.is_published.any() else np.nan
        yield [goal, promise, round(100 * quality.is_published.mean(), 1), round(100 * float(reached), 1)]


def find_year(document: Document) -> int:
    """Return the year in an id such as CVE-2016-1 or 32010R0123 (CELEX)."""
    match = re.match(r"CVE-(\d{4})|\d(\d{4})", document.id)
    assert match is not None
    return int(match[1] or match[2])


def estimate_p1(tagger: Tagger, new: list[Document]) -> list[object]:
    """Return the documents; P@1 in percent of the reference, by probability, by the threshold, as estimated, and true;
    unknown words in percent, and warnings."""
    report, true = tagger.measure_drift(new, RUN), tagger.evaluate(new, ["P@1"], run=RUN)["P@1"]
    reference, observed = tagger.require_reference(), tagger.observe(new, RUN)
    first = reference.scores[:, :1], reference.hits[:, :1], observed.scores[:, :1], observed.labels[:, :1]
    accuracy = report.accuracy["P@1"]
    values = [accuracy.reference, predict_by_probability(*first), predict_by_threshold(*first), accuracy.new, true]
    percent = [round(100 * value, 1) for value in (*values, observed.unknown.mean())]
    return [len(new), *percent, ", ".join(report.warnings)]


def measure_years(folder: Path, analyzer: str, last: int, every: int) -> Iterator[list[object]]:
    """Yield year and `estimate_p1` of a model trained up to the year `last`."""
    documents = [document for document in read(folder, "train", "dev", "test") if document.labels][::every]
    tagger = train_model([document for document in documents if find_year(document) <= last], analyzer)
    for year in sorted({find_year(document) for document in documents}):
        new = [document for document in documents if find_year(document) == year > last]
        if len(new) >= MIN_YEAR_DOCUMENTS:
            yield [year, *estimate_p1(tagger, new)]


def measure_planted(folder: Path, analyzer: str, seed: int, every: int) -> Iterator[list[object]]:
    """Yield names of planted shifts of random documents, and `estimate_p1`."""
    documents = [document for document in read(folder, "train") if document.labels][::every]
    rng = random.Random(seed)
    rng.shuffle(documents)
    n_test = min(3000, len(documents) // 5)
    test, rest = documents[:n_test], documents[n_test:]
    tagger, counts = train_model(rest, analyzer), Counter(label for document in rest for label in document.labels)

    def change_words(change: Callable[[list[str]], list[str]]) -> list[Document]:
        return [document._replace(text=" ".join(change(document.text.split())) or "-") for document in test]

    by_frequency = sorted(test, key=lambda d: sum(counts[label] for label in d.labels) / len(d.labels))
    shifts = {
        "none": test,
        "without 20 % of the words": change_words(lambda words: [word for word in words if rng.random() >= 0.2]),
        "without 50 % of the words": change_words(lambda words: [word for word in words if rng.random() >= 0.5]),
        "30 % of the words unknown": change_words(lambda words: [w[::-1] if rng.random() < 0.3 else w for w in words]),
        "first ten words": change_words(lambda words: words[:10]),
        "half with rarer labels": by_frequency[: n_test // 2],
        "half with more frequent labels": by_frequency[n_test // 2 :],
    }
    for name, new in shifts.items():
        yield [name, *estimate_p1(tagger, new)]


def measure_updates(folder: Path, analyzer: str, seed: int) -> Iterator[list[object]]:
    """Yield documents, and true P@1 and unknown words of the test documents after updates in random order; then P@1,
    unknown words and warnings of the first reference and of the renewed one."""
    documents, test = read(folder, "train"), read(folder, "test")
    random.Random(seed).shuffle(documents)
    bounds = [len(documents) * step // 10 for step in range(3, 11)]
    tagger = train(documents[: bounds[0]], "parabel", run=RUN, analyzer=analyzer, keep_training=True)
    first, labels = tagger.require_reference(), tagger.labels.words()
    for begin, end in pairwise(bounds):
        tagger = update_tagger(tagger, documents[begin:end], run=RUN).tagger
        old = replace(tagger, reference=first.with_labels(np.array([tagger.labels.find(label) for label in labels])))
        reports = [each.measure_drift(test, RUN) for each in (old, tagger)]
        true = tagger.evaluate(test, ["P@1"], run=RUN)["P@1"]
        row: list[object] = [end, round(100 * true, 1), round(100 * reports[0].unknown_words.new, 1)]  # type: ignore[union-attr]
        for report in reports:
            row += [round(100 * report.accuracy["P@1"].reference, 1), round(100 * report.unknown_words.reference, 1)]  # type: ignore[union-attr]
            row += [", ".join(report.warnings)]
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("measurement", choices=["gate", "years", "planted", "updates"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--analyzer", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--random-test", action="store_true", help="Test on training documents.")
    parser.add_argument("--last", type=int, default=2016)
    parser.add_argument("--every", type=int, default=1, help="Read only one of so many documents.")
    options = parser.parse_args()
    if options.measurement == "years":
        rows = measure_years(options.folder, options.analyzer, options.last, options.every)
    elif options.measurement == "planted":
        rows = measure_planted(options.folder, options.analyzer, options.seed, options.every)
    elif options.measurement == "updates":
        rows = measure_updates(options.folder, options.analyzer, options.seed)
    else:
        rows = measure_gates(options.folder, options.analyzer, options.seed, options.random_test)
    for row in rows:
        print(*row, sep="\t", flush=True)


if __name__ == "__main__":
    main()
