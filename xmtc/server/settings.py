"""Settings of a service. They are pickled to worker processes, so all values are plain."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xmtc.errors import XmtcError

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")  # not reachable from other machines
ANY_HOST = "*"  # value of --allow-host that disables the check
METRICS_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # folder where workers share their metrics
MAX_ANSWER_LABELS = 100_000  # per request; about 10 MB of JSON
MODEL_NAME_PATTERN = re.compile(r"[\w][\w. -]{0,99}")  # model names are parts of URLs


@dataclass(frozen=True)
class ServiceLimits:
    """Limits per request, client and model."""

    body: int = 32 * 2**20  # bytes per request
    text: int = 1_000_000  # characters per text
    texts: int = 1000  # texts per request
    k: int = 1000  # labels per text
    queue: int = 2000  # queued texts per model; further requests get 503
    per_client: int = 0  # concurrent requests per client address; 0: no limit
    seconds: float = 30.0  # from the first byte of a request to the last byte of its response
    connections: int = 4000  # concurrent connections


@dataclass(frozen=True)
class Settings:
    """Settings of a service."""

    models: tuple[tuple[str, str], ...]  # names and folders
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    watch_seconds: float = 0.0  # interval of checks for changed model folders; 0: no checks
    token: str | None = None
    origins: tuple[str, ...] = ()  # allowed CORS origins
    hosts: tuple[str, ...] = ()  # allowed values of the Host header besides those of this machine
    reports: tuple[tuple[str, str], ...] = ()  # model names and report files
    threads: int = 1  # per batch
    device: str = "auto"
    access_log: bool = True
    desk: str | None = None  # path of the store of the review desk
    reviewers: int = 1  # per document of the desk
    limits: ServiceLimits = ServiceLimits()

    @property
    def is_local(self) -> bool:
        return self.host in LOCAL_HOSTS


def parse_models(arguments: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the names and folders of the arguments NAME=FOLDER, or FOLDER, which gives its own name."""
    folders: dict[str, str] = {}
    for argument in arguments:
        name, sign, folder = argument.partition("=")
        if not sign or Path(argument).is_dir():
            name, folder = Path(argument).resolve().name, argument
        if not MODEL_NAME_PATTERN.fullmatch(name):
            raise XmtcError(f"{name!r} cannot be part of a URL; give the model a name, for example news={folder}.")
        if name in folders:
            raise XmtcError(f"Two models have the name {name}; rename one of them, for example other={folder}.")
        folders[name] = folder
    return tuple(folders.items())


def parse_reports(arguments: Sequence[str], models: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the model names and files of the arguments NAME=FILE, or FILE if there is only one model."""
    names = [name for name, _ in models]
    reports = []
    for argument in arguments:
        name, sign, file = argument.partition("=")
        if not sign or name not in names:
            name, file = names[0], argument
            if len(names) > 1:
                raise XmtcError(f"--report {argument} names no model; expected, for example, {names[0]}={argument}.")
        if not Path(file).is_file():
            raise XmtcError(f"--report {file} is not a file; `xmtc report MODEL CORPUS -o {file}` writes one.")
        reports.append((name, file))
    return tuple(reports)
