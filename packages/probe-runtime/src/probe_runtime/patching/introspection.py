"""Give calls that inspect or copy a function the answers that they would get without Probe."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib.abc
import multiprocessing.reduction
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .included import Included
from .originals import original_of, originals_by_id
from .patches import Patches
from .pickles import dumping, dumping_to, forking_dumping, loading, loading_from, naming
from .places import Attribute, Function, attribute
from .switch import muted

__all__ = ["IntrospectionGuards", "quiet", "suspended"]


class IntrospectionGuards(Included):
    """Hide the wrappers from introspection, while entered and while `patches` are applied:

    - every import, and what `find` makes of the framework's own functions, run with the originals;
    - pickle and multiprocessing find each function, original or wrapper, under its name;
    - copies and unpickled objects hold originals, never a wrapper that would outlive the dump;
    - what all of them call is not recorded.
    """

    def __init__(self, patches: Patches, find: Callable[[], list[Attribute]], module: type) -> None:
        """Prepare the guards.

        find: returns the framework's places.
        module: the class of modules (nn.Module, nn.Cell), which keep functions in attributes.
        """
        super().__init__(patches, self._places, lambda: _in_front(_Importer(patches)))
        self._more = find
        self._module = module

    def _places(self) -> list[Attribute]:
        reduction, plain_pickler = multiprocessing.reduction, pickle.Pickler
        return [
            attribute(copy, "copy", self._copying),
            attribute(copy, "deepcopy", _deep_copying),
            attribute(pickle, "Pickler", naming),
            attribute(pickle, "dumps", dumping),
            attribute(pickle, "dump", dumping_to(lambda: plain_pickler)),
            attribute(pickle, "loads", loading),
            attribute(pickle, "load", loading_from),
            attribute(reduction.ForkingPickler, "dumps", forking_dumping),
            attribute(reduction, "dump", dumping_to(lambda: reduction.ForkingPickler)),
            *self._more(),
        ]

    def _copying(self, original: Function) -> Function:
        @functools.wraps(original)
        def call(x: Any) -> Any:
            with muted():
                result = original(x)
            if isinstance(result, self._module) and result is not x:
                for name, value in list(vars(result).items()):
                    if original_of(value) is not value:
                        vars(result)[name] = original_of(value)
            return result

        return call


def _deep_copying(original: Function) -> Function:
    @functools.wraps(original)
    def call(x: Any, memo: Any = None, *rest: Any) -> Any:
        # deepcopy takes copies from the memo where it has them: there the copy of a wrapper is the original.
        with muted():
            return original(x, originals_by_id() if memo is None else memo, *rest)

    return call


def quiet(original: Function) -> Function:
    """Return `original` such that what it calls is not recorded."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        with muted():
            return original(*args, **kwargs)

    return call


def suspended(patches: Patches, original: Function) -> Function:
    """Return a function that calls `original` while every patched function is the original: for rare calls."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        with patches.suspended():
            return original(*args, **kwargs)

    return call


@contextlib.contextmanager
def _in_front(importer: _Importer) -> Iterator[None]:
    sys.meta_path.insert(0, importer)
    try:
        yield
    finally:
        if importer in sys.meta_path:
            sys.meta_path.remove(importer)


class _Importer(importlib.abc.MetaPathFinder):
    """Import modules with the originals in place, as they keep what they import for longer than a dump lasts.

    After the import their names are searched for functions, like those of any module imported before.
    """

    def __init__(self, patches: Patches) -> None:
        self._patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is self:
                continue
            find: Callable[..., ModuleSpec | None] | None = getattr(finder, "find_spec", None)
            spec = find(fullname, path, target) if find else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self._patches)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any, patches: Patches) -> None:
        self._loader = loader
        self._patches = patches

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        # The module gets its own loader back: importlib.resources and inspect use it.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        with self._patches.suspended():
            self._loader.exec_module(module)
