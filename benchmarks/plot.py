"""Plot training time and nDCG@5 of every linear tool from the results of benchmarks/linear.py, and the growth of one
Parabel tree with the labels from the results of benchmarks/zipf.py --shop (needs matplotlib).

python benchmarks/plot.py       docs/images/linear.svg, of three corpora, and growth.svg
"""

from __future__ import annotations

import json
from collections.abc import Callable
from math import log
from pathlib import Path
from typing import Any

from peers.measures import summarize

HERE = Path(__file__).parent
PICTURES = HERE.parent / "docs" / "images"
GROWING = {"processor s": "processor seconds", "peak GiB": "peak of memory, GiB", "model MB": "model, MB"}
STYLES = {"xmtc": "o", "omikuji": "s", "libpecos": "^", "napkinxc": "D", "libmultilabel": "v"}
COLOURS = {"xmtc": "tab:red", "omikuji": "tab:blue", "libpecos": "tab:green", "napkinxc": "tab:purple"}
METRIC = "nDCG@5"
CORPORA = ("eurlex57k", "tibkat-gnd-en", "yso-finna-en")


def load_panels() -> dict[str, dict[str, tuple[str, float, float]]]:
    """Return system, training seconds and nDCG@5 by corpus and row."""
    found = {}
    for name in CORPORA:
        result = json.loads((HERE / "results" / f"linear-{name}.json").read_text(encoding="utf-8"))
        for data, rows in summarize(result).items():
            points = {
                row: (result["rows"][row]["system"], values["train_s"], values[METRIC]) for row, values in rows.items()
            }
            found[data] = points
    return found


def draw(figure: Any) -> None:
    found = load_panels()
    for axis, (data, points) in zip(figure.subplots(1, len(found), squeeze=False).flat, found.items(), strict=True):
        for row, (system, seconds, value) in points.items():
            colour = COLOURS.get(system, "gray")
            axis.plot(seconds, value, STYLES[system], color=colour, label=row)
            name = row.removeprefix(f"{system}-")
            axis.annotate(name, (seconds, value), xytext=(4, 4), textcoords="offset points", fontsize=7, color=colour)
        axis.set(xscale="log", xlabel="seconds of training, two cores", ylabel=METRIC, title=data)
        axis.margins(0.2)
    systems = dict.fromkeys(system for points in found.values() for system, _, _ in points.values())
    handles = [axis.plot([], [], STYLES[each], color=COLOURS.get(each, "gray"), label=each)[0] for each in systems]
    figure.axes[0].legend(handles=handles, fontsize=8)


def draw_growth(figure: Any) -> None:
    """Plot the growth of documents and labels alike; the papers' time, documents × log L, is drawn through the second
    point."""
    rows = json.loads((HERE / "results" / "shop.json").read_text(encoding="utf-8"))["rows"]
    labels = [row["labels"] for row in rows]
    for axis, (name, shown) in zip(figure.subplots(1, len(GROWING)), GROWING.items(), strict=True):
        values = [row[name] for row in rows]
        axis.plot(labels, values, "o-", color=COLOURS["xmtc"], label="one Parabel tree")
        if name == "processor s":
            steps = [values[1] * n * log(n) / (labels[1] * log(labels[1])) for n in labels]
            axis.plot(labels, steps, "--", color="gray", label="documents × log L")
            axis.legend(fontsize=8)
        axis.set(xscale="log", yscale="log", xlabel="labels", ylabel=shown)


def save_picture(name: str, width: float, draw: Callable[[Any], None]) -> None:
    import matplotlib.pyplot as plt

    with plt.rc_context({"svg.hashsalt": name}):
        figure = plt.figure(figsize=(width, 3.8), layout="constrained")
        draw(figure)
        figure.savefig(PICTURES / f"{name}.svg", metadata={"Date": None})
    print(PICTURES / f"{name}.svg")


def main() -> None:
    import matplotlib

    matplotlib.use("svg")
    save_picture("linear", 4.6 * len(CORPORA), draw)
    save_picture("growth", 4.0 * len(GROWING), draw_growth)


if __name__ == "__main__":
    main()
