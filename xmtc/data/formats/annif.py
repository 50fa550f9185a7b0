"""Annif's corpora: a TSV of `text ⇥ <http://uri> <http://uri>` lines, or a folder of full texts, as
xmtc/data/formats/folder.py reads it. A subject's URI, without its angle brackets, is the label's name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial

from xmtc.data.document import Document
from xmtc.data.formats import Format, folder
from xmtc.data.formats.whole import uri
from xmtc.data.records import BadRecord, checked_labels
from xmtc.data.source import Source


def read(source: Source) -> Iterator[Document]:
    if os.path.isdir(source.path):
        return folder.read(source)
    return source.documents(source.lines(), partial(parse, reads_labels=source.reads_labels, id_of=source.id_of))


def parse(line: str, number: int, reads_labels: bool = True, id_of: Callable[[int], str] = str) -> Document:
    columns = line.split("\t")
    if len(columns) != 2:
        raise BadRecord(f"this line has {len(columns)} columns between tabs, expected text ⇥ <subject URIs>")
    subjects = list(map(uri, columns[1].split())) if reads_labels else []
    return Document(id_of(number), columns[0], checked_labels(subjects, "labels", None))


ANNIF = Format("annif", read)
