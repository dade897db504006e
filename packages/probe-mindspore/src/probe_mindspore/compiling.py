"""Around the compilation of graphs: what must not be compiled in is taken away for that moment."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import mindspore
from probe_format.patching.places import Attribute, Function, attribute

__all__ = ["around_compilation"]


def around_compilation(region: Callable[[], AbstractContextManager[Any]]) -> list[Attribute]:
    """The places to put (and later restore) so that every compilation runs inside ``region()``.

    Only what is not compiled yet comes there; a compiled graph runs without any Python function.
    """

    def inside(original: Function) -> Function:
        @functools.wraps(original)
        def compile(executor: Any, *args: Any, **kwargs: Any) -> Any:
            with region():
                return original(executor, *args, **kwargs)

        return compile

    found = (getattr(mindspore._c_expression, name, None) for name in ("GraphExecutor_", "JitExecutor_"))
    return [
        attribute(kind, "compile", inside) for kind in found if kind is not None and "compile" in vars(kind)
    ]
