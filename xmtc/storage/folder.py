"""Folders of forms, such as models: about.json describes it, arrays.safetensors holds the numbers. No pickle, nothing
executable; arrays are memory-mapped, so that a folder of any size opens in milliseconds. A folder is written under a
temporary name and renamed, so that it is either whole or not there; nothing writes to the files of an existing one.

Opening checks structure, types and sizes. A form's own `check` looks at every number, once, before the first use.

Files are opened by `regular_files`, and classes found by `form_types`: no link leads out of a folder, and nothing is
imported because a folder says so."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np

from xmtc.errors import XmtcError
from xmtc.storage.array_file import map_arrays
from xmtc.storage.atomic import atomic_folder, describe_error, recover_folder
from xmtc.storage.form import Form, check_types
from xmtc.storage.form_types import get_form_class, get_form_name
from xmtc.storage.regular_files import open_regular, parse_json, read_regular

MODEL_KIND = "model"  # what a folder holds that does not say so
ABOUT_FILE, ARRAYS_FILE = "about.json", "arrays.safetensors"
Stamp = tuple[int, ...]  # by which a folder is known to be another
MIN_FOLDER_BYTES = 2**14  # bytes that a folder of a few words takes: its files and the folder
MAX_ABOUT_BYTES = 2**26  # the longest part is a list of a million allowed labels
STRUCTURE_ERRORS = (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError, RuntimeError)


@dataclass(frozen=True)
class FolderKind:
    """What folders of one kind have in common, and what is said of them."""

    name: str  # "model"
    formats: tuple[int, ...]  # that are read; the last one is written
    create_command: str  # the command that writes one
    recreate_verb: str  # how a person gets another: "train"
    extra_files: tuple[str, ...] = ()  # files that may stand beside its own two

    def save(
        self,
        folder: str | Path,
        about: dict[str, Any],
        parts: dict[str, Any],
        extra_files: Mapping[str, str] = {},
        expected_stamp: Stamp = (),
    ) -> None:
        """Write named parts (forms, and mappings of them), what is said about them, and further files by name; with a
        stamp, only over the folder that it is of."""
        from safetensors import SafetensorError

        arrays: dict[str, np.ndarray] = {}
        described = {name: encode_value(part, name, arrays) for name, part in parts.items()}
        target = self.check_target(folder)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with atomic_folder(target) as temporary:
                write_folder_files(temporary, self.add_header(about), described, arrays, extra_files)
                if expected_stamp and expected_stamp != read_stamp(folder):
                    raise XmtcError(
                        f"{folder} was changed by another command meanwhile, which would be undone; repeat this one."
                    )
        except SafetensorError as error:
            number = re.search(r"(?:os error|code:) (\d+)", str(error))  # as newer and older versions of it say
            if number is None:
                raise
            raise as_folder_error(folder, os.strerror(int(number[1]))) from None
        except OSError as error:
            raise as_folder_error(folder, error.strerror or str(error)) from None

    def add_header(self, about: dict[str, Any]) -> dict[str, Any]:
        """With the format and, unless it is a model, the kind."""
        return {"format": self.formats[-1], **({} if self.name == MODEL_KIND else {"kind": self.name}), **about}

    def load(
        self, folder: str | Path, verify: bool = False, prepare: Callable[[Path, dict[str, Any]], None] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """(about, parts) of a folder. `verify` reads every byte and compares checksums; `prepare` is called with what
        is said about the parts before they are made."""
        folder = Path(folder)
        if not folder.exists():
            recover_folder(Path(os.path.realpath(folder)))
        about = self.read_about(folder)
        arrays = self.open_arrays(folder, about, verify)
        try:
            if prepare is not None:
                prepare(folder, about)
            return about, {name: decode_value(part, name, arrays) for name, part in about["parts"].items()}
        except XmtcError:
            raise
        except STRUCTURE_ERRORS as error:
            raise self.make_damage_error(
                folder, f"{ABOUT_FILE} and {ARRAYS_FILE} do not fit together ({error})"
            ) from None

    def open_arrays(self, folder: Path, about: dict[str, Any], verify: bool) -> dict[str, np.ndarray]:
        """Map the arrays of a folder; with `verify`, compare their checksum."""
        try:
            expected_size, expected_sum = about["files"][ARRAYS_FILE]["bytes"], about["files"][ARRAYS_FILE]["sha256"]
        except STRUCTURE_ERRORS:
            raise self.make_damage_error(folder, f"{ABOUT_FILE} does not tell the size of {ARRAYS_FILE}") from None
        try:
            with open_regular(folder, ARRAYS_FILE) as file:
                arrays = map_arrays(file, expected_size)
                is_as_saved = not verify or compute_sha256(file) == expected_sum
        except (OSError, *STRUCTURE_ERRORS) as error:
            raise self.make_damage_error(folder / ARRAYS_FILE, describe_error(error)) from None
        if not is_as_saved:
            raise XmtcError(
                f"{folder / ARRAYS_FILE} does not have the checksum it was saved with; copy or {self.recreate_verb} it again."
            )
        return arrays

    def make_damage_error(self, path: Path, phrase: str) -> XmtcError:
        return XmtcError(f"{path} is damaged: {phrase}; copy or {self.recreate_verb} it again.")

    def read_about(self, folder: Path) -> dict[str, Any]:
        """about.json of a format that can be read here."""
        about = self.read_any_about(folder)
        version = about["format"]
        if version not in self.formats:
            known = " and ".join(map(str, self.formats))
            raise XmtcError(
                f"{folder} has {self.name} format {version} and this xmtc reads format {known}; "
                + ("upgrade xmtc." if version > self.formats[-1] else f"{self.recreate_verb} the {self.name} anew.")
            )
        return about

    def read_any_about(self, folder: Path) -> dict[str, Any]:
        """about.json of whatever format, refused with a reason where it cannot be one of this kind."""
        if not folder.is_dir():
            found = "a file" if folder.exists() else "not there"
            raise XmtcError(
                f"{folder} is {found}; expected a {self.name} folder, as `{self.create_command} {folder}` writes it."
            )
        try:
            about = parse_json(read_regular(folder, ABOUT_FILE, MAX_ABOUT_BYTES))
        except FileNotFoundError:
            raise XmtcError(
                f"{folder} is not a {self.name} folder: it has no {ABOUT_FILE}; `{self.create_command}` writes one."
            ) from None
        except (ValueError, RecursionError, OSError) as error:
            raise XmtcError(
                f"{folder / ABOUT_FILE} cannot be read ({describe_error(error)}); copy the {self.name} again or {self.recreate_verb} it anew."
            ) from None
        if not isinstance(about, dict) or type(about.get("format")) is not int:
            raise XmtcError(
                f"{folder / ABOUT_FILE} is not from xmtc: it has no format number; `{self.create_command}` writes one."
            )
        kind = about.get("kind", MODEL_KIND)
        if kind != self.name:
            raise XmtcError(
                f"{folder} is a {kind!s:.80} folder; expected a {self.name}, as `{self.create_command}` writes one."
            )
        return about

    def check_target(self, folder: str | Path) -> Path:
        """Where a folder is to be written, links followed. Refused where that would lose anything, where it cannot be
        written to, and where not even the smallest has room: long work must not end there."""
        try:
            target = Path(os.path.realpath(folder))
            if target == Path.cwd():
                raise XmtcError(
                    f"{folder} is the folder this runs in; name one to make for the {self.name}, such as {self.name}."
                )
            recover_folder(target)
            if os.path.lexists(target):
                self.check_replaceable(target, folder)
            there = next(parent for parent in target.parents if parent.exists())
            with tempfile.TemporaryFile(dir=there) as trial:  # which has no name that a kill could leave behind
                trial.write(bytes(MIN_FOLDER_BYTES))
                trial.flush()
                os.fsync(trial.fileno())  # a disk may find out only now that it is full
        except OSError as error:
            raise as_folder_error(folder, error.strerror or str(error)) from None
        return target

    def check_replaceable(self, target: Path, name: str | Path) -> None:
        """One of this kind and nothing else may be replaced, and so may an empty folder."""
        if target.is_dir() and not any(target.iterdir()):
            return
        try:
            self.read_any_about(target)
        except XmtcError:
            raise XmtcError(
                f"{name} exists and is not a {self.name} folder; choose another name so that nothing is lost."
            ) from None
        ours = (ABOUT_FILE, ARRAYS_FILE, *self.extra_files)
        others = sorted(path.name for path in target.iterdir() if path.name not in ours or not path.is_file())
        if others or not (target / ARRAYS_FILE).exists():
            found = f"{others[0]} beside {ABOUT_FILE}" if others else f"{ABOUT_FILE} without {ARRAYS_FILE}"
            raise XmtcError(
                f"{name} holds {found}, expected a {self.name} alone; choose another name so that nothing is lost."
            )


def read_stamp(folder: str | Path) -> Stamp:
    """When the files of a folder were written, and which they are."""
    found: list[int] = []
    for name in (ABOUT_FILE, ARRAYS_FILE):
        with suppress(OSError):
            state = Path(folder, name).stat()
            found += [state.st_mtime_ns, state.st_ino, state.st_size]
    return tuple(found)


def is_complete_folder(folder: Path) -> bool:
    """Whether a folder is one of these, by its files."""
    return (folder / ABOUT_FILE).is_file() and (folder / ARRAYS_FILE).is_file()


def write_folder_files(
    folder: Path,
    about: dict[str, Any],
    described: dict[str, Any],
    arrays: dict[str, np.ndarray],
    others: Mapping[str, str],
) -> None:
    """The files of a folder."""
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, folder / ARRAYS_FILE)
    files = {
        ARRAYS_FILE: {
            "bytes": (folder / ARRAYS_FILE).stat().st_size,
            "sha256": compute_path_sha256(folder / ARRAYS_FILE),
        }
    }
    text = json.dumps({**about, "files": files, "parts": described}, indent=1, ensure_ascii=False) + "\n"
    # half of a surrogate pair, as in the path of a stop list, becomes a JSON escape
    content = text.encode("utf-8", "backslashreplace")
    if len(content) > MAX_ABOUT_BYTES:
        raise XmtcError(
            f"The description of the model has {len(content):,} bytes, expected at most {MAX_ABOUT_BYTES:,}; allow or "
            "deny fewer labels by name, for example by `branch:`."
        )
    (folder / ABOUT_FILE).write_bytes(content)
    (folder / ARRAYS_FILE).chmod((folder / ABOUT_FILE).stat().st_mode)  # safetensors shuts out all but the owner
    for name, text in others.items():
        (folder / name).write_text(text, encoding="utf-8")


def as_folder_error(folder: str | Path, reason: str) -> XmtcError:
    return XmtcError(f"{folder} cannot be written ({reason}); choose another place.")


def encode_value(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """A JSON description of a value; its arrays go into `arrays` under dotted names."""
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"array": name}
    if isinstance(value, Form) and is_dataclass(value):
        inner = {f.name: encode_value(getattr(value, f.name), f"{name}.{f.name}", arrays) for f in fields(value)}
        return {"form": get_form_name(type(value)), **inner}
    if isinstance(value, dict):
        return {"mapping": {key: encode_value(item, f"{name}.{key}", arrays) for key, item in value.items()}}
    if isinstance(value, tuple):
        return [encode_value(item, f"{name}.{i}", arrays) for i, item in enumerate(value)]
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    raise TypeError(f"a model folder cannot hold {type(value).__name__} {name}")


def decode_value(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """The value that take_apart described."""
    if isinstance(value, list):
        return tuple(decode_value(item, f"{name}.{i}", arrays) for i, item in enumerate(value))
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]]
    if "mapping" in value:
        return {key: decode_value(item, f"{name}.{key}", arrays) for key, item in value["mapping"].items()}

    kind = get_form_class(value["form"])
    # a folder that lacks a field with a default is older than the field
    old = {f.name: f.default for f in fields(kind) if f.name not in value and f.default is not MISSING}
    inner = {f.name: decode_value(value[f.name], f"{name}.{f.name}", arrays) for f in fields(kind) if f.name not in old}
    inner |= old
    check_types(kind, inner, name)
    return kind(**inner)


def compute_path_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return compute_sha256(file)


def compute_sha256(file: BufferedReader) -> str:
    """Return the SHA-256 of an open file."""
    return hashlib.file_digest(file, "sha256").hexdigest()
