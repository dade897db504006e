"""Have calls of functions under @jit(capture_mode="bytecode") recorded, though none of Probe's code is compiled."""

import sys
import threading
from collections.abc import Callable
from types import CodeType
from typing import Any

from attrs import define
from probe_runtime.patching import Function, Place, place, suspended

from .wrappers import handed, jit_label, switch


class _EnteredContexts(threading.local):
    def __init__(self) -> None:
        self.contexts: list[Any] = []


_entered = _EnteredContexts()


def bytecode_places(kind: type) -> list[Place]:
    """Return the places that pass each call of a decorated function to the tap; [] if its code is not as expected.

    kind: the class of the contexts that decorated functions enter.

    A decorated function is a closure that was made earlier; all it does is `with context: context.fn(...)`. So while
    the places are replaced, `context.fn`, read from that closure, is a function that calls the tap and enters the
    context itself, around the user's function alone: the compiler's frame hook never gets the tap. Inside, the
    original functions are back, since compiled code checks the identity of what it calls.
    """
    closure = _closure(kind)
    if closure is None:
        return []
    enter, leave = place(kind, "__enter__", _entering), place(kind, "__exit__", _leaving)
    return [enter, leave, place(kind, "fn", _reading, closure, enter, leave)]


def _entering(original: Function) -> Function:
    def enter(context: Any) -> None:
        if switch.tap is None:
            original(context)
        else:
            _entered.contexts.append(context)

    return enter


def _leaving(original: Function) -> Function:
    def leave(context: Any, *error: Any) -> None:
        if switch.tap is None:
            original(context, *error)
        elif _entered.contexts:
            _entered.contexts.pop()

    return leave


@define(eq=False, repr=False)
class _Reading:
    """Return a call through the tap for `context.fn`, when the decorated function reads it.

    closure: the code of the decorated function.
    enter, leave: the places of the context's own methods.
    """

    closure: CodeType
    enter: Place
    leave: Place

    def __get__(self, context: Any, kind: type | None = None) -> Any:
        if context is None:
            return self
        fn = vars(context).get("fn")
        contexts = _entered.contexts
        if fn is None or switch.tap is None or sys._getframe(1).f_code is not self.closure:
            return fn
        if not contexts or contexts[-1] is not context:  # not to be compiled for these arguments
            return fn
        return lambda *args, **kwargs: self._call(context, fn, args, kwargs)

    def __set__(self, context: Any, fn: Any) -> None:
        vars(context)["fn"] = fn

    def _call(
        self, context: Any, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        def compiled(*args: Any, **kwargs: Any) -> Any:
            self.enter.now.original(context)
            try:
                return fn(*args, **kwargs)
            finally:
                self.leave.now.original(context, None, None, None)

        return handed(jit_label(fn, args), suspended(compiled, switch), args, kwargs)


def _reading(absent: Any, closure: CodeType, enter: Place, leave: Place) -> _Reading:
    return _Reading(closure, enter, leave)


def _closure(kind: type) -> CodeType | None:
    """Return the code of the decorated function, which the decorator returns; None where it is not as expected."""
    wrapper: Any = vars(kind).get("_wrapper")
    constants = getattr(getattr(wrapper, "__code__", None), "co_consts", ())
    return next((c for c in constants if isinstance(c, CodeType) and "fn" in c.co_names), None)
