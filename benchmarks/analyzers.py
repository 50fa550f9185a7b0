"""Compare the cost of stems and character n-grams with plain words, and n-grams with scikit-learn, in one run:

    python benchmarks/analyzers.py ../shared/data/tibkat-gnd-en/train.jsonl.gz --language english

Seconds of the processor and of the wall, each the least of several runs; what is compiled is compiled before."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from sklearn.feature_extraction.text import TfidfVectorizer

from xmtc.core.run import Run
from xmtc.data.corpus import open_corpus
from xmtc.features.tfidf import Tfidf


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("corpus")
    arguments.add_argument("--language", default="english", help="of Snowball's")
    arguments.add_argument("--only", default="", help="analyzers with commas between them, and no peer")
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--repeat", type=int, default=2)
    given = arguments.parse_args()
    texts = [document.text for document in open_corpus(given.corpus)]
    run = Run(threads=given.threads)
    usual = ["words", f"snowball:{given.language}", "grams", "chars", "words:1-2", "words+chars"]
    for analyzer in given.only.split(",") if given.only else usual:
        Tfidf(analyzer=analyzer).fit(texts[:200], run)
        forget_stems()
        report(analyzer, lambda analyzer=analyzer: Tfidf(analyzer=analyzer).fit(texts, run)[1].matrix, given.repeat)
    if given.only:
        return
    peer = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), min_df=2, sublinear_tf=True)
    report("scikit-learn's char_wb", lambda: peer.fit_transform(texts), 1)


def forget_stems() -> None:
    from xmtc.text.analyzers import get_analyzer

    get_analyzer.cache_clear()


def report(name: str, work: Callable[[], Any], repeat: int) -> None:
    best = (float("inf"), float("inf"))
    for _ in range(repeat):
        forget_stems()
        wall, processor = time.perf_counter(), time.process_time()
        shown = work()
        best = min(best, (time.process_time() - processor, time.perf_counter() - wall))
    size = f"{shown.shape[1]:9,} columns {shown.nnz / shown.shape[0]:7.1f} a document"
    print(f"{name:24} {best[0]:6.1f} s of the processor {best[1]:6.1f} s  {size}", flush=True)


if __name__ == "__main__":
    main()
