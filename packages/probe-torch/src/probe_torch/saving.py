"""Give probe-save what it needs of torch: tensors as JSON, and their gradients by `Tensor.register_hook`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from attrs import define, evolve, field
from probe_format.jsonio import encode
from probe_format.tensors import numbers_at
from probe_format.values import ValuePath
from probe_format.write import Coverage
from probe_runtime.describe import LARGE, Placement, TensorOptions, run_both

from probe_torch.aside import apart, aside
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
    _writer: TensorLeaf  # writes a tensor's file, and computes no numbers
    _numbers: dict[int, dict[str, Any]] = field(factory=dict)
    _lock: threading.Lock = field(factory=threading.Lock)

    def __init__(self, options: TensorOptions, coverage: Coverage) -> None:
        files = evolve(options, statistics=False, checksum=None, zero_count=False)
        leaf, writer = TensorLeaf(options, coverage, self._take), TensorLeaf(files, coverage, self._take)
        self.__attrs_init__(leaf, writer)

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
            return self._described(placement, value, path)

    def _described(self, placement: Placement, value: Any, path: ValuePath) -> Any:
        if not isinstance(value, torch.Tensor):
            return self._leaf.leaf(evolve(placement, wants_file=False, found=[]), value, path)
        placement.found.append((path, value))
        if not (placement.wants_file and _is_large(value)):
            return self._leaf.object(placement, value, path)
        numbers = evolve(placement, wants_file=False)
        out, file = run_both(
            lambda: self._leaf.object(numbers, value, path),
            lambda: apart(self._writer.object)(
                placement, value, path
            ),  # in a thread, which has modes of its own
        )
        checksum = {"md5": out.pop("md5")} if "md5" in out else {}
        return {**out, "data_name": file["data_name"], **checksum}

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

    def fill_numbers(self, value: Any) -> None:
        """Fetch the numbers that still wait on a device, and put in those of ``value``."""
        with self._lock:
            self._leaf.flush_numbers(force=True)
            if self._numbers:
                self._fill(value)

    def close(self) -> None:
        """Let go of every tensor."""
        self._leaf.close()
        self._writer.close()

    def _take(self, event: dict[str, Any]) -> None:
        for ref, numbers in event.get("r", ()):
            self._numbers[ref] = numbers

    def _fill(self, value: Any) -> None:
        todo = [value]
        while todo:
            item = todo.pop()
            if isinstance(item, list):
                todo.extend(item)
            elif isinstance(item, dict):
                numbers = self._numbers.pop(ref, None) if type(ref := item.get("$")) is int else None
                if numbers is not None:
                    del item["$"]
                    item.update(numbers)
                todo.extend(item.values())


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


def _is_large(t: torch.Tensor) -> bool:
    """Return whether writing its file is worth a thread: it is large, and written as it lies in memory."""
    return (
        type(t) in (torch.Tensor, torch.nn.Parameter)
        and t.layout is torch.strided
        and t.device.type == "cpu"
        and t.is_contiguous()
        and not (t.is_quantized or t.is_conj() or t.is_neg())
        and t.numel() * t.element_size() >= LARGE
    )
