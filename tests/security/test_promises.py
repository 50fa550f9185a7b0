"""Promises of SECURITY.md name existing tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
if not (ROOT / "SECURITY.md").exists():
    pytest.skip("SECURITY.md is in the checkout alone", allow_module_level=True)
PROMISES = (ROOT / "SECURITY.md").read_text().partition("## Promises")[2].partition("\n## ")[0]


def test_promises_name_tests_that_exist():
    promises = re.findall(r"^- \*\*.*?(?=^- |\Z)", PROMISES, re.MULTILINE | re.DOTALL)
    assert len(promises) > 8
    assert [promise.partition(".")[0] for promise in promises if "test_" not in promise] == []
    for name in re.findall(r"`([\w/]*test_\w+\.py)`", PROMISES):
        assert (ROOT / name if "/" in name else ROOT / "tests/security" / name).is_file(), name


def test_every_security_test_is_named_by_a_promise():
    named = set(re.findall(r"test_\w+\.py", PROMISES))
    there = {path.name for path in (ROOT / "tests/security").glob("test_*.py")} - {Path(__file__).name}
    assert there - named == set()
