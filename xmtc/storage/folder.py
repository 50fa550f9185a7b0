"""Folders of forms, such as models: about.json with the structure and arrays.safetensors with the numbers.

Nothing in a folder is executable or pickled. Arrays are memory-mapped, so that a folder of any size opens in
milliseconds. Folders are written atomically, and existing files are never modified.

Loading checks structure, types and sizes; `Form.check` checks all numbers once, before the first use. Folders are
untrusted: `regular_files` opens their files without following links, and `form_types` imports only known classes."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xmtc.errors import XmtcError
from xmtc.storage.array_file import map_arrays
from xmtc.storage.atomic import atomic_folder, describe_error, recover_folder
from xmtc.storage.cache import compute_file_sha256, compute_path_sha256
from xmtc.storage.form import Form, check_types
from xmtc.storage.form_types import get_form_class, get_form_name
from xmtc.storage.json_types import parse_json
from xmtc.storage.regular_files import open_regular, read_regular

MODEL_KIND = "model"  # kind of a folder that does not state one
ABOUT_FILE, ARRAYS_FILE = "about.json", "arrays.safetensors"
Stamp = tuple[int, ...]  # identifies a version of a folder
MIN_FOLDER_BYTES = 2**14  # of the smallest folder
MAX_ABOUT_BYTES = 2**26  # the longest part is a list of a million allowed labels
STRUCTURE_ERRORS = (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError, RuntimeError)


@dataclass(frozen=True)
class FolderKind:
    """Kind of folder: its formats, files and words for messages.

    Parameters
    ----------
    name : str
        Noun for messages, such as "model".
    formats : tuple of int
        Format numbers that can be read; the last one is written.
    create_command : str
        Command that writes such a folder.
    recreate_verb : str
        Verb for creating one again, such as "train".
    extra_files : tuple of str
        Names of optional further files.
    """

    name: str
    formats: tuple[int, ...]
    create_command: str
    recreate_verb: str
    extra_files: tuple[str, ...] = ()

    def save(
        self,
        folder: str | Path,
        about: dict[str, Any],
        parts: dict[str, Any],
        extra_files: Mapping[str, str] = {},
        expected_stamp: Stamp = (),
        attachments: Mapping[str, Any] = {},
    ) -> None:
        """Write a folder.

        Parameters
        ----------
        folder : str or path
            Target, which is replaced if it is a folder of this kind.
        about : dict
            Entries of about.json.
        parts : dict of str to Form or mapping of Form
            Content by name.
        extra_files : mapping of str to str
            Texts of further files by name.
        expected_stamp : Stamp, optional
            Stamp that the target must still have.
        attachments : mapping of str to Form
            Forms by the name of their own file, which may be deleted later.
        """
        from safetensors import SafetensorError

        arrays: dict[str, np.ndarray] = {}
        encoded = {name: encode_value(part, name, arrays) for name, part in parts.items()}
        target = self.check_target(folder)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with atomic_folder(target) as temporary:
                write_folder_files(
                    temporary, self.name, self.add_header(about), encoded, arrays, extra_files, attachments
                )
                if expected_stamp and expected_stamp != read_stamp(folder):
                    raise XmtcError(f"{folder} was changed by another command in the meantime; repeat this command.")
        except SafetensorError as error:
            number = re.search(r"(?:os error|code:) (\d+)", str(error))  # message of newer and older versions
            if number is None:
                raise
            raise as_folder_error(folder, os.strerror(int(number[1]))) from None
        except OSError as error:
            raise as_folder_error(folder, describe_error(error)) from None

    def add_header(self, about: dict[str, Any]) -> dict[str, Any]:
        """Return about.json with the format and, unless it is a model, the kind."""
        return {"format": self.formats[-1], **({} if self.name == MODEL_KIND else {"kind": self.name}), **about}

    def load(
        self, folder: str | Path, verify: bool = False, prepare: Callable[[Path, dict[str, Any]], None] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read a folder.

        Parameters
        ----------
        folder : str or path
            Folder of this kind.
        verify : bool, default=False
            Whether to read all bytes and compare checksums.
        prepare : callable, optional
            Function of the folder and about.json that is called before the parts are created.

        Returns
        -------
        tuple of dict
            Entries of about.json, and parts by name.
        """
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
            raise self.make_damage_error(folder, f"{ABOUT_FILE} and {ARRAYS_FILE} are inconsistent ({error})") from None

    def load_attachment(self, folder: Path, about: dict[str, Any], name: str, verify: bool = False) -> Any:
        """Return the form in a file of its own; None if the folder has none or the file was deleted."""
        attached = about.get("attached")
        if not isinstance(attached, dict) or name not in attached or not (folder / name).exists():
            return None
        arrays = self.open_arrays(folder, about, verify, name)
        try:
            return decode_value(attached[name], name, arrays)
        except XmtcError:
            raise
        except STRUCTURE_ERRORS as error:
            raise self.make_damage_error(folder, f"{ABOUT_FILE} and {name} are inconsistent ({error})") from None

    def open_arrays(
        self, folder: Path, about: dict[str, Any], verify: bool, name: str = ARRAYS_FILE
    ) -> dict[str, np.ndarray]:
        """Map the arrays of a file of a folder; with `verify`, compare their checksum."""
        try:
            expected_size, expected_sum = about["files"][name]["bytes"], about["files"][name]["sha256"]
        except STRUCTURE_ERRORS:
            raise self.make_damage_error(folder, f"{ABOUT_FILE} does not state the size of {name}") from None
        try:
            with open_regular(folder, name) as file:
                arrays = map_arrays(file, expected_size)
                is_intact = not verify or compute_file_sha256(file) == expected_sum
        except (OSError, *STRUCTURE_ERRORS) as error:
            raise self.make_damage_error(folder / name, describe_error(error)) from None
        if not is_intact:
            raise XmtcError(f"{folder / name} does not match its checksum; copy or {self.recreate_verb} it again.")
        return arrays

    def make_damage_error(self, path: Path, phrase: str) -> XmtcError:
        return XmtcError(f"{path} is damaged: {phrase}; copy or {self.recreate_verb} it again.")

    def read_about(self, folder: Path) -> dict[str, Any]:
        """Return about.json; raise XmtcError if its format is not supported."""
        about = self.read_any_about(folder)
        version = about["format"]
        if version not in self.formats:
            known = " and ".join(map(str, self.formats))
            raise XmtcError(
                f"{folder} has {self.name} format {version}, but this version of xmtc reads format {known}; "
                + ("upgrade xmtc." if version > self.formats[-1] else f"{self.recreate_verb} the {self.name} again.")
            )
        return about

    def read_any_about(self, folder: Path) -> dict[str, Any]:
        """Return about.json of any format; raise XmtcError if the folder is not of this kind."""
        if not folder.is_dir():
            problem = "is a file" if folder.exists() else "does not exist"
            raise XmtcError(
                f"{folder} {problem}; expected a {self.name} folder, as written by `{self.create_command} {folder}`."
            )
        try:
            about = parse_json(read_regular(folder, ABOUT_FILE, MAX_ABOUT_BYTES))
        except FileNotFoundError:
            raise XmtcError(
                f"{folder} is not a {self.name} folder: it has no {ABOUT_FILE}; `{self.create_command}` writes one."
            ) from None
        except (ValueError, RecursionError, OSError) as error:
            raise XmtcError(
                f"{folder / ABOUT_FILE} cannot be read ({describe_error(error)}); copy or {self.recreate_verb} the "
                f"{self.name} again."
            ) from None
        if not isinstance(about, dict) or type(about.get("format")) is not int:
            raise XmtcError(
                f"{folder / ABOUT_FILE} is not from xmtc: it has no format number; `{self.create_command}` writes one."
            )
        kind = about.get("kind", MODEL_KIND)
        if kind != self.name:
            raise XmtcError(
                f"{folder} is a {kind!s:.80} folder; expected a {self.name}, as written by `{self.create_command}`."
            )
        return about

    def check_target(self, folder: str | Path) -> Path:
        """Return the resolved path of a folder to be written, before long work starts.

        Raises
        ------
        XmtcError
            If other files would be lost, the path cannot be written, or the disk is full.
        """
        try:
            target = Path(os.path.realpath(folder))
            if target == Path.cwd():
                raise XmtcError(
                    f"{folder} is the working directory; choose a new folder for the {self.name}, such as {self.name}."
                )
            recover_folder(target)
            if os.path.lexists(target):
                self.check_replaceable(target, folder)
            parent = next(parent for parent in target.parents if parent.exists())
            with tempfile.TemporaryFile(dir=parent) as trial:
                trial.write(bytes(MIN_FOLDER_BYTES))
                trial.flush()
                os.fsync(trial.fileno())  # a full disk may be reported only now
        except OSError as error:
            raise as_folder_error(folder, describe_error(error)) from None
        return target

    def check_replaceable(self, target: Path, name: str | Path) -> None:
        """Raise XmtcError unless the target is an empty folder, or a folder of this kind without other files."""
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
            content = f"{others[0]} beside {ABOUT_FILE}" if others else f"{ABOUT_FILE} without {ARRAYS_FILE}"
            raise XmtcError(
                f"{name} holds {content}, expected only a {self.name}; choose another name so that nothing is lost."
            )


def read_stamp(folder: str | Path) -> Stamp:
    """Return modification times, inodes and sizes of the files of a folder."""
    stamp: list[int] = []
    for name in (ABOUT_FILE, ARRAYS_FILE):
        with suppress(OSError):
            state = Path(folder, name).stat()
            stamp += [state.st_mtime_ns, state.st_ino, state.st_size]
    return tuple(stamp)


def is_complete_folder(folder: Path) -> bool:
    """Return True if a folder has the files of a folder of forms."""
    return (folder / ABOUT_FILE).is_file() and (folder / ARRAYS_FILE).is_file()


def write_folder_files(
    folder: Path,
    kind: str,
    about: dict[str, Any],
    encoded: dict[str, Any],
    arrays: dict[str, np.ndarray],
    extra_files: Mapping[str, str],
    attachments: Mapping[str, Any],
) -> None:
    files = {ARRAYS_FILE: write_array_file(folder / ARRAYS_FILE, arrays)}
    attached = {}
    for name, form in attachments.items():
        form_arrays: dict[str, np.ndarray] = {}
        attached[name] = encode_value(form, name, form_arrays)
        files[name] = write_array_file(folder / name, form_arrays)
    description = {**about, "files": files, "parts": encoded, **({"attached": attached} if attached else {})}
    text = json.dumps(description, indent=1, ensure_ascii=False) + "\n"
    # a lone surrogate, as in the path of a stop list, becomes a JSON escape
    content = text.encode("utf-8", "backslashreplace")
    if len(content) > MAX_ABOUT_BYTES:
        raise XmtcError(
            f"{ABOUT_FILE} of the {kind} has {len(content):,} bytes, expected at most {MAX_ABOUT_BYTES:,}; allow or "
            "deny fewer labels by name, for example by `branch:`."
        )
    (folder / ABOUT_FILE).write_bytes(content)
    for name in files:
        (folder / name).chmod((folder / ABOUT_FILE).stat().st_mode)  # safetensors creates it for the owner only
    for name, text in extra_files.items():
        (folder / name).write_text(text, encoding="utf-8")


def write_array_file(path: Path, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Write a safetensors file and return its size and checksum."""
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)
    return {"bytes": path.stat().st_size, "sha256": compute_path_sha256(path)}


def as_folder_error(folder: str | Path, reason: str) -> XmtcError:
    return XmtcError(f"{folder} cannot be written ({reason}); choose another place.")


def encode_value(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """Return a JSON value that describes a form, and add its arrays to `arrays` under dotted names."""
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
    raise TypeError(f"a folder cannot hold {name}, a {type(value).__name__}")


def decode_value(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """Parse the output of `encode_value`."""
    if isinstance(value, list):
        return tuple(decode_value(item, f"{name}.{i}", arrays) for i, item in enumerate(value))
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]]
    if "mapping" in value:
        return {key: decode_value(item, f"{name}.{key}", arrays) for key, item in value["mapping"].items()}

    kind = get_form_class(value["form"])
    # a folder without a field that has a default is older than the field
    defaults = {f.name: f.default for f in fields(kind) if f.name not in value and f.default is not MISSING}
    stored = {
        f.name: decode_value(value[f.name], f"{name}.{f.name}", arrays) for f in fields(kind) if f.name not in defaults
    }
    values = stored | defaults
    check_types(kind, values, name)
    return kind(**values)
