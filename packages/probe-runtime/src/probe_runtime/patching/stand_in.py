"""Make an object to call in a function's place, equal to it and hashed like it, so that tables keyed by it work."""

import functools
import inspect
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any


class StandIn:
    """Be called in place of a function, and be equal to it: a dict with the one as a key finds it by the other.

    Whatever else is asked of it (its class, code, signature), the function answers.
    """

    # In this slot Python finds what to call with no call of its own; __call__ as a method would be one more each time.
    __slots__ = ("__call__", "__dict__", "__weakref__")

    def __init__(self, call: Callable[..., Any], original: Callable[..., Any]) -> None:
        self.__call__ = call
        functools.update_wrapper(self, original)
        # A docstring inherited from a method of the same name is found through the original's class, not this one.
        self.__doc__ = self.__doc__ or inspect.getdoc(original)

    __class__ = property(lambda self: self.__wrapped__.__class__)

    def __eq__(self, other: object) -> Any:
        return self.__wrapped__ == other

    def __hash__(self) -> int:
        return hash(self.__wrapped__)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["__wrapped__"], name)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)

    def __reduce__(self) -> str:
        return str(self.__qualname__)


class _AsFunctions(type):
    """Let code that asks a class for `__get__` find that of functions; Python itself finds the class's own.

    Dynamo (torch 2.11) compiles no attribute of a module whose class has a `__get__` in Python: it looks for it in the
    module's class, does not find it, and where the region may not break (``fullgraph=True``) that ended the run.
    """

    __get__ = property(lambda cls: FunctionType.__get__)


class _Method(StandIn, metaclass=_AsFunctions):
    """Stand in for a function that becomes a method when it is looked up on an instance."""

    __slots__ = ()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)


def stand_in(call: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Return what calls `call`, and stands in for `original`."""
    return (_Method if hasattr(type(original), "__get__") else StandIn)(call, original)
