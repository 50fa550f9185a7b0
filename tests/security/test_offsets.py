"""Offsets that overflow 64 bits are rejected on first use, before compiled code reads them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from scipy import sparse

from xmtc import Tagger, XmtcError, open_corpus
from xmtc.core.array_validation import is_ascending, is_offset_array
from xmtc.storage.cache import compute_path_sha256
from xmtc.vocabulary.vocabulary import check_offsets

MODELS = Path(__file__).parents[1] / "fixtures/models/format-4"


def make_overflowing(offsets: np.ndarray) -> np.ndarray:
    """Return offsets with the same ends whose differences, computed in 64 bits, are all positive."""
    found = offsets.copy()
    middle = len(found) // 2
    found[middle - 1], found[middle] = 2**63 - 1, -(2**63) + int(found[-1]) + 64
    return found


def test_offsets_are_compared_without_overflow():
    numbers = make_overflowing(np.arange(8))
    assert (np.diff(numbers[2:5]) >= 0).all()
    assert not is_ascending(numbers)
    assert not is_offset_array(numbers, 7, 7)
    assert not is_ascending(np.array([2, 1], np.uint32))
    assert is_offset_array(np.array([0, 0, 3]), 2, 3)
    assert not is_offset_array(np.array([0, 4, 3]), 2, 3)
    assert not is_offset_array(np.array([0, 3]), 2, 3)
    assert is_ascending(np.array([1, 2, 2]))
    assert not is_ascending(np.array([1, 2, 2]), strict=True)


ARRAYS = [
    *(("parabel", f"model.trees.0.{name}") for name in ("slots", "places", "firsts")),
    *(("fastxml", f"model.forest.{name}") for name in ("roots", "ends")),
    *(("craftml", f"model.forest.{name}") for name in ("roots", "centroid_ends", "ends")),
    ("extremetext", "model.starts"),
    *(("pfastrexml", f"model.{name}") for name in ("forest.ends", "starts")),
    *(("annexml", f"model.{name}") for name in ("label_ends", "learners.0.member_ends", "learners.0.feature_ends")),
    ("lexical", "model.automaton.offsets"),
]


@pytest.mark.parametrize(("method", "name"), ARRAYS, ids=[f"{method}-{name}" for method, name in ARRAYS])
def test_models_with_overflowing_offsets_are_rejected(tmp_path, method, name):
    folder = tmp_path / "model"
    shutil.copytree(MODELS / method, folder)
    arrays = load_file(folder / "arrays.safetensors")
    (full,) = [each for each in arrays if each.endswith(name.removeprefix("model."))][:1]
    arrays[full] = make_overflowing(arrays[full])
    save_file(arrays, folder / "arrays.safetensors")
    about = json.loads((folder / "about.json").read_text())
    about["files"]["arrays.safetensors"] = {
        "bytes": (folder / "arrays.safetensors").stat().st_size,
        "sha256": compute_path_sha256(folder / "arrays.safetensors"),
    }
    (folder / "about.json").write_text(json.dumps(about))
    with pytest.raises(
        XmtcError,
        match=r"is damaged: .*(fit together|nodes of a forest|breadth-first|label_ends|offsets does not ascend)",
    ):
        Tagger.load(folder).check()


def test_vocabularies_with_overflowing_offsets_are_rejected():
    with pytest.raises(ValueError, match="offsets are not ascending"):
        check_offsets(make_overflowing(np.arange(8)), 7, 7)


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr"])
def test_matrices_with_overflowing_offsets_are_rejected(tmp_path, kind):
    matrix = sparse.random_array((8, 8), density=0.5, format="csr", rng=np.random.default_rng(0))
    found = getattr(sparse, f"{kind}_array")(matrix)
    sparse.save_npz(tmp_path / "Y.npz", matrix)
    held = {"format": np.array(kind.encode()), "shape": np.array(found.shape), "data": found.data}
    held |= {
        "indices": found.indices,
        "indptr": make_overflowing(found.indptr.astype(np.int64)),
        "_is_array": np.array(True),
    }
    np.savez(tmp_path / "X.npz", **held)
    with pytest.raises(XmtcError, match="is not a sparse matrix saved by scipy"):
        list(open_corpus(f"{tmp_path}/X.npz,{tmp_path}/Y.npz"))
