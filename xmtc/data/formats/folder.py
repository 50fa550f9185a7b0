"""Folders of documents (Annif's full-text corpora): every .txt, .html, .htm, .pdf and .docx file is one document.

Labels are in a file next to each document (xmtc/data/formats/document_files.py). Hidden files are skipped. If
files differ only in their extension, such as a PDF and its text, the first in the order above is read. Subfolders are
read with --recursive. An id is the path from the folder without extension."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from xmtc.data.corpus_input import CorpusInput
from xmtc.data.document import Document
from xmtc.data.encodings import Encoding, detect_common_encoding
from xmtc.data.formats import CorpusFormat, docx, html, pdf, text
from xmtc.data.formats.document_files import (
    LABEL_FILE_EXTENSIONS,
    find_label_file,
    read_folder_document,
    report_encodings,
)
from xmtc.data.layout import Layout
from xmtc.data.records import BadRecord
from xmtc.errors import XmtcError

EXTRACTORS = {".txt": text.extract, ".html": html.extract, ".htm": html.extract, ".pdf": pdf.extract}
EXTRACTORS[".docx"] = docx.extract
RESULT_EXTENSIONS = (".annif", ".rejects", ".json", ".jsonl")
MAX_LISTED_EXTENSIONS = 5
HEAD_BYTES = 1 << 14  # of each text file, to detect the encoding of the folder
DOCUMENT_EXTENSIONS = list(EXTRACTORS)


def read(source: CorpusInput) -> Iterator[Document]:
    folder = Path(source.path)
    files = list_document_files(folder, source.layout.recursive)
    if not files:
        raise _no_documents_error(source, folder)
    if source.labels_required and not any(map(find_label_file, files)):
        raise XmtcError(
            f"{source.name} contains {len(files)} documents and no label files, expected a .tsv or .key file for each; "
            f"add the label files."
        )

    if not source.layout.recursive:
        report_nested_documents(source, folder, len(files))
    report_other_files(source, folder)
    encodings: list[tuple[str, Encoding]] = []
    vote = cache(partial(detect_folder_encoding, files))
    for file in files:
        extract = EXTRACTORS[file.suffix.lower()]
        try:
            document, encoding = read_folder_document(folder, file, source, extract)
            if encoding.is_code_page and source.layout.encoding is None and source.layout_hint.encoding is None:
                hint = Layout(encoding=vote())
                document, encoding = read_folder_document(folder, file, replace(source, layout_hint=hint), extract)
        except BadRecord as problem:
            name = file.relative_to(folder).as_posix()
            if source.should_skip_bad_files:
                source.notifier.warn(f"{source.name}: {name} is skipped: {problem}.")
            else:
                source.report_bad_line(name, str(problem), raw=os.fsencode(file), unit="file")
        else:
            encodings.append((file.name, encoding))
            yield document
    report_encodings(source, encodings)


def detect_folder_encoding(files: list[Path]) -> str | None:
    """Return the code page that the text files of a folder have in common."""
    return detect_common_encoding(read_head(file) for file in files if file.suffix.lower() == ".txt")


def read_head(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(HEAD_BYTES)
    except OSError:  # reported when the file is read
        return b""


def report_other_files(source: CorpusInput, folder: Path) -> None:
    """Warn of files with other extensions, except label files, results and small files without extension."""
    others = Counter(
        file.suffix.lower()
        for file in _iterate_visible_files(folder, source.layout.recursive)
        if file.suffix and file.suffix.lower() not in (*EXTRACTORS, *LABEL_FILE_EXTENSIONS, *RESULT_EXTENSIONS)
    )
    if others:
        n_files = sum(others.values())
        listed = ", ".join(f"{count:,} {extension}" for extension, count in others.most_common(MAX_LISTED_EXTENSIONS))
        files = "1 file is" if n_files == 1 else f"{n_files:,} files are"
        source.notifier.warn(
            f"{source.name}: {files} not read ({listed}); expected {', '.join(DOCUMENT_EXTENSIONS)}. "
            "`soffice --headless --convert-to docx FILE` converts documents of word processors."
        )


def report_nested_documents(source: CorpusInput, folder: Path, n_read: int) -> None:
    """Emit a message if there are more documents in subfolders."""
    n_nested = len(list_document_files(folder, recursive=True)) - n_read
    if n_nested:
        documents = (
            "1 more document in subfolders is" if n_nested == 1 else f"{n_nested:,} more documents in subfolders are"
        )
        source.notifier.inform(f"{source.name}: {documents} not read; pass --recursive to read them.")


def list_document_files(folder: Path, recursive: bool) -> list[Path]:
    """Return the documents of a folder, sorted; of files with the same stem, the one with the first extension."""
    file_by_stem: dict[Path, Path] = {}
    files = _find_visible_files(folder, recursive)
    for file in sorted(files, key=lambda file: DOCUMENT_EXTENSIONS.index(file.suffix.lower())):
        file_by_stem.setdefault(file.with_suffix(""), file)
    return [file_by_stem[stem] for stem in sorted(file_by_stem)]


def _find_visible_files(folder: Path, recursive: bool) -> Iterator[Path]:
    return (file for file in _iterate_visible_files(folder, recursive) if file.suffix.lower() in EXTRACTORS)


def _iterate_visible_files(folder: Path, recursive: bool) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if recursive and not name.startswith(".")]
        for name in files:
            if not name.startswith("."):
                yield Path(parent, name)


def _no_documents_error(source: CorpusInput, folder: Path) -> XmtcError:
    listed = ", ".join(DOCUMENT_EXTENSIONS)
    if not source.layout.recursive and list_document_files(folder, recursive=True):
        return XmtcError(f"{source.name} has {listed} files only in subfolders; pass --recursive.")
    return XmtcError(
        f"{source.name} is a folder without {listed} files; expected documents, or the name of a corpus file in it."
    )


FOLDER = CorpusFormat("folder", read)
