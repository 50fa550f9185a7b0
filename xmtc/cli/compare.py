"""xmtc compare: trained models, or methods that are trained for it, on the same documents; and comparisons as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.comparing import Asked, check_corpora, names_of, work_folder
from xmtc.cli.options import (
    Cluster,
    CorpusPath,
    Device,
    LogJson,
    ModelPath,
    Quiet,
    Reading,
    Threads,
    budget_seconds,
    join,
    machine,
    make_run,
    open_input,
    reads_corpus,
    remembered_by,
    report_rejects,
)
from xmtc.cli.outputs import form_of
from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from xmtc.analysis.compare.figures import Comparison
    from xmtc.core.run import Run

METRICS = ("P@1", "P@3", "P@5", "nDCG@5")
USUAL = "compare.html"
WHAT = "MODEL MODEL … TEST; or CORPUS … with --methods; or FILE.json …, which this command has written, to be joined"
OURS = {
    "html": (b"<!DOCTYPE html>", b'content="xmtc compare"'),
    "md": (b"<!-- xmtc compare -->", b""),
    "json": (b'{\n "made by": "xmtc compare"', b""),
    "csv": (b"data,method,runs,P@1", b""),
}


@reads_corpus()
def compare(
    paths: Annotated[list[str], typer.Argument(metavar="PATH…", help=WHAT)],
    methods: Annotated[
        list[str] | None,
        typer.Option("--methods", metavar="A,B,C", help="to train on CORPUS, such as parabel,dismec,parabel:n_trees=1"),
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option("-p", help="name=value for all methods that have it, method.name=value for one; repeatable"),
    ] = None,
    test: Annotated[
        list[str] | None, typer.Option(help="documents to compare on (20 % of CORPUS); one for each CORPUS, in order")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="trainings of each method, with seeds 0, 1 …")] = 1,
    budget: Annotated[str | None, typer.Option(help="time for each training: 90s, 30m, 2h (no limit)")] = None,
    work: Annotated[
        Path | None, typer.Option(help="folder that keeps finished runs, to go on from (beside the output)")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help=f"to write: .html, .md, .json or .csv ({USUAL})"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="of models: print a JSON object of fractions")] = False,
    threads: Threads = 0,
    device: Device = "auto",
    cluster: Cluster = "",
    reading: Reading = Reading(),
    quiet: Quiet = False,
    log_json: LogJson = None,
) -> None:
    """Compare models, or methods, on the same documents: metrics, whether differences are real, agreement, and cost."""
    from xmtc.analysis.compare.stored import is_stored, joined, stored
    from xmtc.errors import XmtcError

    limit = None if budget is None else budget_seconds(budget)
    if cluster and methods is None:
        raise XmtcError(
            "--cluster is about trainings, and there is none without --methods; give these, or leave it out."
        )
    if methods is not None:
        check_corpora(paths, test, [path for path in paths if is_model(path)])
        output = output or USUAL
        write = writer(output, quiet)
        join(cluster)
        n_cpus = threads or 1
        where = machine(n_cpus if cluster else threads, device)
        tests: Sequence[str | None] = test or [None] * len(paths)
        with work_folder(work, output) as place:
            asked = Asked(methods, parameter or [], seeds, limit, reading, where, place, quiet, cluster, n_cpus)
            ready = [asked.on(*each) for each in zip(paths, tests, names_of(paths), strict=True)]
            write([compared() for compared in ready])
    elif all(map(is_stored, paths)):
        writer(output or USUAL, quiet)(joined(each for path in paths for each in stored(path)))
    else:
        check_models(paths)
        run = make_run(threads, quiet, device=device, log_json=log_json)
        trained(paths[:-1], paths[-1], None if output is None else writer(output, quiet), json, reading, quiet, run)


# What is written


Write = Callable[[Sequence["Comparison"]], None]


def writer(output: str, quiet: bool) -> Write:
    """What writes the file, and prints figures; refused, before the work, where it would replace something else."""
    from xmtc.analysis.compare.files import markdown, page, rows
    from xmtc.analysis.compare.stored import as_json
    from xmtc.data.file_streams import writing
    from xmtc.errors import escape_controls

    form = form_of(output, {"html": page, "md": markdown, "json": as_json, "csv": rows}, OURS, "comparison")

    def write(found: Sequence[Comparison]) -> None:
        with writing(output) as stream:
            stream.write(form(found).encode("utf-8", "replace"))
        if output != "-":
            echo("\n".join(escape_controls(line) for each in found for line in summary(each, len(found) == 1)))
        if output != "-" and not quiet:
            echo(f"{escape_controls(output)} written.", err=True)

    return write


def summary(found: Comparison, is_alone: bool) -> list[str]:
    """A line for each method, in percent, the best first; a reason for each that failed."""
    from xmtc.analysis.compare.shown import best_first

    entries = best_first(found)
    width = max(len(entry.name) for entry in entries)
    lines = [] if is_alone else [f"{found.data}:"]
    for entry in entries:
        cells = [f"{name} {100 * entry.metrics[name].mean:6.2f}" for name in METRICS if entry.metrics]
        cells += [f"{entry.cost.train_s:8.1f} s"] if entry.metrics and entry.cost.train_s is not None else []
        lines.append("   ".join([f"{entry.name:{width}}", *(cells or [f"failed: {entry.failed}"])]))
    return lines


# Trained models


def is_model(path: str) -> bool:
    return (Path(path) / "about.json").is_file()


def check_models(paths: Sequence[str]) -> None:
    """Say kindly what was meant."""
    from xmtc.analysis.compare.stored import is_stored
    from xmtc.errors import XmtcError

    kinds = [is_model(path) for path in paths]
    if not any(kinds):
        other = next(path for path in paths if not is_stored(path))
        are_joined = any(map(is_stored, paths))
        found = ("no comparison" if are_joined else "no model folder") if Path(other).exists() else "not there"
        if are_joined:
            raise XmtcError(f"{other} is {found}; only what `xmtc compare -o FILE.json` has written can be joined.")
        raise XmtcError(
            f"{other} is {found}; trained models are compared by `xmtc compare MODEL MODEL TEST`, methods on a corpus "
            "by `xmtc compare CORPUS --methods parabel,dismec`."
        )
    if kinds[-1]:
        raise XmtcError(f"{paths[-1]} is a model; expected the documents to compare on at the end: MODEL MODEL TEST.")
    if len(paths) < 3:
        raise XmtcError("Found one model; expected two or more, and then the documents: MODEL MODEL TEST.")


def trained(
    folders: Sequence[str], corpus: str, write: Write | None, json: bool, reading: Reading, quiet: bool, run: Run
) -> None:
    from json import dumps

    from xmtc.analysis.compare.models import apart, compare_models, in_short
    from xmtc.tagger import Tagger

    taggers = [Tagger.load(folder) for folder in folders]
    source = open_input(corpus, reading, remembered_by(taggers[0]), quiet=quiet)
    documents = list(source)  # all models read them
    if write is not None:
        write([compare_models(folders, documents, corpus, run)])
    if write is None or json:
        measured, shared = in_short(taggers, documents, run)
        told = dumps({"models": measured, "overlap": shared}) if json else table(apart(folders), measured, shared)
        echo(told)
    report_rejects(source)


def table(names: Sequence[str], measured: list[dict[str, float]], shared: dict[str, float]) -> str:
    """A line for each model, in percent, and one for what their best labels share."""
    rows = list(zip([*names, "overlap"], [*measured, shared], strict=True))
    width = max(len(name) for name, _ in rows)
    cells = [[f"{metric} {100 * value:6.2f}" for metric, value in values.items()] for _, values in rows]
    return "\n".join("   ".join([f"{name:{width}}", *line]) for (name, _), line in zip(rows, cells, strict=True))


@reads_corpus()
def answers(
    model: ModelPath,
    corpus: CorpusPath,
    output: Annotated[Path, typer.Option("-o", "--output", help="file of arrays to write")],
    threads: Threads = 0,
    device: Device = "auto",
    reading: Reading = Reading(),
    quiet: Quiet = False,
    log_json: LogJson = None,
) -> None:
    """Keep what a model ranks first, for a comparison, which has models answer in processes of their own."""
    from xmtc.analysis.compare.answers import Answers
    from xmtc.tagger import Tagger

    tagger = Tagger.load(model)
    documents = list(open_input(corpus, reading, remembered_by(tagger), quiet=quiet))
    run = make_run(threads, quiet, device=device, log_json=log_json)
    Answers.of(tagger, documents, run=run).save(output)
