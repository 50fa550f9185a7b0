"""Draws training time and nDCG@5 of every linear tool, from what benchmarks/linear.py has stored (needs matplotlib).

python benchmarks/plot.py                     docs/images/linear.svg, of all corpora under benchmarks/results
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from peers.measures import summary

HERE = Path(__file__).parent
PICTURE = HERE.parent / "docs" / "images" / "linear.svg"
STYLES = {"xmtc": "o", "omikuji": "s", "libpecos": "^", "napkinxc": "D", "libmultilabel": "v"}
COLOURS = {"xmtc": "tab:red", "omikuji": "tab:blue", "libpecos": "tab:green", "napkinxc": "tab:purple"}
METRIC = "nDCG@5"


def panels() -> dict[str, dict[str, tuple[str, float, float]]]:
    """By corpus and row: the system, seconds of training, and nDCG@5; of results that have it."""
    found = {}
    for path in sorted(HERE.glob("results/linear-*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        for data, rows in summary(result).items():
            points = {
                row: (result["rows"][row]["system"], values["train_s"], values[METRIC])
                for row, values in rows.items()
                if METRIC in values
            }
            if points:
                found[data] = points
    return found


def draw(figure: Any) -> None:
    found = panels()
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


def main() -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    n_panels = len(panels())
    if not n_panels:
        raise SystemExit(f"No result under {HERE / 'results'} has {METRIC}; run benchmarks/linear.py first.")
    with plt.rc_context({"svg.hashsalt": "linear"}):
        figure = plt.figure(figsize=(4.6 * n_panels, 3.8), layout="constrained")
        draw(figure)
        figure.savefig(PICTURE, metadata={"Date": None})
    print(PICTURE)


if __name__ == "__main__":
    main()
