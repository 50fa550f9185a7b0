"""Precision, recall and F1 by threshold, as CSV or as an SVG plot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xmtc.analysis import svg
from xmtc.core.predictions import NO_LABEL
from xmtc.data.file_streams import check_output_path
from xmtc.errors import XmtcError
from xmtc.evaluation.assignment_metrics import compute_assignment_metrics
from xmtc.evaluation.ranked_results import RankedResults

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_CURVE_THRESHOLDS = 100
AVERAGES = ("micro", "macro", "example")
CURVE_COLUMNS = ("threshold", "tags", *(f"{average}-{name}" for average in AVERAGES for name in ("P", "R", "F1")))
SVG_LABEL = "Precision, recall and F1 by threshold"
# How files of xmtc begin; others are not overwritten.
CURVE_FILE_PREFIXES = {
    "csv": ",".join(CURVE_COLUMNS),
    "svg": f'<svg xmlns="{svg.SVG_NAMESPACE}" aria-label="Precision',
}


def check_curve_file(path: str) -> str:
    """Return the format of the file; raise XmtcError if there is none, or if the path is another file."""
    format = Path(path).suffix.lstrip(".").lower()
    if format not in CURVE_FILE_PREFIXES:
        raise XmtcError(f"--curve {path} has no known format; expected a name that ends with .csv or .svg.")
    if format == "svg":
        svg.check_matplotlib(f"--curve {path}")
    if Path(path).is_file() and Path(path).stat().st_size:
        with open(path, "rb") as stream:
            if not stream.read(200).startswith(CURVE_FILE_PREFIXES[format].encode()):
                raise XmtcError(f"{path} exists and is not a curve of xmtc; choose another name or move it away.")
    check_output_path(path)
    return format


def compute_threshold_curve(ranked: RankedResults) -> np.ndarray:
    """Return the assignment metrics at many thresholds, shape (n, len(CURVE_COLUMNS))."""
    scores = np.sort(ranked.predictions.scores[ranked.predictions.labels != NO_LABEL])[::-1]
    # dense at high scores, where useful thresholds are
    positions = np.geomspace(1, max(1, len(scores)), MAX_CURVE_THRESHOLDS).astype(int) - 1
    rows = []
    for threshold in np.unique(scores[positions] if len(scores) else np.zeros(0)):
        metrics = compute_assignment_metrics(ranked.apply_threshold(threshold))
        rows.append([threshold, metrics.labels_per_document, *metrics.micro, *metrics.macro, *metrics.by_document])
    return np.array(rows, np.float64).reshape(-1, len(CURVE_COLUMNS))


def as_csv(rows: np.ndarray) -> str:
    lines = [",".join(f"{value:.6g}" for value in row) for row in rows]
    return "\n".join([",".join(CURVE_COLUMNS), *lines]) + "\n"


def as_svg(rows: np.ndarray) -> str:
    """Return a plot of micro-averaged precision, recall and F1."""
    colours = {"precision": svg.MARK, "recall": svg.GOOD, "F1": svg.INK}

    def draw(figure: Figure) -> None:
        highest = max(1.0, float(rows[:, 0].max(initial=0)))
        axes = figure.add_subplot(xlim=(0, highest), ylim=(0, 1), xlabel="threshold")
        for name, column in (("precision", "micro-P"), ("recall", "micro-R"), ("F1", "micro-F1")):
            axes.plot(rows[:, 0], rows[:, CURVE_COLUMNS.index(column)], color=colours[name], label=name)
        axes.legend(frameon=False)

    return svg.draw_svg_file(draw, (5.0, 4.0), SVG_LABEL)
