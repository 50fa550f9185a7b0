"""Evaluate matching of label names, alone and combined with methods that learn from documents: recall of labels without
training documents ("unseen"), and gain in all metrics.

python experiments/lexical.py eurlex57k tibkat-gnd-en -p stemming=english
python experiments/lexical.py cve-libraries -p stemming=plural --others debian.txt   # apt-cache pkgnames > debian.txt
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from common import CORPORA
from scipy.sparse import csr_array

import xmtc
from xmtc.analysis.combine import combine
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.data.corpus import open_corpus
from xmtc.data.document import Document
from xmtc.pipeline import train
from xmtc.tagger import Tagger

MEASURES = ("P@1", "P@3", "P@5", "R@5", "R@20", "nDCG@5", "PSP@5")
RESULTS = Path(__file__).parent / "results" / "lexical.json"
RUN = Run(threads=2)


def write_vocabulary(parts: Iterable[list[Document]], path: Path, others: Iterable[str] = ()) -> str:
    """Write a vocabulary of all labels of a corpus without one, and of labels without documents: the name of a library
    is its label and the last part of the label (hawtio-ide of io.hawt hawtio-ide)."""
    labels = sorted({label for part in parts for document in part for label in document.labels} | set(others))
    entries = [(label, label, "" if (last := re.split("[ /]", label)[-1]) == label else last) for label in labels]
    path.write_text("".join("\t".join(row) + "\n" for row in [("id", "name", "altLabel"), *entries]))
    return str(path)


def compute_unseen_recall(found: Predictions, Y: csr_array, frequencies: np.ndarray, k: int) -> tuple[int, int]:
    """Return the recall@k of labels without training documents, and their number of assignments. Columns of Y beyond
    the frequencies are labels that the model does not know."""
    seen = np.flatnonzero(frequencies)
    n_columns = max(Y.shape[1], len(frequencies))
    truth = csr_array((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], n_columns)).tolil()
    truth[:, seen] = 0
    unseen = truth.tocsr()
    labels = found.labels[:, :k]
    rows = np.repeat(np.arange(len(labels)), labels.shape[1])[labels.ravel() != NO_LABEL]
    answered = csr_array((np.ones(len(rows)), (rows, labels[labels != NO_LABEL])), shape=unseen.shape)
    return int(unseen.multiply(answered).sum()), int(unseen.sum())


def measure_tagger(tagger: Tagger, test: list[Document]) -> dict[str, Any]:
    begin = time.perf_counter()
    data, Y, others = tagger.transform_labelled(test, RUN)
    found = tagger.predict(data, 20, RUN)
    seconds = time.perf_counter() - begin
    scores = {
        name: round(100 * value, 2)
        for name, value in tagger.evaluate_predictions(found, Y, MEASURES, unseen_labels=others).items()
    }
    for k in (5, 20):
        n_found, n = compute_unseen_recall(found, Y, tagger.frequencies, k)
        scores |= {f"unseen found@{k}": n_found, "unseen": n, f"unseen R@{k}": round(100 * n_found / max(n, 1), 2)}
    return scores | {"predict_s": round(seconds, 1)}


def iterate_rows(
    folder: Path, methods: list[str], parameters: dict[str, str], place: Path, others: list[str]
) -> Iterable[dict[str, Any]]:
    name = folder.name
    train_docs, test = (list(open_corpus(str(folder / f"{part}.jsonl.gz"))) for part in ("train", "test"))
    dev = list(open_corpus(str(folder / "dev.jsonl.gz"))) if (folder / "dev.jsonl.gz").exists() else None
    lexicals = {"lexical": parameters | {"vocabulary": str(folder / "label_names.tsv.gz")}}
    if not (folder / "label_names.tsv.gz").exists():
        names = write_vocabulary([train_docs, test], place / "labels.tsv")
        lexicals = {"lexical": parameters | {"vocabulary": names}, "lexical without a vocabulary": parameters}
        if others:
            more = write_vocabulary([train_docs, test], place / "more.tsv", others)
            lexicals["lexical with other names"] = parameters | {"vocabulary": more}
    taggers = {}
    for title in (*lexicals, *methods):
        begin = time.perf_counter()
        taggers[title] = train(train_docs, title.partition(" ")[0], run=RUN, **lexicals.get(title, {}))
        seconds = time.perf_counter() - begin
        yield {"data": name, "row": title, "fit_s": round(seconds, 1), **measure_tagger(taggers[title], test)}
    for method, lexical in product(methods, lexicals):
        for valid in (None, dev)[: 1 if dev is None else 2]:
            both = combine([taggers[method], taggers[lexical]], valid=valid, run=RUN)
            title = f"{method}, {lexical}{'' if valid is None else ', calibrated'}"
            yield {"data": name, "row": title, **measure_tagger(both, test)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--methods", nargs="*", default=["parabel", "dismec"])
    parser.add_argument("-p", action="append", default=[], help="name=value, a parameter of lexical")
    parser.add_argument("--corpora", type=Path, default=CORPORA)
    parser.add_argument("--others", type=Path, help="further names, one in a line, for a corpus without a vocabulary")
    parser.add_argument("--place", type=Path, default=Path("build"))
    given = parser.parse_args()
    given.place.mkdir(exist_ok=True)
    others = given.others.read_text().split() if given.others else []
    parameters = dict(each.split("=") for each in given.p)
    for name in given.data:
        for row in iterate_rows(given.corpora / name, given.methods, parameters, given.place, others):
            row |= {"lexical": parameters, "xmtc": xmtc.__version__}
            print(json.dumps(row), flush=True)
            kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
            kept = [other for other in kept if (other["data"], other["row"]) != (row["data"], row["row"])]
            RESULTS.write_text(json.dumps([*kept, row], indent=1) + "\n")


if __name__ == "__main__":
    main()
