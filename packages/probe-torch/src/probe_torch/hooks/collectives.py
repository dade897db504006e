"""torch's collectives: which of their arguments only receive, and when a Work has been waited for."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from probe_runtime.collect import PendingWork

__all__ = ["PREFIX", "watched_waits", "without_buffers"]

PREFIX = "Distributed."

# Arguments that only receive: what is in them before is of no meaning. Position, name.
_RECEIVES = {
    "all_gather": (0, "tensor_list"),
    "_all_gather_base": (0, "output_tensor"),
    "all_gather_into_tensor": (0, "output_tensor"),
    "recv": (0, "tensor"),
    "irecv": (0, "tensor"),
    "gather": (1, "gather_list"),
    "scatter": (0, "tensor"),
    "reduce_scatter": (0, "output"),
    "_reduce_scatter_base": (0, "output"),
    "reduce_scatter_tensor": (0, "output"),
    "all_gather_single": (0, "output_tensor"),
    "all_gather_coalesced": (0, "output_tensor_lists"),
    "reduce_scatter_single": (0, "output"),
    "all_to_all": (0, "output_tensor_list"),
    "all_to_all_single": (0, "output"),
}


def without_buffers(
    key: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a collective with None where it only receives."""
    place = _RECEIVES.get(key.removeprefix(PREFIX))
    if place is None:
        return args, kwargs
    position, name = place
    if name in kwargs:
        return args, {**kwargs, name: None}
    return tuple(None if i == position else a for i, a in enumerate(args)), kwargs


@contextmanager
def watched_waits(pending: PendingWork) -> Iterator[None]:
    """While open, ``Work.wait`` tells ``pending``; it returns and raises what it always does."""
    if not dist.is_available():
        yield
        return
    original = dist.Work.wait

    @functools.wraps(original)
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if pending.waiting:
            pending.waited(self)
        return result

    dist.Work.wait = wait  # type: ignore[method-assign]
    try:
        yield
    finally:
        dist.Work.wait = original  # type: ignore[method-assign]
