"""Remember where the gradients of a call's inputs go, as it was when the call was entered."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import define, field
from probe_format.values import ValuePath

Found = Sequence[tuple[ValuePath, torch.Tensor]]

_functorch: Any = torch._C._functorch
#: Returns the innermost transform of `torch.func` that runs in this thread, which may have wrapped tensors, or None.
transform: Callable[[], Any] = _functorch.peek_interpreter_stack


@define
class InputEdges:
    """Hold the gradient edges of a call's inputs.

    since: autograd's sequence number at the entry; nodes made later have this one or a higher one.
    batched: whether the call was made within a transform of `torch.func`.
    indexes: what takes the gradient of an input -> its index in ``paths``. It is (node, output number), or the id of a
        leaf.
    paths: index -> every place in the arguments where this tensor is.
    views: id of an input that is a view -> its index into paths, None if it needed no gradient.
    """

    since: int
    batched: bool
    indexes: dict[Any, int] = field(factory=dict)
    paths: dict[int, list[ValuePath]] = field(factory=dict)
    views: dict[int, int | None] = field(factory=dict)


def whole(tensors: Found) -> Found:
    """Return the tensors; for one that `torch.func.vmap` batches, the whole tensor, which autograd follows."""
    found = []
    for path, t in tensors:
        while _functorch.is_batchedtensor(t):
            t = _functorch.get_unwrapped(t)
        found.append((path, t))
    return found
