"""Multi-label svmlight (LIBSVM): `label,label feature:value … # comment` lines without a header.

Labels are whole numbers and may be negative. Features keep their numbers, so in a file that counts from 1 the column 0
stays empty. A `qid:` is passed over."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from xmtc.data.document import Document
from xmtc.data.formats import Format
from xmtc.data.formats.feature_lines import parse_features, parse_labels, split_line
from xmtc.data.records import BadRecord, shortened
from xmtc.data.source import Source


def read(source: Source) -> Iterator[Document]:
    lines = (line for line in source.lines() if not line.text.lstrip().startswith("#"))
    return source.documents(lines, partial(parse, reads_labels=source.reads_labels))


def parse(line: str, number: int, reads_labels: bool = True) -> Document:
    labels, features = split_line(line.partition("#")[0])
    if features and features[0].startswith("qid:"):
        features = features[1:]
    names = parse_labels(labels, _label_number) if reads_labels else []
    return Document(str(number), "", names, parse_features(features, None))


def _label_number(label: str) -> int:
    try:
        value = float(label)  # 1, +1 and 1.0 are all written
        if value.is_integer() and "_" not in label:
            return int(value)
    except (ValueError, OverflowError):
        pass
    raise BadRecord(f"found the label {shortened(label)}, expected whole numbers separated by commas")


SVMLIGHT = Format("svmlight", read, holds_features=True)
