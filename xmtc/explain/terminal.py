"""An explanation on a terminal: the text as it is, its words coloured."""

from __future__ import annotations

import re

from rich.console import COLOR_SYSTEMS, Console
from rich.style import Style

from xmtc.explain.highlights import Highlight

# From which share of the strongest weight on a word looks how, if it speaks for the label and if against. Dull to
# bright, not pale to dark: the terminal's own background may be black or white.
COLOUR_LEVELS = [
    (0.8, Style.parse("bold #ffffff on #cc1100"), Style.parse("bold #ffffff on #0a4be0")),
    (0.5, Style.parse("#ffffff on #a8452a"), Style.parse("#ffffff on #2c62a6")),
    (0.25, Style.parse("#ffffff on #8a5f4d"), Style.parse("#ffffff on #566d88")),
    (0.1, Style.parse("underline #c0562a"), Style.parse("underline #4078bd")),
]
# The same for terminals of 16 colours, where the nearest to the dull ones would be the same grey for both.
SIXTEEN_COLOUR_LEVELS = [
    (0.8, Style.parse("bold bright_white on red"), Style.parse("bold bright_white on blue")),
    (0.5, Style.parse("bright_white on red"), Style.parse("bright_white on blue")),
    (0.25, Style.parse("black on yellow"), Style.parse("black on cyan")),
    (0.1, Style.parse("underline red"), Style.parse("underline bright_blue")),
]
PLAIN_STYLE = Style.null()
# Control characters as pictures, since a text may come from anywhere and a terminal obeys them. So does it marks that
# turn the direction of writing; and a carriage return without a new line has it write over what it wrote.
CONTROL_CHARACTER_REPLACEMENTS = {
    code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r"
} | dict.fromkeys([*range(127, 160), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)], 0xFFFD)
LONE_CARRIAGE_RETURN = re.compile(r"\r(?!\n)")


def render_terminal(highlight: Highlight, console: Console) -> str:
    """The text, coloured for this console; where it shows no colours, the text alone."""
    colours = None if console.no_color or not console.color_system else COLOR_SYSTEMS[console.color_system]
    levels = SIXTEEN_COLOUR_LEVELS if console.color_system in ("standard", "windows") else COLOUR_LEVELS
    return "".join(
        select_style(strength, levels).render(escape_control_characters(piece.text, console), color_system=colours)
        for piece, strength in zip(highlight.pieces, highlight.relative_weights(), strict=True)
    )


def select_style(strength: float, levels: list[tuple[float, Style, Style]]) -> Style:
    for share, speaks_for, speaks_against in levels:
        if abs(strength) >= share:
            return speaks_for if strength > 0 else speaks_against
    return PLAIN_STYLE


def escape_control_characters(text: str, console: Console) -> str:
    """The text as a terminal may have it; a file or a pipe gets every character."""
    return (
        LONE_CARRIAGE_RETURN.sub("\N{SYMBOL FOR CARRIAGE RETURN}", text.translate(CONTROL_CHARACTER_REPLACEMENTS))
        if console.is_terminal
        else text
    )
