"""A folder of documents: every .txt, .html, .htm and .pdf file is one, called as the file is, with its labels beside it
(xmtc/data/formats/document_files.py). This is Annif's full-text corpus.

Hidden files are skipped. Of files that differ only in their ending, as a PDF beside its text, the first of the list
above is read. Folders within are read with --recursive; an id is then the path from the folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from xmtc.data.corpus_input import CorpusInput
from xmtc.data.document import Document
from xmtc.data.encodings import Encoding
from xmtc.data.formats import CorpusFormat, html, pdf, text
from xmtc.data.formats.document_files import find_label_file, read_folder_document, report_encodings
from xmtc.data.records import BadRecord
from xmtc.errors import XmtcError

EXTRACTORS = {".txt": text.extract, ".html": html.extract, ".htm": html.extract, ".pdf": pdf.extract}
DOCUMENT_EXTENSIONS = list(EXTRACTORS)


def read(source: CorpusInput) -> Iterator[Document]:
    folder = Path(source.path)
    files = list_document_files(folder, source.layout.recursive)
    if not files:
        raise _no_documents_error(source, folder)
    if source.labels_required and not any(map(find_label_file, files)):
        raise XmtcError(
            f"{source.name} holds {len(files)} documents and no .tsv or .key files beside them, expected one for each; "
            f"add the label files."
        )

    if not source.layout.recursive:
        report_nested_documents(source, folder, len(files))
    found: list[tuple[str, Encoding]] = []
    for file in files:
        try:
            document, encoding = read_folder_document(folder, file, source, EXTRACTORS[file.suffix.lower()])
        except BadRecord as problem:
            name = file.relative_to(folder).as_posix()
            source.report_bad_line(name, str(problem), raw=os.fsencode(file), unit="file")
        else:
            found.append((file.name, encoding))
            yield document
    report_encodings(source, found)


def report_nested_documents(source: CorpusInput, folder: Path, n_read: int) -> None:
    """Say that there are more documents, in folders within."""
    n_within = len(list_document_files(folder, recursive=True)) - n_read
    if n_within:
        more = "1 document more is" if n_within == 1 else f"{n_within:,} documents more are"
        source.notifier.inform(f"{source.name}: {more} in folders within it and not read; --recursive reads them, too.")


def list_document_files(folder: Path, recursive: bool) -> list[Path]:
    """The files of a folder that are documents, sorted; of those of one name, the one of the first ending."""
    chosen: dict[Path, Path] = {}
    for file in sorted(
        _visible_files(folder, recursive), key=lambda file: DOCUMENT_EXTENSIONS.index(file.suffix.lower())
    ):
        chosen.setdefault(file.with_suffix(""), file)
    return [chosen[name] for name in sorted(chosen)]


def _visible_files(folder: Path, recursive: bool) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if recursive and not name.startswith(".")]
        for name in files:
            if not name.startswith(".") and os.path.splitext(name)[1].lower() in EXTRACTORS:
                yield Path(place, name)


def _no_documents_error(source: CorpusInput, folder: Path) -> XmtcError:
    listed = ", ".join(DOCUMENT_EXTENSIONS)
    if not source.layout.recursive and list_document_files(folder, recursive=True):
        return XmtcError(f"{source.name} is a folder with {listed} files only in folders within it; pass --recursive.")
    return XmtcError(
        f"{source.name} is a folder without {listed} files; expected documents, or the name of a corpus file in it."
    )


FOLDER = CorpusFormat("folder", read)
