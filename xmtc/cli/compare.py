"""xmtc compare: trained models, or methods that are trained for it, on the same documents; and comparisons as one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.options import (
    ClusterOption,
    CorpusOptions,
    CorpusPath,
    DeviceOption,
    LogJsonOption,
    ModelPath,
    QuietOption,
    ThreadsOption,
    connect_cluster,
    format_corpus_options,
    format_machine_options,
    get_saved_reading,
    make_run,
    open_corpus_input,
    parse_time_budget,
    report_rejects,
    select_formatter,
    with_corpus_options,
)
from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from xmtc.analysis.compare.comparison import Comparison
    from xmtc.core.run import Run

SUMMARY_METRICS = ("P@1", "P@3", "P@5", "nDCG@5")
DEFAULT_OUTPUT = "compare.html"
PATHS_HELP = (
    "MODEL MODEL … TEST; or CORPUS … with --methods; or FILE.json …, which this command has written, to be joined"
)
FILE_SIGNATURES = {
    "html": (b"<!DOCTYPE html>", b'content="xmtc compare"'),
    "md": (b"<!-- xmtc compare -->", b""),
    "json": (b'{\n "made by": "xmtc compare"', b""),
    "csv": (b"data,method,runs,P@1", b""),
}


@with_corpus_options()
def compare(
    paths: Annotated[list[str], typer.Argument(metavar="PATH…", help=PATHS_HELP)],
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
        typer.Option("-o", "--output", metavar="FILE", help=f"to write: .html, .md, .json or .csv ({DEFAULT_OUTPUT})"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="of models: print a JSON object of fractions")] = False,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    cluster: ClusterOption = "",
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
    log_json: LogJsonOption = None,
) -> None:
    """Compare models, or methods, on the same documents: metrics, whether differences are real, agreement, and cost."""
    from xmtc.analysis.compare.json_file import is_comparison_file, join_comparisons, load_comparisons
    from xmtc.errors import XmtcError

    limit = None if budget is None else parse_time_budget(budget)
    if cluster and methods is None:
        raise XmtcError(
            "--cluster is about trainings, and there is none without --methods; give these, or leave it out."
        )
    if methods is not None:
        check_corpora(paths, test, [path for path in paths if is_model_folder(path)])
        output = output or DEFAULT_OUTPUT
        write = make_writer(output, quiet)
        connect_cluster(cluster)
        n_cpus = threads or 1
        where = format_machine_options(n_cpus if cluster else threads, device)
        tests: Sequence[str | None] = test or [None] * len(paths)
        with open_work_folder(work, output) as place:
            asked = CompareOptions(
                methods, parameter or [], seeds, limit, reading, where, place, quiet, cluster, n_cpus
            )
            ready = [asked.prepare_comparison(*each) for each in zip(paths, tests, name_corpora(paths), strict=True)]
            write([compared() for compared in ready])
    elif all(map(is_comparison_file, paths)):
        make_writer(output or DEFAULT_OUTPUT, quiet)(
            join_comparisons(each for path in paths for each in load_comparisons(path))
        )
    else:
        check_model_paths(paths)
        run = make_run(threads, quiet, device=device, log_json=log_json)
        compare_trained_models(
            paths[:-1], paths[-1], None if output is None else make_writer(output, quiet), json, reading, quiet, run
        )


# What is written


WriteComparisons = Callable[[Sequence["Comparison"]], None]


def make_writer(output: str, quiet: bool) -> WriteComparisons:
    """What writes the file, and prints figures; refused, before the work, where it would replace something else."""
    from xmtc.analysis.compare.files import render_csv, render_markdown, render_page
    from xmtc.analysis.compare.json_file import as_json
    from xmtc.data.file_streams import open_output
    from xmtc.errors import escape_controls

    form = select_formatter(
        output,
        {"html": render_page, "md": render_markdown, "json": as_json, "csv": render_csv},
        FILE_SIGNATURES,
        "comparison",
    )

    def write(found: Sequence[Comparison]) -> None:
        with open_output(output) as stream:
            stream.write(form(found).encode("utf-8", "replace"))
        if output != "-":
            echo("\n".join(escape_controls(line) for each in found for line in format_summary(each, len(found) == 1)))
        if output != "-" and not quiet:
            echo(f"{escape_controls(output)} written.", err=True)

    return write


def format_summary(found: Comparison, is_alone: bool) -> list[str]:
    """A line for each method, in percent, the best first; a reason for each that failed."""
    from xmtc.analysis.compare.tables import sort_entries

    entries = sort_entries(found)
    width = max(len(entry.name) for entry in entries)
    lines = [] if is_alone else [f"{found.data}:"]
    for entry in entries:
        cells = [f"{name} {100 * entry.metrics[name].mean:6.2f}" for name in SUMMARY_METRICS if entry.metrics]
        cells += [f"{entry.cost.train_s:8.1f} s"] if entry.metrics and entry.cost.train_s is not None else []
        lines.append("   ".join([f"{entry.name:{width}}", *(cells or [f"failed: {entry.failed}"])]))
    return lines


# Trained models


def is_model_folder(path: str) -> bool:
    return (Path(path) / "about.json").is_file()


def check_model_paths(paths: Sequence[str]) -> None:
    """Say kindly what was meant."""
    from xmtc.analysis.compare.json_file import is_comparison_file
    from xmtc.errors import XmtcError

    kinds = [is_model_folder(path) for path in paths]
    if not any(kinds):
        other = next(path for path in paths if not is_comparison_file(path))
        are_joined = any(map(is_comparison_file, paths))
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


def compare_trained_models(
    folders: Sequence[str],
    corpus: str,
    write: WriteComparisons | None,
    json: bool,
    reading: CorpusOptions,
    quiet: bool,
    run: Run,
) -> None:
    from json import dumps

    from xmtc.analysis.compare.models import compare_models, make_unique_names, summarise_models
    from xmtc.tagger import Tagger

    taggers = [Tagger.load(folder) for folder in folders]
    source = open_corpus_input(corpus, reading, get_saved_reading(taggers[0]), quiet=quiet)
    documents = list(source)  # all models read them
    if write is not None:
        write([compare_models(folders, documents, corpus, run)])
    if write is None or json:
        measured, shared = summarise_models(taggers, documents, run)
        told = (
            dumps({"models": measured, "overlap": shared})
            if json
            else format_comparison(make_unique_names(folders), measured, shared)
        )
        echo(told)
    report_rejects(source)


def format_comparison(names: Sequence[str], measured: list[dict[str, float]], shared: dict[str, float]) -> str:
    """A line for each model, in percent, and one for what their best labels share."""
    rows = list(zip([*names, "overlap"], [*measured, shared], strict=True))
    width = max(len(name) for name, _ in rows)
    cells = [[f"{metric} {100 * value:6.2f}" for metric, value in values.items()] for _, values in rows]
    return "\n".join("   ".join([f"{name:{width}}", *line]) for (name, _), line in zip(rows, cells, strict=True))


@with_corpus_options()
def answers(
    model: ModelPath,
    corpus: CorpusPath,
    output: Annotated[Path, typer.Option("-o", "--output", help="file of arrays to write")],
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
    log_json: LogJsonOption = None,
) -> None:
    """Keep what a model ranks first, for a comparison, which has models answer in processes of their own."""
    from xmtc.analysis.compare.saved_predictions import SavedPredictions
    from xmtc.tagger import Tagger

    tagger = Tagger.load(model)
    documents = list(open_corpus_input(corpus, reading, get_saved_reading(tagger), quiet=quiet))
    run = make_run(threads, quiet, device=device, log_json=log_json)
    SavedPredictions.from_tagger(tagger, documents, run=run).save(output)


if TYPE_CHECKING:
    from xmtc.analysis.compare.comparison import Comparison
    from xmtc.analysis.trials import TrialContext
    from xmtc.data.corpus import Corpus


@dataclass(frozen=True)
class CompareOptions:
    """Which methods are to be trained, and how, on any corpus."""

    methods: Sequence[str]
    parameters: Sequence[str]
    seeds: int
    time_limit_seconds: float | None  # seconds of each training
    reading: CorpusOptions
    machine_options: tuple[str, ...]  # options that say where to work
    work: Path
    quiet: bool
    cluster: str = ""
    n_cpus: int = 1

    def prepare_comparison(self, path: str, test: str | None, name: str) -> Callable[[], Comparison]:
        """What is to be done on a corpus that was looked at: of several, one that cannot be is refused before the first
        is trained on."""
        from xmtc.analysis.compare.methods import compare_methods
        from xmtc.analysis.method_specs import parse_specs
        from xmtc.analysis.trials import claim_work_folder, write_warm_up_corpus
        from xmtc.features import FEATURES, TEXTS

        source = open_corpus_input(path, self.reading, quiet=True)
        wanted = parse_specs(self.methods, self.parameters, FEATURES if source.has_features else TEXTS)
        claim_work_folder(self.work)
        place = self.build_place(path, test, source, name)
        place = replace(place, warm_up_path=write_warm_up_corpus(source, place.work))
        documents = open_corpus_input(
            place.test, replace(self.reading, rejects=None) if test else CorpusOptions(), quiet=True
        )
        for each in (source, documents):
            read_and_report_rejects(each)
        return partial(compare_methods, place, wanted, self.seeds, documents, self.print_status)

    def build_place(self, path: str, test: str | None, source: Corpus, name: str) -> TrialContext:
        """The files to train on and to compare on; without test documents, the corpus is divided first."""
        from xmtc.analysis.compare.methods import prepare_split
        from xmtc.analysis.trials import TrialContext, make_slug

        work = self.work / make_slug(name)
        work.mkdir(parents=True, exist_ok=True)
        if test is not None:
            words = tuple(format_corpus_options(replace(self.reading, rejects=None)))
            return TrialContext(
                name,
                (path,),
                test,
                work,
                words,
                self.machine_options,
                self.time_limit_seconds,
                self.cluster,
                self.n_cpus,
            )
        train, test = prepare_split(source, path, work)
        return TrialContext(
            name, (train,), test, work, (), self.machine_options, self.time_limit_seconds, self.cluster, self.n_cpus
        )

    def print_status(self, sentence: str) -> None:
        from xmtc.errors import escape_controls

        if not self.quiet:
            echo(escape_controls(sentence), err=True)


def read_and_report_rejects(corpus: Corpus) -> None:
    """What is set aside in a corpus, if anything may be: it is trained on in processes that are not listened to."""
    if corpus.rejects is not None:
        deque(corpus, maxlen=0)
        report_rejects(corpus)


@contextmanager
def open_work_folder(work: Path | None, output: str) -> Iterator[Path]:
    """The folder for runs; where none is named, compare.html has compare.work, and standard output one that nobody
    could find again, and that is removed."""
    from tempfile import TemporaryDirectory

    if work is not None or output != "-":
        yield work or Path(output).with_suffix(".work")
        return
    with TemporaryDirectory(prefix="xmtc-compare-") as folder:
        yield Path(folder)


def check_corpora(paths: Sequence[str], tests: Sequence[str] | None, models: Sequence[str]) -> None:
    from xmtc.errors import XmtcError

    for path in models:
        raise XmtcError(f"{path} is a model, and --methods trains others; trained ones: xmtc compare MODEL MODEL TEST.")
    if tests and len(tests) != len(paths):
        raise XmtcError(f"Found {len(tests)} --test for {len(paths)} corpora; give one for each, in the same order.")


def name_corpora(paths: Sequence[str]) -> list[str]:
    """What the corpora are called; two of a name are told apart."""
    from xmtc.analysis.trials import make_corpus_name

    names: list[str] = []
    for path in paths:
        name = make_corpus_name(path)
        names.append(name if name not in names else path)
    return names
