"""Options that several commands share, and what they become."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import copy
from dataclasses import Field, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

import typer

from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from xmtc.core.run import Run
    from xmtc.data.corpus import Corpus
    from xmtc.tagger import Tagger

CORPUS_HELP = "file, folder of documents, pair (texts.txt,labels.txt or X.npz,Y.npz), pattern in quotes, or - for stdin"
CorpusPath = Annotated[str, typer.Argument(metavar="CORPUS", help=CORPUS_HELP)]
CorpusPaths = Annotated[list[str], typer.Argument(metavar="CORPUS…", help=f"{CORPUS_HELP}; several are read as one")]
ModelPath = Annotated[str, typer.Argument(metavar="MODEL", help="model folder, as `xmtc train` writes it")]
DeviceOption = Annotated[
    str, typer.Option(help="where networks are computed: cpu, cuda, cuda:1 (auto: a GPU if there is one)")
]
AlwaysOption = Annotated[
    bool, typer.Option("--always", help="label also what has no word that the model knows, which is guessing")
]
ThreadsOption = Annotated[int, typer.Option(min=0, help="threads to work with (0: all there are)")]
ClusterOption = Annotated[
    str,
    typer.Option(metavar="auto|ADDRESS", help="Ray cluster that shares the work: auto, host:port or ray://host:port"),
]
WorkersOption = Annotated[
    int,
    typer.Option(
        min=0, help="processes of the cluster that train a network (0: one for each GPU; without, for each machine)"
    ),
]
LanguageOption = Annotated[str | None, typer.Option(help="of the labels' names, with a vocabulary: en, fi")]
AllowOption = Annotated[
    list[str] | None,
    typer.Option(help="label to choose from, or scheme:…, collection:…, branch:…, file:PATH; repeatable"),
]
DenyOption = Annotated[list[str] | None, typer.Option(help="label never to answer, named as for --allow; repeatable")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="show no progress")]
LogJsonOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="add a JSON line to this file for each event: stages, passes, trials"),
]


@dataclass(frozen=True)
class CorpusOptions:
    """How a corpus is read, as the options of a command say it. What they leave out is as it was for the corpus that
    the model was trained on, or as usual, or as the file itself tells."""

    input_format: Annotated[str | None, typer.Option(help="format to read (told from name and content)")] = None
    text: Annotated[str | None, typer.Option(help="text field, or several joined by a space: title,abstract")] = None
    labels: Annotated[str | None, typer.Option(help="field with the labels")] = None
    id: Annotated[str | None, typer.Option(help="field with the document's id")] = None
    separator: Annotated[str | None, typer.Option(help="between labels in one cell ('|' in tables)")] = None
    delimiter: Annotated[str | None, typer.Option(help="between the cells of a table: ; , | or tab")] = None
    encoding: Annotated[str | None, typer.Option(help="of the text, such as utf-16 or windows-1252")] = None
    sheet: Annotated[str | None, typer.Option(help="of a workbook (the first with the text field)")] = None
    whole: Annotated[bool, typer.Option("--whole", help="a file, or stdin, is one text, whatever its lines")] = False
    recursive: Annotated[bool, typer.Option("--recursive", help="read folders within a folder, too")] = False
    strict: Annotated[bool, typer.Option("--strict", help="stop at what looks wrong, instead of a warning")] = False
    on_error: Annotated[str, typer.Option(help="at a bad line: stop, or skip it into the rejects file")] = "stop"
    rejects: Annotated[str | None, typer.Option("--rejects", help="file for bad lines (CORPUS.rejects)")] = None

    def resolve_field_names(self, remembered: Mapping[str, Any]) -> dict[str, Any]:
        """The names of the fields, and the separator."""
        told = {name: getattr(self, name) for name in ("text", "labels", "id", "separator")}
        usual = {"text": "text", "labels": "labels", "id": "id", "separator": None}
        return {name: value or remembered.get(name) or usual[name] for name, value in told.items()}


def with_corpus_options(*hidden: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command the options of Reading in place of its parameter `reading`; the hidden ones are taken, and do not
    stand in its help."""
    types = get_type_hints(CorpusOptions, include_extras=True)

    def option(field: Field) -> inspect.Parameter:
        kind, shown = get_args(types[field.name])
        about = copy(shown)
        about.hidden = field.name in hidden
        return inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=Annotated[kind, about]
        )

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in signature.parameters.values()]
        place = list(signature.parameters).index("reading")
        parameters[place : place + 1] = map(option, fields(CorpusOptions))

        @wraps(command)
        def called(**values: Any) -> None:
            if "reading" not in values:
                values["reading"] = CorpusOptions(
                    **{field.name: values.pop(field.name) for field in fields(CorpusOptions)}
                )
            command(**values)

        called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return called

    return with_options


def with_corpus_prefetch(command: Callable[..., None]) -> Callable[..., None]:
    """Has the corpus of a command read while the command imports what is to work on it; if there are threads for it,
    and the options say nothing of how it is to be read."""

    @wraps(command)
    def called(*, corpus: list[str], threads: int = 0, reading: CorpusOptions = CorpusOptions(), **values: Any) -> None:
        from xmtc.core.threads import count_available_threads
        from xmtc.data.file_prefetch import prefetch_file

        is_fetched = reading == CorpusOptions() and (threads or count_available_threads()) > 1
        with prefetch_file(corpus[0]) if is_fetched else nullcontext():
            command(corpus=corpus, threads=threads, reading=reading, **values)

    return called


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
    """The corpus that the options speak of; `remembered` is how the model's was read. The fields to keep are carried
    along."""
    from xmtc.core.progress import hide_progress, show_progress
    from xmtc.data.corpus import open_corpus
    from xmtc.data.layout import Layout, Notifier
    from xmtc.data.records import Fields
    from xmtc.errors import escape_controls

    check_corpus_options(reading)
    saved_reading = saved_reading or {}
    names = reading.resolve_field_names(saved_reading) | (
        {} if should_read_labels else {"labels": None, "separator": None}
    )
    voice = Notifier(print_notice, reading.strict)
    corpus = open_corpus(
        path,
        "text" if reading.whole else reading.input_format,
        Fields(**names, keep=keep),
        labels_required and should_read_labels,
        reading.on_error,
        reading.rejects,
        hide_progress if quiet else show_progress,
        layout=Layout(
            reading.delimiter,
            reading.encoding,
            reading.sheet,
            reading.recursive or bool(saved_reading.get("recursive")),
        ),
        layout_hint=Layout(saved_reading.get("delimiter"), saved_reading.get("encoding"), saved_reading.get("sheet")),
        notifier=voice,
    )
    if corpus.format == "paired" and len(corpus.files) == 2 and corpus.files[1] not in path and should_read_labels:
        echo(f"Labels are read from {escape_controls(corpus.files[1])}.", err=True)  # nobody named it
    warn_unused_options(reading, corpus)
    return corpus


def check_corpus_options(reading: CorpusOptions) -> None:
    """Refuse an option that another one, or the lack of it, would leave without any effect."""
    from xmtc.errors import XmtcError

    if reading.rejects is not None and reading.on_error == "stop":
        raise XmtcError("--rejects names a file for bad lines, which stop the command; give --on-error skip, too.")
    if reading.whole and reading.input_format not in (None, "text"):
        raise XmtcError(f"--whole reads plain text, and --input-format says {reading.input_format}; leave one out.")


def warn_unused_options(reading: CorpusOptions, corpus: Corpus) -> None:
    """Say which options are about other files than those of the corpus."""
    found = {part.format.name for part in corpus.parts}
    about = {"--sheet": (reading.sheet, {"xlsx"}), "--delimiter": (reading.delimiter, {"csv", "tsv"})}
    for option, (value, formats) in about.items():
        if value is not None and not found & formats:
            corpus.notifier.inform(f"{option} does nothing: {corpus.path} is read as {corpus.format}.")


def print_notice(sentence: str) -> None:
    """What was noticed about a corpus; of several processes, one says it."""
    from xmtc.core.progress import is_first_process
    from xmtc.errors import escape_controls

    if is_first_process():
        echo(escape_controls(sentence), err=True)


def get_saved_reading(tagger: Tagger) -> dict[str, Any]:
    """How the corpus was read that a model was trained on."""
    return tagger.about.get("reading", {})


def report_rejects(corpus: Corpus) -> None:
    """Say at the end of a command what was set aside, so that nothing disappears silently."""
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
    """Before the work begins, so that nothing is read in vain where there is no cluster."""
    if cluster:
        from xmtc.cluster.connection import connect

        connect(cluster)


def format_machine_options(threads: int, device: str) -> tuple[str, ...]:
    """The options that say where to work, for a command that runs others."""
    return (*(("--threads", str(threads)) if threads else ()), *(("--device", device) if device != "auto" else ()))


def format_corpus_options(reading: CorpusOptions) -> list[str]:
    """The options of reading that are not as they are by themselves, for a command that runs or names others."""
    words: list[str] = []
    for field in fields(CorpusOptions):
        value = getattr(reading, field.name)
        if value != field.default:
            words += [f"--{field.name.replace('_', '-')}", *([] if value is True else [value])]
    return words


def parse_time_budget(text: str) -> float:
    """90s, 30m or 2h in seconds."""
    import re

    from xmtc.errors import XmtcError

    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", text.strip().lower())
    if found is None or float(found[1]) == 0:
        raise XmtcError(f"--time-limit {text} is not a time; expected a number with s, m or h, such as 90s, 10m or 2h.")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


ReportT = TypeVar("ReportT")
FileSignatures = Mapping[str, tuple[bytes, bytes]]


def select_formatter(
    path: str, formatters: Mapping[str, Callable[[ReportT], str]], signatures: FileSignatures, report_kind: str
) -> Callable[[ReportT], str]:
    """What makes the file of that name; refused, before the work, where it would write over something else. `signs` are
    how our own files begin, and what follows soon: by this one of ours is known, which may be replaced."""
    from pathlib import Path

    from xmtc.data.file_streams import check_output_path
    from xmtc.errors import XmtcError

    kind = "html" if path == "-" else Path(path).suffix.lstrip(".").lower()
    if kind not in formatters:
        raise XmtcError(
            f"-o {path} does not say what to write; expected a name that ends with .html, .md, .json or .csv."
        )
    if path != "-" and Path(path).is_file() and Path(path).stat().st_size:
        with open(path, "rb") as stream:
            head, (begin, sign) = stream.read(1000), signatures[kind]
        if not head.startswith(begin) or sign not in head:
            raise XmtcError(f"{path} exists and is no {report_kind} of xmtc; choose another name or move it away.")
    check_output_path(path)
    return formatters[kind]
