"""Registries: tables of names and of the classes that they stand for, each imported only when it is asked for.
Installed packages add to a table through an entry point of its group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points, packages_distributions
from typing import Any

from xmtc.errors import XmtcError, as_missing_extra, find_similar_names


@dataclass(frozen=True)
class Registry:
    """The one list of everything of a kind."""

    kind: str  # what its entries are, for sentences: "method"
    base: type  # of which every entry is a subclass
    entries: dict[str, str]  # name → "module:Class"
    group: str  # of the entry points of other packages
    hint: str  # where a person finds the list

    @cached_property
    def plugins(self) -> Mapping[str, EntryPoint]:
        """What other packages add, by name; of two of a name, ours or the first counts."""
        found = {point.name: point for point in reversed(tuple(entry_points(group=self.group)))}
        return {name: point for name, point in sorted(found.items()) if name not in self.entries}

    def names(self) -> list[str]:
        return [*self.entries, *self.plugins]

    def class_names(self) -> dict[str, str]:
        """The name of every entry by that of its class; of two classes of a name, ours or the first counts."""
        found = {point.attr: name for name, point in reversed(list(self.plugins.items()))}
        return found | {address.partition(":")[2]: name for name, address in self.entries.items()}

    def find(self, name: Any) -> Any:
        """Return the class of a name. Names come from model folders, too: a name finds only what this table lists, what
        an installed package adds to it, and subclasses of its base that a program has defined, as "module:Class".
        Nothing else is imported, and no attribute is looked up."""
        if not isinstance(name, str):
            raise self.make_unknown_error(name)
        try:
            if name in self.entries:
                return self.check_subclass(name, import_class(self.entries[name]))
            if name in self.plugins:
                return self.check_subclass(name, self.plugins[name].load())
        except ImportError as error:
            raise as_missing_extra(name, error) from None
        defined = find_subclasses(self.base) if ":" in name else {}
        if name not in defined:
            raise self.make_unknown_error(name)
        return defined[name]

    def check_subclass(self, name: str, kind: Any) -> Any:
        if not (isinstance(kind, type) and issubclass(kind, self.base)):
            raise XmtcError(
                f"The {self.kind} {name} is no subclass of {self.base.__name__}; mend the package that adds it."
            )
        return kind

    def make_unknown_error(self, name: Any) -> XmtcError:
        if ":" in str(name):
            return XmtcError(f"The {self.kind} {name} is not here; import its module first, or install its package.")
        names = self.names()
        near = find_similar_names(str(name), names)
        hint = f" Did you mean {near[0]}?" if near else ""
        return XmtcError(f"There is no {self.kind} {name!r}.{hint} {self.hint} lists them: {', '.join(names)}.")

    def get_name(self, kind: type) -> str:
        """The name of a class; of one that no table lists, where it stands. Imports nothing."""
        home = get_class_address(kind)
        for name, entry in self.entries.items():
            if entry == home:
                return name
        return next((name for name, point in self.plugins.items() if point.value == home), home)


def find_subclasses(base: type) -> dict[str, type]:
    """Return all subclasses of a class that are defined now, by "module:Class"; of two definitions, the later."""
    found: dict[str, type] = {}
    waiting: list[type] = base.__subclasses__()
    for kind in waiting:
        found[get_class_address(kind)] = kind
        waiting += kind.__subclasses__()
    return found


def get_class_address(kind: type) -> str:
    """Return where a class is defined: "module:Class"."""
    return f"{kind.__module__}:{kind.__qualname__}"


def import_class(address: str) -> Any:
    """Import a class of this package's own tables. An address that comes from a file must never get here."""
    module, _, name = address.partition(":")
    return getattr(import_module(module), name)


def find_package(kind: type) -> str:
    """The installed package that a class comes with, as pip calls it; else its module."""
    top = kind.__module__.partition(".")[0]
    if top == __name__.partition(".")[0]:
        return top
    return next(iter(packages_distributions().get(top, [kind.__module__])))
