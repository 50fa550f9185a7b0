"""The user's cache: where what was fetched is kept."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from xmtc.errors import XmtcError


def get_cache_folder(kind: str) -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xmtc" / kind


def create_cache_folder(folder: Path) -> Path:
    """A folder of the cache, made if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise XmtcError(f"{folder} cannot be made ({error.strerror}); set XDG_CACHE_HOME.") from None
    return folder


def compute_path_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
