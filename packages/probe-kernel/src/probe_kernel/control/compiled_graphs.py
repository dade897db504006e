"""Find the graphs that this process has compiled: after the first, MindSpore ignores a dump's settings."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

# MindSpore 2.9 and later keep the state in the first; the second is then a copy, and may be older.
_MODULES = ("mindspore.graph.api", "mindspore.common.api")


def compiled_graphs() -> tuple[str, ...]:
    """Return the graphs that were compiled in this process, by name where MindSpore kept it.

    MindSpore reads MINDSPORE_DUMP_CONFIG when the first graph is compiled, and never again (seen on 2.7.0 and
    2.10.0). It drops graphs whose Cell is gone, but keeps the names by which it warns of recompilation. A compile that
    failed counts too: 2.7.0 has read the settings by then.
    """
    return tuple(dict.fromkeys(name for module in _MODULES for name in _in(sys.modules.get(module))))


def _in(api: Any) -> Iterator[str]:
    kept: tuple[Callable[[], Iterable[object]], ...] = (
        lambda: api.function_phases,
        lambda: chain.from_iterable(api.cells_compile_cache.values()),
        lambda: api.ms_compile_cache,
    )
    for phases in kept:
        with contextlib.suppress(AttributeError, TypeError):
            yield from [_readable(str(phase)) for phase in phases()]


def _readable(name: str) -> str:
    """Cut off the path, addresses and times: ``__main__.train./home/me/t.py.81`` becomes ``__main__.train``."""
    return re.sub(r"(\./.*|([./]\d+)+\.?)$", "", name) or name
