"""The answers of `xmtc predict` in its three formats."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from typing import TextIO

from xmtc.errors import XmtcError
from xmtc.tagger import Tag

Writer = Callable[[str, list[Tag]], None]


def answer_writer(format: str, stream: TextIO) -> Writer:
    if format == "jsonl":
        return lambda id, tags: json_line(stream, id, tags)
    if format not in ("tsv", "csv"):
        raise XmtcError(f"--format {format} is not known; expected jsonl, tsv or csv.")
    table = csv.writer(stream, delimiter="\t" if format == "tsv" else ",", lineterminator="\n")
    table.writerow(["id", "rank", "label", "score"])
    return lambda id, tags: table.writerows(rows(id, tags))


def json_line(stream: TextIO, id: str, tags: list[Tag]) -> None:
    labels = [{"label": tag.label, "score": round(tag.score, 6)} for tag in tags]
    stream.write(json.dumps({"id": id, "labels": labels}, ensure_ascii=False) + "\n")


def rows(id: str, tags: list[Tag]) -> list[list]:
    """One row per label; a document without any keeps a row of its own, so that none is lost."""
    return [[id, rank, tag.label, f"{tag.score:.6g}"] for rank, tag in enumerate(tags, 1)] or [[id, "", "", ""]]
