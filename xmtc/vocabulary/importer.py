"""Import of vocabulary files: SKOS (N-Triples, Turtle, RDF/XML, JSON-LD) and tables."""

from __future__ import annotations

import os
from collections.abc import Sequence

from xmtc.core.progress import ProgressFactory, hide_progress
from xmtc.data.file_streams import OnRead, strip_compression_extension
from xmtc.errors import XmtcError
from xmtc.vocabulary.builder import ConceptCollector, build_vocabulary
from xmtc.vocabulary.skos import read_ntriples, read_rdf
from xmtc.vocabulary.table_import import detect_file_language, read_table
from xmtc.vocabulary.vocabulary import Vocabulary

NTRIPLES, TURTLE, XML, JSON_LD, TSV, CSV = "nt", "turtle", "xml", "json-ld", "tsv", "csv"
IMPORT_FORMATS = (NTRIPLES, TURTLE, XML, JSON_LD, TSV, CSV)
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
    """Import a vocabulary from one or several files.

    Parameters
    ----------
    paths : sequence of str
        Files with statements about the same concepts, for example one file per language.
    format : str, optional
        One of IMPORT_FORMATS; by default detected from the file name.
    language : str, optional
        Language of names in tables without a language column; by default detected from a name such as yso-fi.tsv.
    show : ProgressFactory
        Progress display.
    """
    collector = ConceptCollector()
    formats = [format or detect_import_format(path) for path in paths]
    with show("reading", sum(os.path.getsize(path) for path in paths if os.path.isfile(path))) as progress:
        for path, file_format in zip(paths, formats, strict=True):
            read_vocabulary_file(path, collector, file_format, language, progress.advance)
    return build_vocabulary(collector)


def read_vocabulary_file(
    path: str, collector: ConceptCollector, format: str, language: str | None, on_read: OnRead
) -> None:
    if format == NTRIPLES:
        read_ntriples(path, collector, on_read)
    elif format in (TSV, CSV):
        table_language = detect_file_language(strip_compression_extension(path)) if language is None else language
        read_table(path, collector, "\t" if format == TSV else ",", table_language, on_read)
    elif format in IMPORT_FORMATS:
        read_rdf(path, collector, format, on_read)
    else:
        raise XmtcError(f"The format {format!r} is unknown; expected one of {', '.join(IMPORT_FORMATS)}.")


def detect_import_format(path: str) -> str:
    extension = os.path.splitext(strip_compression_extension(path))[1].lower()
    if extension not in EXTENSIONS:
        raise XmtcError(
            f"{path} has an unknown extension; expected one of {' '.join(EXTENSIONS)}, or set the format to one of "
            f"{', '.join(IMPORT_FORMATS)}."
        )
    return EXTENSIONS[extension]
