"""Errors for users, and text helpers for messages. A message says what is wrong, what is expected and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from typing import Any

# Characters that a terminal interprets: controls, line and paragraph separators, and direction marks; and lone
# surrogates, with which Python represents bytes that are not UTF-8.
CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

# Optional packages by module name: title, and extra of pyproject.toml.
EXTRAS = {
    "pyarrow": ("pyarrow", "arrow"),
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
    "docx": ("python-docx", "documents"),
    "pymarc": ("pymarc", "library"),
    "lxml": ("lxml", "library"),
    "rispy": ("rispy", "library"),
    "bibtexparser": ("bibtexparser", "library"),
    "rdflib": ("rdflib", "vocab"),
    "huggingface_hub": ("huggingface_hub", "hub"),
    "onnx": ("onnx", "onnx"),
    "httpx": ("httpx", "llm"),
    "snowballstemmer": ("snowballstemmer", "languages"),
    "simplemma": ("simplemma", "languages"),
    "py3langid": ("py3langid", "languages"),
}

MAX_CANDIDATE_NAMES = 50_000  # comparing more takes seconds
MAX_NAME_CHARACTERS = 100  # of a name that is compared or quoted


class XmtcError(ValueError):
    """Error that the user can fix.

    The command line prints it without a traceback and exits with status 2. The message is a single line: control
    characters are escaped, because it may quote untrusted text.

    Examples
    --------
    >>> from xmtc import Classifier, XmtcError
    >>> try:
    ...     Classifier("parable")
    ... except XmtcError as error:
    ...     print(str(error).partition(".")[0])
    There is no method 'parable'
    """

    def __str__(self) -> str:
        return escape_controls(super().__str__())


class MissingExtra(XmtcError, ImportError):
    """Error for an optional package that is not installed."""


def as_missing_extra(feature: str, error: ImportError) -> ImportError:
    """Return a MissingExtra that names the extra to install, or the error itself if it is about another package."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return error
    title, extra = EXTRAS[package]
    return MissingExtra(f"{feature} needs {title}: {format_install_command(extra)}")


def import_extra(module: str, feature: str) -> Any:
    """Return a module of an optional package; raise MissingExtra if the package is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise as_missing_extra(feature, error) from None


def format_install_command(extra: str) -> str:
    """Return the command that installs an extra beside this package.

    pip keeps the installed xmtc and adds the packages of the extra, so the command also works if xmtc was installed
    from a clone and is on no index."""
    return f"pip install 'xmtc[{extra}]'"


def escape_controls(text: str) -> str:
    """Return the text with control characters escaped, as \\x1b, \\n or \\u202e, in one line."""
    return CONTROL_CHARACTERS.sub(lambda match: escape_character(match[0]), text)


def escape_character(character: str) -> str:
    byte = ord(character) - 0xDC00  # a byte of a file name that is not UTF-8
    return f"\\x{byte:02x}" if 0x80 <= byte < 0x100 else character.encode("unicode_escape").decode()


def escape_json_controls(text: str) -> str:
    """Return equivalent JSON with control characters escaped, except newlines between values."""
    return CONTROL_CHARACTERS.sub(lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text)


def truncate_text(text: str, length: int = MAX_NAME_CHARACTERS) -> str:
    """Return the text, truncated for a message."""
    return text if len(text) <= length else f"{text[:length]}…"


def find_similar_names(name: str, names: Iterable[str], n: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the names most similar to a misspelt one, best first, without the name itself.

    To bound the time, a long name has none, and of very many names only some with the same initial are compared."""
    from difflib import get_close_matches

    if len(name) > MAX_NAME_CHARACTERS:
        return []
    others = [other for other in names if other != name]
    if len(others) > MAX_CANDIDATE_NAMES:
        others = [other for other in others if other[:1].lower() == name[:1].lower()][:MAX_CANDIDATE_NAMES]
    return get_close_matches(name, others, n, cutoff)
