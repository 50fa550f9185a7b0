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
from xmtc.data.file_streams import open_output
from xmtc.data.formats.document_files import LABEL_FILE_EXTENSIONS
from xmtc.data.formats.folder import DOCUMENT_EXTENSIONS
from xmtc.errors import XmtcError
from xmtc.output.table import Prediction, PredictionTable, WriteFunction


@dataclass
class SideFiles:
    """The results of the documents in a folder. Those that are there are left alone, unless `force`."""

    folder: Path
    suffix: str
    table: PredictionTable
    force: bool = False
    n_skipped: int = 0  # that were there

    def __post_init__(self) -> None:
        if not self.folder.is_dir():
            raise XmtcError(
                f"--per-file writes one file per document of a folder, but {self.folder} is not a folder; name a "
                "folder, or a file for the results with -o."
            )
        taken = self.suffix.lower() in LABEL_FILE_EXTENSIONS or self.suffix.lower().endswith(tuple(DOCUMENT_EXTENSIONS))
        if not self.suffix or set("/\\") & set(self.suffix) or taken:
            raise XmtcError(
                f"--suffix {self.suffix!r} cannot end the names of results: beside a.txt stands a{self.suffix}, which "
                "would be a document or its labels; expected such as .tags.tsv."
            )

    def path(self, id: str) -> Path:
        """Where the result of a document belongs; its id is the path of its file in the folder, without its ending."""
        return self.folder / f"{id}{self.suffix}"

    def skip_existing(self, documents: Iterable[Document]) -> Iterator[Document]:
        """The documents that have no result yet."""
        for document in documents:
            if self.force or not self.path(document.id).exists():
                yield document
            else:
                self.n_skipped += 1

    @contextmanager
    def open_writer(self) -> Iterator[WriteFunction]:
        yield self.write
        if self.n_skipped:
            said = "1 result was" if self.n_skipped == 1 else f"{self.n_skipped:,} results were"
            print_to_stderr(f"{said} there already and left as before; --force replaces them.")

    def write(self, answers: Iterable[Prediction]) -> None:
        for answer in answers:
            with open_output(str(self.path(answer.id))) as stream:
                rows = csv.writer(text := io.StringIO(newline=""), delimiter="\t", lineterminator="\n")
                # for programs, which must find the labels as they are: no spreadsheet is expected here
                rows.writerows([bracket_uri(tag.label), *self.table.label_cells(tag)[1:]] for tag in answer.tags)
                stream.write(text.getvalue().encode(errors="backslashreplace"))


def bracket_uri(label: str) -> str:
    return f"<{label}>" if "://" in label or label.startswith("urn:") else label
