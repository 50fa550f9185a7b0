"""xmtc tune: the hyper-parameters that do best on documents held out."""

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
    report_rejects,
    with_corpus_options,
)
from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from xmtc.analysis.tune.search import TuningGoal, TuningTrial
    from xmtc.core.run import Run
    from xmtc.data.corpus import Corpus

PIPE_LINE_CHARACTERS = 1000  # characters of a line that is no terminal's: nothing is cut off


@with_corpus_options()
def tune(
    corpus: CorpusPaths,
    method: Annotated[str, typer.Option("-m", "--method", help="method, one of `xmtc methods`")] = "parabel",
    parameter: Annotated[list[str] | None, typer.Option("-p", help="name=value of what is fixed; repeatable")] = None,
    search: Annotated[
        list[str] | None,
        typer.Option("-s", help="name=low:high, name=low:high:log or name=a,b,c to search; repeatable"),
    ] = None,
    valid: Annotated[str | None, typer.Option(help="corpus to measure on (20 % of CORPUS, held out)")] = None,
    metric: Annotated[str, typer.Option(help="what is to be good, as `xmtc evaluate` names it")] = "nDCG@5",
    trials: Annotated[int, typer.Option(min=1, help="trainings at most")] = 20,
    minutes: Annotated[float, typer.Option(min=0, help="begin no further trial after so many (0: no limit)")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="seed of what is tried, and held out")] = 0,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="train with the best, to this folder")] = None,
    json: Annotated[str | None, typer.Option(help="file for all trials; - writes to standard output, alone")] = None,
    at_once: Annotated[
        int, typer.Option(min=1, help="trials that are chosen together, and on a cluster trained beside each other")
    ] = 1,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    cluster: ClusterOption = "",
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
    log_json: LogJsonOption = None,
) -> None:
    """Search the hyper-parameters of a method, and print the command that trains with the best of them."""
    from dataclasses import asdict, replace

    from xmtc.analysis.tune.search import TuningGoal
    from xmtc.cli.train import train
    from xmtc.core.hyperparameters import format_cli_value
    from xmtc.data.file_streams import STANDARD_STREAM

    run = make_run(threads, quiet, device=device, log_json=log_json, cluster=cluster)
    source = open_corpus_input(corpus, reading, quiet=True)  # one bar for all that is done
    checked = open_corpus_input(valid, replace(reading, rejects=None), quiet=True) if valid else None
    check_outputs(source, output, json)
    goal, fixed = TuningGoal(metric, trials, minutes, seed, at_once), parameter or []
    found = run_search(method, fixed, search or [], source, checked, goal, run)
    chosen = [*fixed, *(f"{name}={format_cli_value(value)}" for name, value in found[0].parameters.items())]
    command = format_train_command(corpus, method, output, {"valid": valid, "device": device} | asdict(reading), chosen)
    if json is not None:
        about = {"method": method, "fixed": fixed, "metric": goal.metric, "seed": seed, "command": command}
        write_trials(json, about, found)
    if json != STANDARD_STREAM:
        print_trials(found, goal.metric, command)
    for each in filter(None, (source, checked)) if output is None else ():  # the training below reports them, too
        report_rejects(each)
    if output is not None:
        run_options = {"threads": threads, "device": device, "cluster": cluster, "quiet": quiet, "log_json": log_json}
        train(
            corpus=corpus, output=output, method=method, parameter=chosen, valid=valid, reading=reading, **run_options
        )


def check_outputs(source: Corpus, output: Path | None, json: str | None) -> None:
    """Refuse, before the work, what could not be written after it."""
    import os

    from xmtc import model_folder as store
    from xmtc.data.file_streams import STANDARD_STREAM, check_outside_model_folder
    from xmtc.errors import XmtcError

    if output is not None:
        store.check_target(output)
    if json is not None and json != STANDARD_STREAM:
        source.check_not_overwritten(json)
        check_outside_model_folder(json)
        if os.path.isdir(json) or not os.access(os.path.dirname(os.path.realpath(json)), os.W_OK):
            raise XmtcError(f"{json} cannot be written; choose another place for the trials.")


def run_search(
    method: str, fixed: list[str], wishes: list[str], source: Corpus, valid: Corpus | None, goal: TuningGoal, run: Run
) -> list[TuningTrial]:
    """The trials, after saying what they are about."""
    from xmtc.analysis.tune.search import import_optuna, tune
    from xmtc.analysis.tune.space import build_search_space
    from xmtc.cli.train import build_pipeline
    from xmtc.data.splits import hold_out

    import_optuna()
    pipeline = build_pipeline(method, fixed, source)
    space = build_search_space(method, pipeline, wishes, [each.partition("=")[0] for each in fixed])
    about = "; ".join(f"{name} {domain}" for name, domain in space.items())
    if run.progress:
        echo(f"Searching the best {goal.metric} of {method}: {about}.", err=True)
    train, checked = (source, valid) if valid is not None else hold_out(source, seed=goal.seed)
    return tune(train, checked, pipeline, space, goal, run)


def format_train_command(
    corpus: list[str], method: str, output: Path | None, options: dict[str, Any], chosen: list[str]
) -> str:
    """What to type for the final training; of the options, those that are not as they are by themselves."""
    import shlex

    usual = {"device": "auto", "on_error": "stop"}
    words = ["xmtc", "train", *corpus, "-m", method, "-o", str(output or "MODEL")]
    for name, value in options.items():
        if value and value != usual.get(name):
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [value])]
    return shlex.join([*words, *(word for each in chosen for word in ("-p", each))])


def write_trials(path: str, about: dict[str, Any], trials: list[TuningTrial]) -> None:
    from dataclasses import asdict
    from json import dumps

    from xmtc.data.file_streams import open_output

    content = dumps({**about, "trials": [asdict(trial) for trial in trials]}, indent=2, ensure_ascii=False)
    with open_output(path) as stream:
        stream.write(f"{content}\n".encode())


def print_trials(trials: list[TuningTrial], metric: str, command: str) -> None:
    """A table of the trials, best first; the reasons of those that failed; what to do next."""
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
