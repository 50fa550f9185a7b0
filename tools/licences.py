"""List the licences of all packages that xmtc depends on, directly or indirectly.

python tools/licences.py          the table, for the environment that it runs in"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import NamedTuple

from packaging.requirements import Requirement

EXTRAS = ("arrow", "neural", "serve", "mcp", "tune", "neighbours", "tables", "documents", "vocab", "languages")


class Dependency(NamedTuple):
    name: str
    version: str
    licence: str


def find_dependencies(package: str = "xmtc", extras: tuple[str, ...] = EXTRAS) -> list[Dependency]:
    """Return the installed dependencies by name."""
    found: dict[str, Distribution] = {}
    waiting = [(package, extras)]
    while waiting:
        for requirement in iterate_requirements(*waiting.pop()):
            name = normalise_name(requirement.name)
            if name not in found and (installed := find_distribution(name)):
                found[name] = installed
                waiting.append((name, tuple(requirement.extras)))
    return [Dependency(name, each.version, read_licence(each)) for name, each in sorted(found.items())]


def iterate_requirements(package: str, extras: tuple[str, ...]) -> Iterator[Requirement]:
    for line in distribution(package).requires or []:
        requirement = Requirement(line)
        wanted = ("", *extras)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in wanted):
            yield requirement


def normalise_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def find_distribution(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def read_licence(package: Distribution) -> str:
    """Return the licence from the metadata: an expression, a classifier, or the first line of a text."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return expression
    names = [
        line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier") or [] if line.startswith("License ::")
    ]
    return ", ".join(names) or (metadata.get("License") or "unknown").partition("\n")[0]


if __name__ == "__main__":
    for each in find_dependencies():
        print(f"{each.name:24} {each.version:14} {each.licence}")
