"""Parsers of bibliographic records: pymarc, lxml, rispy and bibtexparser (extra `library`).

Call them in a child process only. A parser takes the content of a file and the user's encoding, and yields a
`ParsedRecord` for each record."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from io import BytesIO
from typing import IO, Any, NamedTuple

from xmtc.core.child_worker import CHUNK_BYTES

Values = dict[str, list[str]]  # values by field name

END_OF_RECORD = b"\x1d"  # of MARC 21
MAX_MARC_BYTES = 99_999  # the length of a record has five digits
SUBJECT_SUBFIELDS = "axyzv"  # a heading and its subdivisions
TITLE_SUBFIELDS = "abnp"  # without the statement of responsibility
SUBDIVISION_SEPARATOR = "--"
MARC_NAMESPACE = "http://www.loc.gov/MARC21/slim"
MODS_NAMESPACE = "http://www.loc.gov/mods/v3"
OAI_NAMESPACE = "http://www.openarchives.org/OAI/2.0/"
DUBLIN_CORE_NAMESPACES = ("http://purl.org/dc/elements/1.1/", "http://purl.org/dc/terms/")
RIS_TAG = re.compile(r"^([A-Z][A-Z0-9])  -", re.MULTILINE)
RIS_RECORD_START = re.compile(r"^(?=TY  -)", re.MULTILINE)


class ParsedRecord(NamedTuple):
    """Fields of a record, or the reason why it is bad."""

    values: Values
    problem: str | None = None
    raw: bytes = b""


def parse_marc(content: IO[bytes], encoding: str | None) -> Iterator[ParsedRecord]:
    """Split the stream at the end-of-record bytes, so that one damaged record does not affect the next."""
    for raw in split_marc(content):
        record, problem = decode_marc(raw, encoding)
        yield ParsedRecord({}, problem, raw) if record is None else ParsedRecord(get_marc_values(record), None, raw)


def split_marc(content: IO[bytes]) -> Iterator[bytes]:
    """Yield the bytes of each record; line breaks and padding between records are dropped."""
    rest = b""
    while chunk := content.read(CHUNK_BYTES):
        *records, rest = (rest + chunk).split(END_OF_RECORD)
        yield from (raw.lstrip(b"\r\n\0 ") + END_OF_RECORD for raw in records if raw.strip(b"\r\n\0 "))
        if len(rest) > MAX_MARC_BYTES + CHUNK_BYTES:
            break  # no MARC 21
    if rest.strip(b"\r\n\0 \x1a"):
        yield rest.lstrip(b"\r\n\0 ")[:MAX_MARC_BYTES]


def decode_marc(raw: bytes, encoding: str | None) -> tuple[Any, str | None]:
    """Return the record and None, or None and the reason why it is bad.

    Many systems write UTF-8 or Latin-1 although the leader says MARC-8. Text that is valid UTF-8 is therefore decoded
    as UTF-8; other text as MARC-8, unless the user sets the encoding."""
    from pymarc import MARCReader

    options: dict[str, Any] = {"to_unicode": True, "force_utf8": encoding is None and is_utf8(raw)}
    if encoding is not None:
        # pymarc takes its default name iso8859-1 for MARC-8.
        is_latin = codecs.lookup(encoding).name == "iso8859-1"
        options["file_encoding"] = "latin_1" if is_latin else encoding
        raw = raw[:9] + b" " + raw[10:]  # the user's encoding overrides the leader
    reader = MARCReader(BytesIO(raw), **options)
    record = next(reader, None)
    if record is not None:
        return record, None
    error = reader.current_exception
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return None, f"it is not a MARC 21 record ({reason.rstrip('.')}), expected a complete record"


def is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def get_marc_values(record: Any) -> Values:
    """Return the values of each field (`245`) and subfield (`245$a`).

    The value of a subject field is the heading with its subdivisions; of another field, its text subfields."""
    values: Values = {}
    for field in record.fields:
        if field.is_control_field():
            values.setdefault(field.tag, []).append(field.data or "")
            continue
        subfields = [(code, value) for code, value in field.subfields if value.strip()]
        for code, value in subfields:
            values.setdefault(f"{field.tag}${code}", []).append(clean_heading(value))
        if field.tag.startswith("6"):
            parts = [clean_heading(value) for code, value in subfields if code in SUBJECT_SUBFIELDS]
            value = SUBDIVISION_SEPARATOR.join(parts)
        else:
            codes = TITLE_SUBFIELDS if field.tag == "245" else "abcdefghijklmnopqrstuvxyz"
            value = " ".join(value.strip() for code, value in subfields if code in codes).rstrip(" /:;,=")
        if value:
            values.setdefault(field.tag, []).append(value)
    if "001" in values:
        values["id"] = values["001"]
    return values


def clean_heading(value: str) -> str:
    """Remove the punctuation at the end of a subfield; the period of an abbreviation stays."""
    value = value.strip().rstrip(" ,;:/")
    return re.sub(r"(?<=\w{4})\.$", "", value)


def parse_marcxml(content: IO[bytes], encoding: str | None) -> Iterator[ParsedRecord]:
    for element, oai_id in iterate_elements(content, encoding, f"{{{MARC_NAMESPACE}}}record", "record"):
        record = build_marc_record(element)
        values = get_marc_values(record)
        if "id" not in values and oai_id:
            values["id"] = [oai_id]
        yield ParsedRecord(values, None, record.as_json().encode())


def build_marc_record(element: Any) -> Any:
    """Return a pymarc record of a MARCXML element."""
    from pymarc import Field, Indicators, Leader, Record, Subfield

    record = Record()
    for child in element.iterchildren("{*}*"):
        tag, text = child.get("tag", ""), child.text or ""
        name = get_local_name(child)
        if name == "leader":
            record.leader = Leader(text[:24].ljust(24))
        elif name == "controlfield":
            record.add_field(Field(tag=tag, data=text))
        elif name == "datafield":
            subfields = [Subfield(each.get("code", ""), each.text or "") for each in child.iterchildren("{*}subfield")]
            indicators = Indicators(child.get("ind1") or " ", child.get("ind2") or " ")
            record.add_field(Field(tag=tag, indicators=indicators, subfields=subfields))
    return record


def parse_mods(content: IO[bytes], encoding: str | None) -> Iterator[ParsedRecord]:
    for element, oai_id in iterate_elements(content, encoding, f"{{{MODS_NAMESPACE}}}mods", "mods"):
        values: Values = {}
        for child in element.iterchildren("{*}*"):
            name = {"titleInfo": "title", "recordInfo": "recordIdentifier"}.get(local := get_local_name(child), local)
            separator = SUBDIVISION_SEPARATOR if name == "subject" else " "
            is_identifier = name == "recordIdentifier"
            texts = [join_texts(part) for part in (child.iter("{*}recordIdentifier") if is_identifier else child)]
            value = separator.join(filter(None, texts)) or ("" if is_identifier else join_texts(child))
            add_value(values, name, value)
            for node in child.iter("{*}*"):
                add_value(values, f"{name}@valueURI", node.get("valueURI", ""))
        if ids := values.get("recordIdentifier") or ([oai_id] if oai_id else values.get("identifier")):
            values["id"] = ids
        yield ParsedRecord(values)


def parse_dublin_core(content: IO[bytes], encoding: str | None) -> Iterator[ParsedRecord]:
    """Yield the elements that have Dublin Core elements as children, as in OAI-PMH."""
    for element, oai_id in iterate_elements(content, encoding):
        values: Values = {}
        for child in element:
            if is_dublin_core(child):
                add_value(values, get_local_name(child), join_texts(child))
        if ids := [oai_id] if oai_id else values.get("identifier"):
            values["id"] = ids
        yield ParsedRecord(values)


def iterate_elements(content: IO[bytes], encoding: str | None, *tags: str) -> Iterator[tuple[Any, str | None]]:
    """Yield each record element and the identifier in its OAI-PMH header, and free the memory of those before it.

    Without tags, an element with Dublin Core children is a record. Entities are not resolved."""
    from lxml import etree

    options: dict[str, Any] = {"resolve_entities": False, "no_network": True, "load_dtd": False, "encoding": encoding}
    oai_id = None
    for _, element in etree.iterparse(content, events=("end",), remove_comments=True, remove_pis=True, **options):
        if element.tag == f"{{{OAI_NAMESPACE}}}identifier":
            oai_id = (element.text or "").strip() or None
        is_record = element.tag in tags if tags else any(map(is_dublin_core, element))
        if not is_record:
            continue
        yield element, oai_id
        oai_id = None
        element.clear()
        for node in (element, *element.iterancestors()):
            while node.getprevious() is not None and node.getparent() is not None:
                del node.getparent()[0]


def is_dublin_core(element: Any) -> bool:
    tag = element.tag
    return isinstance(tag, str) and tag.startswith("{") and tag[1:].partition("}")[0] in DUBLIN_CORE_NAMESPACES


def get_local_name(element: Any) -> str:
    return element.tag.rpartition("}")[2]


def join_texts(element: Any) -> str:
    return " ".join(" ".join(element.itertext()).split())


def add_value(values: Values, name: str, value: str) -> None:
    if value and value not in values.setdefault(name, []):
        values[name].append(value)


def parse_ris(content: IO[bytes], encoding: str | None) -> Iterator[ParsedRecord]:
    """Yield the values by tag (`TI`); each record is parsed alone, because rispy drops one without an end tag."""
    import rispy

    text = content.read().decode(encoding or "utf-8", errors="replace").removeprefix("\ufeff").replace("\r\n", "\n")
    for part in RIS_RECORD_START.split(text):
        if not part.strip():
            continue
        raw = part.encode()
        if not part.startswith("TY  -"):
            yield ParsedRecord({}, "there is no line 'TY  - …' before it, expected one at the start of a record", raw)
            continue
        body = RIS_TAG.split(part.rstrip())
        tags = list(dict.fromkeys(body[1::2]))
        end = "" if "ER" in tags else "\nER  - "
        mapping = {tag: tag for tag in (*tags, "ER")}
        try:
            (record,) = rispy.loads(part.rstrip() + end + "\n", mapping=mapping, list_tags=tags)
        except (OSError, ValueError, KeyError) as error:
            yield ParsedRecord({}, f"it is not valid RIS ({error}), expected lines such as 'TI  - Title'", raw)
            continue
        values: Values = {}
        for tag in tags:
            found = record.get(tag, [])
            for value in [found] if isinstance(found, str) else found:
                add_value(values, tag, value.strip())
        if "ID" in values:
            values["id"] = values["ID"]
        yield ParsedRecord(values, None, raw)


def parse_bibtex(content: IO[bytes], encoding: str | None) -> Iterator[ParsedRecord]:
    """Yield the values by field name in lower case; keywords are split at semicolons, else at commas."""
    import bibtexparser
    from bibtexparser.middlewares import LatexDecodingMiddleware
    from bibtexparser.model import Entry, ParsingFailedBlock

    text = content.read().decode(encoding or "utf-8", errors="replace").removeprefix("\ufeff")
    library = bibtexparser.parse_string(text, append_middleware=[LatexDecodingMiddleware()])
    for block in library.blocks:
        raw = (block.raw or "").encode()
        if isinstance(block, ParsingFailedBlock):
            inner = block.ignore_error_block
            if not isinstance(inner, Entry):
                reason = getattr(block.error, "abort_reason", None) or str(block.error)
                reason = " ".join(reason.split())[:200].rstrip(".")
                line = (block.start_line or 0) + 1
                yield ParsedRecord({}, f"line {line} is not valid BibTeX ({reason}), expected an entry", raw)
                continue
            block = inner  # two entries have the same key
        if isinstance(block, Entry):
            values = {
                field.key.lower(): split_bibtex_value(field.key.lower(), str(field.value)) for field in block.fields
            }
            values["id"] = [block.key]
            yield ParsedRecord(values, None, raw)


def split_bibtex_value(name: str, value: str) -> list[str]:
    value = " ".join(value.replace("{", "").replace("}", "").split())
    if name not in ("keywords", "keyword"):
        return [value]
    return [part.strip() for part in value.split(";" if ";" in value else ",") if part.strip()]


PARSERS = {
    "marc": parse_marc,
    "marcxml": parse_marcxml,
    "mods": parse_mods,
    "dc": parse_dublin_core,
    "ris": parse_ris,
    "bibtex": parse_bibtex,
}
XML_FORMATS = ("marcxml", "mods", "dc")


def parse_records(format: str, content: IO[bytes], encoding: str | None) -> Iterator[ParsedRecord]:
    """Yield the records; damaged XML ends with a bad record."""
    if format not in XML_FORMATS:
        yield from PARSERS[format](content, encoding)
        return
    from lxml.etree import XMLSyntaxError

    try:
        yield from PARSERS[format](content, encoding)
    except XMLSyntaxError as error:
        yield ParsedRecord({}, f"the XML is damaged here ({error.msg}), expected well-formed XML")
