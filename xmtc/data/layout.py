"""Physical layout of a corpus (encoding, delimiter, sheet), and the messages that readers emit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from warnings import warn

from xmtc.data.encodings import normalise_encoding_name
from xmtc.errors import XmtcError

DELIMITER_ALIASES = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|", "pipe": "|"}


class CorpusWarning(UserWarning):
    """Warning about a corpus that may not contain what the user intended."""


@dataclass(frozen=True)
class Layout:
    """Layout settings of a corpus; None means that the reader detects the value.

    Parameters
    ----------
    delimiter : str, optional
        Character between the cells of a table, or its name ("tab", "comma", "semicolon", "bar").
    encoding : str, optional
        Character encoding.
    sheet : str, optional
        Sheet of a workbook.
    recursive : bool
        Read the subfolders of a folder, too.
    """

    delimiter: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    recursive: bool = False

    def __post_init__(self) -> None:
        if self.encoding is not None:
            object.__setattr__(self, "encoding", normalise_encoding_name(self.encoding))
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", DELIMITER_ALIASES.get(self.delimiter.lower(), self.delimiter))
            if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
                raise XmtcError(
                    f"The delimiter {self.delimiter!r} cannot separate the cells of a table; expected one character, "
                    f"such as ; or tab."
                )


def emit_python_warning(message: str) -> None:
    warn(message, CorpusWarning, stacklevel=2)


@dataclass
class Notifier:
    """Emitter of messages about a corpus; each message is emitted once.

    With `strict`, a warning is raised as an error."""

    emit: Callable[[str], None] = emit_python_warning
    strict: bool = False
    emitted_messages: set[str] = field(default_factory=set)

    def inform(self, message: str) -> None:
        """Emit a message about what was detected."""
        if message not in self.emitted_messages:
            self.emitted_messages.add(message)
            self.emit(message)

    def warn(self, message: str) -> None:
        """Emit a message about a suspicious input, or raise it as XmtcError if strict."""
        if self.strict:
            raise XmtcError(message)
        self.inform(message)
