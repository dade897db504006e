"""Keep a call out of what torch.compile traces: it runs between two compiled pieces, as print does."""

import functools
import sys
from collections.abc import Callable
from typing import Any

_COMPILER = "torch._dynamo"


class _Parcel:
    """Hide tensors among the arguments, as torch.compile does not trace a frame without any."""

    __slots__ = ("arguments",)

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments


def uncompiled(function: Callable[..., None], *arguments: Any) -> None:
    """Call ``function(*arguments)`` outside of what is traced."""
    if _COMPILER not in sys.modules:
        function(*arguments)
    else:
        _apart(function, _Parcel(*arguments))


def _apart(function: Callable[..., None], parcel: _Parcel) -> None:
    _outside()(function, parcel)


def _open(function: Callable[..., None], parcel: _Parcel) -> None:
    function(*parcel.arguments)


@functools.cache
def _outside() -> Callable[..., None]:
    found: Callable[..., None] = sys.modules[_COMPILER].disable(_open)
    return found


# The attribute that torch.compiler.disable sets; calling that would import it. A compiled piece ends before this call.
_apart._torchdynamo_disable = True  # type: ignore[attr-defined]
