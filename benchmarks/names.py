"""Measure the automaton of `lexical` with a million names: processor time and memory of building and searching,
relative to tokenizing the same texts.

python benchmarks/names.py --names 1000000
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from xmtc.core.dataset import LabelNames
from xmtc.core.run import Run
from xmtc.features.names import Names
from xmtc.methods.lexical.automaton import AhoCorasickAutomaton

RUN = Run(threads=1)
LENGTHS = (0.35, 0.4, 0.2, 0.05)  # shares of names with one to four words


def time_work(work: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.process_time()
    return work(), round(time.process_time() - begin, 2)


def read_peak_mb() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)


def draw_zipf_words(rng: np.random.Generator, words: list[str], n: int) -> np.ndarray:
    """Return words whose frequencies follow Zipf's law: the i-th has 1 / i."""
    ranks = np.exp(rng.random(n) * np.log(len(words))).astype(np.int64)
    return np.array(words, object)[ranks - 1]


def make_sentences(rng: np.random.Generator, words: list[str], lengths: np.ndarray) -> list[str]:
    drawn, ends = draw_zipf_words(rng, words, int(lengths.sum())), np.cumsum(lengths)
    return [" ".join(part) for part in np.split(drawn, ends[:-1])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", type=int, default=1_000_000)
    parser.add_argument("--words", type=int, default=500_000)
    parser.add_argument("--docs", type=int, default=20_000)
    given = parser.parse_args()

    rng = np.random.default_rng(0)
    words = [f"{rng.integers(26**6):06x}{i:x}" for i in range(given.words)]
    names = list(dict.fromkeys(make_sentences(rng, words, 1 + rng.choice(len(LENGTHS), 3 * given.names, p=LENGTHS))))
    names = names[: given.names]
    texts = make_sentences(rng, words, np.full(given.docs, 200))
    AhoCorasickAutomaton.from_names(
        make_label_names(Names().fit(texts[:10], RUN, names[:10])[0], names[:10])
    ).find_matches(Names().fit(texts[:10], RUN, names[:10])[1], 10)  # compile first

    before = read_peak_mb()
    (view, _), learn_s = time_work(lambda: Names().fit(texts[:1], RUN, names))
    of_labels, names_s = time_work(lambda: make_label_names(view, names))
    middle = read_peak_mb()
    automaton, build_s = time_work(lambda: AhoCorasickAutomaton.from_names(of_labels))
    built = read_peak_mb()
    tokens, read_s = time_work(lambda: view.transform(texts, RUN))
    _, walk_s = time_work(lambda: automaton.longest(tokens))
    found, match_s = time_work(lambda: automaton.candidates(tokens, given.names))
    size = sum(part.nbytes for part in vars(automaton).values())
    row = {
        "names": len(names),
        "nodes": len(automaton.fail),
        "learn the words of names, s": learn_s,
        "names as tokens, s": names_s,
        "build, s": build_s,
        "automaton, MB": round(size / 1e6),
        "peak before, with words, with automaton, MB": [before, middle, built],
        "words of texts": len(tokens.ids),
        "read texts, s": read_s,
        "walk, s": walk_s,
        "walk and gather, s": match_s,
        "candidates": len(found.docs),
    }
    print(json.dumps(row, indent=1))


def make_label_names(view: Any, names: list[str]) -> LabelNames:
    return LabelNames(view.whole(names, RUN), np.arange(len(names), dtype=np.int32), np.ones(len(names), np.bool_))


if __name__ == "__main__":
    main()
