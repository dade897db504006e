"""Have each module that is imported run its code inside a context that the caller gives (a `with` around its import).

One such context has the functions that Probe replaces put back meanwhile; another acts once a framework is imported.
"""

import importlib.abc
import sys
from collections.abc import Callable, Container, Sequence
from contextlib import AbstractContextManager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Around = Callable[[str], AbstractContextManager[None]]


class Importer(importlib.abc.MetaPathFinder):
    """Run imports within a context, while added."""

    def __init__(self, around: Around, only: Container[str] | None = None) -> None:
        """Prepare it.

        around: takes the name of a module, and returns the context in which its code runs.
        only: the names of the modules that are meant; None for all.
        """
        self._around = around
        self._only = only

    def add(self) -> None:
        """Come before all other finders."""
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Undo `add`."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        if self._only is not None and fullname not in self._only:
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            find: Callable[..., ModuleSpec | None] | None = getattr(finder, "find_spec", None)
            spec = find(fullname, path, target) if find else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _AroundLoader(spec.loader, self._around)
                return spec
        return None


class _AroundLoader(importlib.abc.Loader):
    def __init__(self, loader: Any, around: Around) -> None:
        self._loader = loader
        self._around = around

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
        with self._around(module.__name__):
            self._loader.exec_module(module)
