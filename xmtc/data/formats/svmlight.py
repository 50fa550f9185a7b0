"""Multi-label svmlight (LIBSVM): `label,label feature:value … # comment` lines without a header.

Labels are whole numbers and may be negative. Features keep their numbers, so column 0 is empty in a file that counts
from 1. A `qid:` is ignored. The id of a document is its line number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from xmtc.data.corpus_input import CorpusInput
from xmtc.data.document import Document
from xmtc.data.formats import CorpusFormat
from xmtc.data.formats.feature_lines import parse_features, parse_labels, split_line
from xmtc.data.records import BadRecord, quote_text


def read(source: CorpusInput) -> Iterator[Document]:
    lines = (line for line in source.read_text_lines() if not line.text.lstrip().startswith("#"))
    return source.parse_documents(
        lines, partial(parse, should_read_labels=source.should_read_labels, make_id=source.make_id)
    )


def parse(line: str, number: int, should_read_labels: bool = True, make_id: Callable[[int], str] = str) -> Document:
    labels, features = split_line(line.partition("#")[0])
    if features and features[0].startswith("qid:"):
        features = features[1:]
    names = parse_labels(labels, _parse_label_number) if should_read_labels else []
    return Document(make_id(number), "", names, parse_features(features, None))


def _parse_label_number(label: str) -> int:
    try:
        value = float(label)  # files have 1, +1 and 1.0
        if value.is_integer() and "_" not in label:
            return int(value)
    except (ValueError, OverflowError):
        pass
    raise BadRecord(f"found the label {quote_text(label)}, expected whole numbers separated by commas")


SVMLIGHT = CorpusFormat("svmlight", read, has_features=True)
