"""xmtc explain: contributions of words to labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from xmtc.cli.help import INPUT, OUTPUT
from xmtc.cli.options import JsonOption, LanguageOption, ModelPath, get_saved_reading, print_notice
from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from xmtc.data.document import Document
    from xmtc.explain.highlights import Highlight


def explain(
    model: ModelPath,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="File with one text, also HTML or PDF; - reads standard input.")
    ] = None,
    string: Annotated[str | None, typer.Option(metavar="TEXT", help="A single text, instead of FILE.")] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", metavar="LABEL", help="Label to explain, or its name (repeatable)."),
    ] = None,
    k: Annotated[
        int, typer.Option("-k", min=1, metavar="N", help="Number of best labels to explain without --label.")
    ] = 3,
    n: Annotated[int, typer.Option("-n", min=0, metavar="N", help="Number of words to list per label.")] = 20,
    language: LanguageOption = None,
    html: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="HTML page to write; - writes it to standard output, instead of text.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    json: JsonOption = False,
    encoding: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Encoding of FILE, such as utf-16 or windows-1252.", rich_help_panel=INPUT),
    ] = None,
) -> None:
    """Show how much each word of a text contributes to its labels.

    The weights are attention, or the terms of a linear model.
    """
    from dataclasses import replace
    from json import dumps

    from xmtc.cli.log import announce_compilation
    from xmtc.data.file_streams import STANDARD_STREAM
    from xmtc.errors import escape_json_controls
    from xmtc.tagger import Tagger

    check_page_file(html, json)
    announce_compilation()
    tagger = Tagger.load(model)
    document = read_document(file, string, encoding, get_saved_reading(tagger).get("encoding"))
    highlights = tagger.highlight(document.text, *(label or []), k=k, n=n, language=language)
    highlights = [replace(highlight, pages=document.page_offsets) for highlight in highlights]
    if not tagger.has_known_words(document.text):
        echo("The model knows no word of this text, so it predicts no label.", err=True)
    elif not highlights:
        echo("The model predicts no label for this text.", err=True)
    if html is not None:
        write_page(html, highlights)
    if json:
        labels = [highlight_as_json(highlight) for highlight in highlights]
        echo(escape_json_controls(dumps({"labels": labels}, ensure_ascii=False)))
    elif html != STANDARD_STREAM:
        print_highlights(highlights)


def read_document(file: str | None, string: str | None, encoding: str | None, encoding_hint: str | None) -> Document:
    """Return the text as a Document; a PDF has pages."""
    from xmtc.data.corpus import open_corpus
    from xmtc.data.document import Document
    from xmtc.data.file_streams import get_extension
    from xmtc.data.format_detection import FORMAT_BY_EXTENSION
    from xmtc.data.layout import Layout, Notifier
    from xmtc.data.records import Fields
    from xmtc.errors import XmtcError

    if string is not None and file is None:
        return Document("1", string, [])
    if file is None or string is not None:
        problem = "no text" if file is None else "both FILE and --string"
        raise XmtcError(f"Found {problem}; give one: a FILE, - for standard input, or --string TEXT.")
    format = FORMAT_BY_EXTENSION.get(get_extension(file))
    (document,) = open_corpus(
        file,
        format if format in ("html", "pdf") else "text",
        Fields(labels=None),
        labels_required=False,
        layout=Layout(encoding=encoding),
        layout_hint=Layout(encoding=encoding_hint),
        notifier=Notifier(print_notice),
    )
    return document


def check_page_file(path: str | None, json: bool) -> None:
    """Raise XmtcError if the page would replace a file that `xmtc explain` did not write."""
    from pathlib import Path

    from xmtc.data.file_streams import STANDARD_STREAM, check_outside_model_folder, open_binary
    from xmtc.errors import XmtcError
    from xmtc.explain.html import GENERATOR_TAG

    if path == STANDARD_STREAM and json:
        raise XmtcError("--html - and --json both write to standard output; give one of them, or a file for the page.")
    if path is None or path == STANDARD_STREAM:
        return
    check_outside_model_folder(path)
    if not Path(path).is_file() or not Path(path).stat().st_size:
        return
    with open_binary(path) as stream:
        if GENERATOR_TAG.encode() not in stream.read(1000):
            raise XmtcError(f"{path} exists and is not a page of `xmtc explain`; choose another name or move it away.")


def write_page(path: str, highlights: list[Highlight]) -> None:
    from xmtc.data.file_streams import STANDARD_STREAM, open_output
    from xmtc.explain.html import render_page

    with open_output(path) as stream:
        stream.write(render_page(highlights).encode("utf-8", "replace"))
    if path != STANDARD_STREAM:
        echo(f"{path} written.", err=True)


def highlight_as_json(highlight: Highlight) -> dict[str, Any]:
    return {
        "label": highlight.label,
        **({} if highlight.name is None else {"name": highlight.name}),
        "score": None if highlight.score is None else round(highlight.score, 6),
        **({} if highlight.bias is None else {"bias": round(highlight.bias, 6)}),
        **({"members": encode_members(highlight)} if highlight.members else {}),
        "words": [{"word": word, "weight": round(weight, 6)} for word, weight in highlight.words],
        "pieces": [
            {"text": piece.text, "weight": round(piece.weight, 6)}
            | ({"part": list(highlight.parts[number])} if number in highlight.parts else {})
            | ({"page": page} if page else {})
            for number, (piece, page) in enumerate(zip(highlight.pieces, highlight.list_page_numbers(), strict=True))
        ],
    }


def encode_members(highlight: Highlight) -> list[dict[str, Any]]:
    return [{"name": member.name, "share": round(member.share, 6)} for member in highlight.members]


def print_highlights(highlights: list[Highlight]) -> None:
    from rich.console import Console

    console = Console()
    # The console has decided on colours already; typer would strip them from piped output.
    typer.echo("\n".join(format_highlight(highlight, console) for highlight in highlights), nl=False, color=True)


def format_highlight(highlight: Highlight, console: Console) -> str:
    """Return a label with its score, the text, and the words with the largest weights.

    Outside a terminal, the text keeps its control characters.
    """
    from xmtc.errors import escape_controls
    from xmtc.explain.terminal import render_terminal
    from xmtc.explain.word_weights import format_weight

    score = "not among the predicted labels" if highlight.score is None else f"{highlight.score:.4f}"
    text = render_terminal(highlight, console)

    def join_words(weighted: Iterable[tuple[str, float]]) -> str:
        return ", ".join(f"{escape_controls(word)} {format_weight(weight)}" for word, weight in weighted)

    words = join_words(highlight.words) or "No word of this text contributes to the label."
    pages = "".join(
        f"page {page}: {join_words((piece.text, piece.weight) for piece in pieces)}\n"
        for page, pieces in highlight.top_words_by_page().items()
    )
    notes = "".join(f"{escape_controls(note)}\n" for note in highlight.list_notes())
    return f"{escape_controls(highlight.title)}  {score}\n\n{text.removesuffix(chr(10))}\n\n{words}\n{notes}{pages}"
