"""Give probe-save what it needs of torch: tensors as JSON, and their gradients by `Tensor.register_hook`.

probe-analysis gets from here the module that runs recorded calls again.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from attrs import define, evolve, field
from probe_format.values import ValuePath
from probe_format.write import Coverage, Summary
from probe_runtime.describe import Placement, TensorOptions

from probe_torch.aside import aside
from probe_torch.tensors.leaf import TensorLeaf

from .ranks import current_rank, world_size

__all__ = ["FRAMEWORK", "TorchSaving", "current_rank", "open_leaf", "replayer", "world_size"]

FRAMEWORK = "pytorch"
_C: Any = torch._C
_HOLE = re.compile(rb"\x1an(\d+)\x1a")


def open_leaf(
    options: TensorOptions, coverage: Coverage, numbers: Iterator[int], summary: Summary
) -> TorchSaving:
    """Return what describes the tensors of one step; the arguments are `TensorLeaf`'s."""
    return TorchSaving(TensorLeaf(options, coverage, _nothing, late=False, numbers=numbers, summary=summary))


def replayer() -> Any:
    """Return the module that runs recorded calls again, for probe-analysis."""
    from . import replay  # a run that saves values does not replay

    return replay


@define(eq=False)
class TorchSaving:
    """Describe tensors and wait for their gradients. Safe to use from many threads."""

    _leaf: TensorLeaf
    _late: dict[int, bytes] = field(factory=dict)
    _lock: threading.RLock = field(factory=threading.RLock)

    @property
    def tally(self) -> dict[str, int]:
        return self._leaf.tally

    def leaf(self, placement: Placement, value: Any, path: ValuePath) -> Any:
        """Return the JSON of a value of torch, UNKNOWN for another one; write a tensor's file if one is wanted."""
        # Keep our own operations out of the graph that `torch.jit.trace` makes, where sizes would be tensors too.
        if (tracing := _C._get_tracing_state()) is not None:
            _C._set_tracing_state(None)
            try:
                return self.leaf(placement, value, path)
            finally:
                _C._set_tracing_state(tracing)
        if not isinstance(value, torch.Tensor):
            return self._leaf.leaf(evolve(placement, wants_file=False, found=[]), value, path)
        with aside():
            if value.requires_grad:
                placement.found.append((path, value))
            return self._leaf.tensor(placement, value, path)

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
        if b"\x1a" not in value:
            return value
        with self._lock:
            self._late.update(self._leaf.late_numbers())
            return _HOLE.sub(lambda found: self._late.pop(int(found[1])), value)

    def close(self) -> None:
        self._leaf.close()


def _nothing(event: Any) -> None:
    """Do nothing: `TorchSaving.fill_numbers` asks for what comes late, and a lost file is told in its tensor object."""
