"""Checkpoints: a directory of finished pieces from which an interrupted training resumes.

The file CLAIM_FILE identifies the training that the pieces belong to, and is locked while the training runs."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from xmtc.core.process_rank import is_first_process
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

if TYPE_CHECKING:
    from xmtc.core.dataset import Dataset
    from xmtc.core.method import Method
    from xmtc.core.run import Run

CLAIM_FILE = "training.txt"
MAX_CLAIM_BYTES = 2**26
PIECE_READ_ERRORS = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error)
OPEN_CLAIMS: dict[Path, IO[bytes]] = {}  # claim files of this process, locked while they are open


@dataclass(frozen=True)
class Checkpoint:
    """Directory of finished pieces of a training, each a named set of arrays.

    Parameters
    ----------
    folder : path, optional
        Directory; None keeps nothing.
    interval_seconds : float, default=600.0
        Minimum time between two saves of the state of one network.
    """

    folder: Path | None = None
    interval_seconds: float = 600.0

    def claim(self, training: str) -> None:
        """Reserve the directory for a training, until `release`, `remove` or the end of this process.

        Parameters
        ----------
        training : str
            Description of the data and the hyper-parameters; only a training with the same one may resume.

        Raises
        ------
        XmtcError
            If the directory belongs to another training, is in use, is not a checkpoint, or cannot be written.
        """
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not (self.folder / CLAIM_FILE).exists() and any(self.folder.iterdir()):
                raise XmtcError(
                    f"{self.folder} is not empty and is not a checkpoint directory; choose another directory "
                    "for --checkpoint."
                )
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
        """True if the directory belongs to a training and may hold pieces of it."""
        return self.folder is not None and (self.folder / CLAIM_FILE).exists()

    def sub_checkpoint(self, name: str) -> Checkpoint:
        """Return the checkpoint of a training that is part of this one, in a subdirectory."""
        return replace(self, folder=self.folder and self.folder / name)

    def load_piece(self, piece: str) -> dict[str, np.ndarray] | None:
        """Return the arrays of a finished piece, or None if it is not finished."""
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
                f"{self.folder / piece}.npz cannot be read ({describe_error(error)}); remove it and repeat the "
                "training, which resumes from the other pieces."
            ) from None

    def save_piece(self, piece: str, arrays: dict[str, np.ndarray]) -> None:
        """Write a finished piece atomically."""
        if self.folder is None:
            return
        try:
            with (
                atomic_file(self.folder / f"{piece}.npz") as unfinished,
                zipfile.ZipFile(unfinished, "w") as archive,  # np.savez has no allow_pickle=False in older versions
            ):
                for name, array in arrays.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                        np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
        except OSError as error:
            raise as_checkpoint_error(self.folder, error) from None

    def release(self) -> None:
        """Release the directory after the training has ended or failed, so that others can claim it."""
        if self.folder is not None:
            for path in [path for path in OPEN_CLAIMS if path.is_relative_to(self.folder.absolute())]:
                OPEN_CLAIMS.pop(path).close()

    def remove(self) -> None:
        """Remove the pieces after the model has been saved.

        The claim file is removed last, so that an interrupted removal leaves a valid checkpoint."""
        if self.folder is None or not self.is_claimed:
            return
        claim, file = self.folder / CLAIM_FILE, lock_claim(self.folder)
        for path in self.folder.iterdir():
            if path.is_symlink():
                continue  # a checkpoint holds no links
            if path.is_dir():
                Checkpoint(path).remove()
                remove_empty_folder(path)
            elif path.suffix in (".npz", PARTIAL_SUFFIX):
                path.unlink()
        if not HAS_LOCKS:
            file.close()  # Windows cannot remove an open file
        claim.unlink()
        remove_empty_folder(self.folder)
        OPEN_CLAIMS.pop(claim.absolute(), file).close()


def claim_checkpoint(run: Run, method: Method, *datasets: Dataset, prefix: str = "") -> None:
    """Record method and data in the checkpoint directory; raise an error if it belongs to another training."""
    if run.checkpoint.folder:  # fingerprints read all data, so compute them only if they are needed
        fingerprints = " ".join(data.fingerprint() for data in datasets)
        run.checkpoint.claim(f"{prefix}{method} {fingerprints}")


def lock_claim(folder: Path) -> IO[bytes]:
    """Return the locked claim file of a folder, positioned at its start; remove partial files of killed trainings."""
    path = (folder / CLAIM_FILE).absolute()
    file = OPEN_CLAIMS.get(path)
    if file is None or file.closed or not is_file_at(file, path):  # the user may have removed it to start over
        file = open_locked(path)
        if file is None:
            raise XmtcError(
                f"{folder} is in use by another training; wait until it ends, or choose another directory for "
                "--checkpoint."
            )
        for leftover in folder.glob(f".*{PARTIAL_SUFFIX}"):
            leftover.unlink()
        if HAS_LOCKS:
            OPEN_CLAIMS[path] = file
    file.seek(0)
    return file


def check_claim(folder: Path, claim: bytes, training: str) -> None:
    """Raise XmtcError if the folder belongs to another training.

    A truncated claim is accepted if no pieces lie beside it, because pieces are written after the claim is complete."""
    expected = training.encode()
    is_alone = all(path.name == CLAIM_FILE for path in folder.iterdir())
    if claim != expected and not (expected.startswith(claim) and is_alone):
        if (file := OPEN_CLAIMS.pop((folder / CLAIM_FILE).absolute(), None)) is not None:
            file.close()
        raise XmtcError(
            f"{folder} holds pieces of a training with other data or parameters; "
            "repeat that training, or choose another directory "
            "for --checkpoint."
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
        f"{folder} cannot be written ({describe_error(error)}), so the checkpoint is incomplete; fix that and repeat "
        "the command, which resumes from the finished pieces, or choose another directory "
        "for --checkpoint."
    )
