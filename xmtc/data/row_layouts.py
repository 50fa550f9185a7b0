"""Tables with several columns or rows per document, as `xmtc predict` and people write them.

A wide table has the label columns `label_1`, `label_2`, …, each with a column `score_1` …; a long one has a row per
label, with the columns `rank`, `label` and `score`. Both are recognised by their header. Adjacent rows with the same id
and text are one document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from xmtc.data.document import Document
from xmtc.data.layout import Notifier
from xmtc.data.records import Fields, match_name

RANKED_LABEL_PATTERN = re.compile(r"label_[1-9]\d*")
LONG_COLUMNS = ("id", "rank", "label", "score")
MAX_REMEMBERED_DOCUMENTS = 100_000  # whose ids are compared with those of later rows
ESCAPED_FORMULA_PATTERN = re.compile(r"'[=+\-@\t\r\n＝＋－＠]")


def is_wide(header: Sequence[str]) -> bool:
    return "label_1" in header and "score_1" in header


def is_long(header: Sequence[str]) -> bool:
    return set(LONG_COLUMNS) <= set(header)


def resolve_label_fields(fields: Fields, header: Sequence[str]) -> Fields:
    """Return the fields with the label columns of a table of predictions, unless the user named others."""
    if fields.labels is None or not (is_wide(header) or is_long(header)):
        return fields
    if fields.labels == Fields.labels and match_name(header, Fields.labels) is None:
        names = [name for name in header if RANKED_LABEL_PATTERN.fullmatch(name)] if is_wide(header) else ["label"]
        return replace(fields, labels=",".join(names))
    return fields


def has_one_label_per_cell(fields: Fields, header: Sequence[str]) -> bool:
    """Return True if the label columns are those of a table of predictions, whose labels may contain a bar."""
    is_prediction = is_wide(header) or is_long(header)
    return is_prediction and all(RANKED_LABEL_PATTERN.fullmatch(name) or name == "label" for name in fields.label_names)


def unescape_formula(cell: str) -> str:
    """Remove the apostrophe before a text that looks like a formula, which `xmtc predict` adds in CSV and TSV."""
    return cell[1:] if ESCAPED_FORMULA_PATTERN.match(cell) else cell


def merge_rows(documents: Iterable[Document], name: str, notifier: Notifier) -> Iterator[Document]:
    """Yield one document for adjacent rows with the same id and text; its labels are those of all these rows."""
    seen: set[int] = set()
    previous: Document | None = None
    labels: dict[str, None] = {}
    n_rows = n_documents = 0
    repeated_id = None
    for document in documents:
        n_rows += 1
        if previous is not None and (document.id, document.text) == (previous.id, previous.text):
            labels |= dict.fromkeys(document.labels)
            continue
        if previous is not None:
            yield previous._replace(labels=list(labels))
        previous, labels = document, dict.fromkeys(document.labels)
        n_documents += 1
        key = hash((document.id, document.text))
        repeated_id = document.id if repeated_id is None and key in seen else repeated_id
        if len(seen) < MAX_REMEMBERED_DOCUMENTS:
            seen.add(key)
    if previous is not None:
        yield previous._replace(labels=list(labels))
    if n_rows > n_documents:
        notifier.inform(
            f"{name}: {n_rows:,} rows are {n_documents:,} documents; rows with the same id are one document."
        )
    if repeated_id is not None:
        notifier.warn(
            f"{name}: rows with the id {repeated_id!r} and the same text are not next to each other and count as "
            "several documents; sort the rows by id."
        )
