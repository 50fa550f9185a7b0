"""Answers beside the files of a folder, one for each document, as Annif's `index` writes them: a line for each label,
`label ⇥ score`, or `label ⇥ name ⇥ score` where labels have names; a URI in angle brackets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from xmtc.core.progress import print_to_stderr
from xmtc.data.document import Document
from xmtc.data.file_streams import writing
from xmtc.data.formats.folder import ENDINGS
from xmtc.data.formats.whole import LABEL_FILES
from xmtc.errors import XmtcError
from xmtc.output.table import Answer, AnswerTable, Write


@dataclass
class Results:
    """The results of the documents in a folder. Those that are there are left alone, unless `force`."""

    folder: Path
    suffix: str
    table: AnswerTable
    force: bool = False
    n_left: int = 0  # that were there

    def __post_init__(self) -> None:
        if not self.folder.is_dir():
            raise XmtcError(
                f"--beside writes results beside the files of a folder, and {self.folder} is none; name a folder, or "
                "a file for the results with -o."
            )
        taken = self.suffix.lower() in LABEL_FILES or self.suffix.lower().endswith(tuple(ENDINGS))
        if not self.suffix or set("/\\") & set(self.suffix) or taken:
            raise XmtcError(
                f"--suffix {self.suffix!r} cannot end the names of results: beside a.txt stands a{self.suffix}, which "
                "would be a document or its labels; expected such as .tags.tsv."
            )

    def path(self, id: str) -> Path:
        """Where the result of a document belongs; its id is the path of its file in the folder, without its ending."""
        return self.folder / f"{id}{self.suffix}"

    def waiting(self, documents: Iterable[Document]) -> Iterator[Document]:
        """The documents that have no result yet."""
        for document in documents:
            if self.force or not self.path(document.id).exists():
                yield document
            else:
                self.n_left += 1

    @contextmanager
    def writing(self) -> Iterator[Write]:
        yield self.write
        if self.n_left:
            said = "1 result was" if self.n_left == 1 else f"{self.n_left:,} results were"
            print_to_stderr(f"{said} there already and left as before; --force replaces them.")

    def write(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            with writing(str(self.path(answer.id))) as stream:
                rows = csv.writer(text := io.StringIO(newline=""), delimiter="\t", lineterminator="\n")
                # for programs, which must find the labels as they are: no spreadsheet is expected here
                rows.writerows([in_brackets(tag.label), *self.table.label_cells(tag)[1:]] for tag in answer.tags)
                stream.write(text.getvalue().encode(errors="backslashreplace"))


def in_brackets(label: str) -> str:
    return f"<{label}>" if "://" in label or label.startswith("urn:") else label
