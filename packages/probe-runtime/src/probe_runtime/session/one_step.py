"""Make a block, or each call of a function, one training step."""

import inspect
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any, TypeVar

from attrs import define

from .any_session import AnySession

_Call = TypeVar("_Call", bound=Callable[..., Any])
_RUN_LATER = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


@define(eq=False)
class OneStep(ContextDecorator):
    """A block that is one step of a session. model: as start() takes it."""

    _session: AnySession
    _model: Any

    def __enter__(self) -> None:
        self._session.start(self._model, None)

    def __exit__(self, *error: object) -> None:
        self._session.stop()
        self._session.step()

    def __call__(self, function: _Call) -> _Call:
        """Make each call of a function one step. Raises TypeError where a call returns before it runs."""
        if any(is_late(each) for is_late in _RUN_LATER for each in (function, type(function).__call__)):
            name = getattr(function, "__qualname__", function)
            raise TypeError(
                f"A call of {name} returns before it runs (async def, or yield), so one_step() can't decorate it: "
                "write `with debugger.one_step(model):` inside of it, around one step."
            )
        return super().__call__(function)
