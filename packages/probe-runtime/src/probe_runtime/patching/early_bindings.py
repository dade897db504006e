"""Find names that were bound to a function before it was patched.

Examples: `from torch import relu` in a user's file, `self.act = F.relu` in a model.
"""

import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, compress
from operator import attrgetter
from types import FunctionType, MappingProxyType
from typing import Any

import attrs
from probe_format.own_code import OWN_MODULES

from .places import Default, Holder, Item, Member, Stood

# Modules that cannot hold a model's functions, or must not be touched.
NEVER_SCANNED = frozenset(
    {*sys.stdlib_module_names, "triton", "numpy", "scipy", "sympy", "mpmath", "networkx"}
    | {"jinja2", "yaml", "attr", "attrs", "orjson", "pytest", "_pytest", "hypothesis"}
    | {*OWN_MODULES}
) - {"__main__"}
_INSTALLED = re.compile(
    r"[/\\](site|dist)-packages[/\\]|^<frozen|^" + re.escape(sysconfig.get_path("stdlib"))
)
_AT_ONCE = 16
_KINDS = tuple({*map(id, kinds)} for kinds in ([dict], [list], [FunctionType], [staticmethod, classmethod]))

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
        """Return the namespace of a module that is searched, else None. Some "modules" are objects of other kinds."""
        if name.partition(".")[0] in self.skipped and not name.startswith(self.within):
            return None
        namespace = getattr(module, "__dict__", None)
        return namespace if type(namespace) is dict else None


class EarlyBindings:
    """Find names bound early in all modules: in those that are installed as packages once, in the user's every time.

    A name that an installed module binds later is not found.
    """

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._imported: Any = None
        self._originals: Originals = {}
        # No modules are held, only their names: what Python clears as it exits must go then.
        self._known: dict[int, str] = {}
        self._users: list[str] = []
        self._installed: list[Holder] = []

    def find(self, originals: Originals) -> list[Holder]:
        imported = last_import()
        if originals is not self._originals or imported != self._imported or self._was_replaced():
            modules = sys.modules.copy()
            now = {id(module): name for name, module in reversed(modules.items())}
            if originals is not self._originals or not self._known.items() <= now.items():
                self._known, self._users, self._installed = {}, [], []
            for name in [name for which, name in now.items() if which not in self._known]:
                if (namespace := self._scan.namespace(name, modules[name])) is not None:
                    if _is_installed(namespace):
                        self._installed += _places(originals, [namespace], deep=name in self._scan.deep)
                    else:
                        self._users.append(name)
            self._originals, self._imported, self._known = originals, imported, now
        return [*self._installed, *self._in_users(originals)]

    def _was_replaced(self) -> bool:
        """Return whether a module of the user's was replaced under its name, which `last_import` does not tell."""
        return any(self._known.get(id(sys.modules.get(name))) != name for name in self._users)

    def _in_users(self, originals: Originals) -> Iterator[Holder]:
        deep, others = list[Namespace](), list[Namespace]()
        for name in self._users:
            if (namespace := self._scan.namespace(name, sys.modules.get(name))) is not None:
                is_deep = name == "__main__" or "__file__" in namespace or name in self._scan.deep
                (deep if is_deep else others).append(namespace)
        yield from _places(originals, others)
        yield from _places(originals, deep, deep=True)


def last_import() -> tuple[Any, ...]:
    """Return a value that changes with each import: the last module, and how many there are."""
    while True:
        try:
            name = next(reversed(sys.modules))
            break
        except RuntimeError:  # another thread has just imported something
            continue
    return name, id(sys.modules.get(name)), len(sys.modules)


def find_in_modules(originals: Originals, scan: Scan) -> list[Holder]:
    """Return the places where modules hold one of the originals.

    In every module: its names. In a user's own (not installed among packages) also the items of its dicts and lists
    (`ACTIVATIONS = {"relu": F.relu}`), attributes of its classes, and defaults of its functions and methods.
    """
    return EarlyBindings(scan).find(originals)


def find_in_namespaces(originals: Originals, namespaces: Iterable[Namespace]) -> list[Holder]:
    """Return the places in a model's modules: attributes that are originals, and items of lists and dicts in them.

    namespaces: the attributes of each module.
    """
    tables: list[Any] = list(namespaces)
    values = list(chain.from_iterable(map(dict.values, tables)))
    tables += [value for value in values if type(value) is dict and value]
    rows = [value for value in values if type(value) is list and value]
    if originals.keys().isdisjoint(map(id, chain(*map(dict.values, tables), *rows))):
        return []  # as nearly always
    return list(chain.from_iterable(_items(originals, holder) for holder in (*tables, *rows)))


def _places(originals: Originals, tables: list[Any], *, deep: bool = False) -> list[Holder]:
    """Return the places in namespaces and other dicts. deep: whether to look into what their values hold, too.

    Next to none of the values is an original: so they are compared in C, many tables at a time.
    """
    found: list[Holder] = []
    for i in range(0, len(tables), _AT_ONCE):
        some = tables[i : i + _AT_ONCE]
        values = list(chain.from_iterable(map(dict.values, some)))
        if not originals.keys().isdisjoint(map(id, values)):
            for table in some:
                found += _items(originals, table)
        for table in some if deep and not originals.keys().isdisjoint(map(id, _inside(some, values))) else ():
            for value in list(table.values()):
                kind = type(value)
                if kind is dict or kind is list:
                    found += _items(originals, value)
                elif kind is FunctionType:
                    found += _defaults(originals, value)
                elif issubclass(kind, type) and value.__module__ == str(table.get("__name__")):
                    found += _members(originals, value)
    return found


def _inside(tables: list[Any], values: list[Any]) -> Iterator[Any]:
    """Yield what the values of tables hold: items, defaults of functions, members of own classes and their defaults."""
    names = [str(table.get("__name__")) for table in tables]
    dicts, lists, functions, _, classes = _of_kinds(values)
    members = list(
        chain.from_iterable(
            map(MappingProxyType.values, (vars(each) for each in classes if each.__module__ in names))
        )
    )
    _, _, own, wrapped, _ = _of_kinds(members)
    inner = list(map(attrgetter("__func__"), wrapped))
    every = [*functions, *own, *(each for each in inner if type(each) is FunctionType)]
    return chain(
        *map(dict.values, dicts), *lists, members, inner,
        *filter(None, map(attrgetter("__defaults__"), every)),
        *map(dict.values, filter(None, map(attrgetter("__kwdefaults__"), every))),
    )  # fmt: skip


def _of_kinds(values: list[Any]) -> tuple[list[Any], ...]:
    """Return the dicts, lists, functions, static and class methods, and classes among values.

    In C, as there are many; by the ids of their types, as a metaclass of the user's may not be hashed.
    """
    kinds = list(map(type, values))
    ids = list(map(id, kinds))
    classes = {which for which, kind in dict(zip(ids, kinds, strict=True)).items() if issubclass(kind, type)}
    return tuple(list(compress(values, map(each.__contains__, ids))) for each in (*_KINDS, classes))


def _items(originals: Originals, holder: Any) -> list[Holder]:
    of_dict = isinstance(holder, dict)
    if originals.keys().isdisjoint(map(id, holder.values() if of_dict else holder)):
        return []
    items = list(holder.items() if of_dict else enumerate(holder))
    return [Item(holder, key, stood) for key, value in items if (stood := _stood(originals, value))]


def _stood(originals: Originals, value: Any) -> Stood | None:
    stood = originals.get(id(value))
    return stood if stood is not None and stood.original is value else None


def _defaults(originals: Originals, function: FunctionType) -> Iterator[Holder]:
    values: dict[int | str, Any] = dict(enumerate(function.__defaults__ or ()))
    for key, value in (values | (function.__kwdefaults__ or {})).items():
        if stood := _stood(originals, value):
            yield Default(function, key, stood)


def _members(originals: Originals, owner: type) -> Iterator[Holder]:
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
