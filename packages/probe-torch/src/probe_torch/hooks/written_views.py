"""Find the gradient of a view that a call wrote in place, by cutting it out of the gradient of the view's base."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from probe_format.values import ValuePath

from probe_torch.aside import apart
from probe_torch.tensors.tensor_view import in_older_vmap, unbatched

_V: Any = torch._C._VariableFunctions
_base: Any = torch._C.TensorBase  # its methods are not patched, so a hook's own calls are not recorded
#: Returns the tensor that a tensor is a view of, even if its class overrides the attribute; None if it is no view.
base_of: Callable[[torch.Tensor], torch.Tensor | None] = _base._base.__get__


@frozen
class WrittenView:
    """Describe a view that the call wrote in place.

    path: its path among the outputs.
    index: its index among the inputs; None if it needed no gradient then.
    geometry: size, stride and offset within its base (in elements), then the size and stride of the base.
    """

    path: ValuePath
    index: int | None
    geometry: tuple[tuple[int, ...], tuple[int, ...], int, tuple[int, ...], tuple[int, ...]]

    def parts(self, of_output: torch.Tensor | None, of_input: torch.Tensor | None) -> tuple[Any, ...]:
        """Return the view as `GradientTap.fire` takes it. of_output, of_input: the gradients of its base."""
        used = None if self.index is None else self._cut(of_input)
        return self.path, self.index, self._cut(of_output), used

    @apart
    def _cut(self, g: torch.Tensor | None) -> torch.Tensor | None:
        if g is None:
            return None
        if in_older_vmap(g):
            if (found := unbatched(g)) is None:
                return None
            level, whole = found
            parts = [self._cut(part) for part in _base.unbind(whole)]
            return _V._add_batch_dim(_V.stack(parts), 0, level)  # type: ignore[no-any-return]
        size, stride, offset, base_size, base_stride = self.geometry
        g = _base.detach(g)
        if tuple(_base.stride(g)) != base_stride:
            laid_out = _V.empty_strided(base_size, base_stride, dtype=g.dtype, device=g.device)
            g = _base.copy_(laid_out, g)
        return _base.as_strided(g, size, stride, offset + _base.storage_offset(g))  # type: ignore[no-any-return]


def written_through(t: torch.Tensor, before: Any) -> Any:
    """Return the node that a write into the view ``t`` made in its base's graph, else None.

    before: the node of the base at the call's entry.
    """
    base = base_of(t)
    node = None if base is None else base.grad_fn
    return node if node is not before and type(node).__name__ == "CopySlices" else None


def geometry(t: torch.Tensor) -> Any:
    """Return the geometry of the view ``t``, as `WrittenView` has it."""
    base = base_of(t)
    assert base is not None
    offset = t.storage_offset() - base.storage_offset()
    return tuple(t.size()), tuple(t.stride()), offset, tuple(base.shape), tuple(base.stride())
