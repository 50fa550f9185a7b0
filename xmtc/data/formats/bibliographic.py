"""Bibliographic records: MARC 21, MARCXML, MODS, Dublin Core (OAI-PMH), RIS and BibTeX (extra `library`).

A record becomes values by field name; fields with several values are joined in texts, and each value is a label.
Without --text and --labels, the fields in DEFAULT_FIELDS are read. A record without label fields has no labels. The
parsers (xmtc/data/formats/bibliographic_parsers.py) run in a child process, which sends the records in batches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import IO, Any

from xmtc.core.child_process import CHILD_POOL, ChildTaskError, TaskLimits
from xmtc.core.child_worker import CHUNK_BYTES
from xmtc.data.corpus_input import CorpusInput
from xmtc.data.document import Document
from xmtc.data.formats import CorpusFormat
from xmtc.data.formats.bibliographic_parsers import (
    DUBLIN_CORE_NAMESPACES,
    MARC_NAMESPACE,
    MODS_NAMESPACE,
    ParsedRecord,
    decode_marc,
    parse_records,
)
from xmtc.data.records import BadRecord, Fields, match_name
from xmtc.errors import XmtcError, as_missing_extra

# Text fields and label fields of each format.
DEFAULT_FIELDS = {
    "marc": ("245,520", "650"),
    "marcxml": ("245,520", "650"),
    "mods": ("title,abstract", "subject"),
    "dc": ("title,description,abstract", "subject"),
    "ris": ("TI,T1,AB,N2", "KW"),
    "bibtex": ("title,abstract", "keywords"),
}
REQUIRED_PACKAGES = {"marc": "pymarc", "marcxml": "pymarc", "ris": "rispy", "bibtex": "bibtexparser"}
TEXT_FORMATS = ("ris", "bibtex")  # whose encoding is detected from their lines
MARC_RECORD_FIELD = "(MARC record)"  # in --keep of MARC 21 and MARCXML: the record as JSON, for the writers of MARC
BATCH_RECORDS, BATCH_CHARACTERS = 1000, 2**18  # limits of a batch from the child process
MARC_LEADER = re.compile(rb"\s*\d{5}[a-z ].{4}22\d{5}.{3}4500", re.DOTALL)
RIS_START = re.compile(rb"(?:\xef\xbb\xbf)?\s*TY  - ?\w")
BIBTEX_START = re.compile(rb"(?:\xef\xbb\xbf)?(?:\s|%[^\n]*\n)*@\w+\s*[{(]\s*[^\s,{}]+\s*,")


def sniff_format(head: bytes) -> str | None:
    """Return the format of the first bytes of a file; None if it has no bibliographic records."""
    if MARC_LEADER.match(head):
        return "marc"
    if RIS_START.match(head):
        return "ris"
    if BIBTEX_START.match(head):
        return "bibtex"
    return sniff_xml(head) if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<") else None


def sniff_xml(head: bytes) -> str | None:
    """Return the format of XML from the namespaces in its first bytes."""
    if MARC_NAMESPACE.encode() in head:
        return "marcxml"
    if MODS_NAMESPACE.encode() in head:
        return "mods"
    return "dc" if any(namespace.encode() in head for namespace in DUBLIN_CORE_NAMESPACES) else None


def read(source: CorpusInput, format: str) -> Iterator[Document]:
    package = REQUIRED_PACKAGES.get(format, "lxml")
    if find_spec(package) is None:
        raise as_missing_extra(f"Reading {source.name}", ModuleNotFoundError(name=package))
    fields = choose_fields(source.fields, format)
    parse_record = replace(source, fields=fields).make_record_parser(None)
    label_names = split_names(fields.labels)
    missing = set(label_names)
    n_records = 0
    for number, values, problem, raw in _read_records_in_child(source, fields, format):
        n_records += 1
        missing -= values.keys()
        try:
            if problem is not None:
                raise BadRecord(problem)
            document = parse_record(to_record(values, fields, label_names), number)
        except BadRecord as reason:
            source.report_bad_line(number, str(reason), raw=raw.encode("latin-1"), unit="record")
        else:
            yield document
    report_missing_fields(source, parse_record.describe_missing_fields(), missing, is_default=fields != source.fields)
    if source.labels_required and n_records and missing == set(label_names) != set():
        raise XmtcError(
            f"{source.name}: no record has the field {fields.labels!r}, expected labels in it; name the field of the "
            f"labels with --labels."
        )


def report_missing_fields(source: CorpusInput, text: str | None, labels: set[str], is_default: bool) -> None:
    """Warn of fields that the user named and no record has."""
    if text and not is_default:
        source.notifier.warn(f"{source.name}: {text}")
    if labels and not is_default and source.labels_required:
        listed = " and ".join(map(repr, sorted(labels)))
        source.notifier.warn(f"{source.name}: no record has the field {listed}; check the names given with --labels.")


def choose_fields(fields: Fields, format: str) -> Fields:
    """Replace the default names of the text and label fields by those of the format."""
    text, labels = DEFAULT_FIELDS[format]
    return replace(
        fields,
        text=text if fields.text == Fields.text else fields.text,
        labels=labels if fields.labels == Fields.labels else fields.labels,
    )


def split_names(names: str | None) -> list[str]:
    return [name.strip() for name in names.split(",")] if names else []


def to_record(values: dict[str, Any], fields: Fields, label_names: list[str]) -> dict[str, Any]:
    """Return the values as the record that `RecordParser` reads."""
    record: dict[str, Any] = {name: None if value is None else " ".join(value) for name, value in values.items()}
    if fields.labels is not None:
        record[fields.labels] = [label for name in label_names for label in values.get(name) or [] if label]
    for name in ("id", fields.id):
        if values.get(name):
            record[name] = values[name][0]
    return record


def _read_records_in_child(source: CorpusInput, fields: Fields, format: str) -> Iterator[tuple[int, Any, Any, str]]:
    """Run `read_records` in a child process."""
    names = [*fields.text_names, *split_names(fields.labels), "id", fields.id, *fields.keep]
    encoding = source.line_encoding if format in TEXT_FORMATS else source.layout.encoding
    request = {"format": format, "fields": names, "encoding": encoding}
    with source.open_seekable() as file:
        n_bytes = file.seek(0, 2)
        file.seek(0)
        content = partial(iter, partial(file.read, CHUNK_BYTES), b"")
        limits = TaskLimits.for_file_size(n_bytes, seconds_per_mib=10.0)
        try:
            for batch in CHILD_POOL.run("xmtc.data.formats.bibliographic:read_records", request, content, limits):
                yield from batch
        except ChildTaskError as problem:
            raise XmtcError(
                f"{source.name} cannot be read as {format} ({problem}); check where it comes from."
            ) from None


def read_records(request: dict[str, Any], content: IO[bytes]) -> Iterator[list[Any]]:
    """Yield batches of records (task of a child process).

    A record is its number, its values, the reason why it is bad or None, and its bytes as Latin-1 text, for the
    rejects file. Fields that were not requested have no values; their names are sent for error messages."""
    batch: list[Any] = []
    n_characters = 0
    parsed = parse_records(request["format"], content, request["encoding"] or None)
    for number, record in enumerate(parsed, 1):
        values = select_values(record, request)
        raw = record.raw.decode("latin-1")
        batch.append((number, values, record.problem, raw))
        n_characters += len(raw) + sum(len(value) for each in values.values() if each for value in each)
        if len(batch) == BATCH_RECORDS or n_characters > BATCH_CHARACTERS:
            yield batch
            batch, n_characters = [], 0
    yield batch


def select_values(record: ParsedRecord, request: dict[str, Any]) -> dict[str, list[str] | None]:
    """Return the requested values under the requested names, and the names of the other fields with None."""
    selected: dict[str, list[str] | None] = dict.fromkeys(record.values)
    for name in request["fields"]:
        if matched := match_name(record.values, name):
            selected.pop(matched, None)
            selected[name] = record.values[matched]
    if MARC_RECORD_FIELD in request["fields"] and record.problem is None:
        selected |= {MARC_RECORD_FIELD: to_marc_json(record, request)}
    return selected


def to_marc_json(record: ParsedRecord, request: dict[str, Any]) -> list[str] | None:
    """Return a MARC record as JSON; None for other formats."""
    if request["format"] == "marcxml":
        return [record.raw.decode()]
    return [decode_marc(record.raw, request["encoding"] or None)[0].as_json()] if request["format"] == "marc" else None


def make_format(name: str) -> CorpusFormat:
    return CorpusFormat(name, partial(read, format=name))


MARC, MARCXML, MODS, DUBLIN_CORE, RIS, BIBTEX = map(make_format, DEFAULT_FIELDS)
