"""Faults that a test puts into a function of ours, and what must come of them: nothing that the user notices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["broken", "broken_callback"]


@contextmanager
def broken(
    owner: Any, name: str, when: Callable[..., bool] = lambda *args, **kwargs: True
) -> Iterator[list[int]]:
    """While open, that function of ours raises; how often it did.

    when: takes the arguments of a call (the object itself first) and returns whether this one raises.
    """
    raises, times = _raising()
    original = getattr(owner, name)

    def called(*args: Any, **kwargs: Any) -> Any:
        return (raises if when(*args, **kwargs) else original)(*args, **kwargs)

    with _replaced(owner, name, called):
        yield times


@contextmanager
def broken_callback(owner: Any, name: str, place: int = -1) -> Iterator[list[int]]:
    """While open, each callback of ours that is given to that function raises when it is called; how often it did.

    place: the callback's place among the arguments.
    """
    raises, times = _raising()
    original = getattr(owner, name)

    def given(*args: Any) -> Any:
        arguments = list(args)
        assert callable(arguments[place]), arguments
        arguments[place] = raises
        return original(*arguments)

    with _replaced(owner, name, given):
        yield times


def _raising() -> tuple[Callable[..., Any], list[int]]:
    times = [0]

    def raises(*args: Any, **kwargs: Any) -> Any:
        times[0] += 1
        raise ZeroDivisionError("injected")

    return raises, times


@contextmanager
def _replaced(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, original)
