"""Make replacements that last: one per process and original, as compiled code is guarded by a function's identity."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from .originals import forget_original, original_of, remember_original
from .places import Function

__all__ = ["Called", "once"]

#: Returns the function that is called, or None when it is gone.
Called = Callable[[], Function | None]
_Made = dict[int, tuple[Called, Function]]


def once(build: Callable[[Function, Called], Function]) -> Callable[[Function], Function]:
    """Return what takes an original and returns its replacement, made at the first time, which `original_of` knows.

    build: makes the replacement of an original that its second argument returns. It must not keep the original itself,
        but may keep `original_of` it.

    An original may be a replacement of ours that is made anew in each step. If it were kept alive, what it holds would
    stay for good; and a wrapper that is held more often than before is looked for in the whole process at `stop()`, as
    if the user had kept it.
    """
    known: _Made = {}

    def make(original: Function) -> Function:
        if id(original) in known:
            called, made = known[id(original)]
            if called() is original:
                return made
        called = _holding(original, known)
        made = build(original, called)
        remember_original(made, original_of(original))
        known[id(original)] = called, made
        return made

    return make


def _holding(original: Function, known: _Made) -> Called:
    which = id(original)

    def forget(_: object) -> None:
        if forget_original is not None and which in known:  # it is None where Python is about to exit
            forget_original(known.pop(which)[1])

    try:
        return weakref.ref(original, forget)
    except TypeError:  # written in C: the framework's own, which stays
        return lambda: original
