"""The command `xmtc`: one module per command.

Commands import heavy libraries inside their functions, and only the requested command is imported, so that `--help`
is quick.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any, NoReturn

import typer

from xmtc.cli import streams
from xmtc.cli.help import PlainCommand, PlainGroup
from xmtc.cli.streams import echo
from xmtc.core.memory import check_address_space
from xmtc.errors import XmtcError, escape_controls

# Commands by panel of the help; each is the function in the module of its name, a group is the module's `app`.
COMMANDS_BY_PANEL = {
    "Build": ("train", "update", "tune", "recommend", "combine", "calibrate", "thresholds"),
    "Use": ("predict", "explain", "serve", "desk"),
    "Judge": ("evaluate", "report", "compare", "drift"),
    "Data": ("data", "vocab", "pretrained"),
    "Share": ("push", "pull", "export"),
    "More": ("methods", "info", "demo"),
}
COMMAND_GROUPS = ("desk", "data", "vocab", "pretrained")
PANEL_BY_COMMAND = {name: panel for panel, names in COMMANDS_BY_PANEL.items() for name in names}
ALL_COMMANDS = tuple(PANEL_BY_COMMAND)

FIRST_STEPS = """Extreme multi-label text classification: assign a few labels out of thousands or millions.

  xmtc demo                                     build a corpus, train on it and evaluate the model
  xmtc train train.jsonl -o model               train a model on labelled documents
  xmtc predict model --string "Text to label"   predict labels

`xmtc --help` lists all commands."""


class MainGroup(PlainGroup):
    command_order = ALL_COMMANDS


def print_version(is_set: bool) -> None:
    if is_set:
        from xmtc import __version__

        echo(f"xmtc {__version__}")
        raise typer.Exit


def start_command(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    if context.invoked_subcommand is None:
        echo(FIRST_STEPS)
        return
    from xmtc.core.progress import LINE_SCHEDULE

    LINE_SCHEDULE.reset()  # tests run several commands in one process, each with its own progress schedule


def build_app(names: Iterable[str]) -> typer.Typer:
    """Return the application with the named commands."""
    app = typer.Typer(
        help="Extreme multi-label text classification: assign a few labels out of thousands or millions.",
        cls=MainGroup,
        invoke_without_command=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(start_command)
    for name in names:
        module, panel = import_module(f"xmtc.cli.{name}"), PANEL_BY_COMMAND[name]
        if name in COMMAND_GROUPS:
            for command in module.app.registered_commands:
                command.cls = PlainCommand
            app.add_typer(module.app, name=name, cls=PlainGroup, rich_help_panel=panel)
        else:
            app.command(cls=PlainCommand, rich_help_panel=panel)(getattr(module, name))
    return app


def select_commands(words: list[str]) -> Iterable[str]:
    """Return the command that was typed, or all commands if it is unknown."""
    return words[:1] if words and words[0] in ALL_COMMANDS else ALL_COMMANDS


def __getattr__(name: str) -> Any:
    """Build `app`, with all commands, on first use."""
    if name != "app":
        raise AttributeError(f"module 'xmtc.cli' has no attribute {name!r}")
    return build_app(ALL_COMMANDS)


def main() -> None:
    """Run a command; report an error of the user in one sentence with exit code 2, without a traceback."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, exit_on_signal)
    os.environ["PYTHONSAFEPATH"] = "1"  # child processes import nothing from the current folder
    streams.configure_streams()
    code = run_command()
    try:
        sys.stdout.flush()  # now, while an error can still be reported
    except OSError as error:
        streams.discard_output()
        code = code or (1 if isinstance(error, BrokenPipeError) else print_error(describe_os_error(error)))
    gc.freeze()  # no garbage collection of all imported modules at exit
    sys.exit(code)


def run_command() -> int | str | None:
    """Run the command of sys.argv and return its exit code."""
    try:
        check_address_space()
        build_app(select_commands(sys.argv[1:]))()
    except SystemExit as end:
        return end.code
    except BrokenPipeError:
        return 1  # the reader of the pipe has exited: stop silently
    except XmtcError as error:
        return print_error(str(error))
    except (MemoryError, ImportError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return print_error("Out of memory; use less data or a smaller model.")
    except OSError as error:
        return print_error(describe_os_error(error))
    return 0


def is_out_of_memory(error: Exception) -> bool:
    """Return True for a MemoryError, and for libraries and threads that could not be started for lack of memory."""
    signs = ("failed to map segment", "cannot allocate memory", "can't start new thread")
    return isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in signs)


def describe_os_error(error: OSError) -> str:
    place = f" ({error.filename})" if error.filename else ""
    return f"System error: {error.strerror or error}{place}."


def exit_on_signal(number: int, frame: Any) -> NoReturn:
    """Exit as Ctrl-C does, so that partial output is removed."""
    sys.exit(128 + number)


def print_error(sentence: str) -> int:
    echo(f"xmtc: {escape_controls(sentence)}", err=True)
    return 2
