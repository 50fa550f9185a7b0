"""The rejects file: the bad lines of a corpus that were skipped, with the reason for each.

It is a TSV of bytes: line number ⇥ reason ⇥ the line unchanged. A record of several lines (a quoted cell with line
breaks) is written as one line, with its line breaks as `\\n`. Each pass over the corpus overwrites the file, but only
if it finds a bad line."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

from xmtc.data.corpus_input import BadLine
from xmtc.errors import XmtcError, escape_controls


class RejectsFile:
    """Writer of the bad lines of one pass over a corpus."""

    def __init__(self, path: str, corpus: str) -> None:
        self.path, self.corpus = path, corpus
        self.count = 0
        self.first_bad_line: BadLine | None = None
        self._file: io.FileIO | None = None

    @contextmanager
    def open_pass(self) -> Iterator[None]:
        """Reset the count, and close the file at the end of the pass."""
        self.count, self.first_bad_line = 0, None
        try:
            yield
        finally:
            if self._file is not None:
                self._file.close()
                self._file = None

    def write(self, bad_line: BadLine) -> None:
        """Write the line to the rejects file and count it."""
        try:
            if self._file is None:
                self._file = io.FileIO(self.path, "w")  # unbuffered, so that every bad line is on disk at once
            line = bad_line.raw.rstrip(b"\r\n").replace(b"\r\n", b"\\n").replace(b"\n", b"\\n")
            is_only_file = bad_line.name == self.corpus
            location = str(bad_line.location) if is_only_file else f"{bad_line.name}:{bad_line.location}"
            prefix = f"{escape_controls(location)}\t{escape_controls(bad_line.reason)}\t"
            self._file.write(prefix.encode() + line + b"\n")
        except OSError as error:
            raise XmtcError(
                f"{self.path} cannot be written ({error.strerror}); name another file with --rejects."
            ) from None
        self.count += 1
        self.first_bad_line = self.first_bad_line or bad_line

    def __str__(self) -> str:
        """Return a summary of the pass in one sentence."""
        first = self.first_bad_line
        if first is None:
            return escape_controls(f"no line of {self.corpus} was set aside.")
        units = f"1 {first.unit}" if self.count == 1 else f"{self.count} {first.unit}s"
        return escape_controls(
            f"{units} of {self.corpus} set aside in {self.path}, "
            f"the first at {first.unit} {first.location}: {first.reason}."
        )
