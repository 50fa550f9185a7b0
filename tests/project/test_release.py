"""Releases: one version, reproducible wheels, pinned dependencies with known licences."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
if not (ROOT / "tools/release.py").exists():
    pytest.skip("releases are made from the checkout alone", allow_module_level=True)

sys.path.insert(0, str(ROOT / "tools"))
import tomllib  # noqa: E402

import licences  # noqa: E402
import release  # noqa: E402

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pins(file: str) -> dict[str, str]:
    lines = (ROOT / file).read_text().splitlines()
    found = [re.match(r"([\w.-]+)(?:\[\w+\])?==(\S+)", line) for line in lines if line[:1].strip() and line[0] != "#"]
    assert all(found)
    return {licences.normalise_name(match[1]): match[2] for match in found if match}


def test_code_and_changelog_name_the_same_version():
    assert release.check_version() == __import__("xmtc").__version__


def test_version_without_changelog_entry_is_rejected(tmp_path, monkeypatch):
    (tmp_path / "xmtc").mkdir()
    (tmp_path / "xmtc/__init__.py").write_text('__version__ = "2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n\n## 1.9 (yesterday)\n")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match=r"xmtc says it is 2\.0, the CHANGELOG begins with 1\.9"):
        release.check_version()


def test_every_direct_dependency_is_pinned_and_locked():
    extras = PROJECT["optional-dependencies"].values()
    direct = [*PROJECT["dependencies"], *(line for extra in extras for line in extra)]
    names = {licences.normalise_name(re.split(r"[\[<>=~!; ]", line)[0]) for line in direct} - {"xmtc"}
    chosen, locked = pins("constraints.txt"), pins("requirements.lock")
    assert names <= chosen.keys()
    in_lock = names - {"ray", "torch"}  # not in the fast tests, or dependent on the machine
    assert in_lock <= locked.keys()
    assert {name: locked[name] for name in in_lock} == {name: chosen[name] for name in in_lock}


def test_every_extra_has_a_row_in_the_documentation():
    page = (ROOT / "docs/reference/dependencies.md").read_text()
    extras = PROJECT["optional-dependencies"].keys() - {"all", "test", "dev", "release"}
    assert set(re.findall(r"^\| `(\w+)` \| [\d,]+ \|", page, re.MULTILINE)) == extras


@pytest.mark.parametrize("name", release.LOCKS)
def test_every_locked_package_has_a_hash(name):
    entries = re.split(r"\n(?=\S)", (ROOT / name).read_text().strip())
    assert entries.pop(0).startswith("# Made by `make lock`")
    assert len(entries) > 50
    assert [entry for entry in entries if not re.search(r"==\S+.* \\\n    --hash=sha256:[0-9a-f]{64}", entry)] == []


def test_makefile_and_container_install_with_hashes():
    """Exceptions are PyTorch, whose build depends on the machine, and optional tools of single targets."""
    makefile = (ROOT / "Makefile").read_text()
    for target in ("release", "audit"):
        commands = makefile.partition(f"\n{target}: setup\n")[2].partition("\n\n")[0]
        assert "pip install" not in commands
    setup = [line for line in makefile.partition("\n.venv/ready:")[2].splitlines() if "pip install" in line]
    container = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if "pip install" in line]
    for installs in (setup, container):
        hashed, own = "--require-hashes -r requirements", "--no-deps --no-build-isolation"
        rest = [line for line in installs if hashed not in line and own not in line]
        assert len(installs) - len(rest) == 2
        assert [line.split()[-1] for line in rest] == (["torch"] if installs is setup else [])


def test_lock_contains_no_index_or_path():
    text = "".join((ROOT / name).read_text() for name in (*release.LOCKS, "constraints.txt"))
    assert "://" not in text
    assert "index-url" not in text


def test_licences_of_dependencies_are_known():
    found = {each.name: each for each in licences.find_dependencies()}
    assert {"numpy", "scipy", "numba", "scikit-learn", "pyarrow", "typer", "rich", "safetensors"} <= found.keys()
    assert "llvmlite" in found  # a dependency of a dependency
    assert {each.name for each in found.values() if each.licence == "not said"} == set()
    # one permissive licence among alternatives is enough
    forbids = re.compile(r"\b(A?GPL|Proprietary)")
    forbidding = [each for each in found.values() if all(map(forbids.search, each.licence.split(" OR ")))]
    assert forbidding == []


def test_wheel_is_reproducible(tmp_path):
    pytest.importorskip("hatchling")
    pytest.importorskip("build")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    digests = []
    for number in range(2):
        words = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path / str(number), ROOT]
        subprocess.run(words, check=True, env=environment, capture_output=True)
        (wheel,) = (tmp_path / str(number)).iterdir()
        digests.append(hashlib.sha256(wheel.read_bytes()).hexdigest())
    assert digests[0] == digests[1]
