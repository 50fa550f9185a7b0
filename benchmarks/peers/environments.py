"""Virtual environments of the peers, which pin different versions of numpy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).parent


class NotInstalled(Exception):
    """A peer cannot be run; the message is the reason."""


def create_ignored_folder(folder: Path) -> Path:
    """Create a folder that git ignores."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    return folder


def find_interpreter(system: str, folder: Path, install: bool) -> str:
    """Return the Python of a system: this one for xmtc; for a peer, the one of folder/NAME, which is created if
    missing."""
    if system == "xmtc":
        return sys.executable
    python = folder / system / "bin" / "python"
    if install:
        create_environment(system, folder / system, python)
    if not python.exists():
        raise NotInstalled("no virtual environment")
    return str(python)


def create_environment(system: str, home: Path, python: Path) -> None:
    """Create a virtual environment with the requirements of NAME.txt unless it exists."""
    wanted = (REQUIREMENTS / f"{system}.txt").read_text()
    stamp = home / "installed.txt"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"installing {system}", flush=True)
    run([sys.executable, "-m", "venv", "--clear", str(home)])
    run([str(python), "-m", "pip", "install", "--quiet", "-r", str(REQUIREMENTS / f"{system}.txt")])
    stamp.write_text(wanted)


def run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if "ERROR" in line] or done.stdout.splitlines()
        raise NotInstalled(f"not installed: {lines[-1] if lines else 'no reason given'}")
