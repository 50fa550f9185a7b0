"""xmtc desk: people, texts and decisions of a review desk."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.options import (
    CORPUS_HELP,
    CorpusOptions,
    JsonOption,
    QuietOption,
    open_corpus_input,
    report_rejects,
    with_corpus_options,
)
from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from xmtc.review.store import ReviewStore

TEXTS_PER_TRANSACTION = 1000

app = typer.Typer(help="Manage the people, texts and decisions of a review desk.", no_args_is_help=True)

DeskPath = Annotated[str, typer.Argument(metavar="DESK", help="Database of the review desk, for `xmtc serve --desk`.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the person.")]
ModelOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Name of the served model; by default the only one of the desk, else `model`."),
]


@app.command("add")
def add(
    desk: DeskPath,
    name: NameArgument,
    role: Annotated[str, typer.Option(metavar="ROLE", help="Role: reviewer or administrator.")] = "reviewer",
) -> None:
    """Add a person and print the token; a known person gets a new role and token."""
    from xmtc.review.store import ReviewStore

    with closing(ReviewStore(desk)) as store:
        echo(store.add_person(name, role))


@app.command("remove")
def remove(desk: DeskPath, name: NameArgument) -> None:
    """Make the token of a person invalid; the decisions stay."""
    with closing(open_desk(desk)) as store:
        store.remove_person(name)


@app.command("people")
def people(desk: DeskPath, as_json: JsonOption = False) -> None:
    """List the people with their roles and numbers of decisions."""
    import json

    from xmtc.errors import escape_controls

    with closing(open_desk(desk)) as store:
        listed = store.list_people()
    if as_json:
        echo(json.dumps(listed))
        return
    for person in listed:
        role = person["role"] if person["is_active"] else f"{person['role']}, no token"
        echo(f"{escape_controls(person['name'])} ({role}): {person['decisions']:,} decisions")


@app.command("import")
@with_corpus_options()
def import_(
    desk: DeskPath,
    texts: Annotated[list[str], typer.Argument(metavar="CORPUS", help=f"Texts to review. {CORPUS_HELP}.")],
    model: ModelOption = None,
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
) -> None:
    """Add texts to review; a known id gets the new text."""
    from xmtc.data.identity import get_own_id

    with closing(open_desk(desk)) as store:
        corpus = open_corpus_input(texts, reading, {}, labels_required=False, quiet=quiet)
        name = find_model_name(store, model)
        n_texts = 0
        pairs = ((get_own_id(document), document.text) for document in corpus)
        while batch := list(islice(pairs, TEXTS_PER_TRANSACTION)):  # the desk can be written while texts are read
            n_texts += len(store.add_documents(name, batch))
    report_rejects(corpus)
    if not quiet:
        echo(f"{desk}: {n_texts:,} texts to review for {name}.", err=True)


@app.command("export")
def export(
    desk: DeskPath,
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="JSON Lines file to write.")],
    model: ModelOption = None,
    quiet: QuietOption = False,
) -> None:
    """Write the reviewed documents as a corpus with feedback, for `xmtc update --feedback`."""
    import json

    from xmtc.data.file_streams import open_output
    from xmtc.review.agreement import collect_feedback, export_record

    with closing(open_desk(desk)) as store:
        name, n_documents = find_model_name(store, model), 0
        with open_output(output) as file:
            for item in collect_feedback(store.list_documents(name), store.list_decisions(name)):
                file.write(json.dumps(export_record(*item), ensure_ascii=False).encode("utf-8", "replace") + b"\n")
                n_documents += 1
    if not quiet:
        echo(f"{output}: {n_documents:,} reviewed documents of {name}.", err=True)


@app.command("forget-texts")
def forget_texts(desk: DeskPath, model: ModelOption = None, quiet: QuietOption = False) -> None:
    """Delete the texts of reviewed documents; decisions and hashes of the texts stay."""
    with closing(open_desk(desk)) as store:
        name = find_model_name(store, model)
        n_texts = store.forget_texts(name)
    if not quiet:
        echo(f"{desk}: {n_texts:,} texts of {name} deleted.", err=True)


def open_desk(path: str) -> ReviewStore:
    from xmtc.review.store import ReviewStore

    return ReviewStore(path, must_exist=True)


def find_model_name(store: ReviewStore, name: str | None) -> str:
    """Return the given model name, or that of the only model of the desk."""
    from xmtc.errors import XmtcError

    names = store.list_models()
    if name is None and len(names) > 1:
        raise XmtcError(f"The desk has several models ({', '.join(names)}); name one with --model.")
    return name or next(iter(names), "model")
