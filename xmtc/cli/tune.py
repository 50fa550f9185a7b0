"""xmtc tune: search the hyper-parameters of a method."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xmtc.cli.options import (
    ClusterOption,
    CorpusOptions,
    CorpusPaths,
    DeviceOption,
    LogJsonOption,
    QuietOption,
    ThreadsOption,
    make_run,
    open_corpus_input,
    parse_time_limit,
    report_rejects,
    with_corpus_options,
)
from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from xmtc.analysis.tune.search import TuningGoal, TuningTrial
    from xmtc.core.run import Run
    from xmtc.data.corpus import Corpus

PIPE_LINE_CHARACTERS = 1000  # width of tables outside of a terminal, where nothing is truncated


@with_corpus_options()
def tune(
    corpus: CorpusPaths,
    method: Annotated[
        str, typer.Option("-m", "--method", metavar="NAME", help="Method; `xmtc methods` lists them.")
    ] = "parabel",
    parameter: Annotated[
        list[str] | None,
        typer.Option("-p", "--param", metavar="NAME=VALUE", help="Hyper-parameter that is not searched (repeatable)."),
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(
            "-s",
            "--search",
            metavar="NAME=DOMAIN",
            help="Domain of a hyper-parameter (low:high, low:high:log or a,b,c), repeatable.",
        ),
    ] = None,
    valid: Annotated[
        str | None, typer.Option(metavar="CORPUS", help="Validation corpus instead of a held-out 20 % of CORPUS.")
    ] = None,
    metric: Annotated[str, typer.Option(metavar="METRIC", help="Metric to optimise, for example nDCG@5.")] = "nDCG@5",
    trials: Annotated[int, typer.Option(min=1, help="Maximum number of trials.")] = 20,
    time_limit: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Time after which no further trial starts, such as 90s, 10m or 2h."),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Random seed of the proposed parameters and the held-out part.")
    ] = 0,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="MODEL",
            help="Model folder; a model is trained on all documents with the best parameters.",
        ),
    ] = None,
    trials_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="JSON file of all trials.", rich_help_panel="Output")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print all trials as JSON.", rich_help_panel="Output")] = False,
    parallel: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of trials that are proposed together and run in parallel on a cluster.",
            rich_help_panel="Performance",
        ),
    ] = 1,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    cluster: ClusterOption = "",
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
    log_json: LogJsonOption = None,
) -> None:
    """Search the hyper-parameters of a method and print the training command with the best ones."""
    from dataclasses import asdict, replace

    from xmtc.analysis.tune.search import TuningGoal
    from xmtc.cli.train import train
    from xmtc.core.hyperparameters import format_cli_value
    from xmtc.data.file_streams import STANDARD_STREAM

    minutes = 0.0 if time_limit is None else parse_time_limit(time_limit) / 60
    run = make_run(threads, quiet, device=device, log_json=log_json, cluster=cluster)
    source = open_corpus_input(corpus, reading, quiet=True)  # the search has one progress bar
    validation = open_corpus_input(valid, replace(reading, rejects=None), quiet=True) if valid else None
    check_outputs(source, output, trials_file)
    goal, fixed = TuningGoal(metric, trials, minutes, seed, parallel), parameter or []
    finished = run_search(method, fixed, search or [], source, validation, goal, run)
    chosen = [*fixed, *(f"{name}={format_cli_value(value)}" for name, value in finished[0].parameters.items())]
    command = format_train_command(corpus, method, output, {"valid": valid, "device": device} | asdict(reading), chosen)
    about = {"method": method, "fixed": fixed, "metric": goal.metric, "seed": seed, "command": command}
    if trials_file is not None:
        write_trials(trials_file, about, finished)
    if json:
        write_trials(STANDARD_STREAM, about, finished)
    else:
        print_trials(finished, goal.metric, command)
    for opened in filter(None, (source, validation)) if output is None else ():  # the final training reports them
        report_rejects(opened)
    if output is not None:
        run_options = {"threads": threads, "device": device, "cluster": cluster, "quiet": quiet, "log_json": log_json}
        train(
            corpus=corpus, output=output, method=method, parameter=chosen, valid=valid, reading=reading, **run_options
        )


def check_outputs(source: Corpus, output: Path | None, trials_file: str | None) -> None:
    """Raise XmtcError, before any training, if an output cannot be written."""
    import os

    from xmtc import model_folder
    from xmtc.data.file_streams import STANDARD_STREAM, check_outside_model_folder
    from xmtc.errors import XmtcError

    if output is not None:
        model_folder.check_target(output)
    if trials_file is not None and trials_file != STANDARD_STREAM:
        source.check_not_overwritten(trials_file)
        check_outside_model_folder(trials_file)
        folder = os.path.dirname(os.path.realpath(trials_file))
        if os.path.isdir(trials_file) or not os.access(folder, os.W_OK):
            raise XmtcError(f"--trials-file {trials_file} cannot be written; choose another path.")


def run_search(
    method: str, fixed: list[str], options: list[str], source: Corpus, valid: Corpus | None, goal: TuningGoal, run: Run
) -> list[TuningTrial]:
    """Print the search space and return the finished trials."""
    from xmtc.analysis.tune.search import import_optuna, tune
    from xmtc.analysis.tune.space import build_search_space
    from xmtc.cli.train import build_pipeline
    from xmtc.data.splits import hold_out

    import_optuna()
    pipeline = build_pipeline(method, fixed, source)
    space = build_search_space(method, pipeline, options, [parameter.partition("=")[0] for parameter in fixed])
    domains = "; ".join(f"{name} {domain}" for name, domain in space.items())
    if run.progress:
        echo(f"Searching the best {goal.metric} of {method}: {domains}.", err=True)
    train, held_out = (source, valid) if valid is not None else hold_out(source, seed=goal.seed)
    return tune(train, held_out, pipeline, space, goal, run)


def format_train_command(
    corpus: list[str], method: str, output: Path | None, options: dict[str, Any], chosen: list[str]
) -> str:
    """Return the command of the final training, with the options that differ from their defaults."""
    import shlex

    defaults = {"device": "auto", "on_error": "stop"}
    words = ["xmtc", "train", *corpus, "-m", method, "-o", str(output or "MODEL")]
    for name, value in options.items():
        if value and value != defaults.get(name):
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [value])]
    return shlex.join([*words, *(word for parameter in chosen for word in ("-p", parameter))])


def write_trials(path: str, about: dict[str, Any], trials: list[TuningTrial]) -> None:
    from dataclasses import asdict
    from json import dumps

    from xmtc.data.file_streams import open_output

    content = dumps({**about, "trials": [asdict(trial) for trial in trials]}, indent=2, ensure_ascii=False)
    with open_output(path) as stream:
        stream.write(f"{content}\n".encode())


def print_trials(trials: list[TuningTrial], metric: str, command: str) -> None:
    """Print a table of the trials, the best first, the reasons of failures and the training command."""
    from rich.console import Console
    from rich.table import Table

    from xmtc.core.hyperparameters import format_cli_value
    from xmtc.errors import escape_controls

    names = list(trials[0].parameters)
    table = Table("trial", metric, "seconds", *names, box=None, pad_edge=False)
    for column in table.columns:
        column.justify = "right"
    for trial in trials:
        value = "failed" if trial.value is None else f"{100 * trial.value:.2f}"
        cells = (escape_controls(format_cli_value(trial.parameters[name])) for name in names)
        table.add_row(str(trial.number), value, f"{trial.seconds:.1f}", *cells)
    console = Console(highlight=False, markup=False)
    Console(highlight=False, markup=False, width=console.width if console.is_terminal else PIPE_LINE_CHARACTERS).print(
        table
    )
    for trial in trials:
        if trial.failure:
            echo(f"Trial {trial.number} failed: {trial.failure}", err=True)
    best = " ".join(f"{name}={format_cli_value(value)}" for name, value in trials[0].parameters.items())
    echo(f"\nBest: {best}\n\n{command}")
