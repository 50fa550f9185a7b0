"""One file of predictions per document of a folder, as `annif index` writes them.

A line has label and score, or label, name and score, separated by tabs. URIs are in angle brackets.
"""

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
    """Prediction files in a folder of documents. Existing files are kept unless `force` is set."""

    folder: Path
    suffix: str
    table: PredictionTable
    force: bool = False
    n_skipped: int = 0  # existing files

    def __post_init__(self) -> None:
        if not self.folder.is_dir():
            raise XmtcError(
                f"--per-file writes one file per document of a folder, but {self.folder} is not a folder; name a "
                "folder, or a file for the results with -o."
            )
        taken = self.suffix.lower() in LABEL_FILE_EXTENSIONS or self.suffix.lower().endswith(tuple(DOCUMENT_EXTENSIONS))
        if not self.suffix or set("/\\") & set(self.suffix) or taken:
            raise XmtcError(
                f"--suffix {self.suffix!r} cannot end the names of results: the result a{self.suffix} of a.txt would "
                "be read as a document or its labels; expected such as .tags.tsv."
            )

    def path(self, id: str) -> Path:
        """Return the path of a prediction file; the id of a document is its path without extension."""
        return self.folder / f"{id}{self.suffix}"

    def skip_existing(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Yield the documents without a prediction file."""
        for document in documents:
            if self.force or not self.path(document.id).exists():
                yield document
            else:
                self.n_skipped += 1

    @contextmanager
    def open_writer(self) -> Iterator[WriteFunction]:
        yield self.write
        if self.n_skipped:
            files = "1 existing file was" if self.n_skipped == 1 else f"{self.n_skipped:,} existing files were"
            print_to_stderr(f"{files} kept; --force replaces them.")

    def write(self, answers: Iterable[Prediction]) -> None:
        for answer in answers:
            with open_output(str(self.path(answer.id))) as stream:
                rows = csv.writer(text := io.StringIO(newline=""), delimiter="\t", lineterminator="\n")
                # for programs: labels are not escaped for spreadsheets
                rows.writerows([bracket_uri(tag.label), *self.table.label_cells(tag)[1:]] for tag in answer.tags)
                stream.write(text.getvalue().encode(errors="backslashreplace"))


def bracket_uri(label: str) -> str:
    return f"<{label}>" if "://" in label or label.startswith("urn:") else label
