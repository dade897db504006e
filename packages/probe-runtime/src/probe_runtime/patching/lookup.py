"""Find functions by name in modules that are imported already: the listed ones, and those that a user registers."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

from probe_format.errors import ProbeError

from .places import Function, Place, original_of
from .switch import Label

if TYPE_CHECKING:
    from .api_list import Api


Wrap = Callable[[Label, Function, str, str], Function]
"""Takes (label, original, module, qualname) and returns the wrapper, which pickle will find under these names."""


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


def function_of(apis: Iterable[Api], prefix: str, api: str, resolve: Callable[[str], Any]) -> Function:
    """Return the listed function whose records begin with ``prefix`` and ``api``, the two parts of its label.

    apis: the list of functions.
    resolve: as for `Listed`.

    Raises ProbeError where two functions have the label (but for `_SAME`), and where the list or this version of the
    framework has no such function.
    """
    names = [each for each in apis if (each.prefix, each.api) == (prefix, api)]
    if len({each.name for each in names}) > 1 and api not in _SAME:
        raise ProbeError(f"its name stands for {' and '.join(each.name for each in names)}")
    if not names:
        raise ProbeError("it is not in the list of functions")
    for each in names:
        for path in each.owners:
            owner, name = go_down(resolve(path), each.name)
            if owner is not None and is_function(owner, name):
                found: Function = original_of(getattr(owner, name))
                return found
    raise ProbeError("this version of the framework has no such function")


#: Functions that a module of linear algebra has too, where they do the same.
_SAME = frozenset(("det", "matmul", "matrix_exp", "matrix_power", "slogdet"))


class Listed:
    """The places of the listed names, looked up once per process, and again for what was imported since."""

    def __init__(
        self,
        apis: Iterable[Api],
        paths: Iterable[str],
        resolve: Callable[[str], Any],
        places_of: Callable[[Any, str, Any], list[Place]],
        left_out: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Look nothing up yet.

        apis: the listed names.
        paths: dotted paths of the objects that carry them, in the order of looking.
        resolve: takes a path and returns the object there; None where it is not imported.
        places_of: takes (listed name, path, object) and returns the places; an empty list where there is no such
            function.
        left_out: paths of functions that must not be replaced here -> why; they count as missing.
        """
        apis = list(apis)
        self._resolve, self._places_of, self._left_out = resolve, places_of, left_out
        self._listed = {path: listed for path in paths if (listed := [a for a in apis if path in a.owners])}
        self._owners: dict[str, Any] = {}
        self._found: dict[str, dict[Api, list[Place]]] = {path: {} for path in self._listed}
        self.places: list[Place] = []
        self.missing: dict[str, str] = {}
        """The names that have no place -> why."""

    def look_up(self) -> None:
        """Look up the names that were not found yet, or whose owner is another object now."""
        self.missing = {}
        for path, listed in self._listed.items():
            owner, found = self._resolve(path), self._found[path]
            if owner is not self._owners.get(path):
                self._owners[path] = owner
                found.clear()
            if owner is None:
                self.missing[path] = f"not imported, so its {len(listed)} functions are not recorded"
                continue
            for api in listed:
                if why := self._left_out.get(f"{path}.{api.name}"):
                    self.missing[f"{path}.{api.name}"] = why
                    continue
                if not found.get(api):
                    found[api] = self._places_of(api, path, owner)
                if not found[api]:
                    self.missing[f"{path}.{api.name}"] = f"this {path.partition('.')[0]} has no such function"
        each = (self._found[path].get(api, ()) for path, listed in self._listed.items() for api in listed)
        self.places = list(chain.from_iterable(each))


def custom_place(owner: Any, name: str, label: Label, wrap: Wrap) -> Place:
    """Return the place of owner.name, a function that the user registered."""
    module = getattr(owner, "__module__", None) if inspect.isclass(owner) else None
    qualname = f"{owner.__qualname__}.{name}" if module else name
    return Place(owner, name, lambda f: wrap(label, f, module or name_of(owner), qualname), label)
