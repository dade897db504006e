"""Give probe-save what it needs of torch: tensors as JSON, and their gradients by `Tensor.register_hook`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from attrs import define, evolve, field
from probe_format.journal import hole
from probe_format.jsonio import encode
from probe_format.tensors import numbers_at
from probe_format.values import ValuePath
from probe_format.write import Coverage
from probe_runtime.describe import Placement, TensorOptions

from probe_torch.aside import aside
from probe_torch.tensors.leaf import TensorLeaf
from probe_torch.tensors.plain import FORMS, has_memory
from probe_torch.tensors.tensor_view import EXACT, ORDINARY

from .ranks import current_rank

__all__ = ["FRAMEWORK", "TorchSaving", "current_rank", "open_leaf", "untraced"]

FRAMEWORK = "pytorch"
_C: Any = torch._C
_T: Any = _C.TensorBase
_keys: Any = _C._dispatch_keys


def open_leaf(options: TensorOptions, coverage: Coverage) -> TorchSaving:
    """Return a describer of torch's values for one step."""
    return TorchSaving(options, coverage)


@define(init=False, eq=False)
class TorchSaving:
    """Describe tensors and wait for their gradients. Safe to use from many threads."""

    _leaf: TensorLeaf
    _late: dict[int, bytes] = field(factory=dict)
    _lock: threading.Lock = field(factory=threading.Lock)

    def __init__(self, options: TensorOptions, coverage: Coverage) -> None:
        self.__attrs_init__(TensorLeaf(options, coverage, _nothing, late=False))

    def plain(self, value: Any, found: list[tuple[ValuePath, Any]]) -> tuple[bytes, float] | None:
        """Return the finished JSON of a plain tensor with its statistics, and its norm.

        Returns None for any other value, and where a number is not finite: then `leaf` describes it.

        found: gets the tensor, with an empty path, if it can have a gradient.
        """
        if type(value) not in EXACT or _C._get_tracing_state() is not None:
            return None
        with aside():
            if _keys(value).raw_repr() not in ORDINARY or not _T.is_contiguous(value):
                return None
            form = FORMS[value.dtype, value.shape]
            if form is None or not has_memory(value):
                return None
            numbers = numbers_at(_T.data_ptr(value), form.count, form.kind)
            if numbers is None:
                return None
            high, low, mean, norm = numbers
            needed = value.requires_grad
            body = encode({"Max": high, "Min": low, "Mean": mean, "Norm": norm, "requires_grad": needed})
            if needed:
                found.append(((), value))
            return form.opening + body[1:], norm

    def leaf(self, placement: Placement, value: Any, path: ValuePath) -> Any:
        """Return the JSON of a value of torch, UNKNOWN for another one; write a tensor's file if one is wanted."""
        with untraced(), aside():
            if isinstance(value, torch.Tensor):
                return self._leaf.leaf(placement, value, path)
            return self._leaf.leaf(evolve(placement, wants_file=False, found=[]), value, path)

    def watch(self, tensor: torch.Tensor, arrived: Callable[[Any], None]) -> Callable[[], None] | None:
        """Call ``arrived`` with the whole gradient of ``tensor`` in each backward pass, until the result is called.

        Returns None if ``tensor`` needs no gradient.

        The hook returns nothing, so autograd goes on with the gradient it had.
        """

        def hook(gradient: torch.Tensor) -> None:
            arrived(gradient)

        with aside():
            if not tensor.requires_grad:
                return None
            register: Any = tensor.register_hook
            undo: Callable[[], None] = register(hook).remove
            return undo

    def fill_numbers(self, value: bytes) -> bytes:
        """Fetch the numbers that still wait on a device, and return the value with its own."""
        with self._lock:
            self._late.update(self._leaf.late_numbers())
            for number in [number for number in self._late if hole("n", number) in value]:
                value = value.replace(hole("n", number), self._late.pop(number))
        return value

    def close(self) -> None:
        """Let go of every tensor."""
        self._leaf.close()


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """Keep our own operations out of the graph that `torch.jit.trace` makes, where sizes would be tensors too."""
    state = _C._get_tracing_state()
    if state is None:
        yield
        return
    _C._set_tracing_state(None)
    try:
        yield
    finally:
        _C._set_tracing_state(state)


def _nothing(event: Any) -> None:
    """Do nothing: `TorchSaving.fill_numbers` asks for what comes late, and a lost file is told in its tensor object."""
