"""Measure how long small networks take to rank 300 documents with the default number of threads and with one: `python
benchmarks/small_networks.py`; PYTHONPATH selects another checkout."""

from __future__ import annotations

import os
import statistics
import time

import xmtc
from xmtc import Classifier, Run
from xmtc.methods import method_class
from xmtc.testing import make_planted_corpus

METHODS = ("xml_rnn", "attention_xml", "rank_ae")
ROUNDS = 9


def measure_milliseconds(classifier: Classifier, texts: list[str], run: Run) -> list[float]:
    found = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        classifier.rank(texts, 5, run=run)
        found.append(1000 * (time.perf_counter() - begin))
    return found


def main() -> None:
    print(f"{xmtc.__file__}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    train, (texts, _) = make_planted_corpus(400, seed=0), make_planted_corpus(300, seed=3)
    for name in METHODS:
        classifier = Classifier(name, **method_class(name).quick_parameters | {"epochs": 2}).fit(
            *train, run=Run(device="cpu")
        )
        for title, run in (("default", Run(device="cpu")), ("one thread", Run(1, device="cpu"))):
            measure_milliseconds(classifier, texts[:20], run)
            found = measure_milliseconds(classifier, texts, run)
            print(f"{name:14} {title:11} median {statistics.median(found):7.1f} ms, worst {max(found):7.1f} ms")


if __name__ == "__main__":
    main()
