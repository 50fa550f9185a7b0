"""Finished pieces of a long training, kept on disk so that a training that was stopped can go on from them."""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xmtc.errors import XmtcError

CLAIM = "training.txt"


@dataclass(frozen=True)
class Checkpoint:
    """A folder of finished pieces; without a folder, nothing is kept and nothing is there."""

    folder: Path | None = None

    def claim(self, training: str) -> None:
        """Say which training the pieces belong to; those of another one are not mixed in."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        claim = self.folder / CLAIM
        if not claim.exists():
            if any(self.folder.iterdir()):
                raise XmtcError(f"{self.folder} is not empty and no checkpoint folder; choose another for it.")
            claim.write_text(training, encoding="utf-8")
        elif claim.read_text(encoding="utf-8") != training:
            raise XmtcError(
                f"{self.folder} holds pieces of a training with other data or parameters; "
                "repeat that one, or choose another folder for --checkpoint."
            )

    def part(self, name: str) -> Checkpoint:
        """A folder within this one, for a training that is part of another."""
        return Checkpoint(self.folder and self.folder / name)

    def recall(self, piece: str) -> dict[str, np.ndarray] | None:
        """The arrays of a finished piece, None if it is not finished."""
        if self.folder is None or not (self.folder / f"{piece}.npz").exists():
            return None
        with np.load(self.folder / f"{piece}.npz", allow_pickle=False) as arrays:
            return dict(arrays)

    def keep(self, piece: str, arrays: dict[str, np.ndarray]) -> None:
        """Write a finished piece, whole or not at all."""
        if self.folder is None:
            return
        unfinished = self.folder / f".{piece}.{os.getpid()}.part"
        with zipfile.ZipFile(unfinished, "w") as archive:  # as np.savez, which can refuse to pickle only of late
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
        os.replace(unfinished, self.folder / f"{piece}.npz")

    def forget(self) -> None:
        """Remove the pieces, which the saved model has made superfluous."""
        if self.folder is None or not (self.folder / CLAIM).exists():
            return
        for path in self.folder.iterdir():
            if path.is_dir():
                Checkpoint(path).forget()
            elif path.suffix in (".npz", ".part") or path.name == CLAIM:
                path.unlink()
        if not any(self.folder.iterdir()):
            self.folder.rmdir()
