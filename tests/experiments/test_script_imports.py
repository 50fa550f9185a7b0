"""Scripts of benchmarks, experiments and tools import modules and names that exist."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SCRIPTS = [path for folder in ("benchmarks", "experiments", "tools") for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_imported_names_exist(script):
    """Imports of other packages are not tested, because most scripts compare with packages that are not installed."""
    for node in ast.walk(ast.parse(script.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("xmtc", "experiments"):
            module = import_module(node.module)
            for name in (alias.name for alias in node.names):
                assert hasattr(module, name) or import_module(f"{node.module}.{name}"), f"{node.module} has no {name}"
