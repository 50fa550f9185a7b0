"""Predictions as subjects of MARC records: MARC 21 and MARCXML.

The corpus must be MARC 21 or MARCXML. Each record keeps its fields and gets a field 650 for each predicted label that
it does not have, linked ($8) to a field 883, which says that a program made it and gives the score. The child process
that parsed the file sends the records as JSON; no bytes of the file are parsed here.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from xmtc.data.formats.bibliographic_parsers import MARC_NAMESPACE, MAX_MARC_BYTES, clean_heading, get_marc_values
from xmtc.errors import XmtcError, as_missing_extra
from xmtc.output.table import SCORE_DIGITS, Prediction, PredictionTable, WriteFunction

if TYPE_CHECKING:
    from xmtc.tagger import Tag

MAX_FIELD_BYTES = 9_999  # the length of a field has four digits
XML_START = f'<?xml version="1.0" encoding="UTF-8"?>\n<collection xmlns="{MARC_NAMESPACE}">\n'.encode()
XML_END = b"</collection>\n"
INVALID_XML_CHARACTERS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")


@contextmanager
def marc_records(
    stream: IO[bytes], table: PredictionTable, serialize: Callable[[Any], bytes], start: bytes = b"", end: bytes = b""
) -> Iterator[WriteFunction]:
    """Yield a function that writes records with their predicted subjects."""
    try:
        import pymarc  # noqa: F401
    except ImportError as error:
        raise as_missing_extra("MARC records", error) from None
    stream.write(start)

    def write(answers: Iterable[Prediction]) -> None:
        for answer in answers:
            record = parse_record(answer)
            add_subjects(record, answer.tags)
            stream.write(serialize(record))

    yield write
    stream.write(end)


def parse_record(answer: Prediction) -> Any:
    """Return the record of a document; raise XmtcError if the corpus has no MARC records."""
    from pymarc import JSONReader

    record_json = answer.kept_values[0] if answer.kept_values else None
    if not isinstance(record_json, str):
        raise XmtcError(
            f"Document {answer.id} is not a MARC record; .mrc and .xml files are copies of the records of a corpus in "
            "MARC 21 or MARCXML with further subjects; write another format, such as .csv."
        )
    stream: Any = io.StringIO(record_json)  # a string could be taken for the name of a file
    record = next(iter(JSONReader(stream)))
    record.leader.coding_scheme = "a"  # UTF-8
    return record


def add_subjects(record: Any, tags: Iterable[Tag]) -> None:
    """Add a field 650 for each label that the record does not have, and a field 883 about its origin."""
    from pymarc import Field, Indicators, Subfield

    values = get_marc_values(record)
    known = {*values.get("650", []), *values.get("650$0", [])}
    links = [re.match(r"\d+", value) for field in record.fields for value in field.get_subfields("8")]
    link = max((int(match[0]) for match in links if match), default=0)
    for tag in tags:
        heading = tag.name or tag.label
        if not {clean_heading(heading), tag.label}.isdisjoint(known):
            continue
        link += 1
        linked = Subfield("8", rf"{link}\p")
        identifier = [] if heading == tag.label else [Subfield("0", remove_controls(tag.label))]
        subject = [linked, Subfield("a", remove_controls(heading)), *identifier]
        origin = [linked, Subfield("a", "xmtc"), Subfield("c", f"{tag.score:.{SCORE_DIGITS}g}")]
        record.add_ordered_field(
            Field("650", Indicators(" ", "4"), subject),  # 4: source not specified
            Field("883", Indicators("0", " "), origin),  # 0: fully machine-generated
        )


def remove_controls(text: str) -> str:
    """Remove the delimiters of MARC 21 and other characters that are not valid in records."""
    return "".join(filter(str.isprintable, text))


def serialize_marc(record: Any) -> bytes:
    """Return a record as MARC 21 in UTF-8; raise XmtcError if it is too long."""
    data: bytes = record.as_marc()
    if len(data) > MAX_MARC_BYTES or any(len(field.as_marc("utf-8")) > MAX_FIELD_BYTES for field in record.fields):
        number = record["001"].data if "001" in record else "without field 001"
        raise XmtcError(
            f"The record {number} is longer than the {MAX_MARC_BYTES:,} bytes of a MARC 21 record or the "
            f"{MAX_FIELD_BYTES:,} of a field; write MARCXML: -o FILE.xml."
        )
    return data


def serialize_xml(record: Any) -> bytes:
    from pymarc import record_to_xml

    return INVALID_XML_CHARACTERS.sub(b"", record_to_xml(record)) + b"\n"


marc = partial(marc_records, serialize=serialize_marc)
marcxml = partial(marc_records, serialize=serialize_xml, start=XML_START, end=XML_END)
