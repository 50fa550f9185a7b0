"""Options that several commands share, and functions that apply them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import Field, dataclass, fields
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

import typer

from xmtc.cli.help import ADVANCED, INPUT, OUTPUT, PERFORMANCE, RERANKING
from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from xmtc.core.run import Run
    from xmtc.data.corpus import Corpus
    from xmtc.reranking import Reranker
    from xmtc.tagger import Tagger

CORPUS_HELP = (
    "Corpus: a file, a folder of documents, a pair (texts.txt,labels.txt or X.npz,Y.npz), a quoted pattern, "
    "or - for standard input"
)
CorpusPath = Annotated[str, typer.Argument(metavar="CORPUS", help=f"{CORPUS_HELP}.")]
CorpusPaths = Annotated[
    list[str], typer.Argument(metavar="CORPUS", help=f"{CORPUS_HELP}. Several are read as one corpus.")
]
ModelPath = Annotated[str, typer.Argument(metavar="MODEL", help="Model folder, written by `xmtc train`.")]
ModelOutputOption = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="MODEL", help="Model folder to write, instead of changing MODEL in place."),
]
ParameterOption = Annotated[
    list[str] | None,
    typer.Option("-p", "--param", metavar="NAME=VALUE", help="Hyper-parameter; see `xmtc methods NAME` (repeatable)."),
]
LanguageOption = Annotated[
    str | None, typer.Option(metavar="CODE", help="Language of label names, such as en; needs a vocabulary.")
]
AllowOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="LABEL", help="Label to choose from, or scheme:…, collection:…, branch:…, file:PATH (repeatable)."
    ),
]
DenyOption = Annotated[
    list[str] | None,
    typer.Option(metavar="LABEL", help="Label never to predict, in the same forms as --allow (repeatable)."),
]
AlwaysOption = Annotated[bool, typer.Option("--always", help="Also predict for texts without any known word.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.", rich_help_panel=OUTPUT)]
ThreadsOption = Annotated[
    int, typer.Option(min=0, metavar="N", help="Number of threads; 0 uses all cores.", rich_help_panel=PERFORMANCE)
]
DeviceOption = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Device for neural networks: auto, cpu, cuda, cuda:1.", rich_help_panel=PERFORMANCE
    ),
]
ClusterOption = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS", help="Ray cluster: auto, host:port or ray://host:port.", rich_help_panel=PERFORMANCE
    ),
]
WorkersOption = Annotated[
    int,
    typer.Option(
        "--cluster-workers",
        min=0,
        metavar="N",
        help="Training processes on the cluster; 0 starts one per GPU, or one per machine without GPUs.",
        rich_help_panel=PERFORMANCE,
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Hide progress.", rich_help_panel=ADVANCED)]
LogJsonOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Event log to append to, as JSON Lines.", rich_help_panel=ADVANCED),
]


def rerank_option(*names: str, help: str, **settings: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=RERANKING, **settings)


@dataclass(frozen=True)
class RerankOptions:
    """Options of re-ranking by a language model; off unless the user names an endpoint."""

    rerank: Annotated[
        str | None,
        rerank_option(
            metavar="URL", help="OpenAI-compatible endpoint that re-ranks labels; texts and label names are sent to it."
        ),
    ] = None
    rerank_model: Annotated[str, rerank_option(metavar="NAME", help="Language model of --rerank.")] = ""
    rerank_key: Annotated[
        str, rerank_option(metavar="VARIABLE", help="Environment variable with the key of the endpoint.")
    ] = "XMTC_RERANK_KEY"
    rerank_candidates: Annotated[
        int, rerank_option(min=2, max=100, metavar="N", help="Labels per document to re-rank.")
    ] = 20
    rerank_requests: Annotated[
        int, rerank_option(min=1, metavar="N", help="Maximum number of requests; further documents are not re-ranked.")
    ] = 1000

    def build(self) -> Reranker | None:
        """Return the re-ranker; None if the user names no endpoint."""
        from xmtc.errors import XmtcError
        from xmtc.reranking import Reranker

        if self.rerank is None:
            if self != RerankOptions():
                raise XmtcError("Options of re-ranking need --rerank URL; give it, or leave them out.")
            return None
        if not self.rerank_model:
            raise XmtcError("--rerank needs --rerank-model NAME, the language model of the endpoint.")
        return Reranker(
            self.rerank,
            self.rerank_model,
            n_candidates=self.rerank_candidates,
            max_requests=self.rerank_requests,
            key_variable=self.rerank_key,
        )


def input_option(*names: str, help: str, metavar: str | None = None, parser: Callable[[str], str] | None = None) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, parser=parser, rich_help_panel=INPUT)


def parse_separator(text: str) -> str:
    r"""Return the separator; \n is a line break and \t a tab, because few shells can pass these."""
    return {r"\n": "\n", r"\t": "\t"}.get(text, text)


@dataclass(frozen=True)
class CorpusOptions:
    """Options of a corpus. Unset ones are as for the training corpus of the model, or detected."""

    input_format: Annotated[
        str | None, input_option(metavar="FORMAT", help="Input format; detected from name and content by default.")
    ] = None
    text: Annotated[
        str | None, input_option(metavar="FIELD", help="Text field; several are joined: title^2,abstract,year:number.")
    ] = None
    labels: Annotated[
        str | None, input_option(metavar="FIELD", help="Label field; several are joined: subjects,genre.")
    ] = None
    id: Annotated[str | None, input_option(metavar="FIELD", help="Field with the document id.")] = None
    separator: Annotated[
        str | None,
        input_option(
            metavar="TEXT", help=r"Separator of labels in one cell, '|' by default; \n, \t.", parser=parse_separator
        ),
    ] = None
    delimiter: Annotated[str | None, input_option(metavar="TEXT", help="Delimiter of table cells: ; , | or tab.")] = (
        None
    )
    encoding: Annotated[
        str | None, input_option(metavar="NAME", help="Text encoding, such as utf-16 or windows-1252.")
    ] = None
    sheet: Annotated[
        str | None, input_option(metavar="NAME", help="Sheet of a workbook; the first with the text field by default.")
    ] = None
    whole: Annotated[
        bool, input_option("--whole", help="Read a file or standard input as one text, not one per line.")
    ] = False
    recursive: Annotated[bool, input_option("--recursive", help="Also read subfolders.")] = False
    strict: Annotated[bool, typer.Option("--strict", help="Stop at warnings.", rich_help_panel=ADVANCED)] = False
    on_error: Annotated[
        str, input_option(metavar="stop|skip", help="At a malformed line, stop or skip it; skipped lines are saved.")
    ] = "stop"
    rejects: Annotated[
        str | None, input_option("--rejects", metavar="FILE", help="File for skipped lines (CORPUS.rejects).")
    ] = None

    def resolve_field_names(self, saved_reading: Mapping[str, Any]) -> dict[str, Any]:
        """Return the names of the fields and the separator: option, saved value or default."""
        defaults = {"text": "text", "labels": "labels", "id": "id", "separator": None}
        return {name: getattr(self, name) or saved_reading.get(name) or default for name, default in defaults.items()}


def with_corpus_options(*hidden: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that replaces the parameter `reading` of a command by the options of CorpusOptions.

    Hidden options are accepted, but not shown in the help.
    """
    return partial(expand_options, kind=CorpusOptions, name="reading", hidden=hidden)


def with_rerank_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `reranking` of a command by the options of RerankOptions."""
    return expand_options(command, RerankOptions, "reranking")


def expand_options(
    command: Callable[..., None], kind: type, name: str, hidden: Sequence[str] = ()
) -> Callable[..., None]:
    """Replace a parameter of a command by the options that are fields of a class."""
    types = get_type_hints(kind, include_extras=True)

    def make_option(field: Field) -> inspect.Parameter:
        value_type, option = get_args(types[field.name])
        option = copy(option)
        option.hidden = field.name in hidden
        return inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=Annotated[value_type, option]
        )

    signature = inspect.signature(command, eval_str=True)
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in signature.parameters.values()]
    place = list(signature.parameters).index(name)
    parameters[place : place + 1] = map(make_option, fields(kind))

    @wraps(command)
    def wrapped(**values: Any) -> None:
        if name not in values:
            values[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
        command(**values)

    wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return wrapped


def with_corpus_prefetch(command: Callable[..., None]) -> Callable[..., None]:
    """Read the corpus of a command while the command imports its libraries.

    Skipped with a single thread, or if any option says how the corpus is to be read.
    """

    @wraps(command)
    def wrapped(
        *, corpus: list[str], threads: int = 0, reading: CorpusOptions = CorpusOptions(), **values: Any
    ) -> None:
        from xmtc.core.threads import count_available_threads
        from xmtc.data.file_prefetch import prefetch_file

        should_prefetch = reading == CorpusOptions() and (threads or count_available_threads()) > 1
        with prefetch_file(corpus[0]) if should_prefetch else nullcontext():
            command(corpus=corpus, threads=threads, reading=reading, **values)

    return wrapped


def open_corpus_input(
    path: str | list[str],
    reading: CorpusOptions,
    saved_reading: Mapping[str, Any] | None = None,
    *,
    should_read_labels: bool = True,
    labels_required: bool = True,
    quiet: bool = False,
    keep: tuple[str, ...] = (),
) -> Corpus:
    """Open the corpus of a command.

    Parameters
    ----------
    path
        Argument of the command.
    reading
        Options of the command.
    saved_reading
        How the training corpus of the model was read.
    should_read_labels, labels_required
        Whether labels are read, and whether their field must exist.
    quiet
        Whether to hide progress.
    keep
        Further fields to keep with each document.
    """
    from xmtc.core.progress import hide_progress, show_progress
    from xmtc.data.corpus import open_corpus
    from xmtc.data.layout import Layout, Notifier
    from xmtc.data.records import Fields
    from xmtc.errors import escape_controls

    check_corpus_options(reading)
    saved = saved_reading or {}
    names = reading.resolve_field_names(saved)
    if not should_read_labels:
        names |= {"labels": None, "separator": None}
    corpus = open_corpus(
        path,
        "text" if reading.whole else reading.input_format,
        Fields(**names, keep=keep),
        labels_required and should_read_labels,
        reading.on_error,
        reading.rejects,
        hide_progress if quiet else show_progress,
        layout=Layout(
            reading.delimiter, reading.encoding, reading.sheet, reading.recursive or bool(saved.get("recursive"))
        ),
        layout_hint=Layout(saved.get("delimiter"), saved.get("encoding"), saved.get("sheet")),
        notifier=Notifier(print_notice, reading.strict),
    )
    if corpus.format == "paired" and len(corpus.files) == 2 and corpus.files[1] not in path and should_read_labels:
        echo(f"Labels are read from {escape_controls(corpus.files[1])}.", err=True)  # the user did not name it
    warn_unused_options(reading, corpus)
    return corpus


def check_corpus_options(reading: CorpusOptions) -> None:
    """Raise XmtcError for options that contradict each other."""
    from xmtc.errors import XmtcError

    if reading.rejects is not None and reading.on_error == "stop":
        raise XmtcError("--rejects needs --on-error skip; without it, malformed lines stop the command.")
    if reading.whole and reading.input_format not in (None, "text"):
        raise XmtcError(f"--whole reads plain text, but --input-format is {reading.input_format}; leave one out.")


def warn_unused_options(reading: CorpusOptions, corpus: Corpus) -> None:
    """Warn of options that do not apply to the format of the corpus."""
    used_formats = {part.format.name for part in corpus.parts}
    options = {"--sheet": (reading.sheet, {"xlsx"}), "--delimiter": (reading.delimiter, {"csv", "tsv"})}
    for option, (value, formats) in options.items():
        if value is not None and not used_formats & formats:
            corpus.notifier.inform(f"{option} has no effect: {corpus.path} is read as {corpus.format}.")


def print_notice(sentence: str) -> None:
    """Print a notice to standard error; of several training processes only the first prints."""
    from xmtc.core.process_rank import is_first_process
    from xmtc.errors import escape_controls

    if is_first_process():
        echo(escape_controls(sentence), err=True)


def get_saved_reading(tagger: Tagger) -> dict[str, Any]:
    """Return how the training corpus of a model was read."""
    return tagger.about.get("reading", {})


def report_rejects(corpus: Corpus) -> None:
    """Print how many lines were skipped, if any."""
    if corpus.n_rejected:
        echo(str(corpus.rejects), err=True)


def make_run(
    threads: int,
    quiet: bool = False,
    checkpoint: Path | None = None,
    device: str = "auto",
    log_json: Path | None = None,
    workdir: Path | None = None,
    cluster: str = "",
    workers: int = 0,
) -> Run:
    from xmtc.cli.log import announce_compilation, make_json_log
    from xmtc.core.checkpoint import Checkpoint
    from xmtc.core.run import Run

    if not quiet:
        announce_compilation()
    watch = () if log_json is None else make_json_log(log_json)
    connect_cluster(cluster)
    return Run(
        threads, not quiet, Checkpoint(checkpoint), device, watch, workdir=workdir, cluster=cluster, workers=workers
    )


def connect_cluster(cluster: str) -> None:
    """Connect to a Ray cluster, so that a wrong address is reported before anything is read."""
    if cluster:
        from xmtc.cluster.connection import connect

        connect(cluster)


def format_machine_options(threads: int, device: str) -> tuple[str, ...]:
    """Return --threads and --device for the command line of a child process."""
    return (*(("--threads", str(threads)) if threads else ()), *(("--device", device) if device != "auto" else ()))


def format_corpus_options(reading: CorpusOptions) -> list[str]:
    """Return the reading options that differ from their defaults as words of a command line."""
    words: list[str] = []
    for field in fields(CorpusOptions):
        value = getattr(reading, field.name)
        if value != field.default:
            words += [f"--{field.name.replace('_', '-')}", *([] if value is True else [value])]
    return words


def parse_time_limit(text: str) -> float:
    """Return the value of `--time-limit`, such as 90s, 30m or 2h, in seconds."""
    import re

    from xmtc.errors import XmtcError

    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", text.strip().lower())
    if match is None or float(match[1]) == 0:
        raise XmtcError(f"--time-limit {text} is not a time; expected a number with s, m or h, such as 90s, 10m or 2h.")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


ReportT = TypeVar("ReportT")
FileSignatures = Mapping[str, tuple[bytes, bytes]]


def select_formatter(
    path: str, formatters: Mapping[str, Callable[[ReportT], str]], signatures: FileSignatures, report_kind: str
) -> Callable[[ReportT], str]:
    """Return the formatter for the extension of a file, "html" for standard output.

    Raise XmtcError if the file exists and was not written by xmtc. `signatures` are the first bytes of our own files
    and bytes that follow soon after.
    """
    from xmtc.data.file_streams import check_output_path
    from xmtc.errors import XmtcError

    kind = "html" if path == "-" else Path(path).suffix.lstrip(".").lower()
    if kind not in formatters:
        raise XmtcError(
            f"-o {path} does not say what to write; expected a name that ends with .html, .md, .json or .csv."
        )
    if path != "-" and Path(path).is_file() and Path(path).stat().st_size:
        with open(path, "rb") as stream:
            head, (begin, mark) = stream.read(1000), signatures[kind]
        if not head.startswith(begin) or mark not in head:
            raise XmtcError(f"{path} exists and is not a {report_kind} of xmtc; choose another name or move it away.")
    check_output_path(path)
    return formatters[kind]
