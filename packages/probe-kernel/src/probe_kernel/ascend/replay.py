"""Run one API once more on copies of its inputs, so that its backward pass can run alone."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["backward", "differentiable", "replayed"]


def backward(inputs: Sequence[Any], outputs: Sequence[Any], gradients: Sequence[Any]) -> None:
    """Run the backward pass of a replay. gradients: of the outputs, None for an output that was not used."""
    pairs = [(o, g) for o, g in zip(outputs, gradients, strict=True) if g is not None]
    if pairs and inputs:
        used, given = zip(*pairs, strict=True)
        importlib.import_module("torch").autograd.grad(used, inputs, given, allow_unused=True)


def replayed(
    original: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], *, in_place: bool
) -> tuple[list[Any], list[Any]]:
    """Run ``original`` on detached copies of its arguments, with gradients on.

    Returns the copied leaves with gradients, and the outputs as `differentiable` returns them.

    in_place: whether it writes to an argument; the copies are then not leaves, since autograd would refuse to write.
    """
    torch = importlib.import_module("torch")
    leaves: list[Any] = []
    known: dict[int, Any] = {}

    def copy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in known:  # the same tensor twice stays the same tensor
            leaf = value.detach().clone().requires_grad_(value.requires_grad)
            if value.requires_grad:
                leaves.append(leaf)
            known[id(value)] = leaf.clone() if in_place and value.requires_grad else leaf
        return known[id(value)]

    with torch.enable_grad():
        tree = importlib.import_module("torch.utils._pytree")
        copied, keywords = tree.tree_map(copy, (args, dict(kwargs)))
        out = original(*copied, **keywords)
    return leaves, differentiable(out)


def differentiable(value: Any) -> list[Any]:
    """Return the tensors inside ``value`` that take part in a backward pass, in order."""
    torch = importlib.import_module("torch")
    leaves = importlib.import_module("torch.utils._pytree").tree_leaves(value)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
