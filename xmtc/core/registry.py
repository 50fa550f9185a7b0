"""Registries of classes by name, imported on first use; installed packages add classes through entry points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points, packages_distributions
from typing import Any
from warnings import warn

from xmtc.errors import XmtcError, as_missing_extra, find_similar_names


@dataclass(frozen=True)
class Registry:
    """Table of classes by name.

    Parameters
    ----------
    kind : str
        Noun for its entries in error messages, such as "method".
    base : type
        Base class of all entries.
    entries : dict of str to str
        Addresses "module:Class" by name.
    group : str
        Entry point group of plug-ins.
    hint : str
        Command or page that lists the names, for error messages.
    """

    kind: str
    base: type
    entries: dict[str, str]
    group: str
    hint: str

    @cached_property
    def plugins(self) -> Mapping[str, EntryPoint]:
        """Entry points of other packages by name; own entries and earlier packages take precedence."""
        points = {point.name: point for point in reversed(tuple(entry_points(group=self.group)))}
        return {name: point for name, point in sorted(points.items()) if name not in self.entries}

    def names(self) -> list[str]:
        return [*self.entries, *self.plugins]

    def list_working_plugins(self) -> list[str]:
        """Return the names of the plug-ins that can be imported; warn of the others, whose use raises their error."""
        working = []
        for name, point in self.plugins.items():
            try:
                self.find(name)
                working.append(name)
            except Exception as error:  # code of another package
                warn(
                    f"The {self.kind} {name} of {point.value} cannot be imported and is ignored "
                    f"({type(error).__name__}: {error}); fix or uninstall its package.",
                    stacklevel=2,
                )
        return working

    def class_names(self) -> dict[str, str]:
        """Return the name of every entry by its class name; own entries and earlier packages take precedence."""
        names = {point.attr: name for name, point in reversed(list(self.plugins.items()))}
        return names | {address.partition(":")[2]: name for name, address in self.entries.items()}

    def find(self, name: Any) -> Any:
        """Return the class of a name.

        Names also come from untrusted model folders. Therefore a name only resolves to an entry of this table, to a
        plug-in, or, as "module:Class", to a subclass of `base` that is already defined; nothing else is imported."""
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
                f"The {self.kind} {name} is not a subclass of {self.base.__name__}; fix the package that adds it."
            )
        return kind

    def make_unknown_error(self, name: Any) -> XmtcError:
        if ":" in str(name):
            return XmtcError(f"The {self.kind} {name} is not defined; import its module first, or install its package.")
        names = self.names()
        similar = find_similar_names(str(name), names)
        hint = f" Did you mean {similar[0]}?" if similar else ""
        return XmtcError(f"There is no {self.kind} {name!r}.{hint} {self.hint} lists them: {', '.join(names)}.")

    def get_name(self, kind: type) -> str:
        """Return the name of a class, or its address if it has none, without importing anything."""
        address = get_class_address(kind)
        for name, entry in self.entries.items():
            if entry == address:
                return name
        return next((name for name, point in self.plugins.items() if point.value == address), address)


def find_subclasses(base: type) -> dict[str, type]:
    """Return all subclasses of a class that are defined now, by address; the last definition of an address wins."""
    subclasses: dict[str, type] = {}
    queue: list[type] = base.__subclasses__()
    for kind in queue:
        subclasses[get_class_address(kind)] = kind
        queue += kind.__subclasses__()
    return subclasses


def get_class_address(kind: type) -> str:
    """Return the address of a class, "module:Class"."""
    return f"{kind.__module__}:{kind.__qualname__}"


def import_class(address: str) -> Any:
    """Import a class of this package's own tables; never call it with an address from a file."""
    module, _, name = address.partition(":")
    return getattr(import_module(module), name)


def find_package(kind: type) -> str:
    """Return the name of the installed distribution of a class, or else its module."""
    top = kind.__module__.partition(".")[0]
    if top == __name__.partition(".")[0]:
        return top
    return next(iter(packages_distributions().get(top, [kind.__module__])))
