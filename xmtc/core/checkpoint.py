"""Finished pieces of a long training, kept on disk so that a training that was stopped can go on from them."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from xmtc.core.progress import is_first_process
from xmtc.errors import XmtcError
from xmtc.storage.atomic import (
    HAS_LOCKS,
    PARTIAL_SUFFIX,
    atomic_file,
    describe_error,
    is_file_at,
    open_locked,
    sync,
    sync_folder,
)
from xmtc.storage.regular_files import open_regular, read_regular

CLAIM_FILE = "training.txt"
MAX_CLAIM_BYTES = 2**26
PIECE_READ_ERRORS = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error)
OPEN_CLAIMS: dict[Path, IO[bytes]] = {}  # the claims of this process, which are locked as long as they are open


@dataclass(frozen=True)
class Checkpoint:
    """A folder of finished pieces; without a folder, nothing is kept and nothing is there."""

    folder: Path | None = None

    def claim(self, training: str) -> None:
        """Say which training the pieces belong to; those of another one are not mixed in. Until they are released
        or forgotten, or this process ends, no other can claim them; of those that torchrun has started, the first
        speaks for all."""
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not (self.folder / CLAIM_FILE).exists() and any(self.folder.iterdir()):
                raise XmtcError(f"{self.folder} is not empty and no checkpoint folder; choose another for it.")
            if is_first_process():
                file = lock_claim(self.folder)
                check_claim(self.folder, file.read(), training)
                write_claim(self.folder, file, training)
            elif (self.folder / CLAIM_FILE).exists():
                check_claim(self.folder, read_regular(self.folder, CLAIM_FILE, MAX_CLAIM_BYTES), training)
        except OSError as error:
            raise as_checkpoint_error(self.folder, error) from None

    @property
    def is_claimed(self) -> bool:
        """Whether there may be pieces to go on from."""
        return self.folder is not None and (self.folder / CLAIM_FILE).exists()

    def sub_checkpoint(self, name: str) -> Checkpoint:
        """A folder within this one, for a training that is part of another."""
        return Checkpoint(self.folder and self.folder / name)

    def load_piece(self, piece: str) -> dict[str, np.ndarray] | None:
        """The arrays of a finished piece, None if it is not finished."""
        if self.folder is None or not (self.folder / f"{piece}.npz").exists():
            return None
        try:
            with (
                open_regular(self.folder, f"{piece}.npz") as file,
                np.load(file, allow_pickle=False) as arrays,
            ):
                return dict(arrays)
        except PIECE_READ_ERRORS as error:
            raise XmtcError(
                f"{self.folder / piece}.npz cannot be read ({describe_error(error)}); remove it and repeat the training, "
                "which goes on from the other pieces."
            ) from None

    def save_piece(self, piece: str, arrays: dict[str, np.ndarray]) -> None:
        """Write a finished piece, whole or not at all."""
        if self.folder is None:
            return
        try:
            with (
                atomic_file(self.folder / f"{piece}.npz") as unfinished,
                zipfile.ZipFile(unfinished, "w") as archive,  # as np.savez, which can refuse to pickle only of late
            ):
                for name, array in arrays.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                        np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
        except OSError as error:
            raise as_checkpoint_error(self.folder, error) from None

    def release(self) -> None:
        """Let others claim the pieces: the training has ended, well or not."""
        if self.folder is not None:
            for path in [path for path in OPEN_CLAIMS if path.is_relative_to(self.folder.absolute())]:
                OPEN_CLAIMS.pop(path).close()

    def remove(self) -> None:
        """Remove the pieces, which the saved model has made superfluous. The claim goes last: should this be cut off,
        what is left is still a checkpoint."""
        if self.folder is None or not self.is_claimed:
            return
        claim, file = self.folder / CLAIM_FILE, lock_claim(self.folder)
        for path in self.folder.iterdir():
            if path.is_symlink():
                continue  # not ours: a checkpoint holds no links
            if path.is_dir():
                Checkpoint(path).remove()
                remove_empty_folder(path)
            elif path.suffix in (".npz", PARTIAL_SUFFIX):
                path.unlink()
        if not HAS_LOCKS:
            file.close()  # Windows removes nothing that is open
        claim.unlink()
        remove_empty_folder(self.folder)
        OPEN_CLAIMS.pop(claim.absolute(), file).close()


def lock_claim(folder: Path) -> IO[bytes]:
    """The claim of a folder, to be read from its beginning, with nobody else at it. What killed trainings have left
    unfinished there is removed."""
    path = (folder / CLAIM_FILE).absolute()
    file = OPEN_CLAIMS.get(path)
    if file is None or file.closed or not is_file_at(file, path):  # somebody may have removed it, to begin anew
        file = open_locked(path)
        if file is None:
            raise XmtcError(
                f"{folder} is in use by a training that is going on; wait until it ends, or choose another folder for "
                "--checkpoint."
            )
        for leftover in folder.glob(f".*{PARTIAL_SUFFIX}"):
            leftover.unlink()
        if HAS_LOCKS:
            OPEN_CLAIMS[path] = file
    file.seek(0)
    return file


def check_claim(folder: Path, found: bytes, training: str) -> None:
    """Refuse the folder of another training. A claim that was cut off while it was written belongs to the next
    training, but only if nothing lies beside it: pieces are written after the claim is complete."""
    wanted = training.encode()
    is_alone = all(path.name == CLAIM_FILE for path in folder.iterdir())
    if found != wanted and not (wanted.startswith(found) and is_alone):
        if (file := OPEN_CLAIMS.pop((folder / CLAIM_FILE).absolute(), None)) is not None:
            file.close()
        raise XmtcError(
            f"{folder} holds pieces of a training with other data or parameters; "
            "repeat that one, or choose another folder for --checkpoint."
        )


def write_claim(folder: Path, file: IO[bytes], training: str) -> None:
    file.seek(0)
    file.write(training.encode())
    file.flush()
    sync(file.fileno())
    sync_folder(folder)
    if not HAS_LOCKS:
        file.close()


def remove_empty_folder(folder: Path) -> None:
    if folder.exists() and not any(folder.iterdir()):
        folder.rmdir()


def as_checkpoint_error(folder: Path, error: OSError) -> XmtcError:
    return XmtcError(
        f"{folder} cannot be written ({describe_error(error)}), so that the training cannot be kept there; mend that and "
        "repeat it: it goes on from what is finished. Or choose another folder for --checkpoint."
    )
