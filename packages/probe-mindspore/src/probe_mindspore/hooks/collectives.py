"""MindSpore's collectives: which of their arguments only receive, what they return, and when it is there."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import mindspore
from mindspore.communication import comm_func
from probe_runtime.collect import PendingWork

__all__ = ["HANDLES", "PREFIXES", "results", "watched_waits", "without_buffers"]

_MINT = "MintDistributed."
PREFIXES = (_MINT, "Distributed.")

# Arguments of mint.distributed that only receive: what is in them before is of no meaning. Position, name.
_RECEIVES = {
    "all_gather": (0, "tensor_list"),
    "all_gather_into_tensor": (0, "output_tensor"),
    "all_gather_into_tensor_uneven": (0, "output"),
    "recv": (0, "tensor"),
    "irecv": (0, "tensor"),
    "gather": (1, "gather_list"),
    "gather_into_tensor": (0, "output_tensor"),
    "scatter": (0, "tensor"),
    "scatter_tensor": (0, "output_tensor"),
    "reduce_scatter": (0, "output"),
    "reduce_scatter_tensor": (0, "output"),
    "reduce_scatter_tensor_uneven": (0, "output"),
    "all_to_all": (0, "output_tensor_list"),
    "all_to_all_single": (0, "output"),
}


def _handles() -> tuple[type, ...]:
    found = [getattr(mindspore._c_expression, "CommHandle", None), getattr(comm_func, "CommHandle", None)]
    return tuple(cls for cls in found if isinstance(cls, type))


#: What a collective in the background returns.
HANDLES = _handles()


def without_buffers(
    key: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a collective with None where it only receives."""
    place = _RECEIVES.get(key.removeprefix(_MINT)) if key.startswith(_MINT) else None
    if place is None:
        return args, kwargs
    position, name = place
    if name in kwargs:
        return args, {**kwargs, name: None}
    return tuple(None if i == position else a for i, a in enumerate(args)), kwargs


def results(key: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> list[Any]:
    """The values that a finished collective left: its arguments, and what comm_func returns besides."""
    values = [*args, *kwargs.values()]
    if key.startswith(_MINT):
        return values
    returned = out if isinstance(out, tuple) else (out,)
    return [*values, *(v for v in returned if v is not None and not isinstance(v, HANDLES))]


@contextmanager
def watched_waits(pending: PendingWork) -> Iterator[None]:
    """While open, ``CommHandle.wait`` tells ``pending``; it returns and raises what it always does."""
    with ExitStack() as stack:
        for cls in HANDLES:
            if "wait" in vars(cls):
                stack.enter_context(_watched(cls, pending))
        yield


@contextmanager
def _watched(cls: Any, pending: PendingWork) -> Iterator[None]:
    original = vars(cls)["wait"]

    @functools.wraps(original)
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if pending.waiting:
            pending.waited(self)
        return result

    cls.wait = wait
    try:
        yield
    finally:
        cls.wait = original
