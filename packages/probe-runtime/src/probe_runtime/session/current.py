"""One debugger at a time in a process: calls on the class, and what a second one may be."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from probe_format.errors import UsageError

from probe_runtime.config.config import Config

__all__ = ["AnySession", "EitherWay", "reusable"]


class AnySession(Protocol):
    """What a debugger asks of its session; `session.Session` says what each means."""

    config: Config
    model: Any
    closed: bool

    @property
    def patches(self) -> Any:
        """The patched functions: ``add`` and ``remove``."""

    @property
    def collecting(self) -> bool:
        """Whether calls are being collected now."""

    def start(self, model: Any, token_range: Any) -> None:
        """Begin, or go on, with the current step."""

    def stop(self) -> None:
        """Stop collecting."""

    def step(self) -> None:
        """The step is over."""

    def save(self, variable: Any, name: str, save_backward: bool = True) -> Any:
        """Save a single value."""

    def set_init_step(self, step: Any) -> None:
        """Count steps from here."""

    def close(self) -> None:
        """Finish, and take everything away."""


T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=AnySession)


class EitherWay(Generic[T, P, R]):
    """A method that also works on the class, where it acts on the current instance (`current()`)."""

    def __init__(self, function: Callable[Concatenate[T, P], R]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: T | None, owner: Any) -> Callable[P, R]:
        if instance is None:
            instance = owner.current()
        return functools.partial(self._function, instance)


def reusable(existing: S | None, config: Config, model: Any) -> S | None:
    """The session that a debugger with these settings shares, or None: it makes its own.

    Raises UsageError when one with other settings is open.
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
