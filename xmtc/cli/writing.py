"""The answers of `xmtc predict` in its three formats.

Names of labels and documents come from a corpus, which may come from anywhere. A terminal gets them with whatever it
would obey escaped; a file or a pipe gets them as they are, so that they are the same names when they are read again. In
JSON both are one: its escapes are part of it. Nor is a cell changed that a spreadsheet would take for a formula, such
as the label -1: who opens a CSV of foreign labels in one should have its columns imported as text."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from typing import TextIO

from xmtc.errors import XmtcError, visible, visible_json
from xmtc.tagger import Tag

Writer = Callable[[str, list[Tag]], None]


def answer_writer(format: str, stream: TextIO) -> Writer:
    if format == "jsonl":
        return lambda id, tags: json_line(stream, id, tags)
    if format not in ("tsv", "csv"):
        raise XmtcError(f"--format {format} is not known; expected jsonl, tsv or csv.")
    return table_writer("\t" if format == "tsv" else ",", stream)


def table_writer(delimiter: str, stream: TextIO) -> Writer:
    shown = visible if stream.isatty() else str
    table = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
    # csv.writer leaves a lone carriage return unquoted, and csv.reader then refuses it
    quoting_all = csv.writer(stream, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL)
    table.writerow(["id", "rank", "label", "score"])

    def write(id: str, tags: list[Tag]) -> None:
        for row in rows(id, tags):
            cells = [shown(cell) for cell in row]
            (quoting_all if any("\r" in cell for cell in cells) else table).writerow(cells)

    return write


def json_line(stream: TextIO, id: str, tags: list[Tag]) -> None:
    labels = [
        {"label": tag.label, **({} if tag.name is None else {"name": tag.name}), "score": round(tag.score, 6)}
        for tag in tags
    ]
    stream.write(visible_json(json.dumps({"id": id, "labels": labels}, ensure_ascii=False)) + "\n")


def rows(id: str, tags: list[Tag]) -> list[list[str]]:
    """One row per label; a document without any keeps a row of its own, so that none is lost."""
    return [[id, str(rank), tag.label, f"{tag.score:.6g}"] for rank, tag in enumerate(tags, 1)] or [[id, "", "", ""]]
