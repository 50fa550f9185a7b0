"""The command `xmtc`: one small file per command. Heavy imports stay inside the commands, so that --help is quick; and
of the commands, only that which is asked for is imported."""

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
from xmtc.cli.streams import echo
from xmtc.core.memory import check_address_space
from xmtc.errors import XmtcError, escape_controls

# In the order of the help; each is the function in the file of its name.
COMMANDS: tuple[str, ...] = (
    "train",
    "predict",
    "evaluate",
    "explain",
    "methods",
    "info",
    "demo",
    "vectors",
    "thresholds",
    "report",
)
COMMANDS += ("compare", "recommend", "combine", "calibrate", "tune", "reproduce", "serve")
COMMAND_GROUPS = ("data", "encoders", "vocab")
ALL_COMMANDS = (*COMMANDS, *COMMAND_GROUPS)


def print_version(wanted: bool) -> None:
    if wanted:
        from xmtc import __version__

        echo(f"xmtc {__version__}")
        raise typer.Exit


def start_command(
    version: bool = typer.Option(
        False, "--version", callback=print_version, is_eager=True, help="Print the version and stop."
    ),
) -> None:
    from xmtc.core.progress import LINE_SCHEDULE

    LINE_SCHEDULE.reset()  # of commands in one process, as tests run them, each has a pace of its own


def build_app(names: Iterable[str]) -> typer.Typer:
    """The command with these of its own."""
    app = typer.Typer(
        help="Extreme multi-label text classification: the few right labels out of thousands or millions.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(start_command)
    for name in names:
        module = import_module(f"xmtc.cli.{name}")
        if name in COMMAND_GROUPS:
            app.add_typer(module.app, name=name)
        else:
            app.command()(getattr(module, name))
    return app


def select_commands(words: list[str]) -> Iterable[str]:
    """The command that was typed; where that is none, all, to be listed or to find the one that was meant."""
    return words[:1] if words and words[0] in ALL_COMMANDS else ALL_COMMANDS


def __getattr__(name: str) -> Any:
    """`app`, with all commands."""
    if name != "app":
        raise AttributeError(f"module 'xmtc.cli' has no attribute {name!r}")
    return build_app(ALL_COMMANDS)


def main() -> None:
    """Run a command; what a user can mend is one sentence and exit code 2, never a traceback."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:  # nohup has SIGHUP ignored
            signal.signal(number, exit_on_signal)
    os.environ["PYTHONSAFEPATH"] = "1"  # child processes import nothing from the current folder
    streams.configure_streams()
    code = run_command()
    try:
        sys.stdout.flush()  # now, while a sentence can still be said about it
    except OSError as error:
        streams.discard_output()
        code = code or (1 if isinstance(error, BrokenPipeError) else print_error(describe_os_error(error)))
    gc.freeze()  # or Python goes through all that was imported, several times, before it ends
    sys.exit(code)


def run_command() -> int | str | None:
    """What a command ends with: its exit code."""
    try:
        check_address_space()
        build_app(select_commands(sys.argv[1:]))()
    except SystemExit as end:
        return end.code
    except BrokenPipeError:
        return 1  # the reader has gone: stop without noise
    except XmtcError as error:
        return print_error(str(error))
    except (MemoryError, ImportError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return print_error("The machine's memory is not enough for this; give less data or a smaller model.")
    except OSError as error:
        return print_error(describe_os_error(error))
    return 0


def is_out_of_memory(error: Exception) -> bool:
    """Libraries that cannot be loaded for want of memory, and threads that cannot be started, have no error of their
    own."""
    signs = ("failed to map segment", "cannot allocate memory", "can't start new thread")
    return isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in signs)


def describe_os_error(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    return f"The system refused: {error.strerror or error}{where}."


def exit_on_signal(number: int, frame: Any) -> NoReturn:
    """End as Ctrl-C does, so that what was half written is taken away."""
    sys.exit(128 + number)


def print_error(sentence: str) -> int:
    echo(f"xmtc: {escape_controls(sentence)}", err=True)
    return 2
