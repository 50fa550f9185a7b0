"""Common code for files with one document each (plain text, web pages, PDF), alone or in a folder.

The id of a document is the name of its file. Its labels are in a file next to it, in Annif's formats: `name.tsv` with
`<http://uri> ⇥ label` per line, or else `name.key` with one label per line."""

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
from xmtc.data.encodings import UTF8, Encoding, describe_invalid_byte, detect_encoding
from xmtc.data.file_streams import (
    STREAM_ERRORS,
    damaged_file_error,
    open_binary,
    strip_compression_extension,
    unreadable_file_error,
)
from xmtc.data.records import BadRecord, quote_text, validate_label_names
from xmtc.errors import XmtcError

MAX_DOCUMENT_BYTES = 2**27  # decompressed
BEGINNING_CHARACTERS = 300
LABEL_FILE_EXTENSIONS = (".tsv", ".key")


class ExtractedText(NamedTuple):
    """Text extracted from a file."""

    text: str
    page_offsets: tuple[int, ...] = ()  # position of each page's first character
    encoding: Encoding = Encoding(UTF8)


# Takes the bytes of a file, the user's encoding and an encoding hint; raises BadRecord.
TextExtractor = Callable[[bytes, str | None, str | None], ExtractedText]


def extract_in_child(parser: str, raw: bytes, user_encoding: str | None, encoding_hint: str | None) -> ExtractedText:
    """Run `parse` of html.py or pdf.py in a child process; raise BadRecord if it fails or exceeds its limits."""
    try:
        (result,) = CHILD_POOL.run(
            "xmtc.data.formats.document_files:parse",
            [parser, user_encoding, encoding_hint],
            raw,
            TaskLimits.for_file_size(len(raw)),
        )
    except ChildTaskError as problem:
        raise BadRecord(f"{problem}, expected a smaller document") from None
    if isinstance(result, str):
        raise BadRecord(result)
    text, page_offsets, encoding = result
    return ExtractedText(text, tuple(page_offsets), Encoding(*encoding))


def parse(request: list[Any], content: IO[bytes]) -> Iterator[ExtractedText | str]:
    """Yield the text of a file, or the reason why it is bad (task of a child process)."""
    parser, user_encoding, encoding_hint = request
    try:
        yield import_module(f"xmtc.data.formats.{parser}").parse(content.read(), user_encoding, encoding_hint)
    except BadRecord as problem:
        yield str(problem)


def read_document_file(source: CorpusInput, extract: TextExtractor) -> Iterator[Document]:
    """Yield the document of a file or of standard input; nothing if it has no text."""
    try:
        if source.pipe is None:
            path = Path(source.path)
            document, encoding = read_folder_document(path.parent, path, source, extract)
        else:
            document, encoding = _read_pipe_document(source, extract)
    except BadRecord as problem:
        source.report_bad_line(os.path.basename(source.name), str(problem), raw=os.fsencode(source.path), unit="file")
        return
    if document.text.strip():
        report_encodings(source, [(os.path.basename(source.name), encoding)])
        yield document


def _read_pipe_document(source: CorpusInput, extract: TextExtractor) -> tuple[Document, Encoding]:
    raw = b"".join(source.read_raw_lines())
    # read_raw_lines has already converted UTF-16 and UTF-32 to UTF-8.
    user_encoding = source.layout.encoding
    if user_encoding is not None and Encoding(user_encoding).is_wide:
        user_encoding = None
    content = extract(raw, user_encoding, source.layout_hint.encoding)
    return Document(source.make_id(1), content.text, [], page_offsets=content.page_offsets), content.encoding


def _read_bytes(path: str, source: CorpusInput) -> bytes:
    """Return the decompressed bytes of a file, without conversion of UTF-16."""
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
    """Read a file of a folder; the id is its path from the folder. Raise BadRecord if it is bad."""
    labels = read_label_file(file, source.labels_required) if source.should_read_labels else []
    id = to_document_id(file.relative_to(folder).as_posix())
    content = extract(_read_bytes(str(file), source), source.layout.encoding, source.layout_hint.encoding)
    extra = get_kept_values(source.fields.keep, file.relative_to(folder).as_posix(), content.text)
    return Document(id, content.text, labels, extra=extra, page_offsets=content.page_offsets), content.encoding


def get_kept_values(names: tuple[str, ...], file: str, text: str) -> tuple[Any, ...]:
    """Return the fields of a document that has no table: its text, its beginning, and the name of its file."""
    values = {"file": file, "text": text, "beginning": " ".join(text[: 2 * BEGINNING_CHARACTERS].split())}
    values["beginning"] = values["beginning"][:BEGINNING_CHARACTERS]
    unknown = [name for name in names if name not in values]
    if unknown:
        raise XmtcError(f"Files have no field {unknown[0]!r}; expected {', '.join(values)} for --keep.")
    return tuple(values[name] for name in names)


def to_document_id(name: str) -> str:
    """Return the name of a file without its extensions; raise BadRecord if it is not valid UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise BadRecord("its name is not valid UTF-8, expected a name that can be the id of the document") from None
    return os.path.splitext(strip_compression_extension(name))[0]


def decode_text(raw: bytes, user_encoding: str | None, encoding_hint: str | None) -> tuple[str, Encoding]:
    """Return the text of a file and its encoding, which is detected unless the user set it."""
    if user_encoding:
        encoding = Encoding(user_encoding)
    else:
        encoding = detect_encoding(raw, is_whole=True, encoding_hint=encoding_hint)
    try:
        text = raw.decode(encoding.name)
    except UnicodeDecodeError as error:
        problem = describe_invalid_byte(error, encoding.name, f" in line {_get_line_number(raw, error)}")
        raise BadRecord(f"{problem}, or the encoding of the file as --encoding") from None
    return text.removeprefix("\ufeff"), encoding


def _get_line_number(raw: bytes, error: UnicodeDecodeError) -> int:
    return raw.count(b"\n", 0, error.start) + 1


def report_encodings(source: CorpusInput, files: list[tuple[str, Encoding]]) -> None:
    """Emit a message for each encoding other than UTF-8 in which files (name, encoding) were read."""
    if source.layout.encoding is not None:
        return
    expected = (UTF8, source.layout_hint.encoding)
    for name, count in Counter(encoding.name for _, encoding in files if encoding.name not in expected).items():
        file, encoding = next((file, encoding) for file, encoding in files if encoding.name == name)
        example = f" ({encoding.example})" if encoding.example else ""
        subject = source.name if len(files) == 1 else f"{count:,} of {len(files):,} files in {source.name}, as {file},"
        verb = "is" if count == 1 else "are"
        source.notifier.inform(f"{subject} {verb} read as {name}{example}; --encoding overrides this.")


def find_label_file(document: Path) -> Path | None:
    """Return the label file next to a document; None if there is none."""
    stem = Path(strip_compression_extension(str(document)))
    candidates = (stem.with_suffix(extension) for extension in LABEL_FILE_EXTENSIONS)
    return next((file for file in candidates if file.is_file()), None)


def read_label_file(document: Path, required: bool) -> list[str]:
    file = find_label_file(document)
    if file is None:
        if required:
            stem = document.stem
            raise BadRecord(f"there is no label file {stem}.tsv or {stem}.key next to it, expected one")
        return []
    try:
        raw = file.read_bytes()
        content = raw.decode("utf-8-sig")
    except OSError as error:
        raise unreadable_file_error(str(file), error) from None
    except UnicodeDecodeError as error:
        place = f" in line {_get_line_number(raw, error)} of {file.name}"
        raise BadRecord(describe_invalid_byte(error, place=place)) from None
    labels = [line.strip() for line in content.splitlines() if line.strip()]
    if file.suffix == ".tsv":
        labels = [parse_subject(line.split("\t")) for line in labels]
    return validate_label_names(labels, "labels", None)


def parse_subject(cells: list[str]) -> str:
    """Return the label of a line; labels that are not URIs have a score in the last cell, as `xmtc predict` writes."""
    word = cells[0].strip()
    return word if len(cells) > 1 and is_score(cells[-1]) and not word.startswith("<") else parse_subject_uri(word)


def is_score(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def parse_subject_uri(word: str) -> str:
    """Return the URI of a subject without angle brackets."""
    if word.startswith("<") and word.endswith(">") and len(word) > 2:
        return word[1:-1]
    if "://" in word:  # Annif also accepts subjects without brackets
        return word
    raise BadRecord(f"found the subject {quote_text(word)}, expected a URI in angle brackets")
