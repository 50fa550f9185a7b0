"""JSON files: an array of objects, or one object, which is one document.

The whole file is held in memory, so its size is limited; JSON Lines have no limit. Objects are as in jsonl.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from xmtc.data.corpus_input import CorpusInput
from xmtc.data.document import Document
from xmtc.data.encodings import describe_invalid_byte
from xmtc.data.formats import CorpusFormat
from xmtc.data.formats.jsonl import make_object_parser
from xmtc.data.records import BadRecord, describe_json_value, load_json
from xmtc.errors import XmtcError

MAX_JSON_BYTES = 2**27  # decompressed


def read(source: CorpusInput) -> Iterator[Document]:
    parse_record = source.make_record_parser(None)
    parse = make_object_parser(source, parse_record)
    for number, value in enumerate(load_objects(source), 1):
        try:
            document = parse(value, number)
        except BadRecord as problem:
            raw = json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace")
            source.report_bad_line(number, str(problem), raw=raw, unit="object")
        else:
            yield document
    if message := parse_record.describe_missing_fields():
        source.notifier.warn(f"{source.name}: {message}")


def load_objects(source: CorpusInput) -> list[Any]:
    """Return the objects of an array, or a single object; raise XmtcError for other JSON."""
    n_bytes, lines = 0, []
    for line in source.read_raw_lines():
        n_bytes += len(line)
        if n_bytes > MAX_JSON_BYTES:
            raise XmtcError(
                f"{source.name} has more than {MAX_JSON_BYTES:,} bytes in one JSON array; rewrite it as JSON Lines "
                f"with `jq -c '.[]'`."
            )
        lines.append(line)
    try:
        value = load_json(b"".join(lines).decode(source.line_encoding).removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        raise XmtcError(f"{source.name}: {describe_invalid_byte(error, source.line_encoding)}.") from None
    except BadRecord as problem:
        reason = str(problem).partition(", expected")[0]
        raise XmtcError(
            f"{source.name}: {reason}; expected an array of objects, or JSON Lines in a .jsonl file."
        ) from None
    objects = value if isinstance(value, list) else [value]
    for number, each in enumerate(objects, 1):
        if not isinstance(each, dict):
            raise XmtcError(
                f"{source.name}: element {number} is {describe_json_value(each)}, expected an array of objects."
            )
    if isinstance(value, dict) and not any(name in value for name in source.fields.text_names):
        arrays = [name for name, each in value.items() if isinstance(each, list)]
        command = f"`jq -c '.{arrays[0]}[]'`" if arrays else "jq"
        raise XmtcError(
            f"{source.name} is one object without the field {source.fields.text!r}, expected an array of documents; "
            f"name the field with --text, or rewrite the file as JSON Lines with {command}."
        )
    return objects


JSON = CorpusFormat("json", read)
