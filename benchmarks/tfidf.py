"""Compare the extraction of words, pairs of words and character n-grams with scikit-learn, interleaved in one run:
seconds of fit + transform of one corpus, and their ratio. scikit-learn uses one thread.

python benchmarks/tfidf.py ../shared/data/eurlex57k/train.jsonl.gz --documents 10000
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from xmtc.core.run import Run
from xmtc.data.corpus import open_corpus
from xmtc.features.tfidf import Tfidf

ALL_TERMS = 10**9
ANALYZERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "words": ({}, {}),
    "words:1-2": ({"ngram_min_df": 2, "ngram_min_lift": 0, "ngram_weight": 1}, {"ngram_range": (1, 2)}),
    "chars": ({"max_grams": ALL_TERMS}, {"analyzer": "char_wb", "ngram_range": (3, 5)}),
}


def measure_seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def compare(analyzer: str, texts: list[str], threads: int, repeats: int) -> None:
    """Print the seconds of both, their ratio, and the largest difference of a value."""
    parameters, reference_parameters = ANALYZERS[analyzer]
    view = Tfidf(analyzer=analyzer, **parameters)
    view.fit(texts[:100])  # compile first
    ours, theirs = [], []
    for _ in range(repeats):
        seconds, (fitted, bag) = measure_seconds(partial(view.fit, texts, Run(threads)))
        ours.append(seconds)
        reference = TfidfVectorizer(sublinear_tf=True, min_df=2, **reference_parameters)
        seconds, expected = measure_seconds(partial(reference.fit_transform, texts))
        theirs.append(seconds)
    columns = [reference.vocabulary_.get(term, -1) for term in fitted.vocabulary.words()]
    difference = abs(bag.matrix - expected[:, columns]).max() if -1 not in columns else np.nan
    ratios = sorted(other / own for own, other in zip(ours, theirs, strict=True))
    print(
        f"{analyzer:10} {bag.size:9,} features; xmtc {min(ours):7.2f} s, scikit-learn {min(theirs):7.2f} s; "
        f"ratio {min(theirs) / min(ours):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f}), largest difference {difference:.1e}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?", default="../shared/data/eurlex57k/train.jsonl.gz")
    parser.add_argument("--analyzers", default=",".join(ANALYZERS))
    parser.add_argument("--documents", type=int, help="only the first documents")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    texts = [document.text for document in open_corpus(options.corpus)][: options.documents]
    print(f"{options.corpus}: {len(texts):,} documents, {options.threads} threads, {platform.processor()}")
    print(f"python {platform.python_version()}, scikit-learn {version('scikit-learn')}, numba {version('numba')}")
    for analyzer in options.analyzers.split(","):
        compare(analyzer, texts, options.threads, options.repeats)


if __name__ == "__main__":
    main()
