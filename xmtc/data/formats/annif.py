"""Annif's corpora: a TSV of `text ⇥ <http://uri> <http://uri>` lines, or a folder of full texts.

In a folder, `name.txt` is a document and its labels are in a file beside it: in `name.tsv`, `<http://uri> ⇥ label` per
line, or else in `name.key`, one label per line. A subject's URI, without its angle brackets, is the label's name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from xmtc.data.document import Document
from xmtc.data.files import unreadable
from xmtc.data.formats import Format
from xmtc.data.records import BadRecord, checked_labels, shortened
from xmtc.data.source import Source
from xmtc.errors import XmtcError


def read(source: Source) -> Iterator[Document]:
    if os.path.isdir(source.path):
        return _read_folder(source)
    return source.documents(source.lines(), partial(parse, reads_labels=source.reads_labels))


def parse(line: str, number: int, reads_labels: bool = True) -> Document:
    columns = line.split("\t")
    if len(columns) != 2:
        raise BadRecord(f"this line has {len(columns)} columns between tabs, expected text ⇥ <subject URIs>")
    subjects = list(map(_uri, columns[1].split())) if reads_labels else []
    return Document(str(number), columns[0], checked_labels(subjects, "labels", None))


def _uri(word: str) -> str:
    if word.startswith("<") and word.endswith(">") and len(word) > 2:
        return word[1:-1]
    if "://" in word:  # Annif itself reads subjects without the brackets
        return word
    raise BadRecord(f"found the subject {shortened(word)}, expected a URI in angle brackets")


def _read_folder(source: Source) -> Iterator[Document]:
    folder = Path(source.path)
    texts = sorted(folder.glob("*.txt"))

    if not texts:
        raise XmtcError(f"{source.name} is a folder without .txt files; expected a corpus file, or an Annif folder.")
    if source.labels_required and not any(_label_file(text) for text in texts):
        raise XmtcError(
            f"{source.name} holds {len(texts)} .txt files and no .tsv or .key beside them, expected one for each; "
            f"add the label files."
        )

    for text in texts:
        try:
            labels = _read_labels(text, source.labels_required) if source.reads_labels else []
            document = Document(_identifier(text), _read_text(text), labels)
        except BadRecord as problem:
            source.refuse(text.name, str(problem), raw=os.fsencode(text), unit="file")
        else:
            yield document


def _identifier(text: Path) -> str:
    try:
        text.stem.encode()
    except UnicodeEncodeError:
        raise BadRecord("its name is no UTF-8, expected one that can be written as the document's id") from None
    return text.stem


def _label_file(text: Path) -> Path | None:
    return next((file for end in (".tsv", ".key") if (file := text.with_suffix(end)).is_file()), None)


def _read_labels(text: Path, required: bool) -> list[str]:
    file = _label_file(text)
    if file is None:
        if required:
            raise BadRecord(f"there is no {text.stem}.tsv or {text.stem}.key beside it, expected its labels there")
        return []
    lines = [line.strip() for line in _read_text(file).splitlines() if line.strip()]
    if file.suffix == ".tsv":
        lines = [_uri(line.split("\t")[0].strip()) for line in lines]
    return checked_labels(lines, "labels", None)


def _read_text(file: Path) -> str:
    try:
        raw = file.read_bytes()
        return raw.decode("utf-8-sig")
    except OSError as error:
        raise unreadable(str(file), error) from None
    except UnicodeDecodeError as error:
        number = raw.count(b"\n", 0, error.start) + 1
        found = f"line {number} of {file.name} holds byte 0x{raw[error.start]:02x}, which is no UTF-8"
        raise BadRecord(f"{found}, expected UTF-8 text") from None


ANNIF = Format("annif", read)
