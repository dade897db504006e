"""Find names that were bound to a function before it was patched.

Examples: `from torch import relu` in a user's file, `self.act = F.relu` in a model.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from operator import is_
from types import FunctionType
from typing import Any

import attrs
from probe_format.own_code import OWN_MODULES

from .places import Default, Found, Item, Member, Stood

__all__ = ["NEVER_SCANNED", "EarlyBindings", "Originals", "Scan", "find_in_modules", "find_in_namespaces"]

# Modules that cannot hold a model's functions, or must not be touched.
NEVER_SCANNED = frozenset(
    {*sys.stdlib_module_names, "torch_npu", "triton", "numpy", "scipy", "sympy", "mpmath", "networkx"}
    | {"jinja2", "yaml", "attr", "attrs", "orjson", "pytest", "_pytest", "hypothesis"}
    | {*OWN_MODULES}
) - {"__main__"}
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]|^<frozen")
_AT_ONCE = 16

Originals = Mapping[int, Stood]
"""id(function) -> what stands in for it."""
Namespace = dict[str, Any]


@attrs.frozen
class Scan:
    """The modules that are searched for names bound early."""

    skipped: frozenset[str]
    """First parts of the names of modules that are left alone: the framework itself is patched where its
    functions are public, and its own tables are keyed by the originals."""
    within: tuple[str, ...] = ()
    """Starts of the names of modules below a skipped one that call what they imported, and compute."""
    deep: tuple[str, ...] = ()
    """Modules below a skipped one that are searched like a user's own."""

    def namespace(self, name: str, module: Any) -> Namespace | None:
        """Return the namespace of a module that is searched; None for another. Some are objects of another kind."""
        if name.partition(".")[0] in self.skipped and not name.startswith(self.within):
            return None
        namespace = getattr(module, "__dict__", None)
        return namespace if type(namespace) is dict else None


class EarlyBindings:
    """Find names bound early in all modules: in those that are installed among packages once, in a user's at each time.

    A name that an installed module binds later is not found.
    """

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._modules: list[Any] = []
        self._originals: Originals = {}
        self._users: dict[int, tuple[str, Namespace]] = {}
        self._installed: list[Found] = []

    def find(self, originals: Originals) -> list[Found]:
        """Return the places where modules hold one of the originals."""
        modules = list(sys.modules.items())
        now, before = [module for _, module in modules], self._modules
        if originals is not self._originals or len(now) < len(before) or not all(map(is_, before, now)):
            self._originals, self._users, self._installed, before = originals, {}, [], []
        self._modules = now
        for name, module in modules[len(before) :]:
            namespace = self._scan.namespace(name, module)
            if namespace is None:
                continue
            if _is_installed(namespace):
                self._installed += _places(originals, [namespace], deep=name in self._scan.deep)
            else:
                self._users[id(namespace)] = name, namespace
        return [*self._installed, *self._in_users(originals)]

    def _in_users(self, originals: Originals) -> Iterator[Found]:
        for name, namespace in self._users.values():
            deep = name == "__main__" or "__file__" in namespace or name in self._scan.deep
            yield from _places(originals, [namespace], deep=deep)


def find_in_modules(originals: Originals, scan: Scan) -> list[Found]:
    """Return the places where modules hold one of the originals.

    In every module: its names. In a user's own (not installed among packages) also the items of its dicts and lists
    (`ACTIVATIONS = {"relu": F.relu}`), attributes of its classes, and defaults of its functions and methods.
    """
    return EarlyBindings(scan).find(originals)


def find_in_namespaces(originals: Originals, namespaces: Iterable[Namespace]) -> list[Found]:
    """Return the places in a model's modules: attributes that are originals, and items of lists and dicts in them.

    namespaces: the attributes of each module.
    """
    tables: list[Any] = list(namespaces)
    values = list(chain.from_iterable(map(dict.values, tables)))
    tables += [value for value in values if type(value) is dict and value]
    found = _places(originals, tables)
    for row in [value for value in values if type(value) is list and value]:
        found += _items(originals, row, enumerate(row))
    return found


def _places(originals: Originals, tables: list[Any], *, deep: bool = False) -> list[Found]:
    """Return the places in namespaces and other dicts. deep: whether to look into what their values hold, too.

    Next to none of the values is an original: so they are compared in C, many tables at a time.
    """
    known, found = originals.keys(), []
    for i in range(0, len(tables), _AT_ONCE):
        some = tables[i : i + _AT_ONCE]
        if not known.isdisjoint(map(id, chain.from_iterable(map(dict.values, some)))):
            for table in some:
                found += _items(originals, table, table.copy().items())
    for table in tables if deep else ():
        for value in list(table.values()):
            kind = type(value)
            if kind is dict:
                found += _items(originals, value, value.copy().items())
            elif kind is list:
                found += _items(originals, value, enumerate(value))
            elif kind is FunctionType:
                found += _defaults(originals, value)
            elif issubclass(kind, type) and value.__module__ == str(table.get("__name__")):
                found += _members(originals, value)
    return found


def _items(originals: Originals, holder: Any, items: Iterable[tuple[Any, Any]]) -> list[Found]:
    return [Item(holder, key, stood) for key, value in items if (stood := _stood(originals, value))]


def _stood(originals: Originals, value: Any) -> Stood | None:
    stood = originals.get(id(value))
    return stood if stood is not None and stood.original is value else None


def _defaults(originals: Originals, function: FunctionType) -> Iterator[Found]:
    values: dict[int | str, Any] = dict(enumerate(function.__defaults__ or ()))
    for key, value in (values | (function.__kwdefaults__ or {})).items():
        if stood := _stood(originals, value):
            yield Default(function, key, stood)


def _members(originals: Originals, owner: type) -> Iterator[Found]:
    for name, member in list(vars(owner).items()):
        of_class = isinstance(member, (staticmethod, classmethod))
        function = member.__func__ if of_class else member
        if stood := _stood(originals, function):
            yield Member(
                owner, name, member, type(member)(stood.replacement) if of_class else stood.replacement
            )
        if type(function) is FunctionType:
            yield from _defaults(originals, function)


def _is_installed(namespace: Namespace) -> bool:
    """Return whether a module is installed among packages, and so none of the user's."""
    file = namespace.get("__file__")
    return namespace.get("__name__") != "__main__" and type(file) is str and bool(_INSTALLED.search(file))
