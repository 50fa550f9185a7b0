"""xmtc predict: labels of documents, in bounded memory."""

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

from xmtc.cli.help import OUTPUT
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
    RerankOptions,
    ThreadsOption,
    get_saved_reading,
    make_run,
    open_corpus_input,
    report_rejects,
    with_corpus_options,
    with_rerank_options,
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
    from xmtc.reranking import Reranker
    from xmtc.scores.quality import QualityEstimates
    from xmtc.tagger import Tagger, Threshold

DEFAULT_K = 5
PER_FILE_SUFFIX = ".tags.tsv"  # replaces .txt in the names of --per-file results
BATCH_DOCS, BATCH_CHARACTERS = 4096, 16_000_000  # limits of a batch, whatever the size of the input
MAX_PENDING_BATCHES = 4  # per CPU of a cluster, a few seconds of work

InputArgument = Annotated[
    str | None, typer.Argument(metavar="FILE", help="Corpus, with or without labels; - reads standard input.")
]
StringOption = Annotated[str | None, typer.Option(metavar="TEXT", help="A single text, instead of FILE.")]
KOption = Annotated[
    int | None,
    typer.Option(
        "-k",
        min=1,
        metavar="N",
        help=f"Maximum number of labels per document; {DEFAULT_K} by default, no limit with tuned thresholds.",
    ),
]
ThresholdOption = Annotated[
    str,
    typer.Option(
        metavar="FLOAT|tuned", help="Minimum score, or tuned for the thresholds that `xmtc thresholds` tuned."
    ),
]
BroaderOption = Annotated[
    bool, typer.Option("--broader", help="Also output the names of broader concepts; needs a vocabulary.")
]
OutputOption = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="File to write: .jsonl, .csv, .tsv, .xlsx or .parquet; .mrc or .xml for MARC records with subjects.",
        rich_help_panel=OUTPUT,
    ),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        metavar="FORMAT",
        help="jsonl, csv, tsv, xlsx, parquet, marc or marcxml; by default a table on a terminal, otherwise jsonl.",
        rich_help_panel=OUTPUT,
    ),
]
WideOption = Annotated[
    bool,
    typer.Option(
        "--wide", help="One row per document, with columns label_1, score_1, label_2 and so on.", rich_help_panel=OUTPUT
    ),
]
JoinedOption = Annotated[
    bool,
    typer.Option(
        "--joined",
        help="One row per document, with all labels in one cell and all names in one.",
        rich_help_panel=OUTPUT,
    ),
]
KeepOption = Annotated[
    str,
    typer.Option(
        metavar="FIELDS",
        help="Fields of FILE to copy to the output: title,url; of files file,beginning,text.",
        rich_help_panel=OUTPUT,
    ),
]
BomOption = Annotated[
    bool,
    typer.Option(
        "--bom", help="Start csv and tsv with a byte order mark, by which Excel detects UTF-8.", rich_help_panel=OUTPUT
    ),
]
PerFileOption = Annotated[
    bool,
    typer.Option("--per-file", help="Write one result file next to each document of a folder.", rich_help_panel=OUTPUT),
]
SuffixOption = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help=f"Suffix of --per-file results, which replaces .txt; {PER_FILE_SUFFIX} by default.",
        rich_help_panel=OUTPUT,
    ),
]
ForceOption = Annotated[
    bool,
    typer.Option("--force", help="Replace --per-file results that exist; otherwise skip them.", rich_help_panel=OUTPUT),
]


@with_corpus_options("labels", "separator")  # accepted as by `evaluate`, but not used
@with_rerank_options
def predict(
    model: ModelPath,
    file: InputArgument = None,
    string: StringOption = None,
    k: KOption = None,
    threshold: ThresholdOption = "0",
    always: AlwaysOption = False,
    language: LanguageOption = None,
    allow: AllowOption = None,
    deny: DenyOption = None,
    broader: BroaderOption = False,
    output: OutputOption = None,
    format: FormatOption = None,
    wide: WideOption = False,
    joined: JoinedOption = False,
    keep: KeepOption = "",
    bom: BomOption = False,
    per_file: PerFileOption = False,
    suffix: SuffixOption = None,
    force: ForceOption = False,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    cluster: ClusterOption = "",
    reranking: RerankOptions = RerankOptions(),
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
    log_json: LogJsonOption = None,
) -> None:
    """Predict the labels of documents: a table on a terminal, JSON Lines in a pipe, or a file with -o."""
    from xmtc.data.document import Document
    from xmtc.data.file_streams import check_outside_model_folder
    from xmtc.tagger import Tagger

    kept_fields = tuple(dict.fromkeys(filter(None, map(str.strip, keep.split(",")))))
    check_per_file_options(per_file, suffix, force)
    side_files = (PER_FILE_SUFFIX if suffix is None else suffix, force) if per_file else None
    language, more_languages = split_languages(language)
    target = PredictionOutput(output, format, wide, kept_fields, bom, side_files, joined, more_languages)
    check_options(file, string, target, broader)
    minimum = parse_threshold(threshold)
    reranker = build_reranker(reranking, minimum)
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
        hides_progress = quiet or target.is_terminal  # predictions on a terminal are progress enough
        source = open_corpus_input(
            file,
            reading,
            get_saved_reading(tagger),
            should_read_labels=False,
            quiet=hides_progress,
            keep=target.fields_to_read,
        )
        source.check_not_overwritten(target.path)
    max_k = choose_k(tagger, k, minimum, wide)
    options = PredictOptions(max_k, minimum, always, allowed, language, broader, reranker)
    counts = write_predictions(tagger, source, target, options, run)
    if not quiet and (output or per_file or (target.is_terminal and counts.n_unlabelled)):
        echo(format_summary(counts, hint=not (always or minimum == "tuned")), err=True)
    if counts.n_at_limit and k is None:
        echo(f"{counts.n_at_limit:,} documents may have more labels than the {max_k:,} that were written.", err=True)
    if not isinstance(source, list):
        report_rejects(source)
    if reranker is not None:
        reranker.report_failures()


@dataclass(frozen=True)
class PredictOptions:
    """Options that select the predicted labels."""

    k: int
    threshold: Threshold
    always: bool  # whether documents without any known word get labels
    allowed: np.ndarray | None  # (n_labels,) bool, labels to choose from
    language: str | None  # of label names
    broader: bool  # whether broader concepts are named
    reranker: Reranker | None = None

    def predict(
        self, tagger: Tagger, documents: list[Document], run: Run
    ) -> tuple[Predictions, QualityEstimates | None]:
        """Return the labels of documents, and with tuned thresholds their quality, if the model has a gate."""
        if self.threshold == "tuned" and tagger.has_gate:
            return tagger.predict_with_quality(documents, run, allowed=self.allowed, always=self.always)
        if self.reranker is not None:
            n_candidates = min(max(self.k, self.reranker.n_candidates), len(tagger.labels))
            return tagger.predict(documents, n_candidates, run, allowed=self.allowed, always=self.always), None
        predictions = tagger.predict(
            documents, self.k, run, threshold=self.threshold, allowed=self.allowed, always=self.always
        )
        return predictions, None

    def rerank(self, tagger: Tagger, documents: list[Document], predictions: Predictions) -> Predictions:
        """Return the labels in the order of the language model, if there is one."""
        if self.reranker is None or isinstance(self.threshold, str):
            return predictions
        texts = [document.text for document in documents]
        ranked = self.reranker.rerank(tagger, texts, predictions, self.language)
        return ranked.keep_best(self.k).apply_threshold(self.threshold)


class PredictCounts(NamedTuple):
    n_docs: int = 0
    n_unlabelled: int = 0  # documents without labels
    n_at_limit: int = 0  # documents with as many labels as there is room for, which may have more
    n_published: int | None = None  # documents to publish without a person; None if the model has no gate


def build_reranker(options: RerankOptions, threshold: Threshold) -> Reranker | None:
    """Return the re-ranker, if the user names an endpoint; raise XmtcError if it cannot be used."""
    from xmtc.errors import XmtcError

    reranker = options.build()
    if reranker is not None and threshold == "tuned":
        raise XmtcError("Tuned thresholds are for the ranking of the model; give --rerank a number as --threshold.")
    return reranker


def parse_threshold(text: str) -> Threshold:
    from xmtc.errors import XmtcError

    if text == "tuned":
        return "tuned"
    try:
        return float(text)
    except ValueError:
        raise XmtcError(f"--threshold {text} is not a threshold; expected a number or tuned.") from None


def choose_k(tagger: Tagger, k: int | None, threshold: Threshold, wide: bool) -> int:
    """Return the maximum number of labels per document.

    With tuned thresholds, a wide table has as many columns as a document had labels when they were tuned.
    """
    if k is None:
        k = DEFAULT_K
        if threshold == "tuned":
            decision = tagger.require_decision()
            k = decision.most if wide else decision.depth
    return min(k, len(tagger.labels))


@dataclass(frozen=True)
class PredictionOutput:
    """Destination and format of the predictions."""

    output: str | None
    format: str | None
    wide: bool
    kept_fields: tuple[str, ...]
    bom: bool
    side_files: tuple[str, bool] | None  # with --per-file: suffix, and whether existing files are replaced
    joined: bool = False
    languages: tuple[str, ...] = ()  # of names, after the first

    @cached_property
    def path(self) -> str:
        return "-" if self.output is None else self.output

    @cached_property
    def is_terminal(self) -> bool:
        return self.path == "-" and self.side_files is None and sys.stdout.isatty()

    def resolve_format(self) -> str:
        """Return the format; raise XmtcError if it is unknown or does not fit the destination."""
        from xmtc.output import choose_prediction_format

        return choose_prediction_format(self.path, self.format, self.is_terminal)

    @cached_property
    def has_marc_records(self) -> bool:
        from xmtc.output import MARC_FORMATS

        return self.side_files is None and self.resolve_format() in MARC_FORMATS

    @cached_property
    def fields_to_read(self) -> tuple[str, ...]:
        """Fields of the corpus to read: those to keep, or the MARC record."""
        if not self.has_marc_records:
            return self.kept_fields
        from xmtc.data.formats.bibliographic import MARC_RECORD_FIELD

        return (MARC_RECORD_FIELD,)

    def list_table_options(self) -> list[str]:
        """Return the options given that do not apply to --per-file."""
        options = {
            "-o": self.output,
            "--format": self.format,
            "--wide": self.wide,
            "--joined": self.joined,
            "--keep": self.kept_fields,
        }
        return [name for name, value in (options | {"--bom": self.bom}).items() if value]

    def open_writer(
        self, source: Corpus | list[Document], tagger: Tagger, options: PredictOptions
    ) -> tuple[AbstractContextManager[WriteFunction], Iterable[Document]]:
        """Return the writer of the predictions, and the documents that it needs."""
        from xmtc.output import PredictionTable, open_prediction_writer
        from xmtc.output.side_files import SideFiles

        broader = cache(partial(tagger.broader_names, language=options.language)) if options.broader else None
        for code in self.languages:
            tagger.check_language(code)
        table = PredictionTable(
            options.k,
            self.wide,
            self.kept_fields,
            tagger.concepts is not None,
            broader,
            self.languages,
            cache(tagger.label_name) if self.languages else None,
            self.joined,
            has_quality=options.threshold == "tuned" and tagger.has_gate,
        )
        if self.side_files is not None and not isinstance(source, list):
            results = SideFiles(Path(source.path), self.side_files[0], table, self.side_files[1])
            return results.open_writer(), results.skip_existing(source)
        documents = check_kept_fields(source, self.kept_fields) if self.kept_fields else source
        return open_prediction_writer(self.path, self.resolve_format(), table, self.bom), documents


def split_languages(codes: str | None) -> tuple[str | None, tuple[str, ...]]:
    """Return the first code in --language, None for the default language, and the others."""
    first, *others = [code.strip() for code in codes.split(",")] if codes else [None]
    return first, tuple(filter(None, others))


def check_per_file_options(per_file: bool, suffix: str | None, force: bool) -> None:
    from xmtc.errors import XmtcError

    if not per_file and (suffix is not None or force):
        option = "--force" if suffix is None else "--suffix"
        raise XmtcError(f"{option} applies to --per-file only; give --per-file, or leave it out.")


def check_options(file: str | None, string: str | None, target: PredictionOutput, broader: bool) -> None:
    """Raise XmtcError for options that contradict each other."""
    from xmtc.errors import XmtcError

    if (file is None) == (string is None):
        problem = "no text" if file is None else "both FILE and --string"
        raise XmtcError(f"Found {problem}; give one: a FILE, - for standard input, or --string TEXT.")
    if target.output == "":
        raise XmtcError("-o is empty; give a file, such as predictions.csv, or - for standard output.")
    if target.side_files and target.list_table_options():
        option = target.list_table_options()[0]
        raise XmtcError(f"--per-file has a format of its own and cannot be combined with {option}; leave one out.")
    if string is not None and (target.side_files or target.kept_fields):
        option = "--per-file" if target.side_files else "--keep"
        raise XmtcError(f"{option} needs FILE and cannot be combined with --string; leave it out.")
    if target.has_marc_records:
        check_marc_options(string, target, broader)
    if target.wide and target.joined:
        raise XmtcError("--wide and --joined are two layouts of a table; leave one out.")
    if target.resolve_format() == "jsonl" and (target.wide or target.joined):
        raise XmtcError(
            f"{'--wide' if target.wide else '--joined'} needs a table, but JSON Lines have one object per document; "
            "leave it out, or choose csv, tsv, xlsx or parquet with --format or -o."
        )


def check_marc_options(string: str | None, target: PredictionOutput, broader: bool) -> None:
    """Raise XmtcError for options that do not apply to MARC records."""
    from xmtc.errors import XmtcError

    options = {
        "--string": string is not None,
        "--wide": target.wide,
        "--joined": target.joined,
        "--keep": target.kept_fields,
        "--broader": broader,
        "--language with several languages": target.languages,
    }
    if given := [name for name, value in options.items() if value]:
        raise XmtcError(
            f"{given[0]} does not apply to {target.resolve_format()}, which copies the records of FILE and adds "
            "subjects; leave it out, or write another format, such as .csv."
        )


def check_kept_fields(documents: Iterable[Document], kept: tuple[str, ...]) -> Iterator[Document]:
    """Yield the documents, and warn of --keep fields that are empty in all of them.

    Raise XmtcError if the format of the corpus has no named fields.
    """
    from xmtc.core.progress import print_to_stderr
    from xmtc.errors import XmtcError, escape_controls

    empty = set(range(len(kept)))
    for document in documents:
        if len(document.extra) != len(kept):
            raise XmtcError(
                f"--keep {','.join(kept)} needs a corpus with named fields, a table or JSON Lines; leave --keep out, "
                "or convert the corpus."
            )
        if empty:
            empty = {place for place in empty if document.extra[place] in (None, "")}
        yield document
    for place in sorted(empty):
        print_to_stderr(f"The field {escape_controls(kept[place])!r} is empty in all documents; check --keep.")


def write_predictions(
    tagger: Tagger, source: Corpus | list[Document], target: PredictionOutput, options: PredictOptions, run: Run
) -> PredictCounts:
    """Write the predictions batch by batch, and return counts of documents."""
    from xmtc.output import Prediction

    counts = PredictCounts()
    writer, documents = target.open_writer(source, tagger, options)
    with writer as write:
        for batch, (predictions, quality) in predict_batches(tagger, split_into_batches(documents), options, run):
            predictions = options.rerank(tagger, batch, predictions)
            tags_by_document = tagger.to_tags(predictions, options.language)
            n_at_limit = 0
            if options.threshold == "tuned":
                is_deepest = options.k == predictions.k < len(tagger.labels)  # lower ranks were not searched
                n_at_limit = sum(len(tags) > options.k - is_deepest for tags in tags_by_document)
            tags_by_document = [tags[: options.k] for tags in tags_by_document]
            described = [None if quality is None else quality.describe(row) for row in range(len(batch))]
            rows = zip(batch, tags_by_document, described, strict=True)
            write(Prediction(each.id, tags, each.extra, each.text, values) for each, tags, values in rows)
            sys.stdout.flush()
            counts = PredictCounts(
                counts.n_docs + predictions.n_docs,
                counts.n_unlabelled + sum(not tags for tags in tags_by_document),
                counts.n_at_limit + n_at_limit,
                None if quality is None else (counts.n_published or 0) + int(quality.is_published.sum()),
            )
    return counts


def predict_batches(
    tagger: Tagger, batches: Iterator[list[Document]], options: PredictOptions, run: Run
) -> Iterator[tuple[list[Document], tuple[Predictions, QualityEstimates | None]]]:
    """Yield each batch, its predictions and their quality, computed here or on the cluster."""
    from xmtc.cluster.scheduling import map_on_cluster
    from xmtc.core.run import Run

    if not run.cluster:
        yield from ((batch, options.predict(tagger, batch, run)) for batch in batches)
        return
    pending: deque[list[Document]] = deque()

    def send() -> Iterator[list[Document]]:
        for batch in batches:
            pending.append(batch)
            yield [document._replace(extra=()) for document in batch]

    work = partial(options.predict, tagger, run=Run(threads=1, device=run.device))
    for predictions, _ in map_on_cluster(run.cluster, work, send(), size=len, max_pending_per_cpu=MAX_PENDING_BATCHES):
        yield pending.popleft(), predictions


def format_summary(counts: PredictCounts, hint: bool) -> str:
    """Return how many documents got labels; `hint` explains why some did not."""
    documents = "1 document" if counts.n_docs == 1 else f"{counts.n_docs:,} documents"
    if counts.n_published is not None:
        return f"{documents}: {counts.n_published:,} to publish, {counts.n_docs - counts.n_published:,} to review."
    if not counts.n_unlabelled:
        return f"{documents} labelled."
    summary = f"{counts.n_docs - counts.n_unlabelled:,} of {documents} labelled"
    if not hint:
        return f"{summary}."
    return f"{summary}; the model knows no word of the others, or finds no label (see --always)."


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
