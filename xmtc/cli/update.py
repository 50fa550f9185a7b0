"""xmtc update: further training of a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.help import ADVANCED
from xmtc.cli.history import get_command_entry
from xmtc.cli.options import (
    CORPUS_HELP,
    CorpusOptions,
    DeviceOption,
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

if TYPE_CHECKING:
    from xmtc.data.corpus import Corpus
    from xmtc.maintenance.document_changes import Feedback

MAX_SHOWN_LABELS = 5


@with_corpus_options()
def update(
    model: ModelPath,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="MODEL2", help="Model folder to write.")],
    documents: Annotated[
        list[str] | None,
        typer.Argument(metavar="CORPUS", help=f"New and corrected documents. {CORPUS_HELP}."),
    ] = None,
    feedback: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="JSON Lines with accepted `labels` and `rejected` ones (repeatable)."),
    ] = None,
    forget: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Id of a document to leave out (repeatable).")
    ] = None,
    remove_label: Annotated[
        list[str] | None, typer.Option(metavar="LABEL", help="Label to leave out (repeatable).")
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Train and calibrate again on all documents, with the same features.")
    ] = False,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    reading: CorpusOptions = CorpusOptions(),
    keep_training: Annotated[
        bool, typer.Option(help="Training data stored in the new model for further updates.", rich_help_panel=ADVANCED)
    ] = True,
    quiet: QuietOption = False,
) -> None:
    """Update a model with new and corrected documents, feedback and new labels.

    A document with a known id, or without ids with the same text, replaces its old version. Parameters, vocabulary,
    filter, thresholds and calibration are those of MODEL, which must have kept its training documents.
    """
    import time
    from dataclasses import replace

    from xmtc.maintenance.update import update_tagger
    from xmtc.model_folder import check_target, read_stamp
    from xmtc.tagger import Tagger

    start = time.perf_counter()
    check_target(output)
    is_in_place = output.resolve() == Path(model).resolve()
    stamp, tagger = read_stamp(model), Tagger.load(model)
    saved = get_saved_reading(tagger)
    corpora = [open_corpus_input(documents, reading, saved, quiet=quiet)] if documents else []
    updated = update_tagger(
        tagger,
        [document for corpus in corpora for document in corpus],
        feedback=[item for path in feedback or [] for item in read_feedback(path, reading, saved, quiet)],
        forget=forget or [],
        remove_labels=remove_label or [],
        rebuild=rebuild,
        keep_training=keep_training,
        run=make_run(threads, quiet, device=device),
    )
    history = (*tagger.history, get_command_entry())
    replace(updated.tagger, history=history).save(output, stamp if is_in_place else ())
    for corpus in corpora:
        report_rejects(corpus)
    if not quiet:
        report_labels("New", updated.report.new_labels)
        report_labels("Removed", updated.report.removed_labels)
        seconds = time.perf_counter() - start
        echo(f"{output}: {updated.report} {updated.report.n_docs:,} documents in {seconds:.1f} s.", err=True)


def read_feedback(path: str, reading: CorpusOptions, saved: dict[str, str], quiet: bool) -> Iterator[Feedback]:
    """Yield accepted and rejected labels of the documents of a file."""
    from xmtc.data.records import BadRecord, validate_label_names
    from xmtc.errors import XmtcError
    from xmtc.maintenance.document_changes import Feedback

    corpus: Corpus = open_corpus_input(path, reading, saved, labels_required=False, quiet=quiet, keep=("rejected",))
    for document in corpus:
        try:
            rejected = validate_label_names(document.extra[0] if document.extra else [], "rejected", None)
        except BadRecord as error:
            raise XmtcError(f"{path}, document {document.id}: {error}.") from None
        yield Feedback(document, rejected)


def report_labels(adjective: str, labels: tuple[str, ...]) -> None:
    from xmtc.errors import escape_controls

    if labels:
        shown = ", ".join(map(escape_controls, labels[:MAX_SHOWN_LABELS]))
        more = f" and {len(labels) - MAX_SHOWN_LABELS:,} more" if len(labels) > MAX_SHOWN_LABELS else ""
        echo(f"{adjective} labels: {shown}{more}.", err=True)
