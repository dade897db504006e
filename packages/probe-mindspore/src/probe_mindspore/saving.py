"""Give probe-save what it needs of MindSpore: tensors as JSON, and their gradients by hooks (PyNative)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from attrs import define, evolve, field
from mindspore import Parameter
from probe_format.values import ValuePath
from probe_format.write import Coverage, Summary
from probe_runtime.describe import Placement, TensorOptions

from probe_mindspore.hooks import autograd
from probe_mindspore.hooks.uncompiled_hooks import UncompiledHooks
from probe_mindspore.tensors.leaf import TensorLeaf
from probe_mindspore.tensors.tensor_view import DENSE

from .module_kind import detect
from .ranks import current_rank, world_size

__all__ = ["FRAMEWORK", "MindSporeSaving", "current_rank", "open_leaf", "replayer", "world_size"]

FRAMEWORK = detect().framework


def open_leaf(
    options: TensorOptions, coverage: Coverage, numbers: Iterator[int], summary: Summary
) -> MindSporeSaving:
    """Return what describes the tensors of one step; the arguments are `TensorLeaf`'s."""
    own = detect().requires_grad
    leaf = TensorLeaf(options, coverage, _nothing, requires_grad=own, numbers=numbers, summary=summary)
    return MindSporeSaving(leaf)


def replayer() -> Any:
    """Return the module that runs recorded calls again, for probe-analysis."""
    from . import replay  # a run that saves values does not replay

    return replay


@define(eq=False)
class MindSporeSaving:
    """Describe tensors and take their gradients. Safe to use from many threads."""

    _leaf: TensorLeaf
    _parameters: UncompiledHooks = field(factory=UncompiledHooks)

    @property
    def tally(self) -> dict[str, int]:
        """Return the number of tensors seen so far."""
        return self._leaf.tally

    def leaf(self, placement: Placement, value: Any, path: ValuePath) -> Any:
        """Return the JSON of a value of MindSpore, UNKNOWN for another one; write a tensor's file if one is wanted.

        Raises RunError when an error of the run came meanwhile.
        """
        if not isinstance(value, DENSE):
            return self._leaf.leaf(evolve(placement, found=[]), value, path)
        if _takes_gradient(value):
            placement.found.append((path, value))
        found = self._leaf.tensor(placement, value, path)
        if self._leaf.waits:
            self._leaf.hand_on()
        return found

    def watch(self, tensor: Any, arrived: Callable[[Any], None]) -> Callable[[], None] | None:
        """Call ``arrived`` with the gradient of ``tensor``, from all its users, in each backward pass.

        Returns a function that removes the hook, or None if no gradient is being recorded or the tensor takes none.
        """
        if not _takes_gradient(tensor):
            return None

        def hook(gradient: Any) -> None:
            arrived(gradient)

        put = partial(autograd.hook_tensor, tensor, hook)
        if isinstance(tensor, Parameter):
            return self._parameters.add(put)
        handle = put()
        return None if handle is None else handle.remove

    def fill_numbers(self, value: bytes) -> bytes:
        """Return the value: all numbers are computed at once here."""
        return value

    def close(self) -> None:
        """Release every tensor, after the hooks have been removed."""
        self._parameters.remove()
        self._leaf.close()


def _takes_gradient(tensor: Any) -> bool:
    if isinstance(tensor, Parameter) and tensor.requires_grad:
        return True
    return bool(autograd.recording() and autograd.takes_gradient(tensor))


def _nothing(event: Any) -> None:
    """Do nothing: files are written at once, so no later event comes."""
