"""How the bytes of a corpus are laid out, where it is told; what is left out is looked up in the file itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from warnings import warn

from xmtc.data.encodings import normalise_encoding_name
from xmtc.errors import XmtcError

DELIMITER_ALIASES = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|", "pipe": "|"}


class CorpusWarning(UserWarning):
    """What was noticed while a corpus was read, and may not be meant."""


@dataclass(frozen=True)
class Layout:
    delimiter: str | None = None  # between the cells of a table: one character, or its name
    encoding: str | None = None
    sheet: str | None = None  # of a workbook
    recursive: bool = False  # folders within a folder are read, too

    def __post_init__(self) -> None:
        if self.encoding is not None:
            object.__setattr__(self, "encoding", normalise_encoding_name(self.encoding))
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", DELIMITER_ALIASES.get(self.delimiter.lower(), self.delimiter))
            if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
                raise XmtcError(
                    f"The delimiter {self.delimiter!r} cannot stand between the cells of a table; expected one "
                    f"character, such as ; or tab."
                )


def emit_python_warning(sentence: str) -> None:
    """Say something to somebody who reads a corpus in Python."""
    warn(sentence, CorpusWarning, stacklevel=2)


@dataclass
class Notifier:
    """Says what was noticed, each thing once: what was found out about a file, and what is suspicious about it, which
    is an error where `strict` is."""

    emit: Callable[[str], None] = emit_python_warning
    strict: bool = False
    emitted_messages: set[str] = field(default_factory=set)

    def inform(self, sentence: str) -> None:
        if sentence not in self.emitted_messages:
            self.emitted_messages.add(sentence)
            self.emit(sentence)

    def warn(self, sentence: str) -> None:
        if self.strict:
            raise XmtcError(sentence)
        self.inform(sentence)
