"""Build a release reproducibly: the same commit gives the same bytes.

    python tools/release.py lock     write the lock files: every package pinned, with hashes
    python tools/release.py build    dist/: wheel, source archive, SBOM (CycloneDX) and their checksums
    python tools/release.py audit    known vulnerabilities of the locked packages; needs the public database

`build` refuses a tree with uncommitted changes and a version that differs from the latest one in the CHANGELOG. It
builds twice and compares."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from matrix import ROOT, Uv

DIST = ROOT / "dist"
# Lock file → extras. The container has its own lock without packages for developers.
LOCKS = {
    "requirements.lock": ("dev", "release"),
    "requirements-serve.lock": ("arrow", "serve", "mcp", "tables", "documents", "vocab", "languages"),
}
HEADER = "# Made by `make lock` from pyproject.toml and constraints.txt: the extras {}, pinned, with hashes.\n"
# PyTorch has a build for each accelerator, so its build is not locked: `make setup` installs the version of
# constraints.txt from the configured index. Dependencies of PyTorch are locked.
WITHOUT_TORCH = "torch ; sys_platform == 'none'\n"
NEEDED_BY_TORCH = ("filelock", "fsspec", "jinja2", "networkx", "setuptools", "sympy", "typing-extensions")
BUILD = ("hatchling", "editables")  # builds the package without downloading anything without a hash


def write_lock_files() -> None:
    for name, extras in LOCKS.items():
        content = resolve(*extras, hashes=True)
        (ROOT / name).write_text(HEADER.format(", ".join(extras)) + content)
        print(f"{name}: {content.count('==')} packages")


def resolve(*extras: str, hashes: bool = False) -> str:
    """Return the packages that xmtc needs with some extras, pinned, for every platform and Python."""
    with tempfile.TemporaryDirectory() as folder:
        output, overrides, further = (Path(folder, name) for name in ("output", "overrides", "further.in"))
        overrides.write_text(WITHOUT_TORCH)
        further.write_text("\n".join(BUILD + (NEEDED_BY_TORCH if "dev" in extras else ())))
        words = [word for extra in extras for word in ("--extra", extra)]
        words += ["--constraint", ROOT / "constraints.txt", *(["--generate-hashes"] if hashes else [])]
        words += ["--override", overrides] if hashes else []
        words += ["--universal", "--python-version", "3.11", "--no-header", "--no-annotate", "--output-file", output]
        Uv()("pip", "compile", ROOT / "pyproject.toml", *([further] if hashes else []), *words)
        return output.read_text()


def build() -> None:
    version = check_version()
    if changed := run_command("git", "status", "--porcelain"):
        sys.exit(f"The tree has changes, so that no commit says what was built; commit or stash them:\n{changed}")
    shutil.rmtree(DIST, ignore_errors=True)
    first, second = build_packages(DIST), build_packages(Path(tempfile.mkdtemp()))
    if first != second:
        sys.exit(f"Two builds of one commit differ: {first} and {second}")
    write_sbom(DIST / f"xmtc-{version}.cdx.json")
    sums = "".join(f"{hash_file(path)}  {path.name}\n" for path in sorted(DIST.iterdir()))
    (DIST / "SHA256SUMS").write_text(sums)
    print(sums, end="")


def check_version() -> str:
    """Return the version; exit if the code and the CHANGELOG name different ones."""
    (version,) = re.findall(r'^__version__ = "(.+)"$', (ROOT / "xmtc/__init__.py").read_text(), re.MULTILINE)
    (latest, *_) = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if version != latest:
        sys.exit(f"xmtc says it is {version}, the CHANGELOG begins with {latest}; make them the same.")
    return version


def build_packages(folder: Path) -> dict[str, str]:
    """Build a wheel and a source archive whose files have the time of the commit; return their digests."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": run_command("git", "log", "-1", "--format=%ct")}
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    subprocess.run(words, check=True, env=environment, stdout=subprocess.DEVNULL)
    return {path.name: hash_file(path) for path in sorted(folder.iterdir()) if path.suffix in (".whl", ".gz")}


def write_sbom(path: Path) -> None:
    """Write the bill of materials of a user's installation, with all extras that this repository tests."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.write(resolve("arrow", "neural", "tune", "vocab"))
        requirements.flush()
        how = ["--pyproject", ROOT / "pyproject.toml", "--mc-type", "library", "--output-reproducible"]
        words = [sys.executable, "-m", "cyclonedx_py", "requirements", requirements.name, *how, "--output-file", path]
        subprocess.run(words, check=True)


def audit() -> None:
    locks = [word for name in LOCKS for word in ("--requirement", ROOT / name)]
    done = subprocess.run(
        [sys.executable, "-m", "pip_audit", *locks, "--require-hashes", "--disable-pip"], capture_output=True, text=True
    )
    print(done.stdout + done.stderr, end="")
    if "could not be audited" in done.stdout + done.stderr:
        sys.exit("The vulnerability database did not answer for some packages; repeat this with access to it.")
    sys.exit(done.returncode)


def hash_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run_command(*words: str) -> str:
    return subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    commands = {"lock": write_lock_files, "build": build, "audit": audit}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(f"usage: python tools/release.py {' | '.join(commands)}")
    commands[sys.argv[1]]()
