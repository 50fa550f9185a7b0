"""Compare tf-idf with scikit-learn, interleaved in one run: seconds of fit + transform of one corpus, and their ratio.

python benchmarks/tfidf.py ../shared/data/eurlex57k/train.jsonl.gz
"""

from __future__ import annotations

import os
import platform
import sys
import time
from functools import partial
from importlib.metadata import version

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from xmtc.core.run import Run
from xmtc.data.corpus import open_corpus
from xmtc.features.tfidf import Tfidf

REPEATS = 3


def measure_seconds(work) -> tuple[float, object]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def main(path: str) -> None:
    texts = [document.text for document in open_corpus(path)]
    Tfidf().fit(texts[:100])  # compile first
    threads = len(os.sched_getaffinity(0))
    ours, theirs = [], []
    for _ in range(REPEATS):
        s, (fitted, bag) = measure_seconds(lambda: Tfidf().fit(texts, Run(threads)))
        ours.append(s)
        reference = TfidfVectorizer(sublinear_tf=True, min_df=2)
        s, expected = measure_seconds(partial(reference.fit_transform, texts))
        theirs.append(s)
    columns = [reference.vocabulary_.get(word, -1) for word in fitted.vocabulary.words()]
    difference = abs(bag.matrix - expected[:, columns]).max() if -1 not in columns else np.nan
    print(f"{path}: {len(texts):,} documents, {bag.size:,} features, {threads} threads, {platform.processor()}")
    print(f"python {platform.python_version()}, scikit-learn {version('scikit-learn')}, numba {version('numba')}")
    print(f"xmtc          {min(ours):6.2f} s  (of {', '.join(f'{s:.2f}' for s in ours)})")
    print(f"scikit-learn  {min(theirs):6.2f} s  (of {', '.join(f'{s:.2f}' for s in theirs)})")
    print(f"ratio         {min(theirs) / min(ours):6.2f}   largest difference {difference:.1e}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "../shared/data/eurlex57k/train.jsonl.gz")
