"""Model folders: about.json says what it is, arrays.safetensors holds the numbers. No pickle, nothing executable;
arrays are memory-mapped, so that a folder of any size opens in milliseconds; a folder is written under a temporary
name and renamed, so that it is either whole or not there."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from xmtc.errors import XmtcError

FORMAT = 1
ABOUT, ARRAYS = "about.json", "arrays.safetensors"

# The only classes a folder may name. One line per form of model.
FORMS = {
    "Vocabulary": "xmtc.text.vocabulary",
    "Tokenizer": "xmtc.text.words",
    "Vectorizer": "xmtc.text.tfidf",
    "GivenFeatures": "xmtc.data.given",
    "Tree": "xmtc.methods.label_tree.model",
    "TreeModel": "xmtc.methods.label_tree.model",
}

DTYPES = {"U8": "u1", "U16": "<u2", "I32": "<i4", "I64": "<i8", "F32": "<f4", "F64": "<f8", "BOOL": "?"}


def save(folder: str | Path, about: dict[str, Any], parts: dict[str, Any]) -> None:
    """Write named parts (dataclasses of the FORMS) and what is said about them."""
    from safetensors.numpy import save_file

    arrays: dict[str, np.ndarray] = {}
    described = {name: take_apart(part, name, arrays) for name, part in parts.items()}
    with new_folder(Path(folder)) as temporary:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, temporary / ARRAYS)
        files = {ARRAYS: {"bytes": (temporary / ARRAYS).stat().st_size, "sha256": sha256(temporary / ARRAYS)}}
        content = {"format": FORMAT, **about, "files": files, "parts": described}
        (temporary / ABOUT).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def load(folder: str | Path, verify: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """(about, parts) of a model folder. `verify` reads every byte and compares checksums."""
    folder = Path(folder)
    about = read_about(folder)
    try:
        expected_size, expected_sum = about["files"][ARRAYS]["bytes"], about["files"][ARRAYS]["sha256"]
        arrays = map_arrays(folder / ARRAYS, expected_size)
        if verify and sha256(folder / ARRAYS) != expected_sum:
            raise XmtcError(f"{folder / ARRAYS} does not have the checksum it was saved with; copy or train it again.")
        return about, {name: put_together(part, name, arrays) for name, part in about["parts"].items()}
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise XmtcError(
            f"{folder} is damaged: {ABOUT} and {ARRAYS} do not fit together ({error}); copy or train it again."
        ) from None


def read_about(folder: Path) -> dict[str, Any]:
    """about.json, refused with a reason where it cannot be one of ours."""
    if not folder.is_dir():
        found = "a file" if folder.exists() else "not there"
        raise XmtcError(f"{folder} is {found}; expected a model folder, as `xmtc train -o {folder}` writes it.")
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise XmtcError(f"{folder} is not a model folder: it has no {ABOUT}; `xmtc train -o` writes one.") from None
    except (ValueError, OSError) as error:
        raise XmtcError(f"{folder / ABOUT} cannot be read ({error}); copy the model again or train it anew.") from None
    version = about.get("format") if isinstance(about, dict) else None
    if not isinstance(version, int):
        raise XmtcError(f"{folder / ABOUT} is not from xmtc: it has no format number; `xmtc train -o` writes one.")
    if version != FORMAT:
        raise XmtcError(
            f"{folder} has model format {version} and this xmtc reads format {FORMAT}; "
            + ("upgrade xmtc." if version > FORMAT else "train the model anew.")
        )
    return about


def take_apart(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """A JSON description of a value; its arrays go into `arrays` under dotted names."""
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"array": name}
    if is_dataclass(value):
        inner = {f.name: take_apart(getattr(value, f.name), f"{name}.{f.name}", arrays) for f in fields(value)}
        return {"form": type(value).__name__, **inner}
    if isinstance(value, tuple):
        return [take_apart(item, f"{name}.{i}", arrays) for i, item in enumerate(value)]
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    raise TypeError(f"a model folder cannot hold {type(value).__name__} {name}")


def put_together(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """The value that take_apart described."""
    if isinstance(value, list):
        return tuple(put_together(item, f"{name}.{i}", arrays) for i, item in enumerate(value))
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]]
    kind = getattr(import_module(FORMS[value["form"]]), value["form"])
    return kind(**{f.name: put_together(value[f.name], f"{name}.{f.name}", arrays) for f in fields(kind)})


def map_arrays(path: Path, expected_size: int) -> dict[str, np.ndarray]:
    """Every array of a safetensors file, memory-mapped. Copy-on-write, because compiled kernels take writable arrays
    and read-only ones for two types and would be compiled twice; nothing ever writes."""
    damaged = f"{path} is damaged"
    try:
        size = path.stat().st_size
        if size != expected_size:
            raise XmtcError(f"{damaged}: it has {size} bytes instead of {expected_size}; copy or train it again.")
        content = np.memmap(path, np.uint8, mode="c")
        header_end = 8 + int.from_bytes(content[:8].tobytes(), "little")
        header = json.loads(content[8:header_end].tobytes())
        return {name: one_array(content, header_end, entry) for name, entry in header.items() if name != "__metadata__"}
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, XmtcError):
            raise
        raise XmtcError(f"{damaged}: {error}; copy or train it again.") from None


def one_array(content: np.ndarray, header_end: int, entry: dict[str, Any]) -> np.ndarray:
    begin, end = entry["data_offsets"]
    dtype, shape = np.dtype(DTYPES[entry["dtype"]]), entry["shape"]
    if not 0 <= begin <= end <= len(content) - header_end or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"an array of shape {shape} does not fit its place in the file")
    return np.ndarray(shape, dtype, content.data, header_end + begin)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A temporary folder beside the target that takes its place at the end, or vanishes on any failure."""
    check_target(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield temporary
        temporary.chmod(0o777 & ~current_umask())
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
            os.replace(target, old / target.name)
            os.replace(temporary, target)
            shutil.rmtree(old)
        else:
            os.replace(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_target(target: Path) -> None:
    """Refuse to write a model over anything that is not a model; a model may be replaced."""
    if target.exists() and not (target.is_dir() and ((target / ABOUT).exists() or not any(target.iterdir()))):
        raise XmtcError(f"{target} exists and is not a model folder; choose another name so that nothing is lost.")
