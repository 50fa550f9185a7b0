"""Measure precision and recall of `xmtc data audit` on planted label noise.

    python benchmarks/audit.py CORPUS [--count N] [--seed 1] [--method parabel]

A corpus is given noise as `python -m experiments noise` does, audited,
and the findings are compared with what was planted. Labels
that were wrong or missing before count as false alarms, so the true precision is higher."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from xmtc.analysis.audit.build import MISSING_LABEL, WRONG_LABEL, audit
from xmtc.cli.train import build_pipeline
from xmtc.core.run import Run
from xmtc.data.corpus import open_corpus, open_corpus_writer

sys.path.insert(0, str(Path(__file__).parent.parent))  # for `experiments`, which is not installed
from experiments.noise import write_noisy_corpus

NOISE = [("missing", 0.1), ("missing", 0.3), ("swap", 0.1), ("swap", 0.3)]
FIRST = 200  # of findings that people would read


def main() -> None:
    options = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        corpus = open_corpus(write_beginning(options.corpus, options.count, Path(folder)))
        true = read_label_sets(corpus)
        print(f"{options.corpus}: {len(true):,} documents, {sum(map(len, true)):,} labels, {options.method}")
        print("noise rate planted | wrong: found right precision recall first | missing: the same | seconds")
        for kind, rate in NOISE:
            ending = ".txt" if corpus.has_features else ".jsonl"
            path = str(Path(folder, f"{kind}-{rate}{ending}"))
            write_noisy_corpus(corpus, path, rate, kind, options.seed)
            measure(path, true, kind, rate, options)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus")
    parser.add_argument("--count", type=int, default=0, help="documents from the write_beginning of the corpus (all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--method", default="parabel")
    parser.add_argument("--threads", type=int, default=0)
    return parser.parse_args()


def write_beginning(path: str, count: int, folder: Path) -> str:
    if not count:
        return path
    source, target = open_corpus(path), str(folder / "part.jsonl")
    with open_corpus_writer(target, None, source) as add:
        for document in islice(source, count):
            add(document)
    return target


def read_label_sets(corpus) -> list[set[str]]:
    return [set(document.labels) for document in corpus]


def measure(path: str, true: list[set[str]], kind: str, rate: float, options: argparse.Namespace) -> None:
    noisy = open_corpus(path)
    given = read_label_sets(noisy)
    begin = time.perf_counter()
    found = audit(noisy, build_pipeline(options.method, [], noisy), run=Run(options.threads)).findings
    seconds = time.perf_counter() - begin
    planted = {
        WRONG_LABEL: {(doc, label) for doc, labels in enumerate(given) for label in labels - true[doc]},
        MISSING_LABEL: {(doc, label) for doc, labels in enumerate(true) for label in labels - given[doc]},
    }
    cells = [
        evaluate_findings([(each.document - 1, each.label) for each in found[what]], planted[what]) for what in planted
    ]
    sizes = "/".join(str(len(each)) for each in planted.values())
    print(f"{kind} {rate} {sizes} | {' | '.join(cells)} | {seconds:.0f}", flush=True)


def evaluate_findings(flagged: list[tuple[int, str]], planted: set[tuple[int, str]]) -> str:
    right = [each in planted for each in flagged]
    precision, recall = sum(right) / max(1, len(right)), sum(right) / max(1, len(planted))
    first = sum(right[:FIRST]) / max(1, len(right[:FIRST]))
    return f"{len(right)} {sum(right)} {precision:.3f} {recall:.3f} {first:.3f}"


if __name__ == "__main__":
    main()
