"""Tables of names: what a name stands for, as "module:Class", imported only when it is asked for. Installed packages
add to a table through an entry point of its group."""

from __future__ import annotations

import sys
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

    def find(self, name: str) -> Any:
        """The class of a name. "module:Class" finds one that no table lists, where its module is imported already:
        a name may come from a model folder, which must not decide what is imported."""
        if not isinstance(name, str):
            raise self.unknown(name)
        try:
            if name in self.entries:
                return class_at(self.entries[name])
            if name in self.installed:
                return self.installed[name].load()
        except ImportError as error:
            raise missing_extra(name, error) from None
        if ":" in name and name.partition(":")[0] in sys.modules:
            return class_at(name)
        raise self.unknown(name)

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


def address(kind: type) -> str:
    """Where a class stands: "module:Class"."""
    return f"{kind.__module__}:{kind.__qualname__}"


def class_at(address: str) -> Any:
    module, _, name = address.partition(":")
    return getattr(import_module(module), name)


def package_of(kind: type) -> str:
    """The installed package that a class comes with, as pip calls it; else its module."""
    top = kind.__module__.partition(".")[0]
    if top == __name__.partition(".")[0]:
        return top
    return next(iter(packages_distributions().get(top, [kind.__module__])))
