"""Import of vocabularies from tables.

A table without a header has the columns `id<TAB>name` or, as Annif's TSV, `<uri><TAB>name<TAB>notation`; a header may
name other columns. The language of a name is that of its column (`label_fi`), of the row's column `language`, or of the
file."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from xmtc.data.file_streams import OnRead, display_name, read_lines
from xmtc.errors import XmtcError
from xmtc.vocabulary.builder import ConceptCollector
from xmtc.vocabulary.vocabulary import ALTERNATIVE, HIDDEN, NOTATION, PREFERRED, SCHEME, strip_brackets

ID, LANGUAGE, BROADER, IN_SCHEME, DEPRECATED = "id", "language", "broader", "scheme", "deprecated"
REPLACED, EXACT_MATCH = "replaced", "match"
NAME_KINDS = {"name": PREFERRED, "alternative": ALTERNATIVE, "hidden": HIDDEN, "notation": NOTATION}
COLUMN_TITLES = {
    "id uri concept identifier code": ID,
    "name label preflabel preferred title": "name",
    "altlabel alt alternative synonym synonyms altname": "alternative",
    "hiddenlabel hidden": "hidden",
    "notation": "notation",
    "language lang": LANGUAGE,
    "broader parent": BROADER,
    "scheme inscheme": IN_SCHEME,
    "deprecated": DEPRECATED,
    "replacedby isreplacedby replacement": REPLACED,
    "exactmatch": EXACT_MATCH,
}
COLUMN_MEANINGS = {word: meaning for words, meaning in COLUMN_TITLES.items() for word in words.split()}
HEADERLESS_COLUMNS = (ID, "name", "notation")
COLUMN_LANGUAGE_PATTERN = re.compile(r"(.+?)[_@-]([a-z]{2,3}(?:-[a-z0-9]+)*)", re.IGNORECASE)
FILE_LANGUAGE_PATTERN = re.compile(r"[-_.]([a-z]{2})(?:\.\w+)?$")
NAME_SEPARATOR = "|"  # between the values of one cell
TRUE_VALUES = ("true", "1", "yes", "x")


class VocabularyColumn(NamedTuple):
    """Meaning of a table column, and its language if the title has one."""

    meaning: str
    language: str | None = None


def read_table(
    path: str, collector: ConceptCollector, delimiter: str, language: str, on_read: OnRead | None = None
) -> None:
    """Add the concepts of a table to a collector."""
    rows = read_rows(path, delimiter, on_read)
    first = next(rows, None)
    if first is None:
        return
    columns = parse_header(first[1])
    if columns is None:
        columns = [VocabularyColumn(meaning) for meaning in HEADERLESS_COLUMNS]
        add_concept_row(collector, columns, *first, language)
    else:
        check_header(path, columns, first[1])
    for where, cells in rows:
        add_concept_row(collector, columns, where, cells, language)


def check_header(path: str, columns: list[VocabularyColumn | None], titles: list[str]) -> None:
    known = {column.meaning for column in columns if column}
    if ID not in known or len(known) == 1:
        wanted = "one called name or label" if ID in known else "one called id or uri"
        raise XmtcError(f"{display_name(path)} has the columns {', '.join(titles)}; expected {wanted} among them.")


def read_rows(path: str, delimiter: str, on_read: OnRead | None) -> Iterator[tuple[str, list[str]]]:
    """Yield the position and the cells of each non-empty row. CSV may have quotes, and semicolons instead of commas."""
    lines = decode_lines(path, on_read)
    first = next(lines, "")
    lines = chain([first], lines)
    rows: Iterable[list[str]] = (line.rstrip("\r\n").split("\t") for line in lines)
    if delimiter == ",":
        rows = csv.reader(lines, delimiter=max(",;", key=first.count), strict=True)
    number = 0
    try:
        for cells in rows:
            number += 1
            if any(cell.strip() for cell in cells):
                yield f"{display_name(path)}, row {number}", [cell.strip() for cell in cells]
    except csv.Error as error:
        raise XmtcError(
            f"{display_name(path)}, after row {number}: {error}; expected CSV; correct its quotes."
        ) from None


def decode_lines(path: str, on_read: OnRead | None) -> Iterator[str]:
    for number, line in enumerate(read_lines(path, on_read), 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise XmtcError(f"{display_name(path)}, line {number} is not UTF-8; save the table as UTF-8.") from None


def parse_header(cells: list[str]) -> list[VocabularyColumn | None] | None:
    """Return the meaning of each column, or None if the first row is not a header."""
    columns = [parse_column(cell) for cell in cells]
    return columns if ID in (column.meaning for column in columns if column) or all(columns) else None


def parse_column(title: str) -> VocabularyColumn | None:
    """Return the column of a title such as name, prefLabel or label_fi; None for an unknown title."""
    meaning = find_meaning(title)
    if meaning is not None:
        return VocabularyColumn(meaning)
    match = COLUMN_LANGUAGE_PATTERN.fullmatch(title)
    if match is None or (meaning := find_meaning(match[1])) not in NAME_KINDS:
        return None
    return VocabularyColumn(meaning, match[2].lower())


def find_meaning(title: str) -> str | None:
    return COLUMN_MEANINGS.get(re.sub(r"[\W_]|skos|dct", "", title.lower()))


def add_concept_row(
    collector: ConceptCollector, columns: list[VocabularyColumn | None], where: str, cells: list[str], language: str
) -> None:
    filled = [(column, cell) for column, cell in zip(columns, cells, strict=False) if column and cell]
    values = {column.meaning: cell for column, cell in filled}
    if ID not in values:
        raise XmtcError(f"{where} has no id; expected one for each concept: correct or remove the row.")
    concept = collector.add_concept(strip_brackets(values[ID]))
    language = values.get(LANGUAGE, language).lower()
    for column, cell in filled:
        if column.meaning in NAME_KINDS:
            name_language = language if column.language is None else column.language
            add_names(collector, concept, cell, name_language, column.meaning)
        elif column.meaning in LINK_ADDERS:
            for uri in cell.split(NAME_SEPARATOR):
                LINK_ADDERS[column.meaning](collector, concept, strip_brackets(uri))
    if values.get(DEPRECATED, "").lower() in TRUE_VALUES:
        collector.deprecated.add(concept)


def add_names(collector: ConceptCollector, concept: int, cell: str, language: str, meaning: str) -> None:
    names = cell.split(NAME_SEPARATOR) if meaning in ("alternative", "hidden") else [cell]
    for name in names:
        collector.add_name(concept, name, "" if meaning == "notation" else language, NAME_KINDS[meaning])


LINK_ADDERS: dict[str, Callable[[ConceptCollector, int, str], None]] = {
    BROADER: lambda collector, concept, uri: collector.broader.add(concept, collector.add_resource(uri)),
    REPLACED: lambda collector, concept, uri: collector.replacements.add(concept, collector.add_resource(uri)),
    EXACT_MATCH: lambda collector, concept, uri: collector.matches.add(concept, collector.add_resource(uri)),
    IN_SCHEME: lambda collector, concept, uri: collector.members.add(collector.add_group(uri, SCHEME), concept),
}


def detect_file_language(path: str) -> str:
    """Return the language at the end of a file name, for example fi for yso-fi.tsv, or an empty string."""
    match = FILE_LANGUAGE_PATTERN.search(path)
    return match[1] if match else ""
