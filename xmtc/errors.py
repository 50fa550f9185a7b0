"""What went wrong, in one sentence for a person: what was found, what was expected, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable

# What a terminal obeys instead of showing it: control characters, line and paragraph separators, marks that turn the
# direction of writing; and halves of surrogate pairs, which are what Python makes of bytes that are no UTF-8.
CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

# Packages that a plain installation leaves out: what people call them, and the extra of pyproject.toml they come with.
EXTRAS = {
    "torch": ("PyTorch", "neural"),
    "transformers": ("transformers", "neural"),
    "tokenizers": ("tokenizers", "neural"),
    "ray": ("Ray", "cluster"),
    "optuna": ("Optuna", "tune"),
    "fastapi": ("FastAPI", "serve"),
    "starlette": ("FastAPI", "serve"),
    "pydantic": ("FastAPI", "serve"),
    "uvicorn": ("uvicorn", "serve"),
    "prometheus_client": ("prometheus-client", "serve"),
    "python_multipart": ("python-multipart", "serve"),
    "mcp": ("mcp", "mcp"),
    "usearch": ("usearch", "neighbours"),
    "xlsxwriter": ("XlsxWriter", "tables"),
    "python_calamine": ("python-calamine", "tables"),
    "trafilatura": ("trafilatura", "documents"),
    "pypdf": ("pypdf", "documents"),
    "rdflib": ("rdflib", "vocab"),
    "snowballstemmer": ("snowballstemmer", "languages"),
    "simplemma": ("simplemma", "languages"),
    "py3langid": ("py3langid", "languages"),
}


MAX_CANDIDATE_NAMES = 50_000  # names; to compare more takes seconds
MAX_NAME_CHARACTERS = 100  # characters of a name that is compared with others, or quoted


class XmtcError(ValueError):
    """A mistake the user can mend. The command line prints it without a traceback and exits with 2. It is one line:
    what it quotes may come from anywhere, and is shown by `visible`."""

    def __str__(self) -> str:
        return escape_controls(super().__str__())


class MissingExtra(XmtcError, ImportError):
    """A method or a command needs a package that this installation left out."""


def as_missing_extra(who: str, error: ImportError) -> ImportError:
    """What to install for a method or command that lacks a package; the error itself if it is another."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return error
    title, extra = EXTRAS[package]
    return MissingExtra(f"{who} needs {title}: pip install 'xmtc[{extra}]'")


def escape_controls(text: str) -> str:
    """Text as a terminal may have it, in one line: what it would obey is escaped, as \\x1b, \\n or \\u202e."""
    return CONTROL_CHARACTERS.sub(lambda found: escape_character(found[0]), text)


def escape_character(letter: str) -> str:
    byte = ord(letter) - 0xDC00  # a byte of a file's name that is no UTF-8
    return f"\\x{byte:02x}" if 0x80 <= byte < 0x100 else letter.encode("unicode_escape").decode()


def escape_json_controls(text: str) -> str:
    """JSON, which stays the same JSON: of what a terminal would obey, it has escaped the first half already."""
    return CONTROL_CHARACTERS.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def truncate_text(text: str, length: int = MAX_NAME_CHARACTERS) -> str:
    """Return a name that a message can quote."""
    return text if len(text) <= length else f"{text[:length]}…"


def find_similar_names(name: str, names: Iterable[str], n: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return names that a wrong one may stand for, the nearest first, without the name itself. The time is limited:
    a long name has none, and of very many names only some that begin alike are compared."""
    from difflib import get_close_matches

    if len(name) > MAX_NAME_CHARACTERS:
        return []
    others = [other for other in names if other != name]
    if len(others) > MAX_CANDIDATE_NAMES:
        others = [other for other in others if other[:1].lower() == name[:1].lower()][:MAX_CANDIDATE_NAMES]
    return get_close_matches(name, others, n, cutoff)
