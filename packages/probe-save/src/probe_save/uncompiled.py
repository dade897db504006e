"""Keeps a call out of what torch.compile traces: it runs between two compiled pieces, as print does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["uncompiled"]

_COMPILER = "torch._dynamo"


class _Parcel:
    """Hides a tensor among the arguments: torch.compile leaves frames alone that have none."""

    __slots__ = ("arguments",)

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments


def uncompiled(function: Callable[..., None], *arguments: Any) -> None:
    """Call ``function(*arguments)``, never traced."""
    if _COMPILER not in sys.modules:
        function(*arguments)
    else:
        _apart(function, _Parcel(*arguments))


def _apart(function: Callable[..., None], parcel: _Parcel) -> None:
    _outside()(function, parcel)


def _open(function: Callable[..., None], parcel: _Parcel) -> None:
    function(*parcel.arguments)


_disabled: list[Callable[..., None]] = []


def _outside() -> Callable[..., None]:
    if not _disabled:
        _disabled.append(sys.modules[_COMPILER].disable(_open))
    return _disabled[0]


# What torch.compiler.disable sets, which would cost its import; a compiled piece ends before this call.
_apart._torchdynamo_disable = True  # type: ignore[attr-defined]
