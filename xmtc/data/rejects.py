"""The file of lines that are no documents, so that nothing disappears silently.

The rejects file is a TSV of bytes: line number ⇥ reason ⇥ the line unchanged. A record of several lines (a quoted
cell with line breaks) is written as one, its line breaks as `\\n`. It is written anew in each pass over the corpus, and
only if a line is refused."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

from xmtc.data.corpus_input import BadLine
from xmtc.errors import XmtcError, escape_controls


class RejectsFile:
    """The bad lines of one pass over a corpus."""

    def __init__(self, path: str, corpus: str) -> None:
        self.path, self.corpus = path, corpus
        self.count = 0
        self.first_bad_line: BadLine | None = None
        self._file: io.FileIO | None = None

    @contextmanager
    def open_pass(self) -> Iterator[None]:
        self.count, self.first_bad_line = 0, None
        try:
            yield
        finally:
            if self._file is not None:
                self._file.close()
                self._file = None

    def write(self, bad: BadLine) -> None:
        """Write the line to the rejects file and count it."""
        try:
            if self._file is None:
                self._file = io.FileIO(self.path, "w")  # unbuffered: a bad line is on disk at once
            line = bad.raw.rstrip(b"\r\n").replace(b"\r\n", b"\\n").replace(b"\n", b"\\n")
            where = str(bad.location) if bad.name == self.corpus else f"{bad.name}:{bad.location}"
            self._file.write(f"{escape_controls(where)}\t{escape_controls(bad.reason)}\t".encode() + line + b"\n")
        except OSError as error:
            raise XmtcError(f"{self.path} cannot be written ({error.strerror}); name another with --rejects.") from None
        self.count += 1
        self.first_bad_line = self.first_bad_line or bad

    def __str__(self) -> str:
        """One sentence for the user at the end of a pass."""
        if self.first_bad_line is None:
            return escape_controls(f"no line of {self.corpus} was set aside.")
        lines = f"1 {self.first_bad_line.unit}" if self.count == 1 else f"{self.count} {self.first_bad_line.unit}s"
        return escape_controls(
            f"{lines} of {self.corpus} set aside in {self.path}, "
            f"the first at {self.first_bad_line.unit} {self.first_bad_line.location}: {self.first_bad_line.reason}."
        )
