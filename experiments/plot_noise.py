"""The noise study as a picture: python experiments/plot_noise.py RESULTS.json OUT.svg (needs matplotlib)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt

STYLES = {"Rank-AE": "o-", "BCE-AE": "s--", "XML-RNN": "^:", "Parabel": "d-.", "DiSMEC": "v-."}


def main(results: Path, out: Path) -> None:
    rows = [result["job"] | result for result in json.loads(results.read_text())]
    pictures = sorted({(row["data"], row["noise"]["kind"]) for row in rows})
    figure, axes = plt.subplots(1, len(pictures), figsize=(4 * len(pictures), 3.6), layout="constrained")
    for axis, (data, kind) in zip(axes, pictures, strict=True):
        for method, style in STYLES.items():
            points = sorted(
                (100 * row["noise"]["rate"], row["P@1"])
                for row in rows
                if row["data"] == data
                and row["name"].endswith(f" {method}")
                and (row["noise"]["kind"] == kind or row["noise"]["rate"] == 0)
            )
            if points:
                axis.plot(*zip(*points, strict=True), style, label=method)
        axis.set(title=f"{data}: {kind}", xlabel="noise, %", ylabel="P@1, clean test documents")
        axis.legend(fontsize=8)
    figure.savefig(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
