"""xmtc data audit: find probable errors in a corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from xmtc.cli.options import (
    CorpusOptions,
    CorpusPaths,
    DeviceOption,
    LanguageOption,
    LogJsonOption,
    QuietOption,
    ThreadsOption,
    make_run,
    open_corpus_input,
    print_notice,
    report_rejects,
    with_corpus_options,
)
from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from rich.table import Table

    from xmtc.analysis.audit.build import Audit, Finding
    from xmtc.data.corpus import Corpus

MAX_SHOWN_FINDINGS, MAX_FINDINGS_PER_LABEL = 10, 2  # of each kind
MIN_LINE_CHARACTERS = 60  # width of tables in a terminal
PIPE_LINE_CHARACTERS = 1000  # width of tables outside of a terminal, where nothing is truncated
TITLES = {
    "wrong label": ("Probably wrong labels", "of {n_assignments:,}"),
    "missing label": ("Probably missing labels", "in addition to {n_assignments:,}"),
    "duplicate": ("Duplicate documents", "of {n_docs:,}"),
    "near-duplicate": ("Near-duplicate documents", "of {n_docs:,}"),
    "duplicate in test": ("Test documents that duplicate training documents", "of {n_test:,}"),
    "near-duplicate in test": ("Test documents that nearly duplicate training documents", "of {n_test:,}"),
    "same label": ("Duplicate labels", "of {n_labels:,}"),
}
ADVICE = {
    "wrong label": "Models trained on the other documents give these labels low scores; check the documents.",
    "missing label": "Models trained on the other documents give these labels high scores; add those that fit.",
    "duplicate": "Duplicates count twice in training; where their labels differ, one of them is wrong.",
    "near-duplicate": "Check those with different labels: some differ in an important word, others by mistake.",
    "duplicate in test": "Test results on training documents are too good; remove them from one of the corpora.",
    "near-duplicate in test": "Many of them make test results too good; a split by date or source has fewer.",
    "same label": "Two labels with one meaning halve the examples of each; merge them.",
}


@with_corpus_options()
def audit(
    corpus: CorpusPaths,
    test: Annotated[
        str | None, typer.Option(metavar="CORPUS", help="Test corpus that is searched for duplicates of CORPUS.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Table of all findings (.csv, .tsv, .jsonl, .xlsx or .parquet).",
            rich_help_panel="Output",
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            "-m", "--method", metavar="NAME", help="Method that checks the labels; `xmtc methods` lists them."
        ),
    ] = "parabel",
    parameter: Annotated[
        list[str] | None,
        typer.Option("-p", "--param", metavar="NAME=VALUE", help="Hyper-parameter of the method (repeatable)."),
    ] = None,
    folds: Annotated[int, typer.Option(help="Number of cross-validation folds.")] = 5,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of scored labels per document.")] = 50,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed of the folds.")] = 0,
    vocab: Annotated[
        str | None,
        typer.Option(
            metavar="VOCAB",
            help="Vocabulary of the labels: a folder of `xmtc vocab import`, a SKOS file or a table.",
        ),
    ] = None,
    language: LanguageOption = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print counts and the worst findings as JSON.", rich_help_panel="Output")
    ] = False,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
    log_json: LogJsonOption = None,
) -> None:
    """Find wrong and missing labels, duplicate documents, and duplicate labels in a corpus."""
    from dataclasses import replace

    from xmtc.analysis.audit.build import audit as run_audit
    from xmtc.analysis.audit.folds import check_folds
    from xmtc.cli.train import build_pipeline
    from xmtc.cli.vocab import open_vocabulary

    check_folds(folds)
    vocabulary = None if vocab is None else open_vocabulary(vocab, language, quiet)
    source = open_corpus_input(corpus, reading, quiet=quiet)
    test_corpus = None if test is None else open_corpus_input(test, replace(reading, rejects=None), quiet=quiet)
    corpora = [opened for opened in (source, test_corpus) if opened is not None]
    check_options(output, corpora, language, vocab)
    result = run_audit(
        source,
        build_pipeline(method, parameter or [], source),
        test=test_corpus,
        folds=folds,
        k=k,
        seed=seed,
        vocabulary=vocabulary,
        language=language,
        run=make_run(threads, quiet, device=device, log_json=log_json),
        report_progress=(lambda sentence: None) if quiet else print_notice,
    )
    write_audit(result, output, json, quiet)
    for opened in corpora:
        report_rejects(opened)


def write_audit(result: Audit, output: str | None, json: bool, quiet: bool) -> None:
    """Write all findings to a file and print the worst ones."""
    from json import dumps

    from xmtc.analysis.audit.build import FINDING_COLUMNS
    from xmtc.errors import escape_controls, escape_json_controls
    from xmtc.output import write_records

    if output is not None:
        write_records(output, FINDING_COLUMNS, result.records())
    if json:
        echo(escape_json_controls(dumps(audit_as_json(result), ensure_ascii=False, indent=1)))
    else:
        print_audit(result)
    if output is not None and not quiet:
        n = sum(map(len, result.findings.values()))
        echo(f"{n:,} findings written to {escape_controls(output)}.", err=True)


def check_options(output: str | None, corpora: list[Corpus], language: str | None, vocab: str | None) -> None:
    """Raise XmtcError, before the work, for options that cannot be satisfied."""
    from xmtc.data.file_streams import check_output_path
    from xmtc.errors import XmtcError
    from xmtc.output import get_format_by_extension

    if language is not None and vocab is None:
        raise XmtcError("--language selects names of a vocabulary; give one with --vocab.")
    if output is not None:
        check_output_path(output)
        get_format_by_extension(output)
        for opened in corpora:
            opened.check_not_overwritten(output)


def audit_as_json(result: Audit) -> dict[str, Any]:
    sizes = {"documents": result.n_docs, "labels": result.n_labels, "assignments": result.n_assignments}
    counts = {kind: len(findings) for kind, findings in result.findings.items()}
    worst = {
        kind: [finding.to_record() for finding in select_worst_findings(findings)]
        for kind, findings in result.findings.items()
    }
    return sizes | {"test_documents": result.n_test, "counts": counts, "worst": worst}


def print_audit(result: Audit) -> None:
    """Print the number of findings of each kind, the worst ones and advice."""
    from rich.console import Console

    plain = Console(highlight=False, markup=False)
    width = max(plain.width, MIN_LINE_CHARACTERS) if plain.is_terminal else PIPE_LINE_CHARACTERS
    console = Console(highlight=False, markup=False, width=width, soft_wrap=True)
    for kind, findings in result.findings.items():
        title, total = TITLES[kind]
        console.print(f"{title}: {len(findings):,} {total.format(**vars(result))}")
        if findings:
            console.print(build_findings_table(kind, select_worst_findings(findings)), soft_wrap=False)
            console.print(ADVICE[kind])
        console.print()


def select_worst_findings(findings: list[Finding]) -> list[Finding]:
    """Return the first findings, at most two of each label, because findings of one label are alike."""
    from collections import Counter

    seen: Counter[str] = Counter()
    chosen: list[Finding] = []
    for finding in findings:
        key = finding.label or finding.id or ""
        seen[key] += 1
        if seen[key] <= MAX_FINDINGS_PER_LABEL:
            chosen.append(finding)
        if len(chosen) == MAX_SHOWN_FINDINGS:
            break
    return chosen


def build_findings_table(kind: str, findings: list[Finding]) -> Table:
    from rich.table import Table

    from xmtc.errors import escape_controls

    columns = ["score", "document", "label", "text"]
    if "duplicate" in kind:
        columns = ["score", "document", "test document" if "test" in kind else "like", "suggestion", "text"]
    elif kind == "same label":
        columns = ["score", "label", "suggestion"]
    table = Table(*columns, box=None, pad_edge=False)
    for finding in findings:
        cells = {
            "score": f"{finding.score:.2f}",
            "document": format_document_position(finding),
            "label": f"{finding.name} ({finding.label})" if finding.name else str(finding.label),
            "like": str(finding.other),
            "test document": str(finding.other),
            "suggestion": finding.suggestion,
            "text": finding.text,
        }
        table.add_row(*(escape_controls(cells[name]) for name in columns))
    return table


def format_document_position(finding: Finding) -> str:
    """Return the position of a document in the corpus, and its id if that differs."""
    place = str(finding.document)
    return place if finding.id == place else f"{place} ({finding.id})"
