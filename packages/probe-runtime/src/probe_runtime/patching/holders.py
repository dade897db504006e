"""Gather whatever may hold a function, and find in all of it at once the places that hold one of some originals.

A program has thousands of names and a model as many attributes, which are looked through at every start and stop, and
next to none of them is an original: so they are compared in C, many at a time, and one by one only where one is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from types import FunctionType
from typing import Any, TypeVar

from attrs import define, field

from .places import Attribute, Default, Function, Item, Place

__all__ = ["Holders", "Replacements"]

_Key = TypeVar("_Key")
_Pair = tuple[Function, Function]
#: id(original) -> (original, replacement).
Replacements = dict[int, _Pair]

_AT_ONCE = 16


@define
class Holders:
    """Hold what is searched.

    tables: namespaces and other dicts.
    lists: lists.
    members: (class, name, what the class holds there, the function in it).
    functions: those that have defaults.
    """

    tables: list[dict[Any, Any]] = field(factory=list)
    lists: list[list[Any]] = field(factory=list)
    members: list[tuple[type, str, Any, Any]] = field(factory=list)
    functions: list[FunctionType] = field(factory=list)

    def add_containers(self, namespaces: Sequence[dict[str, Any]]) -> None:
        """Add namespaces, and the dicts and lists in them."""
        values = list(chain.from_iterable(map(dict.values, namespaces)))
        self.tables += namespaces
        self.tables += [value for value in values if type(value) is dict and value]
        self.lists += [value for value in values if type(value) is list and value]

    def add_contents(self, namespace: dict[str, Any]) -> None:
        """Add what is in a user's module: dicts, lists, functions, and the classes that are defined there."""
        for value in list(namespace.values()):
            kind = type(value)
            if kind is dict:
                self.tables += (value,)
            elif kind is list:
                self.lists += (value,)
            elif kind is FunctionType:
                self._add_function(value)
            elif isinstance(value, type) and value.__module__ == str(namespace.get("__name__")):
                self._add_class(value)

    def _add_class(self, owner: type) -> None:
        for name, member in list(vars(owner).items()):
            function = member
            if type(member) is not FunctionType and isinstance(member, (staticmethod, classmethod)):
                function = member.__func__
            self.members += ((owner, name, member, function),)
            if type(function) is FunctionType:
                self._add_function(function)

    def _add_function(self, function: FunctionType) -> None:
        if function.__defaults__ or function.__kwdefaults__:
            self.functions += (function,)

    def places(self, replacements: Replacements) -> list[Place]:
        """Return the places that hold one of the originals."""
        known = replacements.keys()
        found: list[Place] = []
        for i in range(0, len(self.tables), _AT_ONCE):
            tables = self.tables[i : i + _AT_ONCE]
            if not known.isdisjoint(map(id, chain.from_iterable(map(dict.values, tables)))):
                for table in tables:
                    if not known.isdisjoint(map(id, table.values())):
                        found += _items(replacements, table, dict(table))
        if not known.isdisjoint(map(id, chain.from_iterable(self.lists))):
            for row in self.lists:
                found += _items(replacements, row, dict(enumerate(row)))
        functions = [function for *_, function in self.members]
        if not known.isdisjoint(map(id, functions)):
            for (owner, name, member, function), pair in _pairs(replacements, self.members, functions):
                stand_in = pair[1] if member is function else type(member)(pair[1])
                found += (Attribute(owner, name, member, stand_in, *pair),)
        positional = chain.from_iterable([f.__defaults__ for f in self.functions if f.__defaults__])
        named = chain.from_iterable([f.__kwdefaults__.values() for f in self.functions if f.__kwdefaults__])
        if not known.isdisjoint(map(id, chain(positional, named))):
            for f in self.functions:
                values: dict[int | str, Any] = dict(enumerate(f.__defaults__ or ()))
                values.update(f.__kwdefaults__ or {})
                found += [
                    Default(f, key, *pair) for key, pair in _pairs(replacements, values, values.values())
                ]
        return found


def _items(replacements: Replacements, holder: Any, items: dict[Any, Any]) -> list[Item]:
    return [Item(holder, key, *pair) for key, pair in _pairs(replacements, items, items.values())]


def _pairs(
    replacements: Replacements, keys: Iterable[_Key], values: Iterable[Any]
) -> list[tuple[_Key, _Pair]]:
    """Return the keys whose values are originals, and what replaces them."""
    values = list(values)
    all_of_them = zip(keys, values, map(id, values), strict=True)
    hits = [(key, value, replacements[which]) for key, value, which in all_of_them if which in replacements]
    return [(key, pair) for key, value, pair in hits if pair[0] is value]
