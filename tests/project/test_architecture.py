"""ARCHITECTURE.md agrees with the source tree and with the layers that test_imports.py checks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_imports import LAYERS

ROOT = Path(__file__).parents[2]
if not (ROOT / "ARCHITECTURE.md").exists():
    pytest.skip("ARCHITECTURE.md is only in the checkout", allow_module_level=True)
TEXT = (ROOT / "ARCHITECTURE.md").read_text()


def read_layer_table() -> dict[int, set[str]]:
    section = TEXT.partition("## Layers")[2].partition("\n## ")[0]
    layers: dict[int, set[str]] = {}
    layer = 0
    for number, names in re.findall(r"^\| *(\d?) *\| ((?:`\w+`(?:, )?)+) \|", section, re.MULTILINE):
        layer = int(number or layer)
        layers.setdefault(layer, set()).update(re.findall(r"`(\w+)`", names))
    return layers


def test_layer_table_lists_the_layers_of_the_import_test():
    assert read_layer_table() == dict(enumerate(LAYERS, start=1))


def test_layer_table_lists_every_package():
    entries = (ROOT / "xmtc").iterdir()
    packages = {path.stem for path in entries if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert set.union(*LAYERS) == packages - {"__init__"}


def test_named_paths_exist():
    paths = set(re.findall(r"`((?:\w+/)*\w+\.py|\w+(?:/\w+)+)`", TEXT))
    assert len(paths) > 30
    assert not [path for path in paths if not ((ROOT / "xmtc" / path).exists() or (ROOT / path).exists())]


def test_named_functions_and_tables_exist():
    pairs = re.findall(r"`((?:\w+/)*\w+\.py)` \(`([\w.]+)`\)", TEXT)
    pairs += [(path, name) for name, path in re.findall(r"`([A-Z_]+)` \(`((?:\w+/)*\w+\.py)`\)", TEXT)]
    assert len(pairs) > 8
    for path, dotted_name in pairs:
        source = (ROOT / "xmtc" / path).read_text()
        for name in dotted_name.split("."):
            assert re.search(rf"^ *(?:def|class) {name}\b|^{name}\b.*=", source, re.MULTILINE), (path, name)
