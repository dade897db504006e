"""Remember what was computed for a tensor, and decide whether it may be used again when the tensor comes back.

Numbers are used again for the same tensor object with the same version counter at the same address, and only where
the counter can be trusted: of what autograd follows, since its own gradients depend on that; of gradients, within
their backward pass; within the step of an optimizer that is known to raise it. silent.py lists what writes without
raising the counter.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from attrs import define, field
from torch.nn import Parameter

__all__ = ["Seen", "Sharing", "memory"]

_T: Any = torch._C.TensorBase
_current_pass = torch._C._current_graph_task_id
_use_count = getattr(torch._C, "_storage_Use_Count", None)
_DEAD: Any = lambda: None  # noqa: E731 - a weak reference to nothing
_MOST = 4096
_NO_DISPATCH = torch.Tensor.__torch_dispatch__


@define
class Seen:
    """Hold what is known about one tensor as long as it lives unchanged.

    head, mesh, tail: the keys of its object, in this order.
    content: a number that identifies its bytes; 0 where it has no file.
    ref: the tensor.
    version: its version counter.
    pointer: address of its first element.
    within: the backward pass in which this may be used again; -1 for a tensor that autograd follows; -2 within a step
    of an optimizer.
    """

    head: dict[str, Any]
    mesh: dict[str, Any]
    tail: dict[str, Any]
    content: int = 0
    ref: weakref.ref[torch.Tensor] = _DEAD
    version: int = -1
    pointer: int = 0
    within: int = -1


@define
class Sharing:
    """Remember the tensors seen in one step. Safe to use from many threads.

    on: whether anything is used again at all.
    open: whether it is between start() and stop(). After that nothing is remembered: weak references would make
    `torch.utils.swap_tensors` fail, whose calls are noticed only until then.
    known: id of a tensor -> what is known about it.
    """

    on: bool
    open: bool = True
    known: dict[int, Seen] = field(factory=dict)
    _handed_out: set[int] = field(factory=set)
    _silent_steps: int = 0
    _open_steps: int = 0

    def find(self, t: torch.Tensor) -> Seen | None:
        """Return what is known of ``t``; None unless it is certainly still true."""
        seen = self.known.get(id(t))
        if seen is None or seen.ref() is not t:
            return None
        try:
            if seen.version != t._version or seen.pointer != _T.data_ptr(t):
                return None
        except RuntimeError:
            return None
        within = seen.within
        if within == -1:
            return seen if t.requires_grad else None
        return seen if within == -2 or within == _current_pass() else None

    def version(self, t: torch.Tensor, *, gradient: bool) -> int | None:
        """Return the version at which what is seen of ``t`` from here on may be kept; None where it may not be.

        Call this before reading ``t``, because another thread may write meanwhile.

        gradient: whether ``t`` was recorded as a gradient or parameter.
        """
        if not self.is_steady(t, gradient=gradient) or (self._handed_out and memory(t) in self._handed_out):
            return None
        return t._version

    def is_steady(self, t: torch.Tensor, *, gradient: bool) -> bool:
        """Return whether every write to ``t`` from here on raises its version or is made by a watched call."""
        if self._silent_steps or t.is_inference() or type(t).__torch_dispatch__ is not _NO_DISPATCH:
            return False
        followed = t.requires_grad or self._open_steps or (gradient and _is_gradient(t))
        return bool(followed) and _owns_its_memory(t)

    def keep(self, t: torch.Tensor, seen: Seen, version: int) -> None:
        """Remember what was seen of ``t`` at this version."""
        if not (self.on and self.open):
            return
        seen.ref, seen.version, seen.pointer = weakref.ref(t), version, _T.data_ptr(t)
        seen.within = -1 if t.requires_grad else _current_pass() if _is_gradient(t) else -2
        if len(self.known) > _MOST:
            self.known = {k: s for k, s in list(self.known.items()) if s.ref() is not None}
        self.known[id(t)] = seen

    @contextlib.contextmanager
    def between_stops(self) -> Iterator[None]:
        """Remember tensors until the block is left, then forget them all."""
        self.open = True
        try:
            yield
        finally:
            self.open = False
            self.known.clear()

    def invalidate(self) -> None:
        """Share nothing seen before: a tensor may have been written without a change of its version."""
        self.known.clear()

    def touched(self, t: torch.Tensor) -> None:
        """Stop sharing the memory of ``t``: its bytes may change from now on without a change of its version."""
        self.known.clear()
        where = memory(t)
        if where is not None:
            self._handed_out.add(where)

    def step_begins(self, *, silent: bool) -> None:
        """Note that an optimizer begins to write.

        silent: True unless the optimizer is known to raise the versions of what it writes.
        """
        self.known.clear()
        if silent:
            self._silent_steps += 1
        else:
            self._open_steps += 1

    def step_ends(self, *, silent: bool) -> None:
        """Note that an optimizer has written."""
        self.known.clear()
        if silent:
            self._silent_steps -= 1
        else:
            self._open_steps -= 1


def memory(t: torch.Tensor) -> int | None:
    """Return the address where the memory begins that ``t`` and its views share; None if it has no memory."""
    if type(t).__torch_dispatch__ is not _NO_DISPATCH:
        return None  # a fake tensor would warn
    with contextlib.suppress(RuntimeError):
        return int(_T.data_ptr(t)) - int(_T.storage_offset(t)) * int(_T.element_size(t))
    return None


def _is_gradient(t: torch.Tensor) -> bool:
    return not t.requires_grad and _current_pass() != -1 and type(t) is not Parameter


def _owns_its_memory(t: torch.Tensor) -> bool:
    """Return whether only this tensor and its views can write its memory, as far as torch knows."""
    try:
        storage = _T.untyped_storage(t)
        if not storage.resizable():  # memory of numpy, a file or another library, or shared with one
            return False
        if t.is_cpu and storage.is_shared():  # is_shared() is always true on an accelerator
            return False
        if t.grad_fn is None and _use_count is not None:
            # The only owners may be the tensor, the storage object that was just made, and the base of a view.
            return bool(_use_count(storage._cdata) <= 2 + t._is_view())
    except (RuntimeError, NotImplementedError):
        return False
    return True
