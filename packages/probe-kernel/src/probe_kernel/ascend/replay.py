"""Run one API once more on copies of its inputs, so that its backward pass can run alone."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import frozen

Call = Callable[..., Any]
Kwargs = Mapping[str, Any]


@frozen
class Replay:
    """Hold a forward pass on copies.

    inputs: the copied leaves with gradients.
    outputs: as `differentiable` returns them.
    """

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]

    def backward(self, gradients: Sequence[Any]) -> None:
        torch = importlib.import_module("torch")
        pairs = [(o, g) for o, g in zip(self.outputs, gradients, strict=True) if g is not None]
        if pairs:
            outputs, given = zip(*pairs, strict=True)
            torch.autograd.grad(outputs, self.inputs, given, allow_unused=True)


def replayed(original: Call, args: tuple[Any, ...], kwargs: Kwargs, *, in_place: bool) -> Replay:
    """Run ``original`` on detached copies of its arguments, with gradients on.

    in_place: whether it writes to an argument; the copies are then not leaves, since autograd would refuse to write.
    """
    torch = importlib.import_module("torch")
    leaves: list[Any] = []
    known: dict[int, Any] = {}

    def copy(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in known:  # the same tensor twice stays the same tensor
                leaf = value.detach().clone().requires_grad_(value.requires_grad)
                if value.requires_grad:
                    leaves.append(leaf)
                known[id(value)] = leaf.clone() if in_place and value.requires_grad else leaf
            return known[id(value)]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(copy(v) for v in value))
        if isinstance(value, list | tuple):
            return type(value)(copy(v) for v in value)
        if isinstance(value, dict):
            return {k: copy(v) for k, v in value.items()}
        return value

    with torch.enable_grad():
        out = original(*copy(args), **copy(dict(kwargs)))
    return Replay(tuple(leaves), tuple(differentiable(out)))


def differentiable(value: Any) -> list[Any]:
    """Return the tensors inside ``value`` that take part in a backward pass, in order."""
    torch = importlib.import_module("torch")
    if isinstance(value, torch.Tensor):
        return [value] if value.requires_grad else []
    if isinstance(value, Mapping):
        return [t for v in value.values() for t in differentiable(v)]
    if isinstance(value, list | tuple):
        return [t for v in value for t in differentiable(v)]
    return []
