"""Two commands that change one model at the same time do not undo each other's changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import invoke, lines_of, make_place

from xmtc.tagger import Tagger


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    place = make_place(tmp_path_factory.mktemp("changing"))
    (place / "valid.jsonl").write_text(lines_of(150, seed=2))
    (place / "concepts.tsv").write_text("label-00\tzero\nlabel-01\tone\n")
    return place


@pytest.fixture
def another(place: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Simulate another command that changes the model after it was opened; return the label that it denies."""
    opened = Tagger.load.__func__  # type: ignore[attr-defined]
    label = opened(Tagger, place / "model").labels[0]

    def load(cls, folder):
        result = opened(cls, folder)
        opened(cls, folder).with_filter([], [label]).save(folder)
        return result

    monkeypatch.setattr(Tagger, "load", classmethod(load))
    return label


@pytest.mark.parametrize(
    "words",
    [
        "thresholds model valid.jsonl",
        "thresholds model --clear",
        "calibrate model valid.jsonl",
        "vocab attach model concepts.tsv",
        "vocab filter model --clear",
    ],
)
def test_concurrent_change_is_not_undone(place, another, words):
    done = invoke(*words.split(), cwd=place)
    assert done.returncode == 2
    assert (
        done.stderr.decode()
        .strip()
        .endswith("model was changed by another command in the meantime; repeat this command.")
    )
    assert another not in [tag.label for tag in Tagger.load(place / "model").predict_labels(["word0alpha"], k=50)[0]]
    assert [path.name for path in place.iterdir() if path.name.startswith(".")] == []


def test_output_to_another_folder_is_written(place, another):
    assert invoke("calibrate", "model", "valid.jsonl", "-o", "other", cwd=place).returncode == 0
