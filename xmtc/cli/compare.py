"""xmtc compare: models or methods on the same documents, or earlier results together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xmtc.cli.options import (
    ClusterOption,
    CorpusOptions,
    DeviceOption,
    LogJsonOption,
    QuietOption,
    ThreadsOption,
    connect_cluster,
    get_saved_reading,
    make_run,
    open_corpus_input,
    parse_time_limit,
    report_rejects,
    select_formatter,
    with_corpus_options,
)
from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from xmtc.analysis.compare.comparison import Comparison
    from xmtc.analysis.trials import TrialContext
    from xmtc.core.run import Run
    from xmtc.data.corpus import Corpus

SUMMARY_METRICS = ("P@1", "P@3", "P@5", "nDCG@5")
DEFAULT_OUTPUT = "compare.html"
MODEL, METHOD, RESULT = "model", "method", "result"
ITEM_HELP = (
    "Model folders (with --test), methods such as parabel or dismec:C=2 (with --train), or .json result files of this "
    "command."
)
# How files of this command begin, and a later mark; only such files are overwritten.
FILE_SIGNATURES = {
    "html": (b"<!DOCTYPE html>", b'content="xmtc compare"'),
    "md": (b"<!-- xmtc compare -->", b""),
    "json": (b'{\n "made by": "xmtc compare"', b""),
    "csv": (b"data,method,runs,P@1", b""),
}


@with_corpus_options()
def compare(
    items: Annotated[list[str], typer.Argument(metavar="ITEM...", help=ITEM_HELP)],
    train: Annotated[
        list[str] | None,
        typer.Option(metavar="CORPUS", help="Training corpus of the methods; several are compared one by one."),
    ] = None,
    test: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CORPUS", help="Test corpus; for methods, one per training corpus instead of a held-out 20 %."
        ),
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "-p",
            "--param",
            metavar="NAME=VALUE",
            help="Hyper-parameter of all methods that have it, or METHOD.NAME=VALUE for one method (repeatable).",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of trainings of each method, with seeds 0, 1, 2.")] = 1,
    time_limit: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time limit of each training, such as 90s, 10m or 2h.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Checkpoint directory; an interrupted comparison resumes from it. Next to the output by default.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help=f"File to write (.html, .md, .json or .csv); {DEFAULT_OUTPUT} for methods.",
            rich_help_panel="Output",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print metrics of models as JSON.", rich_help_panel="Output")
    ] = False,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    cluster: ClusterOption = "",
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
    log_json: LogJsonOption = None,
) -> None:
    """Compare models or methods on the same documents: metrics, significance of differences, agreement and costs."""
    from xmtc.analysis.compare.json_file import join_comparisons, load_comparisons
    from xmtc.errors import XmtcError

    limit_seconds = None if time_limit is None else parse_time_limit(time_limit)
    kind = check_items(items, is_training=bool(train))
    if cluster and kind != METHOD:
        raise XmtcError("--cluster applies to trainings, and only methods are trained; remove it.")
    if kind == METHOD:
        tests = check_corpora(train or [], test or [])
        output = output or DEFAULT_OUTPUT
        write = make_writer(output, quiet)
        connect_cluster(cluster)
        n_cpus = threads or 1
        with open_checkpoint_folder(checkpoint, output) as folder:
            options = MethodOptions(
                items,
                parameter or [],
                seeds,
                limit_seconds,
                reading,
                n_cpus if cluster else threads,
                device,
                folder,
                quiet,
                cluster,
                n_cpus,
            )
            corpora = zip(train or [], tests, name_corpora(train or []), strict=True)
            prepared = [options.prepare_comparison(*corpus) for corpus in corpora]
            write([compare_corpus() for compare_corpus in prepared])
    elif kind == RESULT:
        comparisons = join_comparisons(comparison for path in items for comparison in load_comparisons(path))
        make_writer(output or DEFAULT_OUTPUT, quiet)(comparisons)
    else:
        if len(items) < 2 or train or len(test or []) != 1:
            raise XmtcError("Models are compared with `xmtc compare MODEL MODEL --test CORPUS`.")
        run = make_run(threads, quiet, device=device, log_json=log_json)
        model_writer = None if output is None else make_writer(output, quiet)
        compare_trained_models(items, (test or [])[0], model_writer, json, reading, quiet, run)


def check_items(items: Sequence[str], is_training: bool) -> str:
    """Return the kind of all items; raise XmtcError for unknown items and for mixed kinds.

    A name that is both a folder and a method is a method if there is a training corpus.
    """
    from xmtc.errors import XmtcError

    kinds = [find_item_kind(item, is_training) for item in items]
    if len(set(kinds)) > 1:
        other = next(item for item, kind in zip(items, kinds, strict=True) if kind != kinds[0])
        raise XmtcError(
            f"{items[0]} is a {kinds[0]} and {other} is a {kinds[items.index(other)]}; compare models, methods or "
            "results, not a mixture."
        )
    return kinds[0]


def find_item_kind(item: str, is_training: bool) -> str:
    from xmtc.analysis.compare.json_file import is_comparison_file
    from xmtc.errors import XmtcError
    from xmtc.methods import METHOD_REGISTRY

    name = item.partition(":")[0]
    is_method = name in METHOD_REGISTRY.names()
    if (Path(item) / "about.json").is_file() and not (is_method and is_training):
        return MODEL
    if is_comparison_file(item):
        return RESULT
    if is_method:
        return METHOD
    if not Path(item).exists() and name.isidentifier():
        raise METHOD_REGISTRY.make_unknown_error(name)
    problem = "is not a model folder, a method or a result file" if Path(item).exists() else "does not exist"
    raise XmtcError(f"{item} {problem}; expected ITEMs to compare, and corpora after --train and --test.")


def check_corpora(train: Sequence[str], test: Sequence[str]) -> Sequence[str | None]:
    """Return the test corpus of each training corpus; None where documents are held out."""
    from xmtc.errors import XmtcError

    if not train:
        raise XmtcError("Methods are trained; give a training corpus with --train CORPUS.")
    if test and len(test) != len(train):
        raise XmtcError(
            f"Found {len(test)} --test for {len(train)} --train; give one for each training corpus, in the same order."
        )
    return list(test) or [None] * len(train)


WriteComparisons = Callable[[Sequence["Comparison"]], None]


def make_writer(output: str, quiet: bool) -> WriteComparisons:
    """Return a function that writes the file and prints a summary; raise XmtcError if the file must not be replaced."""
    from xmtc.analysis.compare.files import render_csv, render_markdown, render_page
    from xmtc.analysis.compare.json_file import as_json
    from xmtc.data.file_streams import open_output
    from xmtc.errors import escape_controls

    formatters = {"html": render_page, "md": render_markdown, "json": as_json, "csv": render_csv}
    render = select_formatter(output, formatters, FILE_SIGNATURES, "comparison")

    def write(comparisons: Sequence[Comparison]) -> None:
        with open_output(output) as stream:
            stream.write(render(comparisons).encode("utf-8", "replace"))
        if output == "-":
            return
        is_single = len(comparisons) == 1
        lines = [line for comparison in comparisons for line in format_summary(comparison, is_single)]
        echo("\n".join(map(escape_controls, lines)))
        if not quiet:
            echo(f"{escape_controls(output)} written.", err=True)

    return write


def format_summary(comparison: Comparison, is_single: bool) -> list[str]:
    """Return a line for each method, the best first: metrics in percent, or the reason of a failure."""
    from xmtc.analysis.compare.tables import sort_entries

    entries = sort_entries(comparison)
    width = max(len(entry.name) for entry in entries)
    lines = [] if is_single else [f"{comparison.data}:"]
    for entry in entries:
        cells = [f"{name} {100 * entry.metrics[name].mean:6.2f}" for name in SUMMARY_METRICS if entry.metrics]
        cells += [f"{entry.cost.train_s:8.1f} s"] if entry.metrics and entry.cost.train_s is not None else []
        lines.append("   ".join([f"{entry.name:{width}}", *(cells or [f"failed: {entry.failed}"])]))
    return lines


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

    from xmtc.analysis.compare.models import OVERLAP_DEPTHS, compare_models, make_unique_names, summarise_models
    from xmtc.analysis.compare.saved_predictions import SavedPredictions
    from xmtc.evaluation import EVALUATION_DEPTH
    from xmtc.tagger import Tagger

    taggers = [Tagger.load(folder) for folder in folders]
    source = open_corpus_input(corpus, reading, get_saved_reading(taggers[0]), quiet=quiet)
    documents = list(source)
    depth = max(OVERLAP_DEPTHS) if write is None else EVALUATION_DEPTH
    predictions = [SavedPredictions.from_tagger(tagger, documents, depth, run) for tagger in taggers]
    if write is not None:
        write([compare_models(folders, taggers, predictions, documents, corpus)])
    if write is None or json:
        metrics, overlap = summarise_models(predictions, documents)
        if json:
            echo(dumps({"models": metrics, "overlap": overlap}))
        else:
            echo(format_model_summary(make_unique_names(folders), metrics, overlap))
    report_rejects(source)


def format_model_summary(names: Sequence[str], metrics: list[dict[str, float]], overlap: dict[str, float]) -> str:
    """Return a line for each model, in percent, and one for the overlap of their best labels."""
    rows = list(zip([*names, "overlap"], [*metrics, overlap], strict=True))
    width = max(len(name) for name, _ in rows)
    lines = []
    for name, values in rows:
        cells = [f"{metric} {100 * value:6.2f}" for metric, value in values.items()]
        lines.append("   ".join([f"{name:{width}}", *cells]))
    return "\n".join(lines)


@dataclass(frozen=True)
class MethodOptions:
    """Options of a comparison of methods, for any corpus."""

    methods: Sequence[str]
    parameters: Sequence[str]
    seeds: int
    limit_seconds: float | None
    reading: CorpusOptions
    threads: int
    device: str
    work: Path
    quiet: bool
    cluster: str = ""
    n_cpus: int = 1

    def prepare_comparison(self, path: str, test: str | None, name: str) -> Callable[[], Comparison]:
        """Check a corpus and return its comparison; all corpora are checked before the first training."""
        from xmtc.analysis.compare.methods import compare_methods
        from xmtc.analysis.method_specs import parse_specs
        from xmtc.analysis.trials import claim_work_folder, write_warm_up_corpus
        from xmtc.features import FEATURES, TEXTS

        source = open_corpus_input(path, self.reading, quiet=True)
        specs = parse_specs(self.methods, self.parameters, FEATURES if source.has_features else TEXTS)
        claim_work_folder(self.work)
        context = self.make_context(path, test, source, name)
        context = replace(context, warm_up_path=write_warm_up_corpus(source, context.work))
        test_reading = replace(self.reading, rejects=None) if test else CorpusOptions()
        documents = open_corpus_input(context.test, test_reading, quiet=True)
        for corpus in (source, documents):
            read_and_report_rejects(corpus)
        return partial(compare_methods, context, specs, self.seeds, documents, self.print_status)

    def make_context(self, path: str, test: str | None, source: Corpus, name: str) -> TrialContext:
        """Return the training and test files and their settings; without a test corpus, split the corpus first."""
        from xmtc.analysis.compare.methods import prepare_split
        from xmtc.analysis.trials import TrialContext, make_slug

        work = self.work / make_slug(name)
        work.mkdir(parents=True, exist_ok=True)
        reading: Mapping[str, Any] = {}
        if test is None:
            path, test = prepare_split(source, path, work)
        else:
            reading = get_changed_options(replace(self.reading, rejects=None))
        return TrialContext(
            name,
            (path,),
            test,
            work,
            reading,
            self.threads,
            self.device,
            self.limit_seconds,
            self.cluster,
            self.n_cpus,
        )

    def print_status(self, sentence: str) -> None:
        from xmtc.errors import escape_controls

        if not self.quiet:
            echo(escape_controls(sentence), err=True)


def get_changed_options(reading: CorpusOptions) -> dict[str, Any]:
    """Return the reading options that differ from their defaults."""
    values = {field.name: getattr(reading, field.name) for field in fields(CorpusOptions)}
    return {field.name: values[field.name] for field in fields(CorpusOptions) if values[field.name] != field.default}


def read_and_report_rejects(corpus: Corpus) -> None:
    """Read a corpus that may have rejects and report them; the processes that train on it report nothing."""
    if corpus.rejects is not None:
        deque(corpus, maxlen=0)
        report_rejects(corpus)


@contextmanager
def open_checkpoint_folder(checkpoint: Path | None, output: str) -> Iterator[Path]:
    """Yield the checkpoint folder: compare.checkpoint beside compare.html; a temporary one for standard output."""
    from tempfile import TemporaryDirectory

    if checkpoint is not None or output != "-":
        yield checkpoint or Path(output).with_suffix(".checkpoint")
        return
    with TemporaryDirectory(prefix="xmtc-compare-") as folder:
        yield Path(folder)


def name_corpora(paths: Sequence[str]) -> list[str]:
    """Return unique names of corpora."""
    from xmtc.analysis.trials import make_corpus_name

    names: list[str] = []
    for path in paths:
        name = make_corpus_name(path)
        names.append(name if name not in names else path)
    return names
