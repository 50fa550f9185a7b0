"""Plots of a comparison as SVG, in the colours of the page: accuracy beside cost, and critical differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from xmtc.analysis.compare.comparison import ComparisonEntry
from xmtc.analysis.compare.ranking import MethodRanking
from xmtc.analysis.compare.tables import MAIN_METRIC
from xmtc.explain.highlights import escape_text

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 52, 150, 12, 40
LINE_HEIGHT = 18  # between two names
Scale = Callable[[float], float]  # from a value to where it stands
PLOT_STYLE = (
    "figure.plot { max-width: 44rem }\n"
    "th[scope], td:not(.text) { white-space: nowrap }\n"  # names and figures are read as a whole
    "td.text { min-width: 9rem }\n"
    "@media print { table { font-size: 7.5pt } th, td { padding: .15rem .35rem } th[scope] { white-space: normal }\n"
    "  td.text { min-width: 0 } }\n"
)


@dataclass(frozen=True)
class Point:
    name: str
    seconds: float
    value: float  # in percent
    low: float
    high: float


def make_points(entries: Sequence[ComparisonEntry]) -> list[Point]:
    """Those whose training time is known, the quickest first."""
    found = [
        Point(entry.name, max(entry.cost.train_s, 0.01), *(100 * x for x in (each.mean, each.low, each.high)))
        for entry in entries
        if MAIN_METRIC in entry.metrics and entry.cost.train_s is not None
        for each in [entry.metrics[MAIN_METRIC]]
    ]
    return sorted(found, key=lambda point: (point.seconds, -point.value))


def find_pareto_front(found: Sequence[Point]) -> list[Point]:
    """The Pareto front: nothing that is as quick is better."""
    best: list[Point] = []
    for point in found:
        if not best or point.value > best[-1].value:
            best.append(point)
    return best


def plot_accuracy_and_cost(entries: Sequence[ComparisonEntry]) -> str:
    """Training time to the right, on a logarithmic scale; nDCG@5 upwards."""
    found = make_points(entries)
    if len(found) < 2:
        return ""
    first, last = floor(log10(found[0].seconds)), ceil(log10(max(point.seconds for point in found)))
    last += first == last
    bottom, top = floor(min(point.low for point in found)), ceil(max(point.high for point in found))
    top += bottom == top

    def x(seconds: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (log10(seconds) - first) / (last - first)

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (top - value) / (top - bottom)

    best = find_pareto_front(found)
    steps = [f"M{x(best[0].seconds):.1f} {y(best[0].value):.1f}"]
    steps += [f"H{x(point.seconds):.1f} V{y(point.value):.1f}" for point in best[1:]]
    places = spread_positions([y(point.value) + 4 for point in sorted(found, key=lambda each: -each.value)], 16)
    names = dict(zip((point.name for point in sorted(found, key=lambda each: -each.value)), places, strict=True))
    marks = "".join(draw_point(point, x(point.seconds), y, names[point.name], point in best) for point in found)
    label = f"Training seconds and {MAIN_METRIC} of {len(found)} methods"
    return (
        f'<figure class="plot"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        f"{draw_grid(list(range(first, last + 1)), bottom, top, x, y)}"
        f'<path d="{" ".join(steps)} H{WIDTH - RIGHT}" fill="none" stroke="var(--good)" stroke-width="1.5" '
        f'stroke-dasharray="5 3"/>{marks}</svg>'
        f"<figcaption>{MAIN_METRIC} in percent upwards, with its interval; seconds of training to the right, each step ten "
        "times as long. Methods on the dashed line are the best for their time (Pareto front).</figcaption></figure>"
    )


def draw_grid(powers: Sequence[int], bottom: int, top: int, x: Scale, y: Scale) -> str:
    """Lines and their numbers."""
    step = max(1, round((top - bottom) / 6))
    across = "".join(f'<path d="M{LEFT} {y(value):.1f} H{WIDTH - RIGHT}"/>' for value in range(bottom, top + 1, step))
    down = "".join(f'<path d="M{x(10.0**power):.1f} {TOP} V{HEIGHT - BOTTOM}"/>' for power in powers)
    seconds = "".join(
        f'<text x="{x(10.0**power):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{10.0**power:g} s</text>'
        for power in powers
    )
    values = "".join(
        f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value}</text>'
        for value in range(bottom, top + 1, step)
    )
    return (
        f'<g fill="none" stroke="var(--line)">{across}{down}</g>'
        f'<g fill="var(--soft)" font-size="14">{seconds}{values}</g>'
    )


def draw_point(point: Point, x: float, y: Scale, name_at: float, on_front: bool) -> str:
    """A dot with its interval, and its name at the right edge, joined by a thin line."""
    colour = "var(--good)" if on_front else "var(--mark)"
    told = f"{point.name}: {point.value:.2f} ({point.low:.2f} to {point.high:.2f}) in {point.seconds:.1f} s"
    edge = WIDTH - RIGHT
    return (
        f'<path d="M{x:.1f} {y(point.low):.1f} V{y(point.high):.1f}" stroke="{colour}" stroke-width="1.5"/>'
        f'<path d="M{x:.1f} {y(point.value):.1f} L{edge + 6} {name_at - 4:.1f}" stroke="var(--line)"/>'
        f'<circle cx="{x:.1f}" cy="{y(point.value):.1f}" r="4.5" fill="{colour}"><title>{escape_text(told)}</title>'
        "</circle>"
        f'<text x="{edge + 9}" y="{name_at:.1f}" font-size="14" fill="var(--ink)">{escape_text(shorten_name(point.name))}</text>'
    )


def shorten_name(name: str, most: int = 18) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def spread_positions(wanted: Sequence[float], least: float) -> list[float]:
    """Places in order that are at least so far apart, near to those that are wanted, and within the plot."""
    places: list[float] = []
    for each in wanted:
        places.append(max(each, places[-1] + least) if places else each)
    over = places[-1] - (HEIGHT - 4) if places else 0
    if over > 0:
        places[-1] -= over
        for number in range(len(places) - 2, -1, -1):
            places[number] = min(places[number], places[number + 1] - least)
    return places


def plot_critical_differences(found: MethodRanking) -> str:
    """Average ranks on a line, the best on the left; methods under one bar do not differ at 5 % (Demšar, 2006)."""
    n = len(found.methods)
    half = (n + 1) // 2
    left, right = 175, WIDTH - 175
    axis, bars = 46, 8 * len(found.groups) + 10
    height = axis + bars + LINE_HEIGHT * half + 12
    most = max(n, 2)

    def x(rank: float) -> float:
        return left + (right - left) * (rank - 1) / (most - 1)

    ticks = "".join(f'<path d="M{x(rank):.1f} {axis} v-6"/>' for rank in range(1, most + 1))
    numbers = "".join(
        f'<text x="{x(rank):.1f}" y="{axis - 10}" text-anchor="middle">{rank}</text>'
        for rank in range(1, most + 1, max(1, most // 12))
    )
    ranks = dict(zip(found.methods, found.average, strict=True))
    joined = "".join(
        f'<path d="M{x(min(ranks[m] for m in group)) - 3:.1f} {axis + 8 + 8 * row} '
        f'H{x(max(ranks[m] for m in group)) + 3:.1f}" stroke="var(--mark)" stroke-width="3"/>'
        for row, group in enumerate(found.groups)
    )
    names = "".join(
        draw_rank_name(
            name, rank, x(rank), axis, axis + bars + LINE_HEIGHT * (row if row < half else n - 1 - row) + 12, row < half
        )
        for row, (name, rank) in enumerate(ranks.items())
    )
    distance = min(found.critical, most - 1)
    ruler = (
        f'<path d="M{left} 12 H{x(1 + distance):.1f} M{left} 8 v8 M{x(1 + distance):.1f} 8 v8" '
        f'stroke="var(--ink)" fill="none"/><text x="{x(1 + distance) + 6:.1f}" y="16" font-size="14" '
        f'fill="var(--soft)">critical difference {found.critical:.2f}</text>'
    )
    return (
        f'<figure class="plot"><svg viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="Average ranks of {n} methods">'
        f'{ruler}<g fill="none" stroke="var(--ink)"><path d="M{left} {axis} H{right}"/>{ticks}</g>'
        f'<g fill="var(--soft)" font-size="14">{numbers}</g>{joined}{names}</svg>'
        "<figcaption>Average ranks, the best on the left. Methods under one bar do not differ at 5 % (Nemenyi): their "
        "ranks are less apart than the critical difference.</figcaption></figure>"
    )


def draw_rank_name(name: str, rank: float, x: float, axis: int, y: float, is_left: bool) -> str:
    """A line from a rank to the name of its method at one side."""
    end, anchor, text = (165, "end", 159) if is_left else (WIDTH - 165, "start", WIDTH - 159)
    told = f"{shorten_name(name)} {rank:.2f}" if is_left else f"{rank:.2f} {shorten_name(name)}"
    return (
        f'<path d="M{x:.1f} {axis} V{y - 4:.1f} H{end}" fill="none" stroke="var(--line)"/>'
        f'<text x="{text}" y="{y:.1f}" text-anchor="{anchor}" font-size="14" fill="var(--ink)">{escape_text(told)}</text>'
    )
