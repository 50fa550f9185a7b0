"""Files of vocabularies into one: SKOS in its four notations, tables, several files together."""

from __future__ import annotations

import os
from collections.abc import Sequence

from xmtc.core.progress import ProgressFactory, hide_progress
from xmtc.data.file_streams import OnRead, without_compression
from xmtc.errors import XmtcError
from xmtc.vocabulary.build import arranged
from xmtc.vocabulary.collector import Collector
from xmtc.vocabulary.skos import read_ntriples, read_rdf
from xmtc.vocabulary.table_import import language_of, read_table
from xmtc.vocabulary.vocabulary import Vocabulary

NTRIPLES, TURTLE, XML, JSON_LD, TSV, CSV = "nt", "turtle", "xml", "json-ld", "tsv", "csv"
FORMATS = (NTRIPLES, TURTLE, XML, JSON_LD, TSV, CSV)
EXTENSIONS = {
    ".nt": NTRIPLES,
    ".ttl": TURTLE,
    ".turtle": TURTLE,
    ".n3": TURTLE,
    ".rdf": XML,
    ".xml": XML,
    ".owl": XML,
    ".jsonld": JSON_LD,
    ".json": JSON_LD,
    ".tsv": TSV,
    ".txt": TSV,
    ".csv": CSV,
}


def import_files(
    paths: Sequence[str], format: str | None = None, language: str | None = None, show: ProgressFactory = hide_progress
) -> Vocabulary:
    """A vocabulary from files, which may say different things of the same concepts, as one for each language does.
    `language` is that of names in tables that do not say theirs; left out, a file's name may tell: yso-fi.tsv."""
    collector = Collector()
    formats = [format or format_of(path) for path in paths]
    with show("reading", sum(os.path.getsize(path) for path in paths if os.path.isfile(path))) as progress:
        for path, its_format in zip(paths, formats, strict=True):
            read(path, collector, its_format, language, progress.advance)
    return arranged(collector)


def read(path: str, collector: Collector, format: str, language: str | None, on_read: OnRead) -> None:
    if format == NTRIPLES:
        read_ntriples(path, collector, on_read)
    elif format in (TSV, CSV):
        table_language = language_of(without_compression(path)) if language is None else language
        read_table(path, collector, "\t" if format == TSV else ",", table_language, on_read)
    elif format in FORMATS:
        read_rdf(path, collector, format, on_read)
    else:
        raise XmtcError(f"The format {format!r} is not known; expected one of {', '.join(FORMATS)}.")


def format_of(path: str) -> str:
    extension = os.path.splitext(without_compression(path))[1].lower()
    if extension not in EXTENSIONS:
        raise XmtcError(
            f"{path} ends with nothing that tells its format; expected one of {' '.join(EXTENSIONS)}, or name the "
            f"format: {', '.join(FORMATS)}."
        )
    return EXTENSIONS[extension]
