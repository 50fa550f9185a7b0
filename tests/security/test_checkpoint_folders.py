"""A prepared checkpoint folder does not make a training delete other files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from xmtc.core.checkpoint import CLAIM_FILE, Checkpoint
from xmtc.errors import XmtcError


def test_links_are_not_followed(tmp_path: Path) -> None:
    target, folder = tmp_path / "target", tmp_path / "checkpoint"
    target.mkdir()
    (target / CLAIM_FILE).write_text("a training")
    (target / "mine.npz").write_text("data")
    checkpoint = Checkpoint(folder)
    checkpoint.claim("a training")
    checkpoint.save_piece("piece", {"a": np.zeros(1)})
    (folder / "sub").symlink_to(target)
    checkpoint.remove()
    assert (target / "mine.npz").read_text() == "data"
    assert [path.name for path in folder.iterdir()] == ["sub"]


@pytest.mark.parametrize("claim", ["", "a tr"])
def test_incomplete_claim_with_other_files_is_rejected(tmp_path: Path, claim: str) -> None:
    (tmp_path / CLAIM_FILE).write_text(claim)
    (tmp_path / "mine.npz").write_text("data")
    with pytest.raises(XmtcError, match="holds pieces of a training with other data or parameters"):
        Checkpoint(tmp_path).claim("a training")
    assert (tmp_path / "mine.npz").read_text() == "data"


def test_incomplete_claim_is_replaced(tmp_path: Path) -> None:
    (tmp_path / CLAIM_FILE).write_text("a tr")
    checkpoint = Checkpoint(tmp_path)
    checkpoint.claim("a training")
    assert (tmp_path / CLAIM_FILE).read_text() == "a training"
    checkpoint.remove()
