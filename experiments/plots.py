"""Plot the papers' figures from the numbers in experiments/results (needs matplotlib).

python experiments/plots.py                        all of them, into docs/images
python experiments/plots.py aplc-clusters noise    these
python experiments/plots.py --count                first count the labels of the corpora again (needs ../shared/data)

A figure is a function that draws on what `plt.subplots` gives it, and a line in FIGURES. The same numbers give the same
bytes."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
RESULTS, IMAGES, CORPORA = HERE / "results", HERE.parent / "docs" / "images", HERE.parents[1] / "shared" / "data"
COUNTED = ("cve-libraries", "eurlex57k", "tibkat-gnd-en", "yso-finna-en")
POINTS = 200  # maximum points of a curve
NOISE_STYLES = {  # the five curves of the paper, and our defaults
    "Rank-AE, the paper's loss": "o-",
    "BCE-AE": "s--",
    "FastXML": "d-.",
    "PD-Sparse": "v-.",
    "XML-CNN": "^:",
    "Rank-AE, ours": "D-",
}
MOST_FREQUENT = 35.74  # P@1 of always predicting the most frequent label of imdb-meka
LEAST_LABELS = 20  # minimum size of a bin
CALIBRATION_STYLES = {"raw": "x--", "calibrated": "o-"}
QUEUE_STYLES = {"random": "ko--", "uncertainty": "D-", "expected-errors": "s:", "rare": "^:"}
NOISE_KINDS = {"missing": "labels missing", "flip": "cells flipped"}
NOISE_RATES = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
ABLATED = ("delicious", "imdb-meka", "cve-libraries", "eurlex57k")
VARIANTS = ("Rank-AE", "no attention", "no ranking loss")
LINE = 90  # characters per line in the picture of a text

# Numbers in the text of paper 003 about Figures 4 and 5; other points are only in the pictures.
PUBLISHED_CLUSTERS = {2: 87.72, 6: 85.72}  # P@1 on EURLex-4k
PARTITIONS = {
    "0.7, 0.2, 0.1": "proportions-0.7,0.2,0.1",
    "thirds": "clusters-3",
    "0.1, 0.2, 0.7": "proportions-0.1,0.2,0.7",
}


def read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def aplc_labels(figure: Any) -> None:
    """Plot figure 2: number of documents per label, most frequent label first."""
    axis = figure.subplots()
    for name, counted in read("label-frequencies").items():
        ranks, documents = zip(*counted["points"], strict=True)
        label = f"{name}: {counted['labels']:,} labels, 20 % of them {counted['top 20 %']:.0f} % of the tags"
        axis.plot([100 * rank / counted["labels"] for rank in ranks], documents, label=label)
    axis.set(yscale="log", xlabel="labels, by frequency, %", ylabel="documents")
    axis.legend(fontsize=8)


def aplc_clusters(figure: Any) -> None:
    """Plot figure 4: P@1 against the number of clusters."""
    for axis, (data, found) in zip(figure.subplots(1, 2), load_aplc_results().items(), strict=True):
        numbers = range(1, 7)
        axis.plot(numbers, [found[f"clusters-{n}"]["P@1"] for n in numbers], "o-", label=data)
        axis.set(xlabel="clusters", ylabel="P@1, test documents")
        if data == "eurlex57k":
            axis.plot(*zip(*PUBLISHED_CLUSTERS.items(), strict=True), "kx", label="EURLex-4k, XLNet, published")
        axis.legend(fontsize=8)


def aplc_partitions(figure: Any) -> None:
    """Plot figure 5: P@1 against the proportions of three clusters."""
    for axis, (data, found) in zip(figure.subplots(1, 2), load_aplc_results().items(), strict=True):
        axis.bar(list(PARTITIONS), [found[job]["P@1"] for job in PARTITIONS.values()], width=0.5)
        lowest = min(found[job]["P@1"] for job in PARTITIONS.values())
        axis.set(
            title=data, xlabel="head, first and second tail", ylabel="P@1, test documents", ylim=(lowest - 3, None)
        )


def load_aplc_results() -> dict[str, dict[str, dict[str, float]]]:
    """Return test metrics by corpus and row."""
    stored = {"eurlex57k": "aplc-figures", "cve-libraries": "aplc-figures-cve"}
    return {data: {row["name"]: row["test"] for row in read(name)} for data, name in stored.items()}


def noise(figure: Any) -> None:
    """Plot figure 3 of Rank-AE: P@1 against the rate of label noise, the mean of the seeds and their spread."""
    rows = load_rows("rank_ae-noise")
    for axis, kind in zip(figure.subplots(1, 2, sharey=True), NOISE_KINDS, strict=True):
        for method, style in NOISE_STYLES.items():
            known = {rate: rows.get(f"{method}, {kind if rate else 'missing'} {rate}") for rate in NOISE_RATES}
            points = {100 * rate: [found["P@1"] for found in seeds] for rate, seeds in known.items() if seeds}
            if points:
                means, spreads = zip(*((np.mean(values), np.std(values)) for values in points.values()), strict=True)
                axis.errorbar(list(points), means, spreads, fmt=style, capsize=2, label=method)
        axis.axhline(MOST_FREQUENT, color="grey", linewidth=0.8, label="always the most frequent label")
        axis.set(title=f"imdb-meka, {NOISE_KINDS[kind]}", xlabel="noise, %", ylabel="P@1, clean test documents")
    figure.axes[0].legend(fontsize=8, loc="lower left", ncols=2)  # panels without a curve


def calibration(figure: Any) -> None:
    """Plot accuracy against score before and after calibration: 20 best labels of each test document, in ten bins."""
    found = read("calibration-bins")
    n_rows = -(-len(found) // 4)
    for axis, (name, kinds) in zip(figure.subplots(n_rows, 4, squeeze=False).flat, found.items(), strict=False):
        axis.plot([0, 1], [0, 1], "k:", linewidth=0.8)
        for kind, style in CALIBRATION_STYLES.items():
            points = [(score, right) for score, right, n_labels in kinds[kind] if n_labels >= LEAST_LABELS]
            axis.plot(*zip(*points, strict=True), style, label=kind)
        axis.set(title=name, xlabel="mean score", ylabel="share that is right", xlim=(0, 1), ylim=(0, 1))
    figure.axes[0].legend(fontsize=8)


def active_learning(figure: Any) -> None:
    """Plot nDCG@5 against reviewed documents for each order of the review desk: mean and range of the seeds."""
    rows = read("active-learning")
    corpora = list(dict.fromkeys(row["corpus"] for row in rows))
    for axis, corpus in zip(figure.subplots(1, len(corpora)), corpora, strict=True):
        for order, style in QUEUE_STYLES.items():
            seeds = [row for row in rows if (row["corpus"], row["order"]) == (corpus, order)]
            if seeds:
                scores, sizes = np.array([row["nDCG@5"] for row in seeds]), seeds[0]["sizes"]
                axis.plot(sizes, scores.mean(0), style, markersize=4, label=order)
                axis.fill_between(sizes, scores.min(0), scores.max(0), color=axis.lines[-1].get_color(), alpha=0.15)
        axis.set(title=corpus, xlabel="reviewed documents", ylabel="nDCG@5")
    figure.axes[0].legend(fontsize=8)


def ablation(figure: Any) -> None:
    """Plot figure 4 of Rank-AE: P@k without channel attention, and without the ranking loss."""
    rows = load_rows("rank_ae-ablation")
    for axis, data in zip(figure.subplots(1, len(ABLATED)), ABLATED, strict=True):
        for number, variant in enumerate(VARIANTS):
            seeds = rows.get(f"{data}, {variant}", [])
            values = np.array([[found[f"P@{k}"] for k in (1, 3, 5)] for found in seeds])
            if len(values):
                at = np.arange(3) + 0.27 * (number - 1)
                axis.bar(at, values.mean(0), 0.25, yerr=values.std(0), capsize=2, label=variant)
        axis.set(title=data, xticks=range(3), xticklabels=["P@1", "P@3", "P@5"])
    axis.legend(fontsize=8)


def channel_attention(figure: Any) -> None:
    """Plot figure 5 of Rank-AE: words of a document, shaded by channel attention."""
    pieces = read("rank_ae-attention")["labels"][0]["pieces"]
    words = [(piece["text"], piece["weight"]) for piece in pieces if piece["text"].strip()]
    axis, largest = figure.subplots(), max(weight for _, weight in words)
    x, y = 0.0, 0.0
    for text, weight in words:
        width = len(text) + 1.0
        if x + width > LINE:
            x, y = 0.0, y - 1.6
        ground = {"boxstyle": "round,pad=0.15", "facecolor": (0.85, 0.2, 0.1, weight / largest), "edgecolor": "none"}
        axis.text(x, y, text, family="monospace", fontsize=9, bbox=ground)
        x += width + 0.6
    axis.set(xlim=(0, LINE + 1), ylim=(y - 1, 1.5))
    axis.axis("off")


def load_rows(name: str) -> dict[str, list[dict[str, float]]]:
    """Return the stored figures of each row, of all its seeds."""
    found: dict[str, list[dict[str, float]]] = {}
    for result in read(name).values():
        if "figures" in result:
            found.setdefault(result["row"], []).append(result["figures"])
    return found


# Function and size in inches of each picture.
FIGURES = {
    "aplc-labels": (aplc_labels, (7, 3.6)),
    "aplc-clusters": (aplc_clusters, (8, 3.2)),
    "aplc-partitions": (aplc_partitions, (8, 3.2)),
    "noise": (noise, (11, 4.2)),
    "calibration": (calibration, (13, 6.2)),
    "active-learning": (active_learning, (9, 3.4)),
    "ablation": (ablation, (13, 3.4)),
    "channel-attention": (channel_attention, (9, 2.6)),
}


def draw(name: str) -> Path:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    what, size = FIGURES[name]
    with plt.rc_context({"svg.hashsalt": name}):
        figure = plt.figure(figsize=size, layout="constrained")
        what(figure)
        figure.savefig(IMAGES / f"{name}.svg", metadata={"Date": None})
        plt.close(figure)
    return IMAGES / f"{name}.svg"


def count_labels(corpora: Path) -> None:
    """Store the number of training documents of each label of the corpora."""
    from xmtc.data.corpus import open_corpus
    from xmtc.data.label_collector import LabelCollector

    found = {}
    for name in COUNTED:
        path = corpora / name / "train.jsonl.gz"
        if not path.exists():
            raise SystemExit(f"There is no {path}; labels can be counted only beside the corpora.")
        collector = LabelCollector()
        n_docs = sum(1 for _ in collector.collect(open_corpus(str(path))))
        Y = collector.to_matrix(sorted(collector.id_by_label))
        counts = -np.sort(-np.bincount(Y.indices))
        ranks = np.unique(np.geomspace(1, len(counts), POINTS).astype(int)) - 1
        ranks = np.union1d(ranks, np.linspace(0, len(counts) - 1, POINTS).astype(int))
        top = 100 * counts[: len(counts) // 5].sum() / counts.sum()
        points = np.stack([ranks + 1, counts[ranks]], 1).tolist()
        found[name] = {"documents": n_docs, "labels": len(counts), "top 20 %": round(top, 1), "points": points}
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in found.items())
    (RESULTS / "label-frequencies.json").write_text(f"{{\n{rows}\n}}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FIGURES))
    parser.add_argument("--count", action="store_true", help="count the labels of the corpora again")
    parser.add_argument("--data", type=Path, default=CORPORA, help="folder with the corpora")
    args = parser.parse_args()
    if args.count:
        count_labels(args.data)
    for name in args.names or FIGURES:
        try:
            print(draw(name))
        except FileNotFoundError as error:
            print(
                f"{name}: {error.filename} is not there; run it with `python -m experiments run` first.",
                file=sys.stderr,
            )


if __name__ == "__main__":
    main()
