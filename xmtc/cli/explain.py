"""xmtc explain: which words of a text speak for a label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from xmtc.cli.options import LanguageOption, ModelPath, get_saved_reading, print_notice
from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from rich.console import Console

    from xmtc.data.document import Document
    from xmtc.explain.highlights import Highlight


def explain(
    model: ModelPath,
    text: Annotated[str | None, typer.Argument(metavar="TEXT|-", help="the text; - reads standard input")] = None,
    file: Annotated[str | None, typer.Option(help="file with the text, also HTML or PDF, instead of TEXT")] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", "-l", help="label to explain, or its name; repeatable")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="without --label, explain this many of the best")] = 3,
    n: Annotated[int, typer.Option("-n", min=0, help="strongest words to list")] = 20,
    language: LanguageOption = None,
    html: Annotated[str | None, typer.Option(help="write a page, too; - writes it to standard output, alone")] = None,
    json: Annotated[bool, typer.Option("--json", help="print a JSON object")] = False,
    encoding: Annotated[str | None, typer.Option(help="of the file, such as utf-16 or windows-1252")] = None,
) -> None:
    """Show how much each word of a text weighs for its labels: attention, or what a linear model adds up."""
    from dataclasses import replace
    from json import dumps

    from xmtc.cli.log import announce_compilation
    from xmtc.data.file_streams import STANDARD_STREAM
    from xmtc.errors import escape_json_controls
    from xmtc.tagger import Tagger

    check_page_file(html, json)
    announce_compilation()
    tagger = Tagger.load(model)
    document = read_document(text, file, encoding, get_saved_reading(tagger).get("encoding"))
    found = tagger.highlight(document.text, *(label or []), k=k, n=n, language=language)
    found = [replace(each, pages=document.page_offsets) for each in found]
    if not tagger.has_known_words(document.text):
        echo("The model knows no word of this text, so it gives it no label.", err=True)
    elif not found:
        echo("The model finds no label for this text.", err=True)
    if html is not None:
        write_page(html, found)
    if json:
        echo(escape_json_controls(dumps({"labels": [highlight_as_json(each) for each in found]}, ensure_ascii=False)))
    elif html != STANDARD_STREAM:
        print_highlights(found)


def read_document(text: str | None, file: str | None, encoding: str | None, likely: str | None) -> Document:
    """The text itself, or what the file or standard input holds, with its pages if it has some."""
    from xmtc.data.corpus import open_corpus
    from xmtc.data.document import Document
    from xmtc.data.file_streams import STANDARD_STREAM
    from xmtc.data.format_detection import FORMAT_BY_EXTENSION, get_extension
    from xmtc.data.layout import Layout, Notifier
    from xmtc.data.records import Fields
    from xmtc.errors import XmtcError

    if (text is None) == (file is None):
        found = "no text" if text is None else "both TEXT and --file"
        raise XmtcError(f"Found {found}; give one: the text itself, - for standard input, or --file PATH.")
    if text is not None and text != STANDARD_STREAM:
        return Document("1", text, [])
    path = file or STANDARD_STREAM
    format = FORMAT_BY_EXTENSION.get(get_extension(path))
    (document,) = open_corpus(
        path,
        format if format in ("html", "pdf") else "text",
        Fields(labels=None),
        labels_required=False,
        layout=Layout(encoding=encoding),
        layout_hint=Layout(encoding=likely),
        notifier=Notifier(print_notice),
    )
    return document


def check_page_file(path: str | None, json: bool) -> None:
    """Refuse, before the work, to write a page over something else."""
    from pathlib import Path

    from xmtc.data.file_streams import STANDARD_STREAM, check_outside_model_folder, open_binary
    from xmtc.errors import XmtcError
    from xmtc.explain.highlights import GENERATOR_TAG

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


def write_page(path: str, found: list[Highlight]) -> None:
    from xmtc.data.file_streams import STANDARD_STREAM, open_output
    from xmtc.explain.highlights import render_page

    with open_output(path) as stream:
        stream.write(render_page(found).encode("utf-8", "replace"))
    if path != STANDARD_STREAM:
        echo(f"{path} written.", err=True)


def highlight_as_json(highlight: Highlight) -> dict[str, Any]:
    return {
        "label": highlight.label,
        **({} if highlight.name is None else {"name": highlight.name}),
        "score": None if highlight.score is None else round(highlight.score, 6),
        "words": [{"word": word, "weight": round(weight, 6)} for word, weight in highlight.words],
        "pieces": [
            {"text": piece.text, "weight": round(piece.weight, 6)} | ({"page": page} if page else {})
            for piece, page in zip(highlight.pieces, highlight.list_page_numbers(), strict=True)
        ],
    }


def print_highlights(found: list[Highlight]) -> None:
    from rich.console import Console

    console = Console()
    # the console has decided on colours; typer would take them, and what looks like them, out of what is piped
    typer.echo("\n".join(format_highlight(each, console) for each in found), nl=False, color=True)


def format_highlight(highlight: Highlight, console: Console) -> str:
    """Return a label with its score, the text, and its strongest words. Only the text itself is kept as it is where no
    terminal shows it."""
    from xmtc.errors import escape_controls
    from xmtc.explain.terminal import render_terminal

    score = "not among the labels that the model finds" if highlight.score is None else f"{highlight.score:.4f}"
    text = render_terminal(highlight, console)
    words = ", ".join(f"{escape_controls(word)} {weight:.3g}" for word, weight in highlight.words)
    words = words or "No word of this text weighs anything for the label."
    pages = "".join(
        f"page {page}: {', '.join(f'{escape_controls(piece.text)} {piece.weight:.3g}' for piece in pieces)}\n"
        for page, pieces in highlight.top_words_by_page().items()
    )
    return f"{escape_controls(highlight.title)}  {score}\n\n{text.removesuffix(chr(10))}\n\n{words}\n{pages}"
