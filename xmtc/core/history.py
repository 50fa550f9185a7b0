"""The history of a training: what it told, event by event, as plain mappings that make a table, with pandas as well
(`DataFrame(tagger.history)`), a plot and a file of JSON lines. Seconds and memory differ between runs, so that it is no
part of what a model is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import BytesIO
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xmtc.core.events import PASS, STAGE
from xmtc.errors import XmtcError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Entry = dict[str, Any]
NAME_KEYS = {STAGE: "title", PASS: "network"}  # what an event is of
REQUIRED_KEYS = {STAGE: ("seconds",), PASS: ("pass", "rate", "seconds")}  # that it always has
# Of a pass; what else it has, it was measured by.
PASS_KEYS = ("event", "network", "pass", "loss", "rate", "seconds", "memory", "gpu_memory")


def select_stages(history: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in history if entry["event"] == STAGE]


def select_passes(history: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in history if entry["event"] == PASS]


def list_metric_names(history: Sequence[Entry]) -> list[str]:
    """The names of what passes were measured by, as they stand in the history."""
    return list(dict.fromkeys(key for entry in select_passes(history) for key in entry if key not in PASS_KEYS))


def add_name_prefix(history: Sequence[Entry], part: str) -> list[Entry]:
    """As the history of a training that is part of another."""
    return [entry | {NAME_KEYS[entry["event"]]: f"{part}/{entry[NAME_KEYS[entry['event']]]}"} for entry in history]


def to_json_lines(history: Sequence[Entry]) -> str:
    """In ASCII, so that every terminal can show it and no line is broken where it should not be."""
    return "".join(json.dumps(entry, allow_nan=False) + "\n" for entry in history)


def from_json_lines(lines: str) -> tuple[Entry, ...]:
    """The history that `to_lines` wrote; ValueError where it is none."""
    found = tuple(json.loads(line) for line in lines.split("\n") if line)
    if not all(map(is_valid_entry, found)):
        raise ValueError("some of its lines are no events")
    return found


def is_valid_entry(value: Any) -> bool:
    """Whether this is an event as it would be written down: named, and with its figures."""
    if not isinstance(value, dict) or value.get("event") not in (STAGE, PASS):
        return False
    texts = {"event", NAME_KEYS[value["event"]]}
    rest = {key: item for key, item in value.items() if key not in texts}
    return (
        all(isinstance(value.get(key), str) for key in texts)
        and all(item is None or is_finite_number(item) for item in rest.values())
        and all(value.get(key) is not None for key in REQUIRED_KEYS[value["event"]])
    )


def is_finite_number(value: Any) -> bool:
    try:
        return type(value) in (int, float) and isfinite(value)
    except OverflowError:  # an integer of hundreds of digits
        return False


def build_stage_rows(history: Sequence[Entry]) -> list[list[str]]:
    """Title, seconds and memory of each stage; those of one title that follow each other are one row."""
    rows = []
    for title, group in groupby(select_stages(history), key=lambda entry: replace_unprintable(entry["title"])):
        members = list(group)
        often = f" ({len(members)} times)" if len(members) > 1 else ""
        seconds = sum(each["seconds"] for each in members)
        rows.append([title + often, f"{seconds:.1f}", format_gibibytes(members[-1], "memory")])
    return rows


def build_pass_rows(history: Sequence[Entry]) -> list[list[str]]:
    """Network, pass, loss, metrics in percent, rate, seconds, memory, GPU memory."""
    names = list_metric_names(history)
    return [
        [
            replace_unprintable(entry["network"]),
            str(entry["pass"]),
            "" if entry.get("loss") is None else f"{entry['loss']:.4g}",
            *("" if entry.get(name) is None else f"{100 * entry[name]:.2f}" for name in names),
            f"{entry['rate']:.3g}",
            f"{entry['seconds']:.1f}",
            format_gibibytes(entry, "memory"),
            format_gibibytes(entry, "gpu_memory"),
        ]
        for entry in select_passes(history)
    ]


def replace_unprintable(text: str) -> str:
    """Without what a terminal would obey: a folder may come from anywhere."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def format_gibibytes(entry: Entry, key: str) -> str:
    return "" if entry.get(key) is None else f"{entry[key] / 2**30:.2f}"


def plot_history(history: Sequence[Entry], file: str | Path | None = None) -> Figure:
    """Loss and metrics pass by pass, a line for each network; of a training without passes, the seconds of its stages.
    Written to a file, if one is named, in the format that its name ends with (png, svg, pdf)."""
    if not history:
        raise XmtcError("Found no history to plot; it is written when a model is trained, and kept in its folder.")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise XmtcError("A plot of the history needs matplotlib, which is not here: pip install matplotlib") from None

    class Plot(Figure):
        def _repr_png_(self) -> bytes:
            """In a notebook, the picture."""
            picture = BytesIO()
            self.savefig(picture, format="png")
            return picture.getvalue()

    figure = Plot(layout="constrained")
    if select_passes(history):
        draw_passes(figure, history)
    else:
        draw_stages(figure, history)
    if file is not None:
        save_figure(figure, file)
    return figure


def draw_stages(figure: Figure, history: Sequence[Entry]) -> None:
    """A bar for each row of the table of stages; two may have the same title."""
    groups = [
        list(group)
        for _, group in groupby(select_stages(history), key=lambda entry: replace_unprintable(entry["title"]))
    ]
    axes = figure.subplots()
    axes.barh(range(len(groups)), [sum(each["seconds"] for each in group) for group in groups])
    axes.set_yticks(range(len(groups)), [title for title, *_ in build_stage_rows(history)])
    axes.invert_yaxis()
    axes.set_xlabel("seconds")


def draw_passes(figure: Figure, history: Sequence[Entry]) -> None:
    """One chart below the other: the loss, and what passes were measured by."""
    names = ["loss", *list_metric_names(history)]
    charts = figure.subplots(len(names), sharex=True, squeeze=False)[:, 0]
    networks = dict.fromkeys(entry["network"] for entry in select_passes(history))
    for axes, name in zip(charts, names, strict=True):
        for network in networks:
            points = [
                entry for entry in select_passes(history) if entry["network"] == network and entry.get(name) is not None
            ]
            axes.plot([each["pass"] for each in points], [each[name] for each in points], marker=".", label=network)
        axes.set_ylabel(name)
    charts[-1].set_xlabel("pass")
    charts[-1].xaxis.get_major_locator().set_params(integer=True)
    if len(networks) > 1:
        charts[0].legend()


def save_figure(figure: Figure, file: str | Path) -> None:
    try:
        figure.savefig(file)
    except (ValueError, OSError) as error:
        raise XmtcError(f"{file} cannot be written ({error}); name a file such as history.png.") from None
