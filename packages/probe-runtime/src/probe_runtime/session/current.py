"""Let a debugger's methods be called on its class, for the debugger that is open; make the error for a second one."""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from attrs import fields
from probe_format.errors import UsageError

from probe_runtime.config.config import Config

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


class class_or_instance(Generic[T, P, R]):
    """Make a method that also works on the class, where it acts on ``owner.current()``.

    idle: called on the class instead where no debugger is open; without ``idle`` UsageError is raised.
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


def one_at_a_time(there: Config, here: Config) -> UsageError:
    """Return the error for a second debugger whose configuration or model is not that of the open debugger.

    there: the configuration of the open debugger. here: that of the second.
    """
    names = [each.name for each in fields(Config) if each.eq]
    values = [(name, getattr(there, name), getattr(here, name)) for name in names]
    differences = [f"{name}: {a!r} there, {b!r} here" for name, a, b in values if a != b]
    return UsageError(
        f"This process has a PrecisionDebugger already (level {there.level}, task {there.task}, dump_path "
        f"{there.dump_path}), and this one differs ({', '.join(differences[:4]) or 'its model'}). One at a time: "
        "close() the first."
    )
