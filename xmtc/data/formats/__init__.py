"""Every corpus format by name. One line here and one file are all a new format needs.

A format's module holds a Format: `read` yields the Documents of a Source one by one; `write`, if the format can be
written, is a context manager whose value is a function to call with each Document."""

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
from xmtc.data.records import Fields as Fields
from xmtc.errors import XmtcError, find_similar_names

FORMATS = {
    "jsonl": "xmtc.data.formats.jsonl:JSONL",
    "csv": "xmtc.data.formats.table:CSV",
    "tsv": "xmtc.data.formats.table:TSV",
    "parquet": "xmtc.data.formats.parquet:PARQUET",
    "xlsx": "xmtc.data.formats.xlsx:XLSX",
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
    "folder": "xmtc.data.formats.folder:FOLDER",
}


@dataclass(frozen=True)
class Dimensions:
    """How many features and labels a corpus declares, which may be more than occur in it; None if it declares none."""

    n_features: int | None = None
    n_labels: int | None = None


# From a stream for each file, and Dimensions.
Writer = Callable[..., AbstractContextManager[Callable[[Document], None]]]


@dataclass(frozen=True)
class CorpusFormat:
    """How to read and write one kind of file."""

    name: str
    read: Callable[[CorpusInput], Iterator[Document]]
    write: Writer | None = None
    has_features: bool = False  # instead of text
    read_dimensions: Callable[[CorpusInput], Dimensions] | None = None
    detect_layout: Callable[[CorpusInput], Layout] | None = (
        None  # what a look at the beginning tells, beside what was told
    )
    read_batches: Callable[[CorpusInput, Run], Iterator[Document | DocumentBatch]] | None = (
        None  # by all cores, for training
    )
    resolve_files: Callable[[str], tuple[str | None, ...]] = lambda path: (path,)  # that a path stands for


def get_format(name: str) -> CorpusFormat:
    """A format by its name in FORMATS. Its module is imported here, when it is needed."""
    if name not in FORMATS:
        near = find_similar_names(name, FORMATS)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise XmtcError(f"There is no corpus format {name!r}.{hint} The formats are {', '.join(FORMATS)}.")
    module, _, attribute = FORMATS[name].partition(":")
    return getattr(import_module(module), attribute)


def list_writable_formats() -> str:
    """The formats that can be written, for a sentence."""
    return ", ".join(name for name in FORMATS if get_format(name).write)
