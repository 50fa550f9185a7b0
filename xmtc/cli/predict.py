"""xmtc predict: documents in, ranked labels out, in bounded memory."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from xmtc.cli.options import (
    AllowOption,
    AlwaysOption,
    ClusterOption,
    CorpusOptions,
    DenyOption,
    DeviceOption,
    LanguageOption,
    LogJsonOption,
    ModelPath,
    QuietOption,
    ThreadsOption,
    get_saved_reading,
    make_run,
    open_corpus_input,
    report_rejects,
    with_corpus_options,
)
from xmtc.cli.streams import echo
from xmtc.cli.vocab import report_empty_filters

if TYPE_CHECKING:
    import numpy as np

    from xmtc.core.predictions import Predictions
    from xmtc.core.run import Run
    from xmtc.data.corpus import Corpus
    from xmtc.data.document import Document
    from xmtc.output import WriteFunction
    from xmtc.tagger import Tagger

DEFAULT_K = 5  # labels of a document
SIDE_FILE_SUFFIX = ".tags.tsv"  # how the names of results beside files end
BATCH_DOCS, BATCH_CHARACTERS = 4096, 16_000_000  # what is held at a time, whatever the size of the input
MAX_BATCHES_AHEAD = 4  # and for each CPU of a cluster, what it answers in about so many seconds

InputArgument = Annotated[
    str | None, typer.Argument(metavar="FILE|-", help="corpus, labelled or not; - reads standard input")
]
StringOption = Annotated[str | None, typer.Option(metavar="TEXT", help="one text, instead of FILE")]
OutputOption = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="file to write, its format told by its name: jsonl, csv, tsv, xlsx, parquet",
    ),
]
FormatOption = Annotated[
    str | None, typer.Option(help="jsonl, csv, tsv, xlsx or parquet (a table on a terminal, elsewhere jsonl)")
]
BroaderOption = Annotated[
    bool, typer.Option("--broader", help="name the concepts above each label, too (a vocabulary's)")
]
WideOption = Annotated[bool, typer.Option("--wide", help="a row for each document: label_1, score_1, label_2 …")]
KeepOption = Annotated[str, typer.Option(metavar="NAMES", help="fields of FILE to carry along: title,url")]
BomOption = Annotated[bool, typer.Option("--bom", help="begin csv or tsv with a mark by which Excel knows UTF-8")]
BesideOption = Annotated[bool, typer.Option("--beside", help="write a file beside each document of the folder FILE")]
SuffixOption = Annotated[str | None, typer.Option(help="how the names of these files end, instead of .txt (.tags.tsv)")]
DecideOption = Annotated[
    bool, typer.Option("--decide", help="as many labels as the model has learnt to give (`xmtc thresholds`)")
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="replace those that are there, which are left out otherwise")
]


@with_corpus_options("labels", "separator")  # taken as by `evaluate`, and not read
def predict(
    model: ModelPath,
    file: InputArgument = None,
    string: StringOption = None,
    k: Annotated[
        int | None, typer.Option("-k", min=1, help=f"labels per document, at most ({DEFAULT_K}; what --decide gives)")
    ] = None,
    decide: DecideOption = False,
    threshold: Annotated[float, typer.Option(help="only labels that score at least this")] = 0.0,
    always: AlwaysOption = False,
    language: LanguageOption = None,
    allow: AllowOption = None,
    deny: DenyOption = None,
    broader: BroaderOption = False,
    output: OutputOption = None,
    format: FormatOption = None,
    wide: WideOption = False,
    keep: KeepOption = "",
    bom: BomOption = False,
    beside: BesideOption = False,
    suffix: SuffixOption = None,
    force: ForceOption = False,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    cluster: ClusterOption = "",
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
    log_json: LogJsonOption = None,
) -> None:
    """Give each document its best labels: as a table on a terminal, as JSON Lines in a pipe, or as a file (-o)."""
    from xmtc.data.document import Document
    from xmtc.data.file_streams import check_outside_model_folder
    from xmtc.tagger import Tagger

    kept = tuple(dict.fromkeys(filter(None, map(str.strip, keep.split(",")))))
    check_side_file_options(beside, suffix, force)
    target = PredictionOutput(
        output, format, wide, kept, bom, (SIDE_FILE_SUFFIX if suffix is None else suffix, force) if beside else None
    )
    check_options(file, string, target)
    if output is not None:
        check_outside_model_folder(output)
    tagger = Tagger.load(model)
    allowed = tagger.build_label_mask(allow or [], deny or [])
    report_empty_filters(tagger, allow, deny)
    if broader:
        tagger.require_vocabulary("--broader")
    run = replace(make_run(threads, quiet, device=device, log_json=log_json, cluster=cluster), progress=False)
    source: Corpus | list[Document] = [Document("1", string or "", [])]
    if file is not None:
        unseen = quiet or target.is_terminal  # answers on a terminal show the progress; else, how much is read is shown
        source = open_corpus_input(
            file, reading, get_saved_reading(tagger), should_read_labels=False, quiet=unseen, keep=kept
        )
        source.check_not_overwritten(target.path)
    asked = PredictOptions(choose_k(tagger, k, decide, wide), threshold, always, allowed, language, broader, decide)
    done = write_predictions(tagger, source, target, asked, run)
    if not quiet and (output or beside or (target.is_terminal and done.n_unlabelled)):
        echo(format_summary(done.n_docs, done.n_unlabelled, always or decide), err=True)
    if done.n_at_limit and k is None:
        echo(f"{done.n_at_limit:,} documents may have more labels than there is room for, {asked.k:,}.", err=True)
    if not isinstance(source, list):
        report_rejects(source)


@dataclass(frozen=True)
class PredictOptions:
    """Which labels of a document are wanted."""

    k: int
    threshold: float
    always: bool  # also of what holds no word that the model knows
    allowed: np.ndarray | None  # (n_labels,) bool, those to choose from
    language: str | None  # that they are named in
    broader: bool  # whether what is above them is named, too
    decide: bool = False  # whether the model decides how many

    def predict(self, tagger: Tagger, documents: list[Document], run: Run) -> Predictions:
        if self.decide:
            return tagger.decided(documents, run, self.allowed, always=self.always)
        return tagger.predict(documents, self.k, run, self.allowed, always=self.always)


class PredictCounts(NamedTuple):
    n_docs: int = 0
    n_unlabelled: int = 0  # of these, those that got no label
    n_at_limit: int = 0  # and those that were decided to have all that there is room for, or more


def choose_k(tagger: Tagger, k: int | None, decide: bool, wide: bool) -> int:
    """Labels of a document, at most. A wide table has room for as many as a document was seen to get."""
    usual = DEFAULT_K
    if decide:
        decision = tagger.require_decision()
        usual = decision.most if wide else decision.depth
    return min(usual if k is None else k, len(tagger.labels))


@dataclass(frozen=True)
class PredictionOutput:
    """Where answers go, and in which form."""

    output: str | None
    format: str | None
    wide: bool
    kept_fields: tuple[str, ...]
    bom: bool
    side_files: tuple[str, bool] | None  # how the names of results end, and whether those that are there are replaced

    @cached_property
    def path(self) -> str:
        return "-" if self.output is None else self.output

    @cached_property
    def is_terminal(self) -> bool:
        return self.path == "-" and self.side_files is None and sys.stdout.isatty()

    def resolve_format(self) -> str:
        """The format, or an error if it is none, or none for its place."""
        from xmtc.output import choose_prediction_format

        return choose_prediction_format(self.path, self.format, self.is_terminal)

    def list_table_options(self) -> list[str]:
        """The options that are not about results beside files."""
        options = {"-o": self.output, "--format": self.format, "--wide": self.wide, "--keep": self.kept_fields}
        return [name for name, value in (options | {"--bom": self.bom}).items() if value]

    def open_writer(
        self, source: Corpus | list[Document], tagger: Tagger, asked: PredictOptions
    ) -> tuple[AbstractContextManager[WriteFunction], Iterable[Document]]:
        """What writes the answers, and the documents that it wants answers for."""
        from xmtc.output import PredictionTable, open_prediction_writer
        from xmtc.output.side_files import SideFiles

        above = cache(partial(tagger.broader_names, language=asked.language)) if asked.broader else None
        table = PredictionTable(asked.k, self.wide, self.kept_fields, tagger.concepts is not None, above)
        if self.side_files is not None and not isinstance(source, list):
            results = SideFiles(Path(source.path), self.side_files[0], table, self.side_files[1])
            return results.open_writer(), results.skip_existing(source)
        documents = check_kept_fields(source, self.kept_fields) if self.kept_fields else source
        return open_prediction_writer(self.path, self.resolve_format(), table, self.bom), documents


def check_side_file_options(beside: bool, suffix: str | None, force: bool) -> None:
    """Refuse options that speak of results beside files, where there will be none."""
    from xmtc.errors import XmtcError

    if not beside and (suffix is not None or force):
        option = "--force" if suffix is None else "--suffix"
        raise XmtcError(f"{option} is about results beside the files of a folder; give --beside, or leave it out.")


def check_options(file: str | None, string: str | None, target: PredictionOutput) -> None:
    """Refuse options that contradict each other, before the work."""
    from xmtc.errors import XmtcError

    if (file is None) == (string is None):
        found = "no text" if file is None else "both FILE and --string"
        raise XmtcError(f"Found {found}; give one: a FILE, - for standard input, or --string TEXT.")
    if target.output == "":
        raise XmtcError("-o names no file; give one, such as answers.csv, or - for standard output.")
    if target.side_files and target.list_table_options():
        option = target.list_table_options()[0]
        raise XmtcError(f"--beside writes files of its own kind, for which {option} means nothing; give one of them.")
    if string is not None and (target.side_files or target.kept_fields):
        option = "--beside" if target.side_files else "--keep"
        raise XmtcError(f"{option} is about a FILE, and --string gives none; leave it out.")
    if target.resolve_format() == "jsonl" and target.wide:
        raise XmtcError(
            "--wide is about tables, and JSON Lines have one object for each document anyway; leave it out, or choose "
            "csv, tsv, xlsx or parquet with --format or -o."
        )


def check_kept_fields(documents: Iterable[Document], kept: tuple[str, ...]) -> Iterator[Document]:
    """Refuse documents of a format without named fields, where some are to be kept; say which fields were always
    empty, as JSON Lines need not have them."""
    from xmtc.core.progress import print_to_stderr
    from xmtc.errors import XmtcError, escape_controls

    empty = set(range(len(kept)))
    for document in documents:
        if len(document.extra) != len(kept):
            found = f"--keep {','.join(kept)} names fields, and this corpus has none"
            raise XmtcError(f"{found}: it is no table and no JSON Lines; leave --keep out, or convert it.")
        if empty:
            empty = {place for place in empty if document.extra[place] in (None, "")}
        yield document
    for place in sorted(empty):
        print_to_stderr(f"No document has anything in the field {escape_controls(kept[place])!r}; check --keep.")


def write_predictions(
    tagger: Tagger, source: Corpus | list[Document], target: PredictionOutput, asked: PredictOptions, run: Run
) -> PredictCounts:
    """Write the answers, batch by batch."""
    from xmtc.output import Prediction

    done = PredictCounts()
    writer, documents = target.open_writer(source, tagger, asked)
    with writer as write:
        for batch, ranked in predict_batches(tagger, split_into_batches(documents), asked, run):
            tags = tagger.to_tags(ranked.apply_threshold(asked.threshold), asked.language)
            is_deep = asked.k == ranked.k < len(tagger.labels)  # then those beyond were not looked at
            n_full = sum(len(each) > asked.k - is_deep for each in tags) if asked.decide else 0
            tags = [each[: asked.k] for each in tags]
            pairs = zip(batch, tags, strict=True)
            write(Prediction(document.id, found, document.extra, document.text) for document, found in pairs)
            sys.stdout.flush()
            n_silent = sum(not found for found in tags)
            done = PredictCounts(done.n_docs + ranked.n_docs, done.n_unlabelled + n_silent, done.n_at_limit + n_full)
    return done


def predict_batches(
    tagger: Tagger, batches: Iterator[list[Document]], asked: PredictOptions, run: Run
) -> Iterator[tuple[list[Document], Predictions]]:
    """Each batch and its ranked labels; on a cluster, a machine of it has ranked them."""
    from xmtc.cluster.scheduling import map_on_cluster
    from xmtc.core.run import Run

    if not run.cluster:
        yield from ((batch, asked.predict(tagger, batch, run)) for batch in batches)
        return
    held: deque[list[Document]] = deque()

    def sent() -> Iterator[list[Document]]:
        for batch in batches:
            held.append(batch)
            yield [document._replace(extra=()) for document in batch]

    work = partial(asked.predict, tagger, run=Run(threads=1, device=run.device))
    for ranked, _ in map_on_cluster(run.cluster, work, sent(), size=len, max_pending_per_cpu=MAX_BATCHES_AHEAD):
        yield held.popleft(), ranked


def format_summary(n_docs: int, n_silent: int, always: bool) -> str:
    documents = "1 document" if n_docs == 1 else f"{n_docs:,} documents"
    if not n_silent:
        return f"{documents} tagged."
    who, whom = ("it gets", "it") if n_docs == 1 else ("they get" if n_silent == n_docs else "the others get", "them")
    said = f"{n_docs - n_silent:,} of {documents} tagged: {who} no label"
    return f"{said}." if always else f"{said}, as a rule because the model knows no word of {whom} (see --always)."


def split_into_batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    length = 0
    for document in documents:
        batch.append(document)
        length += len(document.text)
        if len(batch) == BATCH_DOCS or length >= BATCH_CHARACTERS:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch
