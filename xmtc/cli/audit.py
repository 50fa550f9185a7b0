"""xmtc data audit: what is probably wrong with a corpus."""

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

MAX_SHOWN_FINDINGS, MAX_FINDINGS_PER_LABEL = 10, 2  # of each kind, and of these with one label
MIN_LINE_CHARACTERS, PIPE_LINE_CHARACTERS = (
    60,
    1000,
)  # characters of a line, at least in a terminal, and where there is none
TITLES = {
    "wrong label": ("Labels that are likely wrong", "of {n_assignments:,}"),
    "missing label": ("Labels that are likely missing", "beside {n_assignments:,}"),
    "duplicate": ("Documents that were there before", "of {n_docs:,}"),
    "near-duplicate": ("Documents that are nearly one before", "of {n_docs:,}"),
    "duplicate in test": ("Test documents that are in the corpus", "of {n_test:,}"),
    "near-duplicate in test": ("Test documents that are nearly one of the corpus", "of {n_test:,}"),
    "same label": ("Labels that may be the same thing twice", "of {n_labels:,}"),
}
ADVICE = {
    "wrong label": "Models of the other documents give these labels nothing, though they know them; read the document.",
    "missing label": "Models of the other documents are sure of these labels; add those that the document deserves.",
    "duplicate": "A copy counts twice in training; where labels differ, one of the two is wrong.",
    "near-duplicate": "Look at those with other labels: forms differ in a word that matters, others by mistake.",
    "duplicate in test": "What was learnt by heart is no test: leave these documents out of one of the two.",
    "near-duplicate in test": "A test with many of them flatters a model; a split by date or source has fewer.",
    "same label": "Two labels for one thing halve the examples of each; give all documents one of them.",
}


@with_corpus_options()
def audit(
    corpus: CorpusPaths,
    test: Annotated[str | None, typer.Option(metavar="FILE", help="corpus to test with, to find copies in it")] = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="table of all findings: csv, tsv, jsonl, xlsx, parquet"),
    ] = None,
    method: Annotated[
        str, typer.Option("-m", "--method", help="that judges labels, one of `xmtc methods`")
    ] = "parabel",
    parameter: Annotated[
        list[str] | None, typer.Option("-p", help="name=value of a hyper-parameter; repeatable")
    ] = None,
    folds: Annotated[int, typer.Option(help="parts, each of which is judged by a model of the others")] = 5,
    k: Annotated[int, typer.Option("-k", min=1, help="labels of a document that get a score; others have none")] = 50,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="seed of the folds")] = 0,
    vocab: Annotated[
        str | None, typer.Option(help="vocabulary of the labels: folder of `xmtc vocab import`, SKOS file or table")
    ] = None,
    language: LanguageOption = None,
    json: Annotated[bool, typer.Option("--json", help="print counts and the worst findings as JSON")] = False,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
    log_json: LogJsonOption = None,
) -> None:
    """Look for wrong and missing labels, copies of documents, and labels that are the same thing twice."""
    from dataclasses import replace

    from xmtc.analysis.audit.build import audit as audited
    from xmtc.analysis.audit.folds import check_folds
    from xmtc.cli.train import build_pipeline
    from xmtc.cli.vocab import open_vocabulary

    check_folds(folds)  # before anything is opened, or said of it
    vocabulary = None if vocab is None else open_vocabulary(vocab, language, quiet)
    source = open_corpus_input(corpus, reading, quiet=quiet)
    tested = None if test is None else open_corpus_input(test, replace(reading, rejects=None), quiet=quiet)
    corpora = [each for each in (source, tested) if each is not None]
    check_options(output, corpora, language, vocab)
    found = audited(
        source,
        build_pipeline(method, parameter or [], source),
        test=tested,
        folds=folds,
        k=k,
        seed=seed,
        vocabulary=vocabulary,
        language=language,
        run=make_run(threads, quiet, device=device, log_json=log_json),
        report_progress=(lambda sentence: None) if quiet else print_notice,
    )
    write_audit(found, output, json, quiet)
    for each in corpora:
        report_rejects(each)


def write_audit(found: Audit, output: str | None, json: bool, quiet: bool) -> None:
    """All findings to a file, the worst to standard output."""
    from json import dumps

    from xmtc.analysis.audit.build import FINDING_COLUMNS
    from xmtc.errors import escape_controls, escape_json_controls
    from xmtc.output import write_records

    if output is not None:
        write_records(output, FINDING_COLUMNS, found.records())
    if json:
        echo(escape_json_controls(dumps(audit_as_json(found), ensure_ascii=False, indent=1)))
    else:
        print_audit(found)
    if output is not None and not quiet:
        n = sum(map(len, found.findings.values()))
        echo(f"{n:,} findings written to {escape_controls(output)}.", err=True)


def check_options(output: str | None, corpora: list[Corpus], language: str | None, vocab: str | None) -> None:
    """Refuse, before the work, what could not be done after it."""
    from xmtc.data.file_streams import check_output_path
    from xmtc.errors import XmtcError
    from xmtc.output import get_format_by_extension

    if language is not None and vocab is None:
        raise XmtcError("--language names labels with the names of a vocabulary; give one with --vocab.")
    if output is not None:
        check_output_path(output)
        get_format_by_extension(output)
        for each in corpora:
            each.check_not_overwritten(output)


def audit_as_json(found: Audit) -> dict[str, Any]:
    sizes = {"documents": found.n_docs, "labels": found.n_labels, "assignments": found.n_assignments}
    counts = {kind: len(each) for kind, each in found.findings.items()}
    worst = {
        kind: [finding.to_record() for finding in select_worst_findings(each)] for kind, each in found.findings.items()
    }
    return sizes | {"test_documents": found.n_test, "counts": counts, "worst": worst}


def print_audit(found: Audit) -> None:
    """How many of each kind, the worst of them, and what to do."""
    from rich.console import Console

    plain = Console(highlight=False, markup=False)
    width = max(plain.width, MIN_LINE_CHARACTERS) if plain.is_terminal else PIPE_LINE_CHARACTERS
    console = Console(highlight=False, markup=False, width=width, soft_wrap=True)
    for kind, findings in found.findings.items():
        title, of = TITLES[kind]
        console.print(f"{title}: {len(findings):,} {of.format(**vars(found))}")
        if findings:
            console.print(build_findings_table(kind, select_worst_findings(findings)), soft_wrap=False)
            console.print(ADVICE[kind])
        console.print()


def select_worst_findings(findings: list[Finding]) -> list[Finding]:
    """The worst, with no label more than twice: what is wrong with one label is soon seen."""
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
    """A document by its place in the corpus and, where that is another, by its id."""
    place = str(finding.document)
    return place if finding.id == place else f"{place} ({finding.id})"
