"""Every later version reads the model folders of every earlier format, and gives the same predictions."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from xmtc.methods import METHODS

MODELS = Path(__file__).parents[1] / "fixtures" / "models"
sys.path.append(str(MODELS.parent))

from make_models import answers  # noqa: E402

NEED_TORCH = (
    "attention_xml", "xml_rnn", "xml_cnn", "bow_cnn", "rank_ae", "bce_ae", "c2ae", "aplc_xlnet", "rank_ae-words",
    "word-stems", "dense", "matcher", "matcher-fine-tuned", "slice", "xr_transformer",
)  # fmt: skip
FOLDERS = sorted(path.parent for path in MODELS.glob("*/*/about.json"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_old_model_gives_the_same_predictions(folder: Path) -> None:
    if folder.name in NEED_TORCH:
        pytest.importorskip("torch")
    if folder.name in ("aplc_xlnet", "dense", "matcher", "matcher-fine-tuned", "slice", "xr_transformer"):
        pytest.importorskip("transformers")
    if folder.name in ("stems", "word-stems"):
        pytest.importorskip("snowballstemmer")
    expected = json.loads((folder.parent / "expected.json").read_text(encoding="utf-8"))[folder.name]
    result = answers(folder)
    assert [[label for label, _ in row] for row in result] == [[label for label, _ in row] for row in expected]
    scores = [[score for _, score in row] for row in expected]
    assert [[score for _, score in row] for row in result] == [pytest.approx(row, abs=1e-5) for row in scores]


@pytest.mark.parametrize(
    ("model_format", "later"),
    [
        ("format-3", {"craftml", "extremetext", "stacked", "auto", "matcher", "slice", "xr_transformer"}),
        ("format-4", set()),
    ],
)
def test_every_method_has_a_fixture_of_every_format_since_it_was_added(model_format: str, later: set[str]) -> None:
    assert METHODS.keys() - later <= {folder.name for folder in FOLDERS if folder.parent.name == model_format}
