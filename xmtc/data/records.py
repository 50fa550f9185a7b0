"""Conversion of records (JSON objects, rows of tables) to documents, and of label cells to label names.

A label cell is a list as JSON, Python or NumPy prints it, or names separated by `|` (`Fields.separator` sets another
separator). In JSON Lines a string is split only if a separator was set, and a label may be an object with the field
`label`, as in predictions. Empty parts and white space around names are
dropped from cells; names in lists are not changed. Duplicates are dropped. Whole numbers become strings. A field is
matched by its exact name, or else by the only name that differs in case or surrounding white space."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from warnings import catch_warnings, simplefilter

from xmtc.data.document import Document
from xmtc.data.text_fields import TextField, parse_text_fields
from xmtc.errors import find_similar_names

CELL_SEPARATOR = "|"
MAX_LISTED_FIELDS = 12
MAX_COMPARED_FIELDS = 1000  # in the search for a similar name
# A list as Python prints it, or as NumPy does without commas: ['a', "b's"], ['a' 'b']. Names must be quoted.
QUOTED_STRING = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
LIST_ITEM = re.compile(rf"{QUOTED_STRING}|-?\d+")
PYTHON_LIST = re.compile(rf"\s*\[\s*(?:(?:{QUOTED_STRING}|-?\d+)(?:\s*,\s*|\s+|(?=\])))+\]\s*", re.DOTALL)


class BadRecord(Exception):
    """The reason why a line, row or file is not a valid document; the reader adds the location."""


@dataclass(frozen=True)
class Fields:
    """Names of the fields of a corpus.

    Parameters
    ----------
    text : str
        Text field; several fields ("title,abstract") are joined by a space. The words of "title^2" count twice;
        "publisher:category" and "year:number" are side columns (`xmtc.data.text_fields`).
    labels : str, optional
        Label field; the labels of several fields ("subjects,genre") are joined. None skips the labels.
    id : str
        Id field. "id" is optional, and the line number replaces it; any other name is required.
    separator : str, optional
        Separator between the labels in a string.
    keep : tuple of str
        Fields that are copied to the predictions.
    """

    text: str = "text"
    labels: str | None = "labels"
    id: str = "id"
    separator: str | None = None
    keep: tuple[str, ...] = ()

    @property
    def text_fields(self) -> tuple[TextField, ...]:
        return parse_text_fields(self.text)

    @property
    def text_names(self) -> list[str]:
        return [field.name for field in self.text_fields]

    @property
    def label_names(self) -> list[str]:
        return [name.strip() for name in self.labels.split(",")] if self.labels else []

    @property
    def names(self) -> list[str]:
        """The names of all fields that are read."""
        return [*self.text_names, *self.label_names, self.id, *self.keep]

    def check_columns(self, columns: Sequence[str], labels_required: bool) -> None:
        """Raise BadRecord if a required field is not a column of a table."""
        for name in self.text_names:
            require_field(columns, name, "text")
        for name in self.label_names if labels_required else ():
            require_field(columns, name, "labels")
        for name in self.keep:
            require_field(columns, name, "keep")


class RecordParser:
    """Parser from a record and its line number to a Document; if the separator is None, labels must be a list."""

    def __init__(
        self, fields: Fields, labels_required: bool, separator: str | None, make_id: Callable[[int], str] = str
    ) -> None:
        self.fields = fields
        self.text_fields, self.text_names = fields.text_fields, fields.text_names
        self.is_plain_text = fields.text_names == [fields.text]
        self.labels_required = labels_required and fields.labels is not None
        self.separator = separator
        self.label_names = fields.label_names
        self.has_one_label_per_cell = False  # in tables of predictions, whose labels may contain the separator
        self.make_id = make_id
        self.missing_text_fields = set(self.text_names)  # those that no record has had so far

    def __call__(self, record: Mapping[str, Any], number: int) -> Document:
        text = self._extract_text(record)

        labels = self._extract_labels(record)
        id = get_field(record, self.fields.id)
        if id is None and self.fields.id != Fields.id:
            require_field(record, self.fields.id, "id")
        if type(id) is not str:
            id = self.make_id(number) if id is None else _id_to_text(id, self.fields.id)

        document = Document(id, text, labels)
        return document._replace(extra=self._extract_kept_values(record)) if self.fields.keep else document

    def _extract_labels(self, record: Mapping[str, Any]) -> list[str]:
        """Return the labels of all label fields; some of several fields may be null or empty."""
        names = self.label_names
        if len(names) == 1:
            value = get_field(record, names[0])
            if value is None:
                if self.labels_required and not self.has_one_label_per_cell:
                    require_field(record, names[0], "labels")
                    raise BadRecord(f"the field {names[0]!r} is null, expected a list of names")
                return []
            if self.has_one_label_per_cell and isinstance(value, str):
                value = [value] if value else []
            return validate_label_names(value, names[0], self.separator)
        values = [(name, get_field(record, name)) for name in names]
        if self.labels_required and all(value is None for _, value in values):
            for name in names:
                require_field(record, name, "labels")
        labels: dict[str, None] = {}
        for name, value in values:
            if value not in (None, ""):
                is_one = isinstance(value, str) and (self.separator is None or self.has_one_label_per_cell)
                labels |= dict.fromkeys(validate_label_names([value] if is_one else value, name, self.separator))
        return list(labels)

    def _extract_kept_values(self, record: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(get_field(record, name) for name in self.fields.keep)

    def _extract_text(self, record: Mapping[str, Any]) -> str:
        """Return the joined text fields; some of several fields may be absent, null or empty."""
        if self.is_plain_text:
            text = record.get(self.text_names[0])
            if type(text) is str:
                return text
        parts = [get_field(record, name) for name in self.text_names]
        if self.is_plain_text and isinstance(parts[0], str):
            return parts[0]
        texts = [field_to_text(field, part) for field, part in zip(self.text_fields, parts, strict=True)]
        if all(part is None for part in parts):
            if all(match_name(record, name) is None for name in self.text_names):
                require_field(record, self.text_names[0], "text")
            raise BadRecord(f"the field {', '.join(map(repr, self.text_names))} is null, expected a string")
        if self.missing_text_fields:
            self.missing_text_fields = {name for name in self.missing_text_fields if match_name(record, name) is None}
        return " ".join(text for text in texts if text)

    def describe_missing_fields(self) -> str | None:
        """Return a message if some, but not all, of several text fields were in no document."""
        if not 0 < len(self.missing_text_fields) < len(self.text_names):
            return None
        listed = " and ".join(map(repr, sorted(self.missing_text_fields)))
        return f"no document has the field {listed}; check the names given with --text."


def field_to_text(field: TextField, value: Any) -> str:
    try:
        return field.to_text(value)
    except ValueError as expected:
        raise BadRecord(f"the field {field.name!r} is {describe_json_value(value)}, expected {expected}") from None


def get_field(record: Mapping[str, Any], name: str) -> Any:
    """Return the value of a field; None if it is absent."""
    value = record.get(name)
    if value is None and name not in record:
        matched = match_name(record, name)
        return None if matched is None else record[matched]
    return value


def match_name(candidates: Iterable[str], name: str) -> str | None:
    """Return the candidate of that name, or the only one that differs in case or surrounding white space."""
    candidates = list(candidates)
    if name in candidates:
        return name
    matches = [other for other in candidates if isinstance(other, str) and other.strip().casefold() == name.casefold()]
    return matches[0] if len(matches) == 1 else None


def require_field(fields: Iterable[str], name: str, option: str) -> None:
    """Raise BadRecord if a field is missing, with the existing fields and the most similar one."""
    names = [str(field) for field in fields]
    if match_name(names, name) is not None:
        return

    lowered = {field.lower(): field for field in names}
    if name.lower() in lowered:
        similar = [name.lower()]
    else:
        similar = find_similar_names(name.lower(), list(lowered)[:MAX_COMPARED_FIELDS])
    hint = f" (did you mean {lowered[similar[0]]!r}?)" if similar else ""
    listed = ", ".join(map(repr, names[:MAX_LISTED_FIELDS])) + (", …" if len(names) > MAX_LISTED_FIELDS else "")
    if not hint and name == Fields.text and {"id", "labels"} <= set(names):
        hint = "; if these are predictions, write them with `xmtc predict … --keep text`"
    raise BadRecord(
        f"there is no field {name!r} among {listed or 'no fields at all'}{hint}; name the right one with --{option}"
    )


def validate_label_names(value: Any, name: str | None, separator: str | None) -> list[str]:
    """Return the distinct label names in the value of a field; raise BadRecord if it is not a list of names."""
    if isinstance(value, str) and separator is not None:
        value = split_labels(value, separator)
    if not isinstance(value, list):
        hint = " (or a --separator to split the string by)" if isinstance(value, str) else ""
        raise BadRecord(f"the field {name!r} is {describe_json_value(value)}, expected a list of names{hint}")
    labels = [label if type(label) is str and label else _label_to_text(label, name) for label in value]
    return labels if len(set(labels)) == len(labels) else list(dict.fromkeys(labels))


def split_labels(cell: str, separator: str) -> list[Any]:
    """Return the label names in one cell."""
    start = cell.lstrip()[:2]
    if start.startswith("["):
        if start != "['":  # Python's quotes are never valid JSON, and the attempt would take long
            with suppress(BadRecord):  # a name may start with a bracket
                return load_json(cell)
        if PYTHON_LIST.fullmatch(cell):
            return [_unquote(item) for item in LIST_ITEM.findall(cell)]
    return [name for part in cell.split(separator) if (name := part.strip())]


def _unquote(item: str) -> str:
    if item[0] not in "'\"":
        return item
    if "\\" in item:
        with suppress(ValueError, SyntaxError), catch_warnings():
            simplefilter("ignore")  # warnings about invalid escape sequences
            return ast.literal_eval(item)
    return item[1:-1]


def join_labels(labels: list[str]) -> str:
    """Return the labels as one cell from which `split_labels` restores them."""
    cell = CELL_SEPARATOR.join(labels)
    return cell if split_labels(cell, CELL_SEPARATOR) == labels else json.dumps(labels, ensure_ascii=False)


def load_json(text: str) -> Any:
    """Parse JSON or raise BadRecord; lone surrogates are refused because they cannot be encoded."""
    try:
        value = json.loads(text)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except json.JSONDecodeError as error:
        at = f" at character {error.pos + 1}" if error.pos < len(text) else ""
        raise BadRecord(f"this is not valid JSON ({error.msg}{at}), expected one JSON object per line") from None
    except UnicodeEncodeError:
        raise BadRecord("found a lone surrogate (\\ud8… or \\udc…), expected complete characters") from None
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"this is not readable JSON ({error}), expected one JSON object per line") from None


def describe_json_value(value: Any) -> str:
    """Return a description of a JSON value for an error message."""
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
    """Return the text in quotes for an error message, shortened, with tabs and line breaks escaped."""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def _label_to_text(label: Any, name: str | None) -> str:
    if isinstance(label, int) and not isinstance(label, bool):
        return str(label)
    if isinstance(label, dict) and isinstance(label.get("label"), str) and label["label"]:
        return label["label"]  # as `xmtc predict` writes labels
    description = "an empty name" if label == "" else describe_json_value(label)
    raise BadRecord(f"the field {name!r} contains {description}, expected a list of names")


def _id_to_text(value: Any, name: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise BadRecord(f"the field {name!r} is {describe_json_value(value)}, expected a string or a whole number")
