"""The command `xmtc`: one small file per command. Heavy imports stay inside the commands, so that --help is quick."""

from __future__ import annotations

import signal
import sys
from typing import Any, NoReturn

import typer

from xmtc.base.memory import check_room
from xmtc.cli import (
    calibrate,
    combine,
    compare,
    data,
    demo,
    encoders,
    evaluate,
    explain,
    info,
    methods,
    predict,
    recommend,
    report,
    reproduce,
    serve,
    streams,
    thresholds,
    train,
    tune,
    vectors,
    vocab,
)
from xmtc.errors import XmtcError, visible

app = typer.Typer(
    help="Extreme multi-label text classification: the few right labels out of thousands or millions.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (train.train, predict.predict, evaluate.evaluate, explain.explain, methods.methods, info.info):
    app.command()(command)
app.command()(demo.demo)
app.command()(vectors.vectors)
app.command()(thresholds.thresholds)
app.command()(report.report)
app.command()(compare.compare)
app.command(hidden=True)(compare.answers)
app.command()(recommend.recommend)
app.command()(combine.combine)
app.command()(calibrate.calibrate)
app.command()(tune.tune)
app.command()(reproduce.reproduce)
app.command()(serve.serve)
app.add_typer(data.app, name="data")
app.add_typer(encoders.app, name="encoders")
app.add_typer(vocab.app, name="vocab")


def version(wanted: bool) -> None:
    if wanted:
        from xmtc import __version__

        typer.echo(f"xmtc {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", callback=version, is_eager=True, help="Print the version and stop."
    ),
) -> None:
    from xmtc.base.progress import PACE

    PACE.rest()  # of commands in one process, as tests run them, each has a pace of its own


def main() -> None:
    """Run a command; what a user can mend is one sentence and exit code 2, never a traceback."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:  # nohup has SIGHUP ignored
            signal.signal(number, leave)
    streams.prepare()
    code = outcome()
    try:
        sys.stdout.flush()  # now, while a sentence can still be said about it
    except OSError as error:
        streams.drop_output()
        code = code or (1 if isinstance(error, BrokenPipeError) else complain(refused(error)))
    sys.exit(code)


def outcome() -> int | str | None:
    """What a command ends with: its exit code."""
    try:
        check_room()
        app()
    except SystemExit as end:
        return end.code
    except BrokenPipeError:
        return 1  # the reader has gone: stop without noise
    except XmtcError as error:
        return complain(str(error))
    except (MemoryError, ImportError, RuntimeError) as error:
        if not is_short_of_memory(error):
            raise
        return complain("The machine's memory is not enough for this; give less data or a smaller model.")
    except OSError as error:
        return complain(refused(error))
    return 0


def is_short_of_memory(error: Exception) -> bool:
    """Libraries that cannot be loaded for want of memory, and threads that cannot be started, have no error of their
    own."""
    signs = ("failed to map segment", "cannot allocate memory", "can't start new thread")
    return isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in signs)


def refused(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    return f"The system refused: {error.strerror or error}{where}."


def leave(number: int, frame: Any) -> NoReturn:
    """End as Ctrl-C does, so that what was half written is taken away."""
    sys.exit(128 + number)


def complain(sentence: str) -> int:
    typer.echo(f"xmtc: {visible(sentence)}", err=True)
    return 2
