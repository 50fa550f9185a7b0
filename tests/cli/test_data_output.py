"""Output of xmtc data convert and split: it never overwrites the corpus, and no part is empty."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from test_data_commands import FISH, call

from xmtc.data.corpus import open_corpus
from xmtc.errors import XmtcError


@pytest.mark.parametrize(
    "command", ["convert fish.jsonl LINK", "split fish.jsonl LINK out", "split fish.jsonl out LINK"]
)
def test_corpus_is_never_overwritten(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("fish.jsonl").write_text(FISH, encoding="utf-8")
    Path("link").symlink_to("fish.jsonl")
    for name in ("fish.jsonl", "link", "new/../fish.jsonl"):
        with pytest.raises(XmtcError, match=f"{name} is part of the corpus that is read, expected another file"):
            call(*command.replace("LINK", name).split(), "--format", "csv")
    assert Path("fish.jsonl").read_text(encoding="utf-8") == FISH
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fish.jsonl", "link"]


def test_folder_and_pair_of_matrices_are_never_overwritten(tmp_path: Path) -> None:
    for name, content in {"a.txt": "text", "a.key": "x"}.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(XmtcError, match=r"a\.txt is part of the corpus that is read"):
        call("convert", tmp_path, tmp_path / "a.txt", "--format", "jsonl")
    for name in ("X.npz", "Y.npz"):
        sparse.save_npz(tmp_path / name, sparse.csr_array(np.eye(2)))
    with pytest.raises(XmtcError, match=r"Y\.npz is part of the corpus that is read"):
        call("convert", tmp_path / "X.npz", tmp_path / "Y.npz", "--format", "sparse")


def test_split_into_an_empty_part_is_rejected(tmp_path: Path) -> None:
    source, parts = tmp_path / "c.jsonl", [tmp_path / "train.jsonl", tmp_path / "test.jsonl"]
    source.write_text('{"text": "one", "labels": []}\n')
    with pytest.raises(XmtcError, match="has one document; expected at least two, one for each part"):
        call("split", source, *parts)
    source.write_text('{"text": "one", "labels": []}\n{"text": "two", "labels": []}\n')
    call("split", source, *parts)
    assert [len(list(open_corpus(part))) for part in parts] == [1, 1]
