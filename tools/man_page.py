"""Write the manual page xmtc(1) from the commands: `python tools/man_page.py > xmtc.1`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

import xmtc
from xmtc.cli import app


def escape(text: str) -> str:
    """Return text for roff in ASCII; no line starts with a control character."""
    ascii_text = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in text.replace("\\", "\\e"))
    lines = ascii_text.replace("-", "\\-").splitlines()
    return "\n".join(f"\\&{line}" if line[:1] in ".'" else line for line in lines)


def iter_commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield the commands that can be run, with their full names."""
    inner = getattr(command, "commands", {})
    if not inner:
        yield name, command
    for part, each in inner.items():
        yield from iter_commands(f"{name} {part}", each)


def render_command(name: str, command: Any) -> str:
    """Return the section of a command."""
    parts = [f".SS {escape(name)}", escape(inspect.cleandoc(command.help or ""))]
    for parameter in command.params:
        if not getattr(parameter, "hidden", False):
            is_argument = parameter.param_type_name == "argument"
            spelling = (parameter.metavar or parameter.name.upper()) if is_argument else ", ".join(parameter.opts)
            parts += [".TP", f"\\fB{escape(spelling)}\\fR", escape(parameter.help or "") or "\\&"]
    return "\n".join(parts)


def render_page() -> str:
    """Return the manual page."""
    command = get_command(app)
    head = [
        f'.TH XMTC 1 "" "xmtc {xmtc.__version__}" "User Commands"',
        ".SH NAME",
        "xmtc \\- extreme multi\\-label text classification",
        ".SH SYNOPSIS",
        "\\fBxmtc\\fR COMMAND [OPTIONS] ...",
        ".SH DESCRIPTION",
        escape(inspect.cleandoc(command.help or "")),
        ".SH COMMANDS",
    ]
    return "\n".join([*head, *(render_command(*each) for each in iter_commands("xmtc", command)), ""])


if __name__ == "__main__":
    sys.stdout.write(render_page())
