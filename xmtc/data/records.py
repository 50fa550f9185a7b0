"""From named fields (a JSON object, a table's row) to a Document, and label names to and from one cell.

A label cell holds a list as JSON, Python or numpy writes it, or names with `|` between them; `Fields.separator` names
another separator. In JSON Lines a string is split into names only if there is a separator. Empty parts and blanks
around names are dropped from cells; names in lists stay as they are. Repeated names count once. Whole numbers become
strings. A field is found by its name, or by the only one that is the same but for capitals."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from warnings import catch_warnings, simplefilter

from xmtc.data.document import Document
from xmtc.errors import find_similar_names

CELL_SEPARATOR = "|"
MAX_LISTED_FIELDS = 12
MAX_COMPARED_FIELDS = 1000  # to find the one most likely meant
# A list as Python prints it, and numpy, which leaves the commas out: ['a', "b's"], ['a' 'b']. Names in quotes only.
QUOTED_STRING = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
LIST_ITEM = re.compile(rf"{QUOTED_STRING}|-?\d+")
PYTHON_LIST = re.compile(rf"\s*\[\s*(?:(?:{QUOTED_STRING}|-?\d+)(?:\s*,\s*|\s+|(?=\])))+\]\s*", re.DOTALL)


class BadRecord(Exception):
    """Why a line, a row or a file cannot be a document; the reader adds the location to the message."""


@dataclass(frozen=True)
class Fields:
    """Names of a corpus' fields. Several text fields ("title,abstract") are joined by a space."""

    text: str = "text"
    labels: str | None = "labels"  # None: labels are not read
    id: str = "id"  # optional under this name, with the line number as default; a field of another name is required
    separator: str | None = None  # between the labels in one string
    keep: tuple[str, ...] = ()  # to carry along, for whoever reads the answers

    @property
    def text_names(self) -> list[str]:
        return [name.strip() for name in self.text.split(",")]


class RecordParser:
    """From a record and its line number to its Document. With separator None, labels must be a list."""

    def __init__(
        self, fields: Fields, labels_required: bool, separator: str | None, make_id: Callable[[int], str] = str
    ) -> None:
        self.fields = fields
        self.text_names = fields.text_names
        self.labels_required = labels_required and fields.labels is not None
        self.separator = separator
        self.make_id = make_id
        self.missing_text_fields = set(self.text_names)  # text fields that no record had so far

    def __call__(self, record: Mapping[str, Any], number: int) -> Document:
        text = self._extract_text(record)

        name = self.fields.labels
        labels = None if name is None else get_field(record, name)
        if labels is None:
            if self.labels_required and name is not None:
                require_field(record, name, "labels")
                raise BadRecord(f"the field {name!r} is null, expected a list of names")
            labels = []

        id = get_field(record, self.fields.id)
        if id is None and self.fields.id != Fields.id:
            require_field(record, self.fields.id, "id")
        if type(id) is not str:
            id = self.make_id(number) if id is None else _id_to_text(id, self.fields.id)

        document = Document(id, text, validate_label_names(labels, name, self.separator))
        return document._replace(extra=self._extract_kept_values(record)) if self.fields.keep else document

    def _extract_kept_values(self, record: Mapping[str, Any]) -> tuple[Any, ...]:
        """The values of the fields to carry along."""
        return tuple(get_field(record, name) for name in self.fields.keep)

    def _extract_text(self, record: Mapping[str, Any]) -> str:
        """The text; of several fields, some may be absent, null or empty."""
        if len(self.text_names) == 1:
            text = record.get(self.text_names[0])
            if type(text) is str:
                return text
        parts = [get_field(record, name) for name in self.text_names]
        if len(parts) == 1 and isinstance(parts[0], str):
            return parts[0]
        for name, part in zip(self.text_names, parts, strict=True):
            if part is not None and not isinstance(part, str):
                raise BadRecord(f"the field {name!r} is {describe_json_value(part)}, expected a string")
        if all(part is None for part in parts):
            names = [name for name in self.text_names if match_name(record, name) is None]
            if len(names) == len(parts):
                require_field(record, names[0], "text")
            raise BadRecord(f"the field {', '.join(map(repr, self.text_names))} is null, expected a string")
        if self.missing_text_fields:
            self.missing_text_fields = {name for name in self.missing_text_fields if match_name(record, name) is None}
        return " ".join(part for part in parts if part)

    def describe_missing_fields(self) -> str | None:
        """What to say at the end of a corpus, if one of several text fields was in no document at all."""
        if (
            not self.missing_text_fields
            or len(self.text_names) == 1
            or len(self.missing_text_fields) == len(self.text_names)
        ):
            return None
        listed = " and ".join(map(repr, sorted(self.missing_text_fields)))
        return f"no document has the field {listed}; check the names given with --text."


def get_field(record: Mapping[str, Any], name: str) -> Any:
    """The value of a field, None if it is absent."""
    value = record.get(name)
    if value is None and name not in record:
        found = match_name(record, name)
        return None if found is None else record[found]
    return value


def match_name(present: Iterable[str], name: str) -> str | None:
    """The field of that name, or else the only one that is the same but for capitals and blanks around it."""
    present = list(present)
    if name in present:
        return name
    alike = [field for field in present if isinstance(field, str) and field.strip().casefold() == name.casefold()]
    return alike[0] if len(alike) == 1 else None


def require_field(present: Iterable[str], name: str, option: str) -> None:
    """Raise BadRecord if the field is missing, with the names of those present and the one most likely meant."""
    names = [str(field) for field in present]
    if match_name(names, name) is not None:
        return

    lowered = {field.lower(): field for field in names}
    near = (
        [name.lower()]
        if name.lower() in lowered
        else find_similar_names(name.lower(), list(lowered)[:MAX_COMPARED_FIELDS])
    )
    hint = f" (did you mean {lowered[near[0]]!r}?)" if near else ""
    listed = ", ".join(map(repr, names[:MAX_LISTED_FIELDS])) + (", …" if len(names) > MAX_LISTED_FIELDS else "")
    raise BadRecord(
        f"there is no field {name!r} among {listed or 'no fields at all'}{hint}; name the right one with --{option}"
    )


def validate_label_names(value: Any, name: str | None, separator: str | None) -> list[str]:
    """The label names, each once, or BadRecord."""
    if isinstance(value, str) and separator is not None:
        value = split_labels(value, separator)
    if not isinstance(value, list):
        hint = " (or a --separator to split the string by)" if isinstance(value, str) else ""
        raise BadRecord(f"the field {name!r} is {describe_json_value(value)}, expected a list of names{hint}")
    labels = [label if type(label) is str and label else _label_to_text(label, name) for label in value]
    return labels if len(set(labels)) == len(labels) else list(dict.fromkeys(labels))


def split_labels(cell: str, separator: str) -> list[Any]:
    """The label names in one cell."""
    begin = cell.lstrip()[:2]
    if begin.startswith("["):
        if begin != "['":  # as Python writes it, and JSON never does: to try would take long
            with suppress(BadRecord):  # a name may begin with a bracket
                return load_json(cell)
        if PYTHON_LIST.fullmatch(cell):
            return [_unquote(item) for item in LIST_ITEM.findall(cell)]
    return [name for part in cell.split(separator) if (name := part.strip())]


def _unquote(item: str) -> str:
    if item[0] not in "'\"":
        return item
    if "\\" in item:
        with suppress(ValueError, SyntaxError), catch_warnings():
            simplefilter("ignore")  # about backslashes that begin no escape
            return ast.literal_eval(item)
    return item[1:-1]


def join_labels(labels: list[str]) -> str:
    """The labels as one cell, such that split_labels gives the same labels again."""
    cell = CELL_SEPARATOR.join(labels)
    return cell if split_labels(cell, CELL_SEPARATOR) == labels else json.dumps(labels, ensure_ascii=False)


def load_json(text: str) -> Any:
    """The JSON value, or BadRecord; half of a surrogate pair is refused because no file can hold it again."""
    try:
        value = json.loads(text)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except json.JSONDecodeError as error:
        at = f" at character {error.pos + 1}" if error.pos < len(text) else ""
        raise BadRecord(f"this is no valid JSON ({error.msg}{at}), expected one JSON object per line") from None
    except UnicodeEncodeError:
        raise BadRecord("found half of a surrogate pair (\\ud8… or \\udc…), expected whole characters") from None
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"this is no readable JSON ({error}), expected one JSON object per line") from None


def describe_json_value(value: Any) -> str:
    """A description of a value, for an error message."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the string {quote_text(value)}"
    if isinstance(value, dict):
        return "an object"
    return f"a {type(value).__name__}"


def quote_text(text: str, limit: int = 40) -> str:
    """The text in quotes, cut to fit an error message; tabs and line breaks escaped."""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def _label_to_text(label: Any, name: str | None) -> str:
    if isinstance(label, int) and not isinstance(label, bool):
        return str(label)
    found = "an empty name" if label == "" else describe_json_value(label)
    raise BadRecord(f"the field {name!r} holds {found}, expected a list of names")


def _id_to_text(value: Any, name: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise BadRecord(f"the field {name!r} is {describe_json_value(value)}, expected a string or a whole number")
