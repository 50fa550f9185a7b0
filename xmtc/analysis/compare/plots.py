"""Plots of a comparison as SVG: accuracy by training time, and critical differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xmtc.analysis import svg
from xmtc.analysis.compare.comparison import ComparisonEntry
from xmtc.analysis.compare.ranking import MethodRanking
from xmtc.analysis.compare.tables import MAIN_METRIC
from xmtc.errors import escape_controls

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_NAME_CHARACTERS = 24
MIN_NAME_DISTANCE = 0.06  # of the height of the plot
MIN_SECONDS = 0.01  # on the logarithmic axis
COST_CAPTION = (
    f"{MAIN_METRIC} in percent with its confidence interval, by training time in seconds (logarithmic). Methods on the "
    "dashed line are the best for their time (Pareto front)."
)
RANK_CAPTION = (
    "Average ranks, the best on the left. Methods under one bar do not differ at the 5 % level (Nemenyi test): the "
    "difference of their ranks is below the critical difference."
)


@dataclass(frozen=True)
class Point:
    """Method in the plot of accuracy by time; metrics in percent."""

    name: str
    seconds: float
    value: float
    low: float
    high: float


def make_points(entries: Sequence[ComparisonEntry]) -> list[Point]:
    """Return the methods with a known training time, the fastest first."""
    points = []
    for entry in entries:
        metric = entry.metrics.get(MAIN_METRIC)
        if metric is not None and entry.cost.train_s is not None:
            seconds = max(entry.cost.train_s, MIN_SECONDS)
            points.append(Point(entry.name, seconds, 100 * metric.mean, 100 * metric.low, 100 * metric.high))
    return sorted(points, key=lambda point: (point.seconds, -point.value))


def find_pareto_front(points: Sequence[Point]) -> list[Point]:
    """Return the points that no faster point equals or exceeds; `points` are sorted by time."""
    front: list[Point] = []
    for point in points:
        if not front or point.value > front[-1].value:
            front.append(point)
    return front


def plot_accuracy_and_cost(entries: Sequence[ComparisonEntry], key: str = "costs") -> str:
    """Return the plot of accuracy by training time; empty for fewer than two methods."""
    points = make_points(entries)
    if len(points) < 2:
        return ""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot(xscale="log", xlabel="training time, s", ylabel=f"{MAIN_METRIC}, %")
        front = find_pareto_front(points)
        for point in points:
            colour = svg.GOOD if point in front else svg.MARK
            errors = [[max(point.value - point.low, 0.0)], [max(point.high - point.value, 0.0)]]
            axes.errorbar(point.seconds, point.value, errors, marker="o", markersize=5, color=colour)
        xs, ys = [point.seconds for point in front], [point.value for point in front]
        end = max(point.seconds for point in points)
        axes.step([*xs, end], [*ys, ys[-1]], where="post", color=svg.GOOD, linestyle="--", linewidth=1)
        draw_point_names(axes, points)

    label = f"Training time and {MAIN_METRIC} of {len(points)} methods"
    return svg.draw_inline_svg(draw, (7.2, 3.8), label, key)


def draw_point_names(axes: Axes, points: Sequence[Point]) -> None:
    """Write the names of points at the right edge, connected with the points by thin lines."""
    bottom, top = axes.get_ylim()
    ordered = sorted(points, key=lambda point: point.value)
    positions = spread_positions([(point.value - bottom) / (top - bottom) for point in ordered], MIN_NAME_DISTANCE)
    for point, position in zip(ordered, positions, strict=True):
        axes.annotate(
            shorten_name(point.name),
            (point.seconds, point.value),
            (1.02, position),
            textcoords="axes fraction",
            va="center",
            arrowprops={"arrowstyle": "-", "color": svg.LINE, "linewidth": 0.6},
            annotation_clip=False,
        )


def spread_positions(wanted: Sequence[float], distance: float, highest: float = 1.0) -> list[float]:
    """Return ascending positions that are at least `distance` apart, near the wanted ones and not above `highest`."""
    positions: list[float] = []
    for position in wanted:
        positions.append(max(position, positions[-1] + distance) if positions else position)
    limit = highest
    for index in range(len(positions) - 1, -1, -1):
        positions[index] = min(positions[index], limit)
        limit = positions[index] - distance
    return positions


def shorten_name(name: str) -> str:
    name = escape_controls(name)
    return name if len(name) <= MAX_NAME_CHARACTERS else f"{name[: MAX_NAME_CHARACTERS - 1]}…"


def plot_critical_differences(ranking: MethodRanking, key: str = "ranks") -> str:
    """Return the critical difference diagram of Demšar (2006): average ranks on a line, similar methods under a bar."""
    n_rows = (len(ranking.methods) + 1) // 2 + len(ranking.groups)
    label = f"Average ranks of {len(ranking.methods)} methods"
    return svg.draw_inline_svg(
        lambda figure: draw_critical_differences(figure, ranking), (7.2, 0.9 + 0.19 * n_rows), label, key
    )


def draw_critical_differences(figure: Figure, ranking: MethodRanking) -> None:
    n_methods = len(ranking.methods)
    last, half = max(n_methods, 2), (n_methods + 1) // 2
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.plot([1, last], [0, 0], color=svg.INK, linewidth=1)
    for tick in range(1, last + 1):
        axes.plot([tick, tick], [0, 0.4], color=svg.INK, linewidth=1)
        if (tick - 1) % max(1, last // 12) == 0:
            axes.text(tick, 0.6, str(tick), ha="center", va="bottom", color=svg.SOFT)
    distance = min(ranking.critical, last - 1)
    axes.plot([1, 1 + distance], [2.4, 2.4], color=svg.INK, linewidth=1, marker="|")
    label = f"critical difference {ranking.critical:.2f}"
    axes.text(1 + distance, 2.4, f"  {label}", va="center", color=svg.SOFT)
    ranks = dict(zip(ranking.methods, ranking.average, strict=True))
    for row, group in enumerate(ranking.groups, 1):
        ends = [min(ranks[name] for name in group), max(ranks[name] for name in group)]
        axes.plot(ends, [-0.6 * row, -0.6 * row], color=svg.MARK, linewidth=2.5, solid_capstyle="butt")
    margin = 0.04 * (last - 1)
    for row, (name, rank) in enumerate(ranks.items()):
        is_left = row < half
        depth: float = -0.6 * len(ranking.groups) - 1 - (row if is_left else n_methods - 1 - row)
        side: float = 1 - margin if is_left else last + margin
        axes.plot([rank, rank, side], [0, depth, depth], color=svg.LINE, linewidth=0.8, zorder=0)
        text = f"{shorten_name(name)} {rank:.2f} " if is_left else f" {rank:.2f} {shorten_name(name)}"
        axes.text(side, depth, text, ha="right" if is_left else "left", va="center")
