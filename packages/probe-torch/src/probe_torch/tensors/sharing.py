"""Remember what was computed for a tensor, and decide whether it may be used again when the tensor comes back.

Numbers are used again for the same tensor object with the same version counter at the same address, and only where
the counter can be trusted: of what autograd follows, since its own gradients depend on that; of gradients, within
their backward pass; within the step of an optimizer that is known to raise it, in its thread. silent_writes.py lists
what writes without raising the counter.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from threading import get_ident
from typing import Any

import torch
from attrs import Factory, define, field
from torch.nn import Parameter

__all__ = ["Seen", "Sharing", "memory", "owns_dispatch"]

_T: Any = torch._C.TensorBase
_current_pass = torch._C._current_graph_task_id
_storage = _T.untyped_storage
_use_count = getattr(torch._C, "_storage_Use_Count", None)
_MOST = 4096
_NO_DISPATCH = torch.Tensor.__torch_dispatch__


#: What is known about one tensor as long as it lives unchanged; a tuple, because making one costs no call. In order:
#: ref, the tensor;
#: version, its version counter;
#: pointer, the address of its first element;
#: within, the backward pass in which this may be used again, or FOLLOWED, or OPTIMIZED;
#: requires_grad, as it was;
#: json, its object without the keys of a file;
#: cut, where in ``json`` those keys belong, counted from its end;
#: content, a number that identifies its bytes: 0 where it has no file, None as long as none was wanted.
Seen = tuple["weakref.ref[torch.Tensor]", int, int, int, bool, bytes, int, int | None]

#: In place of a backward pass: usable as long as autograd follows the tensor, and within the step of an optimizer.
FOLLOWED, OPTIMIZED = -1, -2


@define
class Sharing:
    """Remember the tensors seen in one step. Safe to use from many threads.

    on: whether anything is used again at all.
    open: whether tensors are remembered: if ``on``, between start() and stop(). After that weak references would make
    `torch.utils.swap_tensors` fail, whose calls are noticed only until then.
    known: id of a tensor -> what is known about it. Tensors that have died are cleared away now and then.
    """

    on: bool
    open: bool = field(default=Factory(lambda self: self.on, takes_self=True))
    known: dict[int, Seen] = field(factory=dict)
    _handed_out: set[int] = field(factory=set)
    _silent_steps: int = 0
    _stepping: list[int] = field(factory=list)  # the threads within an optimizer that raises what it writes
    _room: int = _MOST

    def trust(self, t: torch.Tensor, *, gradient: bool) -> int | None:
        """Return ``within`` of `Seen` for what is seen of ``t`` from here on; None where it may not be used again.

        The caller puts what it sees into ``known`` if this is ``open``.

        It may if every write to ``t`` from here on raises its version or is made by a watched call. Ask this, and then
        for the version, before reading ``t``, because another thread may write meanwhile.

        t: a tensor that has a version, and no `__torch_dispatch__` of its own.
        gradient: whether ``t`` was recorded as a gradient or parameter.
        """
        self._room -= 1
        if self._room < 0:
            self.known = {k: s for k, s in list(self.known.items()) if s[0]() is not None}
            self._room = max(_MOST - len(self.known), _MOST // 4)
        if self._silent_steps:
            return None
        if t.requires_grad:
            within = FOLLOWED
        elif gradient and type(t) is not Parameter and (number := _current_pass()) != -1:  # -1 outside of it
            within = number
        elif self._stepping and get_ident() in self._stepping:
            within = OPTIMIZED
        else:
            return None
        if self._handed_out and memory(t) in self._handed_out:
            return None
        try:  # whether only this tensor and its views can write its memory, as far as torch knows
            storage = _storage(t)
            if not storage.resizable():  # memory of numpy, a file or another library, or shared with one
                return None
            if storage.is_shared() and t.is_cpu:  # is_shared() is always true on an accelerator
                return None
            if t.grad_fn is None and _use_count is not None:
                # The only owners may be the tensor, the storage object that was just made, and the base of a view.
                owners = _use_count(storage._cdata)
                if owners > 3 or (owners == 3 and not t._is_view()):
                    return None
        except (RuntimeError, NotImplementedError):
            return None
        return within

    @contextlib.contextmanager
    def between_stops(self) -> Iterator[None]:
        """Remember tensors until the block is left, then forget them all."""
        self.open = self.on
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

        silent: True unless the optimizer is known to raise the versions of what it writes, and nothing of the user's
            runs within its step.
        """
        self.known.clear()
        if silent:
            self._silent_steps += 1
        else:
            self._stepping.append(get_ident())

    def step_ends(self, *, silent: bool) -> None:
        """Note that an optimizer has written."""
        self.known.clear()
        if silent:
            self._silent_steps -= 1
        else:
            self._stepping.remove(get_ident())


def owns_dispatch(t: torch.Tensor) -> bool:
    """Return whether ``t`` is of a class with a `__torch_dispatch__` of its own."""
    return type(t).__torch_dispatch__ is not _NO_DISPATCH


def memory(t: torch.Tensor) -> int | None:
    """Return the address where the memory begins that ``t`` and its views share; None if it has no memory."""
    if owns_dispatch(t):
        return None  # a fake tensor would warn
    with contextlib.suppress(RuntimeError):
        return int(_T.data_ptr(t)) - int(_T.storage_offset(t)) * int(_T.element_size(t))
    return None
