"""Highlights on a terminal: the text with coloured words."""

from __future__ import annotations

import re

from rich.console import COLOR_SYSTEMS, Console
from rich.style import Style

from xmtc.explain.highlights import Highlight

# Minimum relative weight, style of evidence for the label, style of evidence against it. Colours go from dull to
# bright, not from pale to dark, because the background of the terminal may be black or white.
COLOUR_LEVELS = [
    (0.8, Style.parse("bold #ffffff on #cc1100"), Style.parse("bold #ffffff on #0a4be0")),
    (0.5, Style.parse("#ffffff on #a8452a"), Style.parse("#ffffff on #2c62a6")),
    (0.25, Style.parse("#ffffff on #8a5f4d"), Style.parse("#ffffff on #566d88")),
    (0.1, Style.parse("underline #c0562a"), Style.parse("underline #4078bd")),
]
# For terminals with 16 colours, in which the dull colours of both kinds would become the same grey.
SIXTEEN_COLOUR_LEVELS = [
    (0.8, Style.parse("bold bright_white on red"), Style.parse("bold bright_white on blue")),
    (0.5, Style.parse("bright_white on red"), Style.parse("bright_white on blue")),
    (0.25, Style.parse("black on yellow"), Style.parse("black on cyan")),
    (0.1, Style.parse("underline red"), Style.parse("underline bright_blue")),
]
PLAIN_STYLE = Style.null()
PART_STYLE = Style(bold=True, underline=True)  # of the strongest part of a word
# Control characters and marks of the writing direction are replaced, because a terminal would obey those of an
# untrusted text. A carriage return without a newline would let it overwrite earlier output.
CONTROL_CHARACTER_REPLACEMENTS = {
    code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r"
} | dict.fromkeys([*range(127, 160), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)], 0xFFFD)
LONE_CARRIAGE_RETURN = re.compile(r"\r(?!\n)")


def render_terminal(highlight: Highlight, console: Console) -> str:
    """Return the text coloured for this console, or plain text if the console has no colours."""
    colours = None if console.no_color or not console.color_system else COLOR_SYSTEMS[console.color_system]
    levels = SIXTEEN_COLOUR_LEVELS if console.color_system in ("standard", "windows") else COLOUR_LEVELS
    shown = []
    for number, (piece, strength) in enumerate(zip(highlight.pieces, highlight.relative_weights(), strict=True)):
        style = select_style(strength, levels)
        begin, end = highlight.parts.get(number, (0, 0)) if style != PLAIN_STYLE else (0, 0)
        texts = (piece.text[:begin], style), (piece.text[begin:end], style + PART_STYLE), (piece.text[end:], style)
        shown += [
            part_style.render(escape_control_characters(text, console), color_system=colours)
            for text, part_style in texts
            if text
        ]
    return "".join(shown)


def select_style(strength: float, levels: list[tuple[float, Style, Style]]) -> Style:
    for min_strength, positive_style, negative_style in levels:
        if abs(strength) >= min_strength:
            return positive_style if strength > 0 else negative_style
    return PLAIN_STYLE


def escape_control_characters(text: str, console: Console) -> str:
    """Return the text with control characters replaced on a terminal; a file or pipe gets the text unchanged."""
    return (
        LONE_CARRIAGE_RETURN.sub("\N{SYMBOL FOR CARRIAGE RETURN}", text.translate(CONTROL_CHARACTER_REPLACEMENTS))
        if console.is_terminal
        else text
    )
