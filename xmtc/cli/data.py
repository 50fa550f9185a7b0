"""xmtc data: statistics, audit, conversion and splits of corpora."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.audit import audit
from xmtc.cli.help import INPUT, OUTPUT
from xmtc.cli.options import (
    CorpusOptions,
    CorpusPath,
    CorpusPaths,
    JsonOption,
    open_corpus_input,
    report_rejects,
    with_corpus_options,
)
from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from xmtc.data.statistics import Statistics

app = typer.Typer(
    help="Describe, audit, convert and split corpora.",
    no_args_is_help=True,
)

OutputFormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="Output format: jsonl, csv, tsv, parquet, fasttext, sparse or paired; by default from the extension.",
        rich_help_panel=OUTPUT,
    ),
]
SeedOption = Annotated[int, typer.Option(min=0, max=2**32 - 1, metavar="N", help="Random seed.")]
UnlabelledOption = Annotated[
    bool, typer.Option("--unlabelled", help="Accept documents without the label field.", rich_help_panel=INPUT)
]
TargetArgument = Annotated[
    str, typer.Argument(metavar="TARGET", help="File to write (also .gz, .bz2, .zst), or - for standard output.")
]


@app.command()
@with_corpus_options()
def stats(
    path: CorpusPaths,
    unlabelled: UnlabelledOption = False,
    json: JsonOption = False,
    reading: CorpusOptions = CorpusOptions(),
) -> None:
    """Print the sizes of a corpus: documents, features, labels, duplicates, rare labels."""
    from dataclasses import asdict
    from json import dumps

    from xmtc.data.statistics import compute_corpus_statistics

    corpus = open_corpus_input(path, reading, labels_required=not unlabelled)
    statistics = compute_corpus_statistics(corpus)
    if json:
        echo(dumps(asdict(statistics), indent=2))
    else:
        print_statistics(statistics)
    report_rejects(corpus)


app.command()(audit)


@app.command()
@with_corpus_options()
def convert(
    path: CorpusPath,
    target: TargetArgument,
    format: OutputFormatOption = None,
    unlabelled: UnlabelledOption = False,
    reading: CorpusOptions = CorpusOptions(),
) -> None:
    """Write the id, text and labels of a corpus in another format."""
    from xmtc.data.corpus import open_corpus_writer

    corpus = open_corpus_input(path, reading, labels_required=not unlabelled)
    n_docs = 0
    with open_corpus_writer(target, format, corpus) as add:
        for document in corpus:
            add(document)
            n_docs += 1
    echo(f"{n_docs:,} documents written to {target}.", err=True)
    report_rejects(corpus)


@app.command()
@with_corpus_options()
def split(
    path: CorpusPath,
    train: Annotated[str, typer.Argument(metavar="TRAIN", help="File for the training part.")],
    test: Annotated[str, typer.Argument(metavar="TEST", help="File for the test part.")],
    share: Annotated[float | None, typer.Option(help="Fraction of the documents for TEST; 0.2 by default.")] = None,
    count: Annotated[
        int | None, typer.Option(metavar="N", help="Number of documents for TEST, instead of --share.")
    ] = None,
    random: Annotated[
        bool, typer.Option("--random", help="Plain random split, in which TEST may have labels that TRAIN has not.")
    ] = False,
    seed: SeedOption = 0,
    format: OutputFormatOption = None,
    reading: CorpusOptions = CorpusOptions(),
) -> None:
    """Split a corpus at random, with a training document for every label unless --random is given."""
    from xmtc.data.splits import split_corpus

    corpus = open_corpus_input(path, reading)
    parts = split_corpus(corpus, train, test, share, count, seed, format, is_random=random)
    echo(f"{parts.n_train:,} documents written to {train}, {parts.n_test:,} to {test}.", err=True)
    if not random:
        echo(
            f"Every label of {test} has a document in {train}, so metrics on {test} are higher than on new documents; "
            "--random splits without this condition.",
            err=True,
        )
    if parts.n_test < parts.n_requested:
        echo(
            f"{test} was to get {parts.n_requested:,} documents, but the others are the last training document of a "
            "label.",
            err=True,
        )
    report_rejects(corpus)


@app.command()
@with_corpus_options()
def language(
    path: CorpusPath,
    target: TargetArgument,
    only: Annotated[str, typer.Option(metavar="CODE", help="Language of the documents to write, such as fi.")],
    format: OutputFormatOption = None,
    unlabelled: UnlabelledOption = False,
    reading: CorpusOptions = CorpusOptions(),
) -> None:
    """Write the documents of a corpus in one language, as detected by py3langid."""
    from collections import Counter

    from xmtc.data.corpus import open_corpus_writer
    from xmtc.text.languages import load_language_identifier

    identify = load_language_identifier(only)
    corpus = open_corpus_input(path, reading, labels_required=not unlabelled)
    counts: Counter[str] = Counter()
    with open_corpus_writer(target, format, corpus) as add:
        for document in corpus:
            code = identify(document.text)
            counts[code] += 1
            if code == only:
                add(document)
    others = ", ".join(f"{code} {n:,}" for code, n in counts.most_common() if code != only)
    summary = f"{counts[only]:,} of {counts.total():,} documents are in {only} and were written to {target}"
    echo(f"{summary}; omitted: {others}." if others else f"{summary}.", err=True)
    report_rejects(corpus)


def print_statistics(statistics: Statistics) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("", "", box=None, show_header=False, pad_edge=False)
    table.columns[1].justify = "right"
    for name, value in format_statistics(statistics):
        table.add_row(name, value)
    Console(highlight=False).print(table)


def format_statistics(statistics: Statistics) -> list[tuple[str, str]]:
    is_text = statistics.words_per_document is not None
    per_document = statistics.words_per_document if is_text else statistics.features_per_document
    return [
        ("documents", f"{statistics.documents:,}"),
        ("features (distinct words)" if is_text else "features", f"{statistics.features:,}"),
        ("labels", f"{statistics.labels:,}"),
        ("labels per document", f"{statistics.labels_per_document:.2f}"),
        ("documents per label", f"{statistics.documents_per_label:.2f}"),
        ("words per document" if is_text else "features per document", f"{per_document:.2f}"),
        ("duplicate documents", f"{statistics.duplicates:,}"),
        ("empty documents", f"{statistics.empty_documents:,}"),
        ("documents without labels", f"{statistics.unlabelled_documents:,}"),
        ("labels seen once", f"{statistics.labels_seen_once:,}"),
        ("share of the top 20 % of labels", f"{100 * statistics.top_fifth_share:.1f} %"),
        ("lines set aside", f"{statistics.rejected:,}"),
    ]
