"""Settings of a service. They are sent to every worker process, so all values are plain."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xmtc.errors import XmtcError

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")  # addresses to listen at that other machines cannot reach
ANY_HOST = "*"  # of --allow-host: no check
METRICS_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # names the folder through which workers add up what they count
MAX_ANSWER_LABELS = 100_000  # of all texts of a request; about 10 MB
MODEL_NAME_PATTERN = re.compile(r"[\w][\w. -]{0,99}")  # of a model: part of an address


@dataclass(frozen=True)
class ServiceLimits:
    """Limits of one request, and of one client."""

    body: int = 32 * 2**20  # bytes of a request
    text: int = 1_000_000  # characters of a text
    texts: int = 1000  # of a request
    k: int = 1000  # labels of a text
    queue: int = 2000  # texts that wait for a model, before others are sent away
    per_client: int = 0  # requests of one address at a time; 0: as many as there are
    seconds: float = 30.0  # from the first byte of a request to the last of its answer
    connections: int = 4000  # at a time


@dataclass(frozen=True)
class Settings:
    models: tuple[tuple[str, str], ...]  # names and folders
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    watch_seconds: float = 0.0  # seconds between looks at the folders; 0: none
    token: str | None = None
    origins: tuple[str, ...] = ()  # of other sites whose pages may ask
    hosts: tuple[str, ...] = ()  # host names that requests may name, in addition to those of this machine
    reports: tuple[tuple[str, str], ...] = ()  # names of models, and files
    threads: int = 1  # for one batch
    device: str = "auto"
    access_log: bool = True
    limits: ServiceLimits = ServiceLimits()

    @property
    def is_local(self) -> bool:
        return self.host in LOCAL_HOSTS


def parse_models(given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Models by name: NAME=FOLDER, or FOLDER, which is then called as it is."""
    found: dict[str, str] = {}
    for each in given:
        name, sign, folder = each.partition("=")
        if not sign or Path(each).is_dir():
            name, folder = Path(each).resolve().name, each
        if not MODEL_NAME_PATTERN.fullmatch(name):
            raise XmtcError(f"{name!r} cannot be part of an address; name the model, as in news={folder}.")
        if name in found:
            raise XmtcError(f"Two models are called {name}; give one another name, as in other={folder}.")
        found[name] = folder
    return tuple(found.items())


def parse_reports(given: Sequence[str], models: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Reports by the name of their model: NAME=FILE, or FILE where there is one model."""
    names = [name for name, _ in models]
    found = []
    for each in given:
        name, sign, file = each.partition("=")
        if not sign or name not in names:
            name, file = names[0], each
            if len(names) > 1:
                raise XmtcError(f"--report {each} does not say of which model; expected such as {names[0]}={each}.")
        if not Path(file).is_file():
            raise XmtcError(f"--report {file} is no file; `xmtc report MODEL CORPUS -o {file}` writes one.")
        found.append((name, file))
    return tuple(found)
