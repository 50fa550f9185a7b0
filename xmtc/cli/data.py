"""xmtc data: what is in a corpus and what is wrong with it, the same corpus in another format, split in two, or with
noise in its labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.audit import audit
from xmtc.cli.options import (
    CorpusOptions,
    CorpusPath,
    CorpusPaths,
    open_corpus_input,
    report_rejects,
    with_corpus_options,
)
from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from xmtc.data.statistics import Statistics

app = typer.Typer(
    help="Look at, audit, convert and split corpora, add noise to their labels, or find those of the papers.",
    no_args_is_help=True,
)

OutputFormatOption = Annotated[
    str | None, typer.Option("--to", help="jsonl, csv, tsv, parquet, fasttext, sparse or paired (by extension)")
]
SeedOption = Annotated[int, typer.Option(help="seed of what is drawn at random", min=0, max=2**32 - 1)]
UnlabelledOption = Annotated[bool, typer.Option("--unlabelled", help="documents may lack the field with the labels")]


@app.command()
@with_corpus_options()
def stats(
    path: CorpusPaths,
    unlabelled: UnlabelledOption = False,
    reading: CorpusOptions = CorpusOptions(),
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Print what the papers' data tables hold, plus duplicates, empty documents and rare labels."""
    from dataclasses import asdict
    from json import dumps

    from xmtc.data.statistics import compute_corpus_statistics

    corpus = open_corpus_input(path, reading, labels_required=not unlabelled)
    found = compute_corpus_statistics(corpus)
    if json:
        echo(dumps(asdict(found), indent=2))
    else:
        print_statistics(found)
    report_rejects(corpus)


app.command()(audit)


@app.command()
@with_corpus_options()
def convert(
    path: CorpusPath,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="file to write (.gz, .bz2, .zst), or - for stdout")],
    to: OutputFormatOption = None,
    unlabelled: UnlabelledOption = False,
    reading: CorpusOptions = CorpusOptions(),
) -> None:
    """Write a corpus in another format: id, text and labels, under these names; other fields are left behind."""
    from xmtc.data.corpus import open_corpus_writer

    corpus = open_corpus_input(path, reading, labels_required=not unlabelled)
    n_docs = 0
    with open_corpus_writer(target, to, corpus) as add:
        for document in corpus:
            add(document)
            n_docs += 1
    echo(f"{n_docs:,} documents written to {target}.", err=True)
    report_rejects(corpus)


@app.command()
@with_corpus_options()
def split(
    path: CorpusPath,
    train: Annotated[str, typer.Argument(metavar="TRAIN", help="file for the training part")],
    test: Annotated[str, typer.Argument(metavar="TEST", help="file for the test part")],
    share: Annotated[float | None, typer.Option(help="of the documents, the part for TEST (0.2)")] = None,
    count: Annotated[int | None, typer.Option(help="documents for TEST, instead of a share")] = None,
    seed: SeedOption = 0,
    to: OutputFormatOption = None,
    reading: CorpusOptions = CorpusOptions(),
) -> None:
    """Split a corpus at random, so that every label has a document in the training part."""
    from xmtc.data.splits import split_corpus

    corpus = open_corpus_input(path, reading)
    parts = split_corpus(corpus, train, test, share, count, seed, to)
    echo(f"{parts.n_train:,} documents written to {train}, {parts.n_test:,} to {test}.", err=True)
    if parts.n_test < parts.n_requested:
        reason = "the others hold a label's last training document."
        echo(f"{parts.n_requested:,} were requested for {test}, but {reason}", err=True)
    report_rejects(corpus)


@app.command()
@with_corpus_options()
def language(
    path: CorpusPath,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="file to write (.gz, .bz2, .zst), or - for stdout")],
    only: Annotated[str, typer.Option(help="the language of the documents to write, by its code: fi")],
    to: OutputFormatOption = None,
    unlabelled: UnlabelledOption = False,
    reading: CorpusOptions = CorpusOptions(),
) -> None:
    """Write the documents of a corpus that are in one language, as py3langid tells it, and say what others are."""
    from collections import Counter

    from xmtc.data.corpus import open_corpus_writer
    from xmtc.text.languages import load_language_identifier

    tell = load_language_identifier(only)
    corpus = open_corpus_input(path, reading, labels_required=not unlabelled)
    found: Counter[str] = Counter()
    with open_corpus_writer(target, to, corpus) as add:
        for document in corpus:
            code = tell(document.text)
            found[code] += 1
            if code == only:
                add(document)
    others = ", ".join(f"{code} {n:,}" for code, n in found.most_common() if code != only)
    kept = f"{found[only]:,} of {found.total():,} documents are in {only} and written to {target}"
    echo(f"{kept}; left out: {others}." if others else f"{kept}.", err=True)
    report_rejects(corpus)


def print_statistics(found: Statistics) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("", "", box=None, show_header=False, pad_edge=False)
    table.columns[1].justify = "right"
    for name, value in format_statistics(found):
        table.add_row(name, value)
    Console(highlight=False).print(table)


def format_statistics(found: Statistics) -> list[tuple[str, str]]:
    is_text = found.words_per_document is not None
    per_document = found.words_per_document if is_text else found.features_per_document
    return [
        ("documents", f"{found.documents:,}"),
        ("features (distinct words)" if is_text else "features", f"{found.features:,}"),
        ("labels", f"{found.labels:,}"),
        ("labels per document", f"{found.labels_per_document:.2f}"),
        ("documents per label", f"{found.documents_per_label:.2f}"),
        ("words per document" if is_text else "features per document", f"{per_document:.2f}"),
        ("duplicate documents", f"{found.duplicates:,}"),
        ("empty documents", f"{found.empty_documents:,}"),
        ("documents without labels", f"{found.unlabelled_documents:,}"),
        ("labels seen once", f"{found.labels_seen_once:,}"),
        ("share of the top 20 % of labels", f"{100 * found.top_fifth_share:.1f} %"),
        ("lines set aside", f"{found.rejected:,}"),
    ]
