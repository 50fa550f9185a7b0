"""Compare label errors of `xmtc data audit` with cleanlab on the same scores (pip install cleanlab):

    python benchmarks/audit_cleanlab.py ../shared/data/cve-libraries/train.jsonl.gz

Labels of at least five documents; with nothing else left out, both must flag the same. cleanlab has a matrix of all
documents × labels, so the corpus must be small."""

from __future__ import annotations

import argparse
import time

import cleanlab
import numpy as np
from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class

from xmtc.analysis.audit.build import MAX_SCORED_LABELS
from xmtc.analysis.audit.confident_learning import MIN_LABEL_DOCUMENTS, find_label_errors
from xmtc.analysis.audit.duplicates import DocumentCollector
from xmtc.analysis.audit.folds import assign_folds, predict_out_of_fold
from xmtc.cli.train import build_pipeline
from xmtc.core.predictions import NO_LABEL
from xmtc.data.corpus import open_corpus
from xmtc.methods.ensemble.calibrated_model import apply_isotonic_curve, fit_isotonic_curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    corpus, notes = open_corpus(parser.parse_args().corpus), DocumentCollector()
    pipeline = build_pipeline("parabel", [], corpus)
    data = pipeline.prepare(notes.watch(corpus)).data
    found = predict_out_of_fold(pipeline.method, data, assign_folds(np.array(notes.fingerprints), 5), MAX_SCORED_LABELS)
    found = apply_isotonic_curve(found, *fit_isotonic_curve(found, data.Y))
    judged = np.flatnonzero(np.bincount(data.Y.indices, minlength=data.n_labels) >= MIN_LABEL_DOCUMENTS)
    named, scores = found.labels != NO_LABEL, np.zeros(data.Y.shape)
    scores[np.nonzero(named)[0], found.labels[named]] = found.scores[named]
    given = [np.flatnonzero(row).tolist() for row in data.Y[:, judged].toarray()]

    begin = time.perf_counter()
    theirs = np.asarray(
        find_multilabel_issues_per_class(given, scores[:, judged], filter_by="confident_learning", n_jobs=1)
    )
    middle = time.perf_counter()
    ours = np.zeros(data.Y.shape, bool)
    for each in find_label_errors(found, data.Y, min_mean_score=0):
        ours[each.documents, each.labels] = True
    seconds = middle - begin, time.perf_counter() - middle
    ours = ours[:, judged]
    print(
        f"{len(judged):,} labels; flagged by cleanlab {cleanlab.__version__} {theirs.sum():,}, by us {ours.sum():,}, "
    )
    print(f"by both {(ours & theirs).sum():,}; seconds: {seconds[0]:.1f} and {seconds[1]:.1f}")


if __name__ == "__main__":
    main()
