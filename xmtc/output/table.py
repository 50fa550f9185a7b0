"""Predictions as rows: one row per label, or one per document."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from xmtc.data.records import join_labels

if TYPE_CHECKING:
    from xmtc.tagger import Tag

Cell = str | int | float | None
Record = dict[str, Any]  # values by column name
BROADER_SEPARATOR = " › "  # between broader concepts in one cell
SCORE_DIGITS = 6


class Prediction(NamedTuple):
    """Predicted labels of a document, and its kept fields."""

    id: str
    tags: list[Tag]
    kept_values: tuple[Any, ...] = ()  # of the fields to keep
    text: str = ""
    quality: dict[str, Any] | None = None  # of QualityEstimates.describe, if the model has a gate


class Column(NamedTuple):
    """Name and type of a column."""

    name: str
    kind: type  # str, int or float


QUALITY_COLUMNS = (
    Column("estimated_precision", float),
    Column("estimated_recall", float),
    Column("estimated_f1", float),
    Column("publish", str),
)


@dataclass(frozen=True)
class PredictionTable:
    """Columns of a prediction file. Labels have a name column only with a vocabulary."""

    k: int = 5  # maximum number of labels per document
    wide: bool = False  # one row per document: label_1, score_1, label_2, …
    kept_fields: tuple[str, ...] = ()  # fields of the corpus that are copied
    has_names: bool = False  # from a vocabulary
    broader: Callable[[str], list[str]] | None = None  # broader concepts of a label, the nearest first
    languages: tuple[str, ...] = ()  # further languages of names, with a column each
    find_name: Callable[[str, str], str | None] | None = None  # from a label and a language
    joined: bool = False  # one row per document: all labels in one cell, all names in another
    has_quality: bool = False  # estimated precision, recall and F1 of each document, and whether to publish it

    @cached_property
    def document_columns(self) -> list[Column]:
        """Columns of the document: its id, the kept fields and the quality of its labels."""
        return [*self.field_columns, *(QUALITY_COLUMNS if self.has_quality else ())]

    @cached_property
    def field_columns(self) -> list[Column]:
        """Columns of the id and the kept fields."""
        names = ["id"]
        taken = {"labels", "quality", *(column.name for column in (*self.label_columns, *QUALITY_COLUMNS))}
        for name in self.kept_fields:
            while name in taken or name in names:
                name = f"input_{name}"
            names.append(name)
        return [Column(name, str) for name in names]

    @cached_property
    def label_columns(self) -> list[Column]:
        """Columns of the labels."""
        optional = [("name", str)] * self.has_names + [(f"name_{code}", str) for code in self.languages]
        if self.joined:
            columns = [("labels", str), *((f"{name.replace('name', 'names', 1)}", kind) for name, kind in optional)]
            return [Column(*each) for each in columns]
        optional += [("broader", str)] * (self.broader is not None)
        one = [("label", str), *optional, ("score", float)]
        if not self.wide:
            return [Column("rank", int), *(Column(*each) for each in one)]
        return [Column(f"{name}_{rank}", kind) for rank in range(1, self.k + 1) for name, kind in one]

    @cached_property
    def columns(self) -> list[Column]:
        return [*self.document_columns, *self.label_columns]

    def rows(self, answer: Prediction) -> list[list[Cell]]:
        """Return the rows of a document; a document without labels has one row with empty cells."""
        first = [answer.id, *map(as_cell, answer.kept_values), *self.quality_cells(answer)]
        each = [self.label_cells(tag) for tag in answer.tags]
        if self.joined:
            columns = list(zip(*each, strict=True))[: len(self.label_columns)]
            joined = [join_labels([str(cell) for cell in column if cell is not None]) for column in columns]
            return [[*first, *(joined or [""] * len(self.label_columns))]]
        if self.wide:
            cells = [cell for cells in each for cell in cells]
            return [[*first, *cells, *[None] * (len(self.label_columns) - len(cells))]]
        return [[*first, rank, *cells] for rank, cells in enumerate(each, 1)] or [
            [*first, *[None] * len(self.label_columns)]
        ]

    def quality_cells(self, answer: Prediction) -> list[Cell]:
        if not self.has_quality or answer.quality is None:
            return [None] * (len(self.document_columns) - len(self.field_columns))
        *estimates, is_published = answer.quality.values()
        return [*estimates, "yes" if is_published else "no"]

    def label_cells(self, tag: Tag) -> list[Cell]:
        score = float(f"{tag.score:.{SCORE_DIGITS}g}")
        name: list[Cell] = [tag.name] if self.has_names else []
        if self.find_name is not None:
            name = [*name, *(self.find_name(tag.label, code) for code in self.languages)]
        above: list[Cell] = [] if self.broader is None else [BROADER_SEPARATOR.join(self.broader(tag.label))]
        return [tag.label, *name, *above, score]

    def to_record(self, answer: Prediction) -> dict[str, Any]:
        """Return a document as a JSON object."""
        fields = zip(self.field_columns, (answer.id, *map(replace_non_finite, answer.kept_values)), strict=True)
        labels = []
        for tag in answer.tags:
            name = {} if tag.name is None else {"name": tag.name}
            above = {} if self.broader is None else {"broader": self.broader(tag.label)}
            if self.find_name is not None:
                name |= {f"name_{code}": self.find_name(tag.label, code) or "" for code in self.languages}
            labels.append({"label": tag.label, **name, **above, "score": round(tag.score, SCORE_DIGITS)})
        quality = {"quality": answer.quality} if self.has_quality else {}
        return {column.name: value for column, value in fields} | {"labels": labels} | quality


@dataclass(frozen=True)
class RecordTable:
    """Columns of records other than predictions, such as statistics of labels."""

    columns: list[Column]

    def rows(self, record: Record) -> list[list[Cell]]:
        return [[as_cell(record[column.name]) for column in self.columns]]

    def to_record(self, record: Record) -> Record:
        return {column.name: replace_non_finite(record[column.name]) for column in self.columns}


def as_cell(value: Any) -> Cell:
    """Return a value of a corpus as a cell: numbers stay numbers, lists and objects become JSON."""
    value = replace_non_finite(value)
    if value is None or (isinstance(value, (str, int, float)) and not isinstance(value, bool)):
        return value
    return as_text(value) if not isinstance(value, (bool, list, dict)) else dump_json(value)


def replace_non_finite(value: Any) -> Any:
    """Replace nan and infinity by None."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=as_text)


def as_text(value: Any) -> str:
    """Return dates and other values without a JSON type as text; invalid UTF-8 bytes are written as \\xff."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def format_plain_number(value: int | float) -> str:
    """Return a number without a trailing ".0"."""
    return repr(value).removesuffix(".0")


WriteFunction = Callable[[Iterable[Prediction]], None]  # writes a batch of predictions
