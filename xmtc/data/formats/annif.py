"""Annif corpora: a TSV file of `text ⇥ <http://uri> <http://uri>` lines, or a folder of full texts (folder.py).

The name of a label is the URI of the subject without angle brackets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial

from xmtc.data.corpus_input import CorpusInput
from xmtc.data.document import Document
from xmtc.data.formats import CorpusFormat, folder
from xmtc.data.formats.document_files import parse_subject_uri
from xmtc.data.records import BadRecord, validate_label_names


def read(source: CorpusInput) -> Iterator[Document]:
    if os.path.isdir(source.path):
        return folder.read(source)
    return source.parse_documents(
        source.read_text_lines(), partial(parse, should_read_labels=source.should_read_labels, make_id=source.make_id)
    )


def parse(line: str, number: int, should_read_labels: bool = True, make_id: Callable[[int], str] = str) -> Document:
    columns = line.split("\t")
    if len(columns) != 2:
        raise BadRecord(f"this line has {len(columns)} columns between tabs, expected text ⇥ <subject URIs>")
    subjects = list(map(parse_subject_uri, columns[1].split())) if should_read_labels else []
    return Document(make_id(number), columns[0], validate_label_names(subjects, "labels", None))


ANNIF = CorpusFormat("annif", read)
