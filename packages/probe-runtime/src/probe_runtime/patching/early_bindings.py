"""Find names that were bound to a function before it was patched.

Examples: `from torch import relu` in a user's file, `self.act = F.relu` in a model.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from itertools import repeat
from typing import Any

import attrs
from probe_format.own_code import OWN_MODULES

from .holders import Holders, Replacements
from .places import Place

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


def find_in_modules(replacements: Replacements, names: Iterable[str], scan: Scan) -> list[Place]:
    """Return the places where modules hold originals.

    In every module: its names. In a user's own (not installed among packages) also the items of its dicts and lists
    (`ACTIVATIONS = {"relu": F.relu}`), attributes of its classes, and defaults of its functions and methods.

    replacements: the originals to look for.
    names: names of modules, as in sys.modules.
    scan: which of them are searched.
    """
    holders = Holders()
    searched = _searched(names, scan)
    holders.tables += [namespace for _, namespace in searched]
    for namespace in [n for name, n in searched if name in scan.deep or _is_users_own(n)]:
        holders.add_contents(namespace)
    return holders.places(replacements)


def _searched(names: Iterable[str], scan: Scan) -> list[tuple[str, dict[str, Any]]]:
    """Return the names and namespaces of the modules that are searched; a module with two names counts once."""
    names = list(names)
    verdicts = scan.verdicts
    for name in names:
        if (
            name not in verdicts
        ):  # a program has thousands of modules, which are asked about at every start and stop
            verdicts[name] = name.partition(".")[0] not in scan.skipped or name.startswith(scan.within)
    names = [name for name in names if verdicts[name]]
    # Some entries of sys.modules are objects of another kind.
    namespaces = list(map(getattr, map(sys.modules.get, names), repeat("__dict__"), repeat(None)))
    pairs = dict(zip(map(id, namespaces), zip(names, namespaces, strict=True), strict=True))
    return [(name, namespace) for name, namespace in pairs.values() if type(namespace) is dict]


def find_in_namespaces(replacements: Replacements, namespaces: Iterable[dict[str, Any]]) -> list[Place]:
    """Return the places in a model's modules: attributes that are originals, and items of lists and dicts in them.

    namespaces: the attributes of each module.
    """
    holders = Holders()
    holders.add_containers(list(namespaces))
    return holders.places(replacements)


def _is_users_own(namespace: dict[str, Any]) -> bool:
    try:  # asked of every module at every start and stop, so that it calls nothing
        if "__name__" in namespace and namespace["__name__"] == "__main__":
            return True
        file = namespace["__file__"]
    except KeyError:  # it is built in
        return False
    return type(file) is str and _users_files[file]


class _UsersFiles(dict[str, bool]):
    """File -> whether it is the user's own, which is: not installed among packages."""

    def __missing__(self, file: str) -> bool:
        own = self[file] = not _PACKAGES.search(file)
        return own


_users_files = _UsersFiles()
