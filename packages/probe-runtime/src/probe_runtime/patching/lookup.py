"""Find functions by name: those that are listed, and those that a user registers."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, Protocol, TypeVar

from .places import Attribute, Function, attribute
from .switch import Label

__all__ = [
    "ListedName",
    "Wrap",
    "attributes_of",
    "custom_place",
    "go_down",
    "is_function",
    "look_up_all",
    "name_of",
    "resolve_owner",
]


class Wrap(Protocol):
    """A function that makes the wrapper of ``original``; pickle will find it as ``qualname`` in ``module``."""

    def __call__(self, label: Label, original: Function, module: str, qualname: str, /) -> Function: ...


class ListedName(Protocol):
    """A name of apis.yaml, and the dotted paths of the objects that may carry it."""

    @property
    def name(self) -> str: ...
    @property
    def owners(self) -> tuple[str, ...]: ...


_Listed = TypeVar("_Listed", bound=ListedName)


def resolve_owner(path: str) -> Any | None:
    """Return the module or class at a dotted path if it is already imported, else None; never import anything.

    Probe must not import torch_npu or mindspeed for a user who does not: both rewrite torch when imported. Nor what a
    module imports when it is asked for a name that it lacks: asking torch for `onnx` imports all of torch._dynamo,
    which takes a second and rewrites torch too.
    """
    parts = path.split(".")
    found: Any = sys.modules.get(parts[0])
    for end, part in enumerate(parts[1:], start=2):
        if found is None:
            return None
        inside = vars(found).get(part) if isinstance(found, ModuleType) else getattr(found, part, None)
        found = sys.modules.get(".".join(parts[:end])) or inside
    return found


def go_down(base: Any, name: str) -> tuple[Any, str]:
    """Return the object that has the last part of a dotted name, and that part; None if there is no such object."""
    *way, last = name.split(".")
    for part in way:
        base = getattr(base, part, None)
    return base, last


def is_function(owner: Any, name: str) -> bool:
    """Return whether owner.name can be replaced by a wrapper."""
    found = getattr(owner, name, None)
    return callable(found) and not inspect.isclass(found)


def name_of(owner: Any) -> str:
    """Return a module's or class's name, for messages and prefixes."""
    return str(getattr(owner, "__name__", None) or type(owner).__name__)


def look_up_all(
    apis: Iterable[_Listed],
    paths: Iterable[str],
    resolve: Callable[[str], Any],
    places_of: Callable[[_Listed, str, Any], list[Attribute]],
) -> tuple[list[Attribute], dict[str, str]]:
    """Return the places of the listed names, and the names that have none with the reason.

    apis: the listed names.
    paths: dotted paths of the objects that carry them, in the order of looking.
    resolve: takes a path and returns the object there; None where it is not imported.
    places_of: takes (listed name, path, object) and returns the places; an empty list where there is no such function.
    """
    apis = list(apis)
    found: list[Attribute] = []
    missing: dict[str, str] = {}
    for path in paths:
        listed = [api for api in apis if path in api.owners]
        if not listed:
            continue
        owner = resolve(path)
        if owner is None:
            missing[path] = f"not imported, so its {len(listed)} functions are not recorded"
            continue
        for api in listed:
            places = places_of(api, path, owner)
            if not places:
                missing[f"{path}.{api.name}"] = f"this {path.partition('.')[0]} has no such function"
            found += places
    return found, missing


def custom_place(owner: Any, name: str, label: Label, wrap: Wrap) -> Attribute:
    """Return the place of owner.name, a function that the user registered."""
    module = getattr(owner, "__module__", None) if inspect.isclass(owner) else None
    qualname = f"{owner.__qualname__}.{name}" if module else name
    return attribute(owner, name, lambda f: wrap(label, f, module or name_of(owner), qualname))


def attributes_of(rows: Iterable[tuple[str, ...]], make: Callable[..., Function]) -> list[Attribute]:
    """Return the places of those rows that this process has.

    rows: (dotted path of the owner, name, further arguments of ``make``).
    make: takes a function, and the further arguments of its row, and returns the replacement.
    """
    places = []
    owners: dict[str, Any] = {}
    for path, name, *more in rows:
        if path not in owners:
            owners[path] = resolve_owner(path)
        owner = owners[path]
        if owner is not None and hasattr(owner, name):
            places.append(attribute(owner, name, lambda original, more=more: make(original, *more)))  # type: ignore[misc]
    return places
