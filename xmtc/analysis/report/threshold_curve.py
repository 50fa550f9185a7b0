"""Precision, recall and F1 by threshold, as CSV or as a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from xmtc.core.predictions import NO_LABEL
from xmtc.data.file_streams import check_output_path
from xmtc.errors import XmtcError
from xmtc.evaluation.assignment_metrics import compute_assignment_metrics
from xmtc.evaluation.ranked_results import RankedResults

MAX_CURVE_THRESHOLDS = 100  # thresholds, at most
AVERAGES = ("micro", "macro", "example")
CURVE_COLUMNS = ("threshold", "tags", *(f"{average}-{what}" for average in AVERAGES for what in ("P", "R", "F1")))
CURVE_FILE_PREFIXES = {
    "csv": ",".join(CURVE_COLUMNS),
    "svg": '<svg xmlns="http://www.w3.org/2000/svg" aria-label="Precision',
}
SIZE, LEFT, TOP = 320, 40, 12


def check_curve_file(path: str) -> str:
    """Its kind; refused where that is none, or where it would write over something else."""
    kind = Path(path).suffix.lstrip(".").lower()
    if kind not in CURVE_FILE_PREFIXES:
        raise XmtcError(f"--curve {path} does not say what to write; expected a name that ends with .csv or .svg.")
    if Path(path).is_file() and Path(path).stat().st_size:
        with open(path, "rb") as stream:
            if not stream.read(200).startswith(CURVE_FILE_PREFIXES[kind].encode()):
                raise XmtcError(f"{path} exists and is no curve of xmtc; choose another name or move it away.")
    check_output_path(path)
    return kind


def compute_threshold_curve(judged: RankedResults) -> np.ndarray:
    """(n, len(COLUMNS)) what labels reach that score at least a threshold, at many thresholds."""
    scores = np.sort(judged.predictions.scores[judged.predictions.labels != NO_LABEL])[::-1]
    # dense where few labels are given, which is where thresholds lie
    places = np.geomspace(1, max(1, len(scores)), MAX_CURVE_THRESHOLDS).astype(int) - 1
    rows = []
    for threshold in np.unique(scores[places] if len(scores) else np.zeros(0)):
        found = compute_assignment_metrics(judged.apply_threshold(threshold))
        rows.append([threshold, found.labels_per_document, *found.micro, *found.macro, *found.by_document])
    return np.array(rows, np.float64).reshape(-1, len(CURVE_COLUMNS))


def as_csv(rows: np.ndarray) -> str:
    lines = [",".join(f"{value:.6g}" for value in row) for row in rows]
    return "\n".join([",".join(CURVE_COLUMNS), *lines]) + "\n"


def as_svg(rows: np.ndarray) -> str:
    """Thresholds from left to right; precision, recall and F1 of all assignments upwards."""
    highest = max(1.0, float(rows[:, 0].max(initial=0)))
    names = {"P": "precision", "R": "recall", "F1": "F1"}
    lines = [
        draw_curve_line(rows, highest, CURVE_COLUMNS.index(f"micro-{what}"), what, name) for what, name in names.items()
    ]
    ticks = "".join(
        f'<text x="{LEFT + SIZE * each:.0f}" y="{TOP + SIZE + 16}" text-anchor="middle">{each * highest:.3g}</text>'
        f'<text x="{LEFT - 6}" y="{TOP + SIZE * (1 - each) + 4:.0f}" text-anchor="end">{each:g}</text>'
        for each in (0, 0.25, 0.5, 0.75, 1)
    )
    style = (
        "text{font:11px system-ui,sans-serif;fill:#595959}path{fill:none;stroke-width:2}.P{stroke:#0b62a4}"
        ".R{stroke:#2f7d4f}.F1{stroke:#1a1a1a}rect{fill:#fff;stroke:#d9d9d9}"
    )
    return (
        f'{CURVE_FILE_PREFIXES["svg"]}, recall and F1 by threshold" role="img" viewBox="0 0 {LEFT + SIZE + 90} '
        f'{TOP + SIZE + 40}"><style>{style}</style><rect x="{LEFT}" y="{TOP}" width="{SIZE}" height="{SIZE}"/>'
        f'{ticks}<text x="{LEFT + SIZE / 2:.0f}" y="{TOP + SIZE + 34}" text-anchor="middle">threshold</text>'
        f"{''.join(lines)}</svg>\n"
    )


def draw_curve_line(rows: np.ndarray, highest: float, column: int, kind: str, name: str) -> str:
    x, y = LEFT + SIZE * np.clip(rows[:, 0] / highest, 0, 1), TOP + SIZE * (1 - rows[:, column])
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    key = {"P": 0, "R": 1, "F1": 2}[kind]
    beside = LEFT + SIZE + 10
    return (
        f'<path class="{kind}" d="M{points or f"{LEFT},{TOP}"}"/>'
        f'<path class="{kind}" d="M{beside},{TOP + 8 + 18 * key} h14"/>'
        f'<text x="{beside + 20}" y="{TOP + 12 + 18 * key}">{name}</text>'
    )
