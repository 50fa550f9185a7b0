"""Rules of language and naming that hold for the whole package."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import xmtc

PACKAGE = Path(xmtc.__file__).parent
TREES = {path.relative_to(PACKAGE): ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
FRAGMENT_PATTERN = re.compile(r"(What|Of|Those|That|All|One of|As|Whether|How|Which|Some|Where|None|From|By|In|With)\b")
VAGUE_NAMES = {"asked", "beside", "found", "given", "judged", "misc", "shown", "together", "told", "util", "utils"}


def iterate_docstrings() -> Iterator[tuple[str, str]]:
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            is_documented = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module)
            if is_documented and (docstring := ast.get_docstring(node)):
                yield f"{path}: {getattr(node, 'name', 'module')}: {docstring.splitlines()[0]}", docstring


def test_docstrings_are_understood_without_the_name():
    assert [place for place, docstring in iterate_docstrings() if FRAGMENT_PATTERN.match(docstring)] == []


def test_class_names_have_one_meaning():
    names = Counter(node.name for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert [name for name, n in names.items() if n > 1] == []


@pytest.mark.parametrize("kind", [ast.FunctionDef, ast.ClassDef])
def test_names_say_what_they_name(kind):
    names = {node.name.lower() for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, kind)}
    assert not VAGUE_NAMES & (names | {path.stem for path in TREES})
