"""HTML of highlights, rendered from templates. A page has no scripts and loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from xmtc.explain.word_weights import format_weight

if TYPE_CHECKING:
    from xmtc.explain.highlights import Highlight

TEMPLATE_FOLDER = Path(__file__).parent / "templates"
GENERATOR_TAG = '<meta name="generator" content="xmtc explain">'  # identifies pages that may be overwritten
MIN_VISIBLE_WEIGHT = 0.02  # relative weight below which a background is not visible
# Control characters that HTML cannot represent, to be replaced.
INVALID_HTML_CHARACTERS = {code: 0xFFFD for code in range(32) if chr(code) not in "\t\n\f\r"}


def render_page(highlights: Sequence[Highlight]) -> str:
    """Return an HTML page with a section for each label."""
    has_evidence_against = any(piece.weight < 0 for highlight in highlights for piece in highlight.pieces)
    return (
        get_environment()
        .get_template("page.html.j2")
        .render(highlights=highlights, has_evidence_against=has_evidence_against, generator_tag=Markup(GENERATOR_TAG))
    )


def render_fragment(highlight: Highlight) -> str:
    """Return the section of one label with its style, for a notebook."""
    return get_environment().get_template("fragment.html.j2").render(highlight=highlight).rstrip("\n")


@cache
def get_environment() -> Environment:
    environment = create_environment(TEMPLATE_FOLDER)
    environment.filters["weight"] = format_weight
    environment.globals["min_visible_weight"] = MIN_VISIBLE_WEIGHT
    return environment


def create_environment(folder: Path) -> Environment:
    """Return an environment for the templates of a folder, which escapes all values."""
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        finalize=escape_value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def escape_value(value: Any) -> Any:
    """Escape strings as HTML, including control characters that HTML cannot represent."""
    return value if isinstance(value, Markup) else Markup(escape_text(str(value)))


def escape_text(text: str) -> str:
    """Escape text for HTML. Carriage returns become character references, because a parser reads them as newlines."""
    return escape(text.translate(INVALID_HTML_CHARACTERS)).replace("\r", "&#13;")
