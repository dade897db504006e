"""Let a package offer names whose modules are imported when one of them is first asked for (PEP 562)."""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def on_demand(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package that offers names of modules that it has not imported.

    The first use of a name imports its module, and later ones find the name in the package itself. For type checkers
    the package imports the same names under ``if TYPE_CHECKING``.

    homes: name -> the module that defines it.
    """

    def get(name: str) -> Any:
        module = sys.modules[package]
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(module, name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *homes})
