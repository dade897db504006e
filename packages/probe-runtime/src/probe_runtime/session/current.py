"""Keep one debugger in a process: its methods also work on the class, and a second one shares its session."""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from probe_format.errors import UsageError

from probe_runtime.config.config import Config

from .any_session import AnySession

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=AnySession)


class class_or_instance(Generic[T, P, R]):
    """Make a method that also works on the class, where it acts on ``owner.current()``.

    idle: what it does on the class where no debugger is open; None to raise.
    """

    def __init__(self, function: Callable[Concatenate[T, P], R], idle: Callable[P, R] | None = None) -> None:
        self._function = function
        self._idle = idle
        self.__doc__ = function.__doc__

    def __get__(self, instance: T | None, owner: Any) -> Callable[P, R]:
        if instance is None:
            if self._idle is not None and (owner._current is None or owner._current.closed):
                return self._idle
            instance = owner.current()
        return functools.partial(self._function, instance)


def reusable(existing: S | None, config: Config, model: Any) -> S | None:
    """Return the open session for a debugger with these settings, or None where it needs one of its own.

    existing: the session of the process, or None.
    config: the debugger's configuration.
    model: the debugger's model, or None.

    Raises UsageError when a session with other settings is open.
    """
    if existing is None or existing.closed:
        return None
    if existing.config != config or (model is not None and existing.model is not model):
        raise UsageError(
            f"This process has a PrecisionDebugger already ({_brief(existing.config)}), and this one differs "
            f"({_differences(existing.config, config)}). One at a time: close() the first."
        )
    return existing


def _brief(c: Config) -> str:
    return f"level {c.level}, task {c.task}, dump_path {c.dump_path}"


def _differences(a: Any, b: Any) -> str:
    names = [n for n in a.__attrs_attrs__ if n.eq]
    changed = [n.name for n in names if getattr(a, n.name) != getattr(b, n.name)]
    return (
        ", ".join(f"{n}: {getattr(a, n)!r} there, {getattr(b, n)!r} here" for n in changed[:4]) or "its model"
    )
