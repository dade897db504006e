"""Import modules with the originals in place, as they keep what they import for longer than a dump lasts."""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Suspended = Callable[[], AbstractContextManager[None]]


class Importer(importlib.abc.MetaPathFinder):
    """Run every import within ``suspended()``, while added. The modules are searched for functions afterwards."""

    def __init__(self, suspended: Suspended) -> None:
        self._suspended = suspended

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
        for finder in sys.meta_path:
            if finder is self:
                continue
            find: Callable[..., ModuleSpec | None] | None = getattr(finder, "find_spec", None)
            spec = find(fullname, path, target) if find else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self._suspended)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any, suspended: Suspended) -> None:
        self._loader = loader
        self._suspended = suspended

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
        with self._suspended():
            self._loader.exec_module(module)
