"""Compare procedures that select labels from the same scores by micro-, macro- and example-F1: those of xmtc through
its commands, and those of LibMultiLabel and napkinXC.

The two peers are twins, written after their code, because both learn on scores of their own models only.
LibMultiLabel 0.10.0 `linear/linear.py`, micromacro-freq of Lin and Lin (CIKM 2023): its cross-validation, which is
there to get scores of documents that are not trained on, gives way to the held-out documents; labels without a true
document in that part keep 0.5. napkinXC 0.7.2 `src/model.cpp`, online F-measure optimisation, macro and
micro, as its command begins (a = 10, b = 20) and, macro, as its example does (a = 1, b = 2, ten passes).

python experiments/decisions.py cve-libraries delicious imdb-meka eurlex57k tibkat-gnd-en yso-finna-en --work /tmp/work
(--once for large ones: the same functions, which rank once instead of once for each way)
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import CORPORA
from scipy.sparse import csr_array

from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.data.corpus import open_corpus
from xmtc.evaluation import EVALUATION_DEPTH, to_ranked_results
from xmtc.evaluation.assignment_metrics import compute_assignment_metrics
from xmtc.scores import parse_goal, select_labels, tune_thresholds
from xmtc.tagger import Tagger

RESULTS = Path(__file__).parent / "results" / "decisions.json"
NAMES = ("micro-F1", "macro-F1", "example-F1")
WAYS = [
    ("f1", "all"), ("f1", "document"), ("f1", "label"),
    ("micro-f1", "all"), ("micro-f1", "label"), ("macro-f1", "all"), ("macro-f1", "label"),
]  # fmt: skip


def run_command(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "xmtc", *words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"xmtc {' '.join(words)}\n{done.stderr}")
    return done.stdout


def prepare(name: str, work: Path) -> tuple[Path, Path]:
    """Return the documents for tuning, and a model that was not trained on them."""
    folder, corpus = work / name, CORPORA / name
    folder.mkdir(parents=True, exist_ok=True)
    train, valid, model = corpus / "train.jsonl.gz", corpus / "dev.jsonl.gz", folder / "model"
    if not valid.exists():
        source, train, valid = train, folder / "train.jsonl", folder / "valid.jsonl"
        size = ["--count", "20000"] if name == "yso-finna-en" else ["--share", "0.2"]
        if not valid.exists():
            run_command("data", "split", str(source), str(train), str(valid), *size, "--seed", "0")
    if not model.exists():
        run_command("train", str(train), "-m", "parabel", "-o", str(model), "-q")
    return valid, model


def measure_commands(valid: Path, model: Path, test: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"0.5": read_command_values(model, test, "0.5")}
    for goal, by in WAYS:
        start = time.time()
        words = ["thresholds", str(model), str(valid), "--goal", goal, "--per", by, "--json", "-q"]
        learnt = json.loads(run_command(*words))
        seconds = round(time.time() - start, 1)
        found[f"{goal} by {by}"] = read_command_values(model, test, "decision") | {"seconds": seconds}
        found[f"{goal} by {by}"] |= {"gives": learnt["gives"], "halves": learnt["halves"]}
        print(f"{goal} by {by}", found[f"{goal} by {by}"], flush=True)
    return found


def rank_labelled(tagger: Tagger, corpus: Path, depth: int) -> tuple[Predictions, csr_array]:
    """Return the best labels of a corpus, and its true labels."""
    data, Y, _ = tagger.transform_labelled(open_corpus(str(corpus)), Run(threads=2))
    return tagger.predict(data, depth, Run(threads=2)), Y


def measure_in_process(valid: Path, model: Path, test: Path) -> dict[str, Any]:
    """Do the same without commands, which would rank large corpora once per procedure."""
    tagger = Tagger.load(model)
    learnt, Y = rank_labelled(tagger, valid, EVALUATION_DEPTH)
    ranked, truth = rank_labelled(tagger, test, EVALUATION_DEPTH)
    judged = to_ranked_results(learnt, Y)
    found: dict[str, Any] = {"0.5": compute_figures(select_labels(ranked, ranked.scores >= 0.5), truth)}
    for goal, by in WAYS:
        start = time.time()
        lesson = tune_thresholds(judged, parse_goal(goal), len(tagger.labels), by)
        seconds, given = round(time.time() - start, 1), lesson.decision(learnt)
        assert (
            2 * (given.labels != NO_LABEL).sum(axis=1).max() <= EVALUATION_DEPTH
        )  # otherwise the command would search deeper
        found[f"{goal} by {by}"] = compute_figures(lesson.decision(ranked), truth) | {"seconds": seconds}
        found[f"{goal} by {by}"] |= {"gives": str(lesson.decision), "halves": lesson.half_split_scores}
        print(f"{goal} by {by}", found[f"{goal} by {by}"], flush=True)
    tagger.with_decision(lesson.decision).save(model)
    return found


def compute_figures(given: Predictions, truth: csr_array) -> dict[str, float]:
    reached = compute_assignment_metrics(to_ranked_results(given, truth))
    values = (reached.micro[2], reached.macro[2], reached.by_document[2])
    return {name: round(100 * value, 2) for name, value in zip(NAMES, values, strict=True)}


def read_command_values(model: Path, test: Path, at: str) -> dict[str, float]:
    values = json.loads(
        run_command("evaluate", str(model), str(test), *(f"{name}@{at}" for name in NAMES), "--json", "-q")
    )
    return {name: round(100 * values[f"{name}@{at}"], 2) for name in NAMES}


# Procedures of the peers on the scores of the same model


def measure_peers(valid: Path, model: Path, test: Path) -> dict[str, Any]:
    tagger = Tagger.load(model)
    # maximum number of labels that our last procedure considers
    n, depth = len(tagger.labels), tagger.require_decision().depth
    learnt, Y = rank_labelled(tagger, valid, depth)
    ranked, truth = rank_labelled(tagger, test, depth)
    ways = {
        "LibMultiLabel": lambda: tune_micromacro(learnt, Y, n),
        "napkinXC, macro": lambda: tune_online_macro(learnt, Y, n),
        "napkinXC, macro, ten passes": lambda: tune_online_macro(learnt, Y, n, 1.0, 2.0, 10),
        "napkinXC, micro": lambda: np.full(n, tune_online_micro(learnt, Y)),
    }
    found = {}
    for name, way in ways.items():
        start = time.time()
        thresholds = way()
        seconds = round(time.time() - start, 1)
        labels = np.maximum(ranked.labels, 0)
        given = select_labels(ranked, (ranked.scores >= thresholds[labels]) & (ranked.labels != NO_LABEL))
        found[name] = compute_figures(given, truth) | {"seconds": seconds}
        print(name, found[name], flush=True)
    return found


def tune_micromacro(found: Predictions, Y: csr_array, n_labels: int) -> np.ndarray:
    """Tune labels by descending frequency; each threshold maximises the label's contribution to macro-F, and micro-F
    with the labels before. Documents whose best labels do not include a label have score 0 for it."""
    answered = found.labels != NO_LABEL
    labels, scores, hits = found.labels[answered], found.scores[answered], to_ranked_results(found, Y).hits[answered]
    order = np.lexsort((scores, labels))
    labels, scores, hits = labels[order], scores[order], hits[order]
    begins, ends = (np.searchsorted(labels, np.arange(n_labels), side=side) for side in ("left", "right"))
    frequencies = np.bincount(Y.indices, minlength=n_labels)[:n_labels]
    thresholds, before = np.full(n_labels, 0.5), np.zeros(3)  # true positives, false positives, false negatives
    for number, label in enumerate(np.argsort(-frequencies, kind="stable"), 1):
        if not frequencies[label]:
            break
        score, hit = scores[begins[label] : ends[label]], hits[begins[label] : ends[label]]
        tp = hit.sum() - np.append(0, np.cumsum(hit))
        fp = (~hit).sum() - np.append(0, np.cumsum(~hit))
        fn = frequencies[label] - tp
        macro = 2 * tp / (2 * tp + fp + fn) / number
        micro = 2 * (tp + before[0]) / (2 * (tp + before[0]) + fp + fn + before[1] + before[2])
        cut = len(tp) - 1 - int(np.argmax((macro + micro)[::-1]))  # the last of equal ones
        edges = np.concatenate([[0.0], score, [np.nextafter(score[-1], 2) if len(score) else 1.0]])
        thresholds[label] = edges[-1] if cut == len(score) else (edges[cut] + edges[cut + 1]) / 2
        before += [tp[cut], fp[cut], fn[cut]]
    return thresholds


def tune_online_macro(
    found: Predictions, Y: csr_array, n_labels: int, a: float = 10.0, b: float = 20.0, passes: int = 1
) -> np.ndarray:
    """Set the threshold of a label to half of its F1 so far."""
    right, total = np.full(n_labels, a), np.full(n_labels, b)
    for document in list(range(found.n_docs)) * passes:
        labels, scores = found.labels[document], found.scores[document]
        known = labels != NO_LABEL
        labels, scores = labels[known], scores[known]
        given = labels[scores >= right[labels] / total[labels]]
        true = Y.indices[Y.indptr[document] : Y.indptr[document + 1]]
        true = true[true < n_labels]
        total[given] += 1
        total[true] += 1
        right[np.intersect1d(given, true)] += 1
    return right / total


def tune_online_micro(found: Predictions, Y: csr_array, a: float = 10.0, b: float = 20.0) -> float:
    judged = to_ranked_results(found, Y)
    for document in range(found.n_docs):
        given = (found.scores[document] >= a / b) & (found.labels[document] != NO_LABEL)
        a += (given & judged.hits[document]).sum()
        b += given.sum() + judged.n_true[document]
    return a / b


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="+")
    parser.add_argument("--work", type=Path, required=True, help="folder for splits and models")
    parser.add_argument("--once", action="store_true", help="rank once, in Python, instead of through the commands")
    given = parser.parse_args()
    for name in given.corpora:
        print(name, flush=True)
        valid, model = prepare(name, given.work)
        test = CORPORA / name / "test.jsonl.gz"
        ours = measure_in_process if given.once else measure_commands
        found = ours(valid, model, test) | measure_peers(valid, model, test)
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps(results | {name: found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
