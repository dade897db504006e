"""Collective calls: they return their result in their arguments, and often later (spec/dump.md).

A collective's record has as output all its arguments, after it is complete. One that was started with
``async_op=True`` is complete when its Work has been waited for, so its output is described then.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from attrs import define, field

__all__ = ["PREFIX", "PendingWork", "watched_waits", "without_buffers"]

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


@define
class PendingWork:
    """Collectives that are under way: what to do for each when its last Work has been waited for."""

    waiting: dict[int, tuple[Any, list[int], Callable[[bool], None]]] = field(factory=dict)
    lock: threading.Lock = field(factory=threading.Lock)

    def add(self, out: Any, finish: Callable[[bool], None]) -> bool:
        """Wait for what a collective returned; False when there is nothing to wait for (it is complete)."""
        works = [w for w in (out if isinstance(out, list) else [out]) if isinstance(w, dist.Work)]
        if not works:
            return False
        left = [id(w) for w in works]
        with self.lock:
            for w in works:
                self.waiting[id(w)] = (w, left, finish)
        return True

    def waited(self, work: Any) -> None:
        """``work.wait()`` has returned."""
        with self.lock:
            found = self.waiting.pop(id(work), None)
            if found is None:
                return
            _, left, finish = found
            left.remove(id(work))
            if left:
                return
        finish(True)

    def give_up(self) -> None:
        """Collecting ends: finish what nobody has waited for, without its values."""
        with self.lock:
            waiting, self.waiting = self.waiting, {}
        done: set[int] = set()
        for _, left, finish in waiting.values():
            if id(left) not in done:
                done.add(id(left))
                finish(False)


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
