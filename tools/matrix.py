"""Test the wheel without the checkout, on every Python found, with the newest and the lowest allowed dependencies.

    python tools/matrix.py                                                   every cell
    python tools/matrix.py --python 3.13 --versions newest -- -x test_cli.py   one cell, with arguments for pytest

A cell is an environment of its own under build/matrix. PyTorch is left out: it is gigabytes large, and what needs it
skips itself."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "matrix"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
VERSIONS = {"newest": "highest", "lowest": "lowest-direct"}  # our name → name in uv
SHOWN = ("numpy", "scipy", "numba", "scikit-learn", "pyarrow")
LIMIT = 3600  # time limit of the tests of a cell in seconds
OUTCOMES = ("passed", "failed", "skipped")
PROBE = f"""
import json, xmtc
from importlib.metadata import version
print(json.dumps([xmtc.__file__, {{name: version(name) for name in {SHOWN}}}]))
"""


@dataclass
class Cell:
    """Combination of a Python and a choice of versions, with the outcome."""

    python: str
    versions: str
    packages: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)
    seconds: float = 0
    trouble: str = ""

    @property
    def is_good(self) -> bool:
        return not self.trouble and not self.outcomes["failed"] and self.outcomes["passed"] > 0


def main() -> int:
    wanted = parse_arguments()
    found = {version: executable for version in PYTHONS if (executable := find_interpreter(version))}
    missing = [version for version in PYTHONS if version not in found]
    chosen = list(found)[-1:] if wanted.python == ["newest"] else wanted.python or list(found)
    uv = Uv()
    wheel = uv.build()
    cells = [Cell(python, versions) for python in chosen if python in found for versions in wanted.versions]
    for cell in cells:
        print(f"\n== Python {cell.python} ({found[cell.python]}), {cell.versions} versions", flush=True)
        run_cell(cell, found[cell.python], uv, wheel, wanted.pytest)
    print("\n" + render_table(cells))
    for version in missing:
        print(f"Python {version} was not found on this machine: nothing is known about it.")
    in_vain = set(chosen) & set(missing)
    return int(bool(in_vain) or not cells or not all(cell.is_good for cell in cells))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0] + ".")
    parser.add_argument("--python", nargs="+", choices=[*PYTHONS, "newest"], help="all that are found, unless named")
    parser.add_argument("--versions", nargs="+", choices=VERSIONS, default=list(VERSIONS), help="both, unless named")
    parser.add_argument("pytest", nargs="*", help="after --: arguments for pytest, paths as seen from tests/")
    return parser.parse_args()


def find_interpreter(version: str) -> str | None:
    """Return a working executable of this version.

    The shims of pyenv only work while their version is selected, and its versions are not on the path, so both places
    are searched.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders = [Path(folder) for folder in os.get_exec_path()] + sorted(pyenv.glob(f"versions/{version}.*/bin"))
    candidates = [folder / f"python{version}" for folder in folders]
    return next((path for candidate in candidates if (path := resolve_executable(candidate, version))), None)


def resolve_executable(candidate: Path, version: str) -> str | None:
    """Return the path of the interpreter if this starts one of the version."""
    if not candidate.is_file():
        return None
    code = "import sys; print(*sys.version_info[:2], sep='.'); print(sys.executable)"
    done = subprocess.run([candidate, "-c", code], capture_output=True, text=True, cwd=tempfile.gettempdir())
    is_right = done.returncode == 0 and done.stdout.split("\n")[0] == version
    return done.stdout.split("\n")[1] if is_right else None


class Uv:
    """Install uv, which resolves newest and lowest versions, in its own environment."""

    def __init__(self) -> None:
        home = BUILD / "uv"
        self.command = home / "bin" / "uv"
        if not self.command.exists():
            subprocess.run([sys.executable, "-m", "venv", home], check=True)
            subprocess.run([home / "bin" / "pip", "install", "--quiet", "uv"], check=True)

    def __call__(self, *words: str | Path) -> None:
        environment = {**build_environment(), "UV_CACHE_DIR": str(BUILD / "cache"), "UV_PYTHON_DOWNLOADS": "never"}
        if "PIP_INDEX_URL" in environment:  # uv does not read the settings of pip
            environment.setdefault("UV_DEFAULT_INDEX", environment["PIP_INDEX_URL"])
        subprocess.run([self.command, *words, "--quiet"], check=True, env=environment)

    def build(self) -> Path:
        shutil.rmtree(BUILD / "wheel", ignore_errors=True)
        self("build", "--wheel", "--python", sys.executable, "--out-dir", BUILD / "wheel", ROOT)
        return next((BUILD / "wheel").glob("*.whl"))


def build_environment() -> dict[str, str]:
    """Return the environment without variables that lead to the checkout or another Python."""
    elsewhere = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in elsewhere}


def run_cell(cell: Cell, executable: str, uv: Uv, wheel: Path, words: list[str]) -> None:
    start = time.monotonic()
    home = BUILD / f"{cell.python}-{cell.versions}"
    try:
        uv("venv", "--clear", "--python", executable, home)
        # pyproject.toml next to the wheel: only direct dependencies have their lowest version
        chosen = ["--resolution", VERSIONS[cell.versions], "--only-binary", ":all:", "--compile-bytecode"]
        uv("pip", "install", "--python", home, *chosen, wheel, "-r", ROOT / "pyproject.toml", "--extra", "test")
        with tempfile.TemporaryDirectory(prefix="xmtc-matrix-") as folder:
            shutil.copytree(ROOT / "tests", Path(folder, "tests"), ignore=shutil.ignore_patterns("__pycache__", "slow"))
            cell.packages = read_package_versions(home, folder)
            cell.outcomes = run_tests(home, Path(folder, "tests"), words)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        how = getattr(error, "returncode", f"none after {LIMIT} seconds")
        cell.trouble = f"{' '.join(map(str, error.cmd[:3]))} ended with status {how}"
    cell.seconds = time.monotonic() - start


def read_package_versions(home: Path, folder: str) -> dict[str, str]:
    """Return the installed versions after checking that the wheel is imported."""
    command = [home / "bin" / "python", "-c", PROBE]
    done = subprocess.run(command, cwd=folder, env=build_environment(), stdout=subprocess.PIPE, text=True, check=True)
    place, versions = json.loads(done.stdout)
    assert Path(place).is_relative_to(home), f"xmtc was imported from {place}, expected the wheel in {home}"
    return versions


def run_tests(home: Path, tests: Path, words: list[str]) -> dict[str, int]:
    """Return the outcome of the tests. Warnings, which depend on the versions of dependencies, are not errors."""
    report = tests.parent / "report.xml"
    command = [home / "bin" / "python", "-m", "pytest", "-q", "-rs", "--strict-markers", f"--junitxml={report}", *words]
    done = subprocess.run(command, cwd=tests, env=build_environment(), timeout=LIMIT)
    if done.returncode > 1:  # 1: tests failed; other codes: not all tests were run
        done.check_returncode()
    count = {name: int(value) for name, value in count_outcomes(report)}
    failed, skipped = count["failures"] + count["errors"], count["skipped"]
    return {"passed": count["tests"] - failed - skipped, "failed": failed, "skipped": skipped}


def count_outcomes(report: Path) -> Iterator[tuple[str, str]]:
    suite = next(ElementTree.parse(report).iter("testsuite"))
    return ((name, suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped"))


def render_table(cells: list[Cell]) -> str:
    rows = [["python", "versions", *SHOWN, *OUTCOMES, "seconds", ""]]
    for cell in cells:
        numbers = [str(cell.outcomes.get(name, "-")) for name in OUTCOMES]
        names = [cell.packages.get(name, "-") for name in SHOWN]
        rows.append([cell.python, cell.versions, *names, *numbers, f"{cell.seconds:.0f}", cell.trouble])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


if __name__ == "__main__":
    sys.exit(main())
