"""LibMultiLabel's TSV: `labels ⇥ text` or `id ⇥ labels ⇥ text`, labels separated by spaces, no header, no quotes.

The first line determines the number of columns of the file."""

from __future__ import annotations

from collections.abc import Iterator

from xmtc.data.corpus_input import CorpusInput
from xmtc.data.document import Document
from xmtc.data.formats import CorpusFormat
from xmtc.data.records import BadRecord, validate_label_names


def read(source: CorpusInput) -> Iterator[Document]:
    n_columns = 0

    def parse(line: str, number: int) -> Document:
        nonlocal n_columns
        columns = line.split("\t")
        if not n_columns and len(columns) in (2, 3):
            n_columns = len(columns)
        if len(columns) != n_columns:
            expected = f"{n_columns} as in the first line" if n_columns else "labels ⇥ text or id ⇥ labels ⇥ text"
            raise BadRecord(f"this line has {len(columns)} columns between tabs, expected {expected}")
        id = columns[0] if n_columns == 3 else source.make_id(number)
        labels = columns[-2].split() if source.should_read_labels else []
        return Document(id, columns[-1], validate_label_names(labels, "labels", None))

    return source.parse_documents(source.read_text_lines(), parse)


LIBMULTILABEL = CorpusFormat("libmultilabel", read)
