"""Pass calls of functions under @jit(capture_mode="bytecode") to the tap."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any

from probe_runtime.patching import ABSENT, Attribute, Patches

from .wrappers import Label, handed

__all__ = ["BytecodeCalls"]


class _EnteredContexts(threading.local):
    def __init__(self) -> None:
        self.contexts: list[Any] = []


class BytecodeCalls:
    """Pass each call of such a function to the tap.

    The decorated function is a closure that was made earlier; all it does is `with context: context.fn(...)`. So
    while this is in place `context.fn`, read from that closure, is a function that calls the tap and enters the context
    itself, around the user's function alone: the compiler's frame hook never gets the tap. Inside, the originals are
    back, since compiled code checks the identity of what it calls.
    """

    def __init__(self, kind: type, patches: Patches) -> None:
        self._kind = kind
        self._patches = patches
        self._enter = kind.__enter__  # type: ignore[attr-defined]
        self._exit = kind.__exit__  # type: ignore[attr-defined]
        self._entered = _EnteredContexts()

    def places(self) -> list[Attribute]:
        """Return `__enter__`, `__exit__` and `fn` of the context's class; [] if the closure is not as expected."""
        closure = _closure(self._kind)
        if closure is None:
            return []
        fn = _FnDescriptor(closure, self._entered, self._call)

        def enter(context: Any) -> None:
            self._entered.contexts.append(context)

        def leave(
            context: Any,
            kind: type[BaseException] | None,
            error: BaseException | None,
            trace: TracebackType | None,
        ) -> None:
            if self._entered.contexts:
                self._entered.contexts.pop()

        return [
            Attribute(self._kind, "__enter__", self._enter, enter, self._enter, enter),
            Attribute(self._kind, "__exit__", self._exit, leave, self._exit, leave),
            Attribute(self._kind, "fn", ABSENT, fn, _nothing, fn),
        ]

    def _call(
        self, context: Any, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        name = getattr(fn, "__name__", "function")
        if name == "construct" and args:
            name = type(args[0]).__name__

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._patches.suspended():
                self._enter(context)
                try:
                    return fn(*args, **kwargs)
                finally:
                    self._exit(context, None, None, None)

        return handed(Label("Jit", name), call, args, kwargs)


class _FnDescriptor:
    """Return a call through the tap for `context.fn`, when the decorated function reads it."""

    def __init__(self, closure: CodeType, entered: _EnteredContexts, call: Callable[..., Any]) -> None:
        self._closure = closure
        self._entered = entered
        self._call_function = call

    def __get__(self, context: Any, kind: type | None = None) -> Any:
        if context is None:
            return self
        fn = vars(context).get("fn")
        contexts = self._entered.contexts
        if fn is None or sys._getframe(1).f_code is not self._closure:
            return fn
        if not contexts or contexts[-1] is not context:  # not to be compiled for these arguments
            return fn
        return lambda *args, **kwargs: self._call_function(context, fn, args, kwargs)

    def __set__(self, context: Any, fn: Any) -> None:
        vars(context)["fn"] = fn

    def __call__(self, *args: Any) -> Any:  # an Attribute holds functions; this one is never called
        return None


def _nothing() -> None:
    """Represent "no such attribute" in an Attribute."""


def _closure(kind: type) -> CodeType | None:
    """Return the code of the function that the decorator returns."""
    wrapper: Any = vars(kind).get("_wrapper")
    constants = getattr(getattr(wrapper, "__code__", None), "co_consts", ())
    return next((c for c in constants if isinstance(c, CodeType) and "fn" in c.co_names), None)
