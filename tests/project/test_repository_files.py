"""Files for people and services around the repository: citation, templates, recipe, manual page, completion."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from commands import xmtc

import xmtc as package

ROOT = Path(__file__).parents[2]
if not (ROOT / "CITATION.cff").exists():
    pytest.skip("these files are in the checkout alone", allow_module_level=True)
yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_citation_names_the_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()
    assert citation["version"] == package.__version__
    assert citation["license"] == PROJECT["license"]


def test_recipe_has_the_dependencies_of_the_package():
    recipe = yaml.safe_load((ROOT / "packaging/conda/recipe.yaml").read_text())
    assert recipe["context"]["version"] == package.__version__
    own = {"zlib-ng": "python-zlib-ng"}  # names of conda-forge
    names = [re.match(r"([\w-]+)(.*)", line) for line in PROJECT["dependencies"]]
    expected = {f"{own.get(match[1], match[1])} {match[2]}" for match in names if match}
    assert set(recipe["requirements"]["run"]) == expected | {f"python {PROJECT['requires-python']}"}


def test_issue_forms_have_required_fields():
    for form in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        content = yaml.safe_load(form.read_text())
        if form.name != "config.yml":
            assert {"name", "description", "body"} <= content.keys()
            assert any(field.get("validations", {}).get("required") for field in content["body"])


def test_manual_page_has_every_command():
    page = subprocess.run(
        [sys.executable, str(ROOT / "tools/man_page.py")], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    assert page.startswith(".TH XMTC 1")
    for command in ("train", "export", "data convert", "vocab import"):
        assert f".SS xmtc {command}\n" in page
    if shutil.which("groff"):
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww"], input=page, capture_output=True, text=True, check=True
        )
        assert done.stderr == ""
        assert "output" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_available(shell):
    done = xmtc("--show-completion", shell)
    assert done.returncode == 0
    assert b"complet" in done.stdout.lower() or b"compdef" in done.stdout
