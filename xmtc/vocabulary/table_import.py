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
from xmtc.vocabulary.collector import Collector
from xmtc.vocabulary.vocabulary import ALTERNATIVE, HIDDEN, NOTATION, PREFERRED, SCHEME

ID, LANGUAGE, BROADER, IN_SCHEME, DEPRECATED, REPLACED = "id", "language", "broader", "scheme", "deprecated", "replaced"
NAMES = {"name": PREFERRED, "alternative": ALTERNATIVE, "hidden": HIDDEN, "notation": NOTATION}
COLUMNS = {
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
MEANINGS = {word: meaning for words, meaning in COLUMNS.items() for word in words.split()}
WITHOUT_HEADER = (ID, "name", "notation")
LANGUAGE_OF_COLUMN = re.compile(r"(.+?)[_@-]([a-z]{2,3}(?:-[a-z0-9]+)*)", re.IGNORECASE)
LANGUAGE_OF_FILE = re.compile(r"[-_.]([a-z]{2})(?:\.\w+)?$")
SEVERAL = "|"  # between names in one cell
TRUE = ("true", "1", "yes", "x")


class Column(NamedTuple):
    meaning: str
    language: str | None = None


def read_table(path: str, collector: Collector, delimiter: str, language: str, on_read: OnRead | None = None) -> None:
    rows = read_rows(path, delimiter, on_read)
    first = next(rows, None)
    if first is None:
        return
    columns = header(first[1])
    if columns is None:
        columns = [Column(meaning) for meaning in WITHOUT_HEADER]
        add_row(collector, columns, *first, language)
    else:
        check_header(path, columns, first[1])
    for where, cells in rows:
        add_row(collector, columns, where, cells, language)


def check_header(path: str, columns: list[Column | None], titles: list[str]) -> None:
    known = {column.meaning for column in columns if column}
    if ID not in known or len(known) == 1:
        wanted = "one called name or label" if ID in known else "one called id or uri"
        raise XmtcError(f"{display_name(path)} has the columns {', '.join(titles)}; expected {wanted} among them.")


def read_rows(path: str, delimiter: str, on_read: OnRead | None) -> Iterator[tuple[str, list[str]]]:
    """Rows that hold anything, and where each stands. Only CSV has quotes; some of it has semicolons for commas."""
    lines = decoded(path, on_read)
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


def decoded(path: str, on_read: OnRead | None) -> Iterator[str]:
    for number, line in enumerate(read_lines(path, on_read), 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise XmtcError(f"{display_name(path)}, line {number} is no UTF-8; save the table as UTF-8.") from None


def header(cells: list[str]) -> list[Column | None] | None:
    """What each column holds; None where the first row is none but a concept's."""
    columns = [column_of(cell) for cell in cells]
    return columns if ID in (column.meaning for column in columns if column) or all(columns) else None


def column_of(title: str) -> Column | None:
    """A column by its title: name, prefLabel, label_fi."""
    plain = meaning_of(title)
    found = LANGUAGE_OF_COLUMN.fullmatch(title)
    if plain is not None or found is None:
        return None if plain is None else Column(plain)
    meaning = meaning_of(found[1])
    return Column(meaning, found[2].lower()) if meaning in NAMES else None


def meaning_of(title: str) -> str | None:
    return MEANINGS.get(re.sub(r"[\W_]|skos|dct", "", title.lower()))


def add_row(collector: Collector, columns: list[Column | None], where: str, cells: list[str], language: str) -> None:
    found = [(column, cell) for column, cell in zip(columns, cells, strict=False) if column and cell]
    values = {column.meaning: cell for column, cell in found}
    if ID not in values:
        raise XmtcError(f"{where} has no id; expected one for each concept: mend or remove it.")
    concept = collector.concept(bare(values[ID]))
    language = values.get(LANGUAGE, language).lower()
    for column, cell in found:
        if column.meaning in NAMES:
            own = language if column.language is None else column.language
            add_names(collector, concept, cell, own, column.meaning)
        elif column.meaning in LINKS:
            for each in cell.split(SEVERAL):
                LINKS[column.meaning](collector, concept, bare(each))
    if values.get(DEPRECATED, "").lower() in TRUE:
        collector.deprecated.add(concept)


def add_names(collector: Collector, concept: int, cell: str, language: str, meaning: str) -> None:
    several = cell.split(SEVERAL) if meaning in ("alternative", "hidden") else [cell]
    for name in several:
        collector.name(concept, name, "" if meaning == "notation" else language, NAMES[meaning])


def bare(uri: str) -> str:
    uri = uri.strip()
    return uri[1:-1] if uri[:1] == "<" and uri[-1:] == ">" else uri


LINKS: dict[str, Callable[[Collector, int, str], None]] = {
    BROADER: lambda collector, concept, uri: collector.broader.add(concept, collector.thing(uri)),
    REPLACED: lambda collector, concept, uri: collector.replacements.add(concept, collector.thing(uri)),
    IN_SCHEME: lambda collector, concept, uri: collector.members.add(collector.group(uri, SCHEME), concept),
}


def language_of(path: str) -> str:
    """The language that a file's name ends with: fi of yso-fi.tsv."""
    found = LANGUAGE_OF_FILE.search(path)
    return found[1] if found else ""
