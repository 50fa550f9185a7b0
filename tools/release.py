"""A release, made so that anybody can make the same bytes from the same commit.

    python tools/release.py lock     requirements.lock: every package of the development environment, pinned
    python tools/release.py build    dist/: wheel, source archive, SBOM (CycloneDX) and their checksums
    python tools/release.py audit    known vulnerabilities of what is locked; needs the network's database

`build` refuses a tree with changes and a version that the CHANGELOG does not begin with. It builds twice and
compares."""

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

DIST, LOCK = ROOT / "dist", ROOT / "requirements.lock"
HEADER = "# The whole development environment, pinned: made by `make lock` from pyproject.toml and constraints.txt.\n"


def lock() -> None:
    LOCK.write_text(HEADER + resolved("dev", "release"))
    print(f"{LOCK.name}: {len(LOCK.read_text().splitlines()) - 1} packages")


def resolved(*extras: str) -> str:
    """The packages that xmtc needs with some extras, pinned, for every platform and Python."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "requirements.txt"
        chosen = [word for extra in extras for word in ("--extra", extra)]
        how = ["--universal", "--python-version", "3.11", "--no-header", "--no-annotate", "--output-file", output]
        Uv()("pip", "compile", ROOT / "pyproject.toml", *chosen, "--constraint", ROOT / "constraints.txt", *how)
        return output.read_text()


def build() -> None:
    version = check_version()
    if changed := output_of("git", "status", "--porcelain"):
        sys.exit(f"The tree has changes, so that no commit says what was built; commit or stash them:\n{changed}")
    shutil.rmtree(DIST, ignore_errors=True)
    first, second = built(DIST), built(Path(tempfile.mkdtemp()))
    if first != second:
        sys.exit(f"Two builds of one commit differ: {first} and {second}")
    sbom(DIST / f"xmtc-{version}.cdx.json")
    sums = "".join(f"{digest(path)}  {path.name}\n" for path in sorted(DIST.iterdir()))
    (DIST / "SHA256SUMS").write_text(sums)
    print(sums, end="")


def check_version() -> str:
    """The version, which the code and the CHANGELOG must agree on."""
    (version,) = re.findall(r'^__version__ = "(.+)"$', (ROOT / "xmtc/__init__.py").read_text(), re.MULTILINE)
    (latest, *_) = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if version != latest:
        sys.exit(f"xmtc says it is {version}, the CHANGELOG begins with {latest}; make them the same.")
    return version


def built(folder: Path) -> dict[str, str]:
    """A wheel and a source archive, whose files all have the time of the commit."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": output_of("git", "log", "-1", "--format=%ct")}
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    subprocess.run(words, check=True, env=environment, stdout=subprocess.DEVNULL)
    return {path.name: digest(path) for path in sorted(folder.iterdir()) if path.suffix in (".whl", ".gz")}


def sbom(path: Path) -> None:
    """What a user's installation is made of, with all extras that this repository tests."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.write(resolved("neural", "tune", "vocab"))
        requirements.flush()
        how = ["--pyproject", ROOT / "pyproject.toml", "--mc-type", "library", "--output-reproducible"]
        words = [sys.executable, "-m", "cyclonedx_py", "requirements", requirements.name, *how, "--output-file", path]
        subprocess.run(words, check=True)


def audit() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip_audit", "--requirement", LOCK, "--no-deps", "--disable-pip"],
        capture_output=True,
        text=True,
    )
    print(done.stdout + done.stderr, end="")
    if "could not be audited" in done.stdout + done.stderr:
        sys.exit("The database of vulnerabilities was not to be had for some packages: nothing is known of these.")
    sys.exit(done.returncode)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def output_of(*words: str) -> str:
    return subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    commands = {"lock": lock, "build": build, "audit": audit}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(f"usage: python tools/release.py {' | '.join(commands)}")
    commands[sys.argv[1]]()
