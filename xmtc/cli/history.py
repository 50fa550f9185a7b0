"""Commands that made a model, as entries of its training history."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any


def get_command_entry() -> dict[str, Any]:
    """Return the running command as an entry of the training history."""
    from xmtc.cli.help import PlainCommand
    from xmtc.core.events import COMMAND

    return {"event": COMMAND, "command": shlex.join(PlainCommand.running)}


def list_commands(history: Iterable[dict[str, Any]]) -> list[str]:
    """Return the commands in a training history, the oldest first."""
    from xmtc.core.events import COMMAND

    return [entry["command"] for entry in history if entry["event"] == COMMAND]
