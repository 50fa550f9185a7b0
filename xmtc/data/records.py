"""From named fields (a JSON object, a table's row) to a Document, and label names to and from one cell.

A label cell holds a JSON list, or names with `|` between them; `Fields.separator` names another separator. In JSON
Lines a string is split into names only if there is a separator. Empty parts and blanks around names are dropped from
cells; names in lists stay as they are. Repeated names count once. Whole numbers become strings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from xmtc.data.document import Document
from xmtc.errors import nearest

CELL_SEPARATOR = "|"
LISTED_NAMES = 12


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


def record_parser(
    fields: Fields, labels_required: bool, separator: str | None
) -> Callable[[Mapping[str, Any], int], Document]:
    """A function from a record and its line number to its Document. With separator None, labels must be a list."""
    text_names = fields.text_names
    label_field = fields.labels
    id_required = fields.id != Fields.id

    def parse(record: Mapping[str, Any], number: int) -> Document:
        text = _text(record, text_names)

        labels = None if label_field is None else record.get(label_field)
        if labels is None:
            if labels_required and label_field is not None:
                require_field(record, label_field, "labels")
                raise BadRecord(f"the field {label_field!r} is null, expected a list of names")
            labels = []

        id = record.get(fields.id)
        if id is None and id_required:
            require_field(record, fields.id, "id")
        if type(id) is not str:
            id = _identifier(id, fields.id, number)

        document = Document(id, text, checked_labels(labels, label_field, separator))
        return document._replace(kept=tuple(map(record.get, fields.keep))) if fields.keep else document

    return parse


def require_field(present: Iterable[str], name: str, option: str) -> None:
    """Raise BadRecord if the field is missing, with the names of those present and the one most likely meant."""
    names = [str(field) for field in present]
    if name in names:
        return

    lowered = {field.lower(): field for field in names}
    near = [name.lower()] if name.lower() in lowered else nearest(name.lower(), lowered)
    hint = f" (did you mean {lowered[near[0]]!r}?)" if near else ""
    listed = ", ".join(map(repr, names[:LISTED_NAMES])) + (", …" if len(names) > LISTED_NAMES else "")
    raise BadRecord(
        f"there is no field {name!r} among {listed or 'no fields at all'}{hint}; name the right one with --{option}"
    )


def checked_labels(value: Any, name: str | None, separator: str | None) -> list[str]:
    """The label names, each once, or BadRecord."""
    if isinstance(value, str) and separator is not None:
        value = split_labels(value, separator)
    if not isinstance(value, list):
        hint = " (or a --separator to split the string by)" if isinstance(value, str) else ""
        raise BadRecord(f"the field {name!r} is {in_words(value)}, expected a list of names{hint}")
    labels = [label if type(label) is str and label else _label_name(label, name) for label in value]
    return labels if len(set(labels)) == len(labels) else list(dict.fromkeys(labels))


def split_labels(cell: str, separator: str) -> list[Any]:
    """The label names in one cell."""
    if cell.lstrip().startswith("["):
        try:
            return load_json(cell)
        except BadRecord:
            pass  # a name may begin with a bracket
    return [name for part in cell.split(separator) if (name := part.strip())]


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


def in_words(value: Any) -> str:
    """A description of a value, for an error message."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the string {shortened(value)}"
    if isinstance(value, dict):
        return "an object"
    return f"a {type(value).__name__}"


def shortened(text: str, limit: int = 40) -> str:
    """The text in quotes, cut to fit an error message; tabs and line breaks escaped."""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def _text(record: Mapping[str, Any], names: list[str]) -> str:
    parts = [record.get(name) for name in names]
    if len(parts) == 1 and isinstance(parts[0], str):
        return parts[0]
    for name, part in zip(names, parts, strict=True):
        if part is None:
            require_field(record, name, "text")
        elif not isinstance(part, str):
            raise BadRecord(f"the field {name!r} is {in_words(part)}, expected a string")
    if all(part is None for part in parts):
        raise BadRecord(f"the field {', '.join(map(repr, names))} is null, expected a string")
    return " ".join(part for part in parts if part)  # of several fields, some may be null or empty


def _label_name(label: Any, name: str | None) -> str:
    if isinstance(label, int) and not isinstance(label, bool):
        return str(label)
    found = "an empty name" if label == "" else in_words(label)
    raise BadRecord(f"the field {name!r} holds {found}, expected a list of names")


def _identifier(value: Any, name: str, number: int) -> str:
    if value is None:
        return str(number)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise BadRecord(f"the field {name!r} is {in_words(value)}, expected a string or a whole number")
