"""Registries: tables of names and of the classes that they stand for, each imported only when it is asked for.
Installed packages add to a table through an entry point of its group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points, packages_distributions
from typing import Any

from xmtc.errors import XmtcError, missing_extra, nearest


@dataclass(frozen=True)
class Table:
    """The one list of everything of a kind."""

    kind: str  # what its entries are, for sentences: "method"
    base: type  # of which every entry is a subclass
    entries: dict[str, str]  # name → "module:Class"
    group: str  # of the entry points of other packages
    hint: str  # where a person finds the list

    @cached_property
    def installed(self) -> Mapping[str, EntryPoint]:
        """What other packages add, by name; of two of a name, ours or the first counts."""
        found = {point.name: point for point in reversed(tuple(entry_points(group=self.group)))}
        return {name: point for name, point in sorted(found.items()) if name not in self.entries}

    def names(self) -> list[str]:
        return [*self.entries, *self.installed]

    def class_names(self) -> dict[str, str]:
        """The name of every entry by that of its class; of two classes of a name, ours or the first counts."""
        found = {point.attr: name for name, point in reversed(list(self.installed.items()))}
        return found | {address.partition(":")[2]: name for name, address in self.entries.items()}

    def find(self, name: Any) -> Any:
        """Return the class of a name. Names come from model folders, too: a name finds only what this table lists, what
        an installed package adds to it, and subclasses of its base that a program has defined, as "module:Class".
        Nothing else is imported, and no attribute is looked up."""
        if not isinstance(name, str):
            raise self.unknown(name)
        try:
            if name in self.entries:
                return self.checked(name, class_at(self.entries[name]))
            if name in self.installed:
                return self.checked(name, self.installed[name].load())
        except ImportError as error:
            raise missing_extra(name, error) from None
        defined = subclasses(self.base) if ":" in name else {}
        if name not in defined:
            raise self.unknown(name)
        return defined[name]

    def checked(self, name: str, kind: Any) -> Any:
        if not (isinstance(kind, type) and issubclass(kind, self.base)):
            raise XmtcError(
                f"The {self.kind} {name} is no subclass of {self.base.__name__}; mend the package that adds it."
            )
        return kind

    def unknown(self, name: Any) -> XmtcError:
        if ":" in str(name):
            return XmtcError(f"The {self.kind} {name} is not here; import its module first, or install its package.")
        names = self.names()
        near = nearest(str(name), names)
        hint = f" Did you mean {near[0]}?" if near else ""
        return XmtcError(f"There is no {self.kind} {name!r}.{hint} {self.hint} lists them: {', '.join(names)}.")

    def name_of(self, kind: type) -> str:
        """The name of a class; of one that no table lists, where it stands. Imports nothing."""
        home = address(kind)
        for name, entry in self.entries.items():
            if entry == home:
                return name
        return next((name for name, point in self.installed.items() if point.value == home), home)


def subclasses(base: type) -> dict[str, type]:
    """Return all subclasses of a class that are defined now, by "module:Class"; of two definitions, the later."""
    found: dict[str, type] = {}
    waiting: list[type] = base.__subclasses__()
    for kind in waiting:
        found[address(kind)] = kind
        waiting += kind.__subclasses__()
    return found


def address(kind: type) -> str:
    """Return where a class is defined: "module:Class"."""
    return f"{kind.__module__}:{kind.__qualname__}"


def class_at(address: str) -> Any:
    """Import a class of this package's own tables. An address that comes from a file must never get here."""
    module, _, name = address.partition(":")
    return getattr(import_module(module), name)


def package_of(kind: type) -> str:
    """The installed package that a class comes with, as pip calls it; else its module."""
    top = kind.__module__.partition(".")[0]
    if top == __name__.partition(".")[0]:
        return top
    return next(iter(packages_distributions().get(top, [kind.__module__])))
