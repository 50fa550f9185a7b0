"""The table of corpus formats.

The module of a format defines a `CorpusFormat`. Its `read` yields the documents of a `CorpusInput`. Its `write`, if
the format can be written, is a context manager that yields a function to call with each document. A new format needs
its module, a line in FORMATS, and its extension or detection rule in xmtc/data/format_detection.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module

from xmtc.core.run import Run
from xmtc.data.batch import DocumentBatch
from xmtc.data.corpus_input import CorpusInput
from xmtc.data.document import Document
from xmtc.data.layout import Layout
from xmtc.errors import XmtcError, find_similar_names

FORMATS = {
    "jsonl": "xmtc.data.formats.jsonl:JSONL",
    "json": "xmtc.data.formats.json_array:JSON",
    "csv": "xmtc.data.formats.table:CSV",
    "tsv": "xmtc.data.formats.table:TSV",
    "parquet": "xmtc.data.formats.parquet:PARQUET",
    "xlsx": "xmtc.data.formats.xlsx:XLSX",
    "sqlite": "xmtc.data.formats.sqlite:SQLITE",
    "fasttext": "xmtc.data.formats.fasttext:FASTTEXT",
    "annif": "xmtc.data.formats.annif:ANNIF",
    "libmultilabel": "xmtc.data.formats.libmultilabel:LIBMULTILABEL",
    "sparse": "xmtc.data.formats.sparse:SPARSE",
    "svmlight": "xmtc.data.formats.svmlight:SVMLIGHT",
    "npz": "xmtc.data.formats.npz:NPZ",
    "paired": "xmtc.data.formats.paired:PAIRED",
    "text": "xmtc.data.formats.text:TEXT",
    "html": "xmtc.data.formats.html:HTML",
    "pdf": "xmtc.data.formats.pdf:PDF",
    "docx": "xmtc.data.formats.docx:DOCX",
    "marc": "xmtc.data.formats.bibliographic:MARC",
    "marcxml": "xmtc.data.formats.bibliographic:MARCXML",
    "mods": "xmtc.data.formats.bibliographic:MODS",
    "dc": "xmtc.data.formats.bibliographic:DUBLIN_CORE",
    "ris": "xmtc.data.formats.bibliographic:RIS",
    "bibtex": "xmtc.data.formats.bibliographic:BIBTEX",
    "folder": "xmtc.data.formats.folder:FOLDER",
}


@dataclass(frozen=True)
class Dimensions:
    """Numbers of features and labels that a corpus declares; None if it declares none. Not all need to occur."""

    n_features: int | None = None
    n_labels: int | None = None


# Takes a stream for each file, then Dimensions.
Writer = Callable[..., AbstractContextManager[Callable[[Document], None]]]


@dataclass(frozen=True)
class CorpusFormat:
    """Reader and writer of one file format."""

    name: str
    read: Callable[[CorpusInput], Iterator[Document]]
    write: Writer | None = None
    has_features: bool = False  # instead of text
    read_dimensions: Callable[[CorpusInput], Dimensions] | None = None
    # Completes the user's layout from the first lines of the file.
    detect_layout: Callable[[CorpusInput], Layout] | None = None
    # Multi-threaded reader, for training.
    read_batches: Callable[[CorpusInput, Run], Iterator[Document | DocumentBatch]] | None = None
    # Returns the files that a path stands for.
    resolve_files: Callable[[str], tuple[str | None, ...]] = lambda path: (path,)


def get_format(name: str) -> CorpusFormat:
    """Return a format by its name in FORMATS, and import its module."""
    if name not in FORMATS:
        similar = find_similar_names(name, FORMATS)
        hint = f" Did you mean {similar[0]}?" if similar else ""
        raise XmtcError(f"There is no corpus format {name!r}.{hint} The formats are {', '.join(FORMATS)}.")
    module, _, attribute = FORMATS[name].partition(":")
    return getattr(import_module(module), attribute)


def list_writable_formats() -> str:
    """Return the names of the formats that can be written, separated by commas."""
    return ", ".join(name for name in FORMATS if get_format(name).write)
