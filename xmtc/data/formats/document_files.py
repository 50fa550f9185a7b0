"""Files that are one document each, alone or in a folder: what a plain text, a web page and a PDF share.

A document is called as its file is. Its labels, where they are needed, are in a file beside it: in `name.tsv`,
`<http://uri> ⇥ label` per line, or else in `name.key`, one label per line, as Annif has them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NamedTuple

from xmtc.core.child_process import CHILD_POOL, ChildTaskError, TaskLimits
from xmtc.data.corpus_input import CorpusInput
from xmtc.data.document import Document
from xmtc.data.encodings import UTF8, Encoding, detect_encoding
from xmtc.data.file_streams import (
    STREAM_ERRORS,
    damaged_file_error,
    open_binary,
    strip_compression_extension,
    unreadable_file_error,
)
from xmtc.data.records import BadRecord, quote_text, validate_label_names

MAX_DOCUMENT_BYTES = 2**27  # decompressed
LABEL_FILE_EXTENSIONS = (".tsv", ".key")


class ExtractedText(NamedTuple):
    """What the file of a document holds."""

    text: str
    page_offsets: tuple[int, ...] = ()  # where in the text each page begins
    encoding: Encoding = Encoding(UTF8)


# From the bytes of a file, what they were said to be encoded in, and what they are likely to be; or BadRecord.
TextExtractor = Callable[[bytes, str | None, str | None], ExtractedText]


def extract_in_child(parser: str, raw: bytes, user_encoding: str | None, encoding_hint: str | None) -> ExtractedText:
    """Return the content of a file that html.py or pdf.py parses, in a child process; or raise BadRecord."""
    try:
        (found,) = CHILD_POOL.run(
            "xmtc.data.formats.document_files:parse",
            [parser, user_encoding, encoding_hint],
            raw,
            TaskLimits.for_file_size(len(raw)),
        )
    except ChildTaskError as problem:
        raise BadRecord(f"{problem}, expected a document that is read in less") from None
    if isinstance(found, str):
        raise BadRecord(found)
    text, pages, encoding = found
    return ExtractedText(text, tuple(pages), Encoding(*encoding))


def parse(request: list[Any], content: IO[bytes]) -> Iterator[ExtractedText | str]:
    """Yield the content of a file, or what is wrong with it: a task for a child process."""
    parser, told, likely = request
    try:
        yield import_module(f"xmtc.data.formats.{parser}").parse(content.read(), told, likely)
    except BadRecord as problem:
        yield str(problem)


def read_document_file(source: CorpusInput, extract: TextExtractor) -> Iterator[Document]:
    """The one document of a file, or of standard input."""
    told = source.layout.encoding
    if source.pipe is not None:
        raw, path = b"".join(source.read_raw_lines()), None
        told = None if told and Encoding(told).is_wide else told  # which it is no more
    else:
        raw, path = b"", Path(source.path)
    try:
        raw = raw if path is None else _read_bytes(source.path, source)
        content = extract(raw, told, source.layout_hint.encoding)
        labels = read_label_file(path, source.labels_required) if path is not None and source.should_read_labels else []
        document = Document(source.make_id(1) if path is None else to_document_id(path.name), content.text, labels)
    except BadRecord as problem:
        source.report_bad_line(os.path.basename(source.name), str(problem), raw=os.fsencode(source.path), unit="file")
        return
    if content.text.strip():
        report_encodings(source, [(os.path.basename(source.name), content.encoding)])
        yield document._replace(page_offsets=content.page_offsets)


def _read_bytes(path: str, source: CorpusInput) -> bytes:
    """Return the bytes of a file as they are, whatever byte order mark they begin with."""
    with open_binary(path, source.on_read, UTF8) as stream:
        try:
            raw = stream.read(MAX_DOCUMENT_BYTES + 1)
        except STREAM_ERRORS as error:
            raise damaged_file_error(path, 0, error) from None
    if len(raw) > MAX_DOCUMENT_BYTES:
        raise BadRecord(f"it is larger than {MAX_DOCUMENT_BYTES:,} bytes, expected one document")
    return raw


def read_folder_document(
    folder: Path, file: Path, source: CorpusInput, extract: TextExtractor
) -> tuple[Document, Encoding]:
    """The document of a file in a folder, called by its path from there; or BadRecord."""
    labels = read_label_file(file, source.labels_required) if source.should_read_labels else []
    name = to_document_id(file.relative_to(folder).as_posix())
    content = extract(_read_bytes(str(file), source), source.layout.encoding, source.layout_hint.encoding)
    return Document(name, content.text, labels, page_offsets=content.page_offsets), content.encoding


def to_document_id(name: str) -> str:
    """The id of a document from the name of its file."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise BadRecord("its name is no UTF-8, expected one that can be written as the document's id") from None
    return os.path.splitext(strip_compression_extension(name))[0]


def decode_text(raw: bytes, user_encoding: str | None, encoding_hint: str | None) -> tuple[str, Encoding]:
    """The text of a file and its encoding."""
    encoding = (
        Encoding(user_encoding) if user_encoding else detect_encoding(raw, is_whole=True, encoding_hint=encoding_hint)
    )
    try:
        text = raw.decode(encoding.name)
    except UnicodeDecodeError as error:
        name = "UTF-8" if encoding.name == UTF8 else encoding.name
        found = f"line {raw.count(10, 0, error.start) + 1} holds byte 0x{raw[error.start]:02x}, which is no {name}"
        raise BadRecord(f"{found}, expected {name} text, or the encoding of the file as --encoding") from None
    return text.removeprefix("\ufeff"), encoding


def report_encodings(source: CorpusInput, found: list[tuple[str, Encoding]]) -> None:
    """Say which files were not read as UTF-8, and in what instead."""
    if source.layout.encoding is not None:
        return
    expected = (UTF8, source.layout_hint.encoding)
    for name, count in Counter(encoding.name for _, encoding in found if encoding.name not in expected).items():
        file, encoding = next(each for each in found if each[1].name == name)
        example = f" ({encoding.example})" if encoding.example else ""
        where = source.name if len(found) == 1 else f"{count:,} of {len(found):,} files in {source.name}, as {file},"
        verb = "is" if count == 1 else "are"
        source.notifier.inform(f"{where} {verb} read as {name}{example}; --encoding names another.")


def find_label_file(document: Path) -> Path | None:
    """The file with a document's labels, which lies beside it."""
    stem = Path(strip_compression_extension(str(document)))
    return next((file for end in LABEL_FILE_EXTENSIONS if (file := stem.with_suffix(end)).is_file()), None)


def read_label_file(document: Path, required: bool) -> list[str]:
    file = find_label_file(document)
    if file is None:
        if required:
            stem = document.stem
            raise BadRecord(f"there is no {stem}.tsv or {stem}.key beside it, expected its labels there")
        return []
    try:
        raw = file.read_bytes()
        content = raw.decode("utf-8-sig")
    except OSError as error:
        raise unreadable_file_error(str(file), error) from None
    except UnicodeDecodeError as error:
        found = f"line {raw.count(10, 0, error.start) + 1} of {file.name} holds byte 0x{raw[error.start]:02x}"
        raise BadRecord(f"{found}, which is no UTF-8, expected UTF-8 text") from None
    lines = [line.strip() for line in content.splitlines() if line.strip()]
    return validate_label_names(
        [parse_subject_uri(line.split("\t")[0].strip()) for line in lines] if file.suffix == ".tsv" else lines,
        "labels",
        None,
    )


def parse_subject_uri(word: str) -> str:
    """A subject's URI, without its angle brackets."""
    if word.startswith("<") and word.endswith(">") and len(word) > 2:
        return word[1:-1]
    if "://" in word:  # Annif itself reads subjects without the brackets
        return word
    raise BadRecord(f"found the subject {quote_text(word)}, expected a URI in angle brackets")
