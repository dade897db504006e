"""Find names that were bound to a function before it was patched.

Examples: `from torch import relu` in a user's file, `self.act = F.relu` in a model.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from itertools import repeat
from types import FunctionType
from typing import Any

import attrs
from probe_format.own_code import OWN_MODULES

from .places import Attribute, Default, Function, Item, Place

__all__ = ["NEVER_SCANNED", "Replacements", "Scan", "find_in_modules", "find_in_namespaces"]

# Modules that cannot hold a model's functions, or must not be touched.
NEVER_SCANNED = frozenset(
    {*sys.stdlib_module_names, "torch_npu", "triton", "numpy", "scipy", "sympy", "mpmath", "networkx"}
    | {"jinja2", "yaml", "attr", "attrs", "orjson", "pytest", "_pytest", "hypothesis"}
    | {*OWN_MODULES}
) - {"__main__"}
_PACKAGES = re.compile(r"[/\\](site|dist)-packages[/\\]|^<frozen")


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
    verdicts: dict[str, bool] = attrs.field(factory=dict, eq=False, repr=False)
    """Name of a module -> whether it is searched, for the names asked about so far."""


Replacements = dict[int, tuple[Function, Function]]
"""id(original) -> (original, replacement)."""


def find_in_modules(replacements: Replacements, names: Iterable[str], scan: Scan) -> list[Place]:
    """Return the places where modules hold originals.

    In every module: its names. In a user's own (not installed among packages) also the items of its dicts and lists
    (`ACTIVATIONS = {"relu": F.relu}`), attributes of its classes, and defaults of its functions and methods.

    replacements: the originals to look for.
    names: names of modules, as in sys.modules.
    scan: which of them are searched.
    """
    places: list[Place] = []
    for name, namespace in _searched(names, scan):
        places += _items(replacements, namespace)
        if name in scan.deep or _is_users_own(namespace):
            for value in list(namespace.values()):
                places += _inside(replacements, value, namespace)
    return places


def _searched(names: Iterable[str], scan: Scan) -> Iterable[tuple[str, dict[str, Any]]]:
    """Return the names and namespaces of the modules that are searched; a module with two names counts once."""
    names = list(names)
    verdicts = scan.verdicts
    for name in names:
        if name not in verdicts:  # a program has thousands of modules, which are asked about at every start and stop
            verdicts[name] = name.partition(".")[0] not in scan.skipped or name.startswith(scan.within)
    names = [name for name in names if verdicts[name]]
    # Some entries of sys.modules are objects of another kind.
    namespaces = map(getattr, map(sys.modules.get, names), repeat("__dict__"), repeat(None))
    found: dict[int, tuple[str, dict[str, Any]]] = {}
    for name, namespace in zip(names, namespaces, strict=True):
        if type(namespace) is dict and id(namespace) not in found:  # __main__ and __mp_main__ are one module
            found[id(namespace)] = name, namespace
    return found.values()


def find_in_namespaces(replacements: Replacements, namespaces: Iterable[dict[str, Any]]) -> list[Place]:
    """Return the places in a model's modules: attributes that are originals, and items of lists and dicts in them.

    namespaces: the attributes of each module.
    """
    places: list[Place] = []
    for namespace in {id(namespace): namespace for namespace in namespaces}.values():
        places += _items(replacements, namespace)
        for value in list(namespace.values()):
            if (type(value) is dict or type(value) is list) and value:
                places += _items(replacements, value)
    return places


def _inside(replacements: Replacements, value: Any, namespace: dict[str, Any]) -> Iterable[Place]:
    """Return the places inside a value that a user's module holds."""
    kind = type(value)
    if kind is dict or kind is list:
        return _items(replacements, value)
    if kind is FunctionType:
        return _defaults(replacements, value)
    if isinstance(value, type) and value.__module__ == str(namespace.get("__name__")):
        return _in_class(replacements, value)
    return ()


def _in_class(replacements: Replacements, owner: type) -> Iterator[Place]:
    for name, member in list(vars(owner).items()):
        function = member.__func__ if isinstance(member, (staticmethod, classmethod)) else member
        found = replacements.get(id(function))
        if found is not None and found[0] is function:
            stand_in = found[1] if member is function else type(member)(found[1])
            yield Attribute(owner, name, member, stand_in, *found)
        elif type(function) is FunctionType:
            yield from _defaults(replacements, function)


def _defaults(replacements: Replacements, function: FunctionType) -> Iterable[Place]:
    if not function.__defaults__ and not function.__kwdefaults__:  # the usual case
        return ()
    values: dict[int | str, Any] = dict(enumerate(function.__defaults__ or ()))
    values.update(function.__kwdefaults__ or {})
    found = ((key, replacements.get(id(value)), value) for key, value in values.items())
    return [Default(function, key, *pair) for key, pair, value in found if pair is not None and pair[0] is value]


def _items(replacements: Replacements, holder: dict[Any, Any] | list[Any]) -> Iterable[Place]:
    values = holder.values() if type(holder) is dict else holder
    if replacements.keys().isdisjoint(map(id, values)):  # the usual case, decided without a Python loop
        return ()
    pairs = list(holder.items() if isinstance(holder, dict) else enumerate(holder))
    found = ((key, replacements.get(id(value)), value) for key, value in pairs)
    return [Item(holder, key, *pair) for key, pair, value in found if pair is not None and pair[0] is value]


def _is_users_own(namespace: dict[str, Any]) -> bool:
    file = namespace.get("__file__")
    return namespace.get("__name__") == "__main__" or (isinstance(file, str) and _users_files[file])


class _UsersFiles(dict[str, bool]):
    """File -> whether it is the user's own, which is: not installed among packages."""

    def __missing__(self, file: str) -> bool:
        own = self[file] = not _PACKAGES.search(file)
        return own


_users_files = _UsersFiles()
