"""Training history: the stages and passes of a training as a list of flat dictionaries.

It can be shown as a table (`pandas.DataFrame(tagger.history)`), plotted, and written as JSON lines. It is not part of
a model's fingerprint, because times and memory differ between runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import BytesIO
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xmtc.core.events import COMMAND, PASS, STAGE
from xmtc.errors import XmtcError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Entry = dict[str, Any]
NAME_KEYS = {STAGE: "title", PASS: "network", COMMAND: "command"}  # key of the name of an event
# keys that an event always has
REQUIRED_KEYS: dict[str, tuple[str, ...]] = {STAGE: ("seconds",), PASS: ("pass", "rate", "seconds"), COMMAND: ()}
# Keys of a pass; all others are metrics.
PASS_KEYS = ("event", "network", "pass", "loss", "rate", "seconds", "memory", "gpu_memory")


def select_stages(history: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in history if entry["event"] == STAGE]


def select_passes(history: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in history if entry["event"] == PASS]


def list_metric_names(history: Sequence[Entry]) -> list[str]:
    """Return the names of the metrics of passes, in order of appearance."""
    return list(dict.fromkeys(key for entry in select_passes(history) for key in entry if key not in PASS_KEYS))


def add_name_prefix(history: Sequence[Entry], part: str) -> list[Entry]:
    """Return the history with "part/" prefixed to all names, for a training that is part of another."""
    return [entry | {NAME_KEYS[entry["event"]]: f"{part}/{entry[NAME_KEYS[entry['event']]]}"} for entry in history]


def to_json_lines(history: Sequence[Entry]) -> str:
    """Return the history as JSON lines in ASCII."""
    return "".join(json.dumps(entry, allow_nan=False) + "\n" for entry in history)


def from_json_lines(lines: str) -> tuple[Entry, ...]:
    """Parse the output of `to_json_lines`; raise ValueError if it is invalid."""
    entries = tuple(json.loads(line) for line in lines.split("\n") if line)
    if not all(map(is_valid_entry, entries)):
        raise ValueError("some of its lines are not events")
    return entries


def is_valid_entry(value: Any) -> bool:
    """Return True for an event with a name and valid numbers."""
    if not isinstance(value, dict) or value.get("event") not in tuple(NAME_KEYS):
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
    except OverflowError:  # an integer beyond the range of float
        return False


def build_stage_rows(history: Sequence[Entry]) -> list[list[str]]:
    """Return title, seconds and memory (GiB) of each stage, with consecutive stages of one title as one row."""
    rows = []
    for title, group in groupby(select_stages(history), key=lambda entry: replace_unprintable(entry["title"])):
        members = list(group)
        count = f" ({len(members)} times)" if len(members) > 1 else ""
        seconds = sum(entry["seconds"] for entry in members)
        rows.append([title + count, f"{seconds:.1f}", format_gibibytes(members[-1], "memory")])
    return rows


def build_pass_rows(history: Sequence[Entry]) -> list[list[str]]:
    """Return network, pass, loss, metrics (percent), rate, seconds, memory and GPU memory (GiB) of each pass."""
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
    """Replace control characters, since names in a model folder are untrusted."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def format_gibibytes(entry: Entry, key: str) -> str:
    return "" if entry.get(key) is None else f"{entry[key] / 2**30:.2f}"


def plot_history(history: Sequence[Entry], file: str | Path | None = None) -> Figure:
    """Plot loss and metrics by pass, one line per network, or the seconds of each stage if there are no passes.

    Parameters
    ----------
    history : sequence of dict
        Training history, such as `tagger.history`.
    file : str or path, optional
        File to write the plot to; its suffix determines the format (png, svg, pdf).

    Returns
    -------
    matplotlib.figure.Figure
        The plot, which notebooks display.

    Raises
    ------
    XmtcError
        If the history is empty, matplotlib is not installed, or the file cannot be written.

    Examples
    --------
    >>> from xmtc import plot_history
    >>> event = {"event": "pass", "network": "", "loss": 1.0, "nDCG@5": 0.5, "seconds": 1}
    >>> figure = plot_history([event | {"pass": 1}, event | {"pass": 2}])
    >>> len(figure.axes) > 0
    True
    """
    if not history:
        raise XmtcError("The history is empty, so there is nothing to plot; train the model with this version.")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise XmtcError(
            "A plot of the history needs matplotlib, which is not installed: pip install matplotlib"
        ) from None

    class Plot(Figure):
        def _repr_png_(self) -> bytes:
            """Return the plot as PNG, for notebooks."""
            buffer = BytesIO()
            self.savefig(buffer, format="png")
            return buffer.getvalue()

    figure = Plot(layout="constrained")
    if select_passes(history):
        draw_passes(figure, history)
    else:
        draw_stages(figure, history)
    if file is not None:
        save_figure(figure, file)
    return figure


def draw_stages(figure: Figure, history: Sequence[Entry]) -> None:
    """Draw a bar for each row of the table of stages; titles may repeat."""
    groups = [
        list(group)
        for _, group in groupby(select_stages(history), key=lambda entry: replace_unprintable(entry["title"]))
    ]
    axes = figure.subplots()
    axes.barh(range(len(groups)), [sum(entry["seconds"] for entry in group) for group in groups])
    axes.set_yticks(range(len(groups)), [title for title, *_ in build_stage_rows(history)])
    axes.invert_yaxis()
    axes.set_xlabel("seconds")


def draw_passes(figure: Figure, history: Sequence[Entry]) -> None:
    """Draw one chart for the loss and one for each metric."""
    names = ["loss", *list_metric_names(history)]
    charts = figure.subplots(len(names), sharex=True, squeeze=False)[:, 0]
    networks = dict.fromkeys(entry["network"] for entry in select_passes(history))
    for axes, name in zip(charts, names, strict=True):
        for network in networks:
            points = [
                entry for entry in select_passes(history) if entry["network"] == network and entry.get(name) is not None
            ]
            axes.plot([point["pass"] for point in points], [point[name] for point in points], marker=".", label=network)
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
