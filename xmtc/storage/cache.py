"""Cache directory of the user, for downloads."""

from __future__ import annotations

import hashlib
import os
from io import BufferedReader
from pathlib import Path

from xmtc.errors import XmtcError


def get_cache_folder(kind: str) -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xmtc" / kind


def create_cache_folder(folder: Path) -> Path:
    """Create a cache folder if it does not exist, and return it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise XmtcError(
            f"{folder} cannot be created ({error.strerror}); set XDG_CACHE_HOME to a writable directory."
        ) from None
    return folder


def compute_path_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return compute_file_sha256(file)


def compute_file_sha256(file: BufferedReader) -> str:
    """Return the SHA-256 of an open file, from its current position on."""
    return hashlib.file_digest(file, "sha256").hexdigest()
