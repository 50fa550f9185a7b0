"""Vocabularies in tables: `id<TAB>name` and Annif's `<uri><TAB>name<TAB>notation` without a header, or any columns with
one. A language is that of a row's `language`, of its column (`label_fi`), or of the whole file."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from xmtc.data.file_streams import OnRead, display_name, read_lines
from xmtc.errors import XmtcError
from xmtc.vocabulary.builder import ConceptCollector
from xmtc.vocabulary.vocabulary import ALTERNATIVE, HIDDEN, NOTATION, PREFERRED, SCHEME

ID, LANGUAGE, BROADER, IN_SCHEME, DEPRECATED, REPLACED = "id", "language", "broader", "scheme", "deprecated", "replaced"
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
}
COLUMN_MEANINGS = {word: meaning for words, meaning in COLUMN_TITLES.items() for word in words.split()}
HEADERLESS_COLUMNS = (ID, "name", "notation")
COLUMN_LANGUAGE_PATTERN = re.compile(r"(.+?)[_@-]([a-z]{2,3}(?:-[a-z0-9]+)*)", re.IGNORECASE)
FILE_LANGUAGE_PATTERN = re.compile(r"[-_.]([a-z]{2})(?:\.\w+)?$")
NAME_SEPARATOR = "|"  # between names in one cell
TRUE_VALUES = ("true", "1", "yes", "x")


class VocabularyColumn(NamedTuple):
    meaning: str
    language: str | None = None


def read_table(
    path: str, collector: ConceptCollector, delimiter: str, language: str, on_read: OnRead | None = None
) -> None:
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
    """Rows that hold anything, and where each stands. Only CSV has quotes; some of it has semicolons for commas."""
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
        raise XmtcError(f"{display_name(path)}, after row {number}: {error}; expected CSV: mend its quotes.") from None


def decode_lines(path: str, on_read: OnRead | None) -> Iterator[str]:
    for number, line in enumerate(read_lines(path, on_read), 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise XmtcError(f"{display_name(path)}, line {number} is no UTF-8; save the table as UTF-8.") from None


def parse_header(cells: list[str]) -> list[VocabularyColumn | None] | None:
    """What each column holds; None where the first row is none but a concept's."""
    columns = [parse_column(cell) for cell in cells]
    return columns if ID in (column.meaning for column in columns if column) or all(columns) else None


def parse_column(title: str) -> VocabularyColumn | None:
    """A column by its title: name, prefLabel, label_fi."""
    plain = find_meaning(title)
    found = COLUMN_LANGUAGE_PATTERN.fullmatch(title)
    if plain is not None or found is None:
        return None if plain is None else VocabularyColumn(plain)
    meaning = find_meaning(found[1])
    return VocabularyColumn(meaning, found[2].lower()) if meaning in NAME_KINDS else None


def find_meaning(title: str) -> str | None:
    return COLUMN_MEANINGS.get(re.sub(r"[\W_]|skos|dct", "", title.lower()))


def add_concept_row(
    collector: ConceptCollector, columns: list[VocabularyColumn | None], where: str, cells: list[str], language: str
) -> None:
    found = [(column, cell) for column, cell in zip(columns, cells, strict=False) if column and cell]
    values = {column.meaning: cell for column, cell in found}
    if ID not in values:
        raise XmtcError(f"{where} has no id; expected one for each concept: mend or remove it.")
    concept = collector.add_concept(strip_brackets(values[ID]))
    language = values.get(LANGUAGE, language).lower()
    for column, cell in found:
        if column.meaning in NAME_KINDS:
            own = language if column.language is None else column.language
            add_names(collector, concept, cell, own, column.meaning)
        elif column.meaning in LINK_ADDERS:
            for each in cell.split(NAME_SEPARATOR):
                LINK_ADDERS[column.meaning](collector, concept, strip_brackets(each))
    if values.get(DEPRECATED, "").lower() in TRUE_VALUES:
        collector.deprecated.add(concept)


def add_names(collector: ConceptCollector, concept: int, cell: str, language: str, meaning: str) -> None:
    several = cell.split(NAME_SEPARATOR) if meaning in ("alternative", "hidden") else [cell]
    for name in several:
        collector.add_name(concept, name, "" if meaning == "notation" else language, NAME_KINDS[meaning])


def strip_brackets(uri: str) -> str:
    uri = uri.strip()
    return uri[1:-1] if uri[:1] == "<" and uri[-1:] == ">" else uri


LINK_ADDERS: dict[str, Callable[[ConceptCollector, int, str], None]] = {
    BROADER: lambda collector, concept, uri: collector.broader.add(concept, collector.add_resource(uri)),
    REPLACED: lambda collector, concept, uri: collector.replacements.add(concept, collector.add_resource(uri)),
    IN_SCHEME: lambda collector, concept, uri: collector.members.add(collector.add_group(uri, SCHEME), concept),
}


def detect_file_language(path: str) -> str:
    """The language that a file's name ends with: fi of yso-fi.tsv."""
    found = FILE_LANGUAGE_PATTERN.search(path)
    return found[1] if found else ""
