"""Find names that were bound to a function before it was patched.

Examples: `from torch import relu` in a user's file, `self.act = F.relu` in a model.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
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
    seen: set[int] = set()
    for name in list(names):
        if name.partition(".")[0] in scan.skipped and not name.startswith(scan.within):
            continue
        namespace = getattr(sys.modules.get(name), "__dict__", None)
        # __main__ and __mp_main__ are one module; some entries of sys.modules are objects of another kind.
        if type(namespace) is not dict or id(namespace) in seen:
            continue
        seen.add(id(namespace))
        places += _items(replacements, namespace)
        if name in scan.deep or _is_users_own(namespace):
            for value in list(namespace.values()):
                places += _inside(replacements, value, str(namespace.get("__name__")))
    return places


def find_in_namespaces(replacements: Replacements, namespaces: Iterable[dict[str, Any]]) -> list[Place]:
    """Return the places in a model's modules: attributes that are originals, and items of lists and dicts in them.

    namespaces: the attributes of each module.
    """
    places: list[Place] = []
    seen: set[int] = set()
    for namespace in namespaces:
        if id(namespace) not in seen:
            seen.add(id(namespace))
            places += _items(replacements, namespace)
            for value in list(namespace.values()):
                if type(value) in (dict, list):
                    places += _items(replacements, value)
    return places


def _inside(replacements: Replacements, value: Any, module: str) -> Iterator[Place]:
    kind = type(value)
    if kind is dict or kind is list:
        yield from _items(replacements, value)
    elif kind is FunctionType:
        yield from _defaults(replacements, value)
    elif isinstance(value, type) and value.__module__ == module:
        for name, member in list(vars(value).items()):
            function = member.__func__ if isinstance(member, (staticmethod, classmethod)) else member
            found = replacements.get(id(function))
            if found is not None and found[0] is function:
                stand_in = found[1] if member is function else type(member)(found[1])
                yield Attribute(value, name, member, stand_in, *found)
            elif type(function) is FunctionType:
                yield from _defaults(replacements, function)


def _defaults(replacements: Replacements, function: FunctionType) -> Iterator[Place]:
    values: dict[int | str, Any] = dict(enumerate(function.__defaults__ or ()))
    values.update(function.__kwdefaults__ or {})
    for key, value in values.items():
        found = replacements.get(id(value))
        if found is not None and found[0] is value:
            yield Default(function, key, *found)


def _items(replacements: Replacements, holder: dict[Any, Any] | list[Any]) -> Iterator[Place]:
    values = list(holder.values() if isinstance(holder, dict) else holder)
    if replacements.keys().isdisjoint(map(id, values)):  # the usual case, decided without a Python loop
        return
    for key, value in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
        found = replacements.get(id(value))
        if found is not None and found[0] is value:
            yield Item(holder, key, *found)


def _is_users_own(namespace: dict[str, Any]) -> bool:
    file = namespace.get("__file__")
    return namespace.get("__name__") == "__main__" or (isinstance(file, str) and not _PACKAGES.search(file))
