"""SVG plots with matplotlib, which is optional: pages omit their plots without it."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

from xmtc.errors import XmtcError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colours of the page template by the names of its CSS variables, which differ in dark mode.
COLOURS = {"ink": "#1a1a1a", "soft": "#595959", "line": "#d9d9d9", "mark": "#0b62a4", "good": "#2f7d4f"}
INK, SOFT, LINE, MARK, GOOD = COLOURS.values()
MISSING_NOTE = "Plots are omitted because matplotlib is not installed (pip install matplotlib)."
SVG_NAMESPACE = "http://www.w3.org/2000/svg"
XLINK_NAMESPACE = "http://www.w3.org/1999/xlink"
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "xmtc",  # the same plot has the same bytes
    "text.parse_math": False,  # names may contain $
    "font.family": "sans-serif",
    "font.size": 8.0,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "grid.color": LINE,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
}
DrawFunction = Callable[["Figure"], None]


def has_matplotlib() -> bool:
    return find_spec("matplotlib") is not None


def check_matplotlib(purpose: str) -> None:
    """Raise XmtcError if matplotlib is not installed."""
    if not has_matplotlib():
        raise XmtcError(f"{purpose} needs matplotlib: pip install matplotlib")


def draw_inline_svg(draw: DrawFunction, size: tuple[float, float], label: str, key: str) -> str:
    """Return a plot as an <svg> element for an HTML page, in the page's colours; empty without matplotlib.

    `draw` fills a figure of `size` inches, `label` is its text alternative, and `key` is unique in the page.
    """
    if not has_matplotlib():
        return ""
    view_box, content = draw_content(draw, size, key)
    for name, colour in COLOURS.items():
        content = content.replace(colour, f"var(--{name})")
    return f'<svg viewBox="{view_box}" role="img" aria-label={quoteattr(label)}>{content}</svg>'


def draw_svg_file(draw: DrawFunction, size: tuple[float, float], label: str) -> str:
    """Return a plot as an SVG document."""
    check_matplotlib("A plot")
    view_box, content = draw_content(draw, size, "plot")
    return (
        f'<svg xmlns="{SVG_NAMESPACE}" aria-label={quoteattr(label)} role="img" viewBox="{view_box}" '
        f'xmlns:xlink="{XLINK_NAMESPACE}">{content}</svg>\n'
    )


def draw_content(draw: DrawFunction, size: tuple[float, float], key: str) -> tuple[str, str]:
    """Return the view box and the elements of a plot."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    output = io.StringIO()
    with rc_context(STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fonts that lack a character: the viewer has others
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        figure.savefig(output, format="svg", metadata={"Date": None, "Creator": None})
    document = output.getvalue()
    view_box = re.search(r'viewBox="([^"]*)"', document)
    body = re.search(r"<svg[^>]*>(.*)</svg>", document, re.DOTALL)
    assert view_box is not None
    assert body is not None
    content = re.sub(r"<metadata>.*?</metadata>", "", body[1], flags=re.DOTALL)
    content = re.sub(r"<style[^>]*>.*?</style>", "", content, flags=re.DOTALL)  # would apply to the whole page
    return view_box[1], make_ids_unique(content, key)


def make_ids_unique(content: str, key: str) -> str:
    """Prefix ids that are referenced with `key`, and remove the others."""
    referenced = set(re.findall(r'(?:href="#|url\(#)([^")]+)', content))

    def rename(match: re.Match[str]) -> str:
        return f' id="{key}-{match[1]}"' if match[1] in referenced else ""

    content = re.sub(r'\sid="([^"]*)"', rename, content)
    return re.sub(r'(href="#|url\(#)', rf"\g<1>{key}-", content)
