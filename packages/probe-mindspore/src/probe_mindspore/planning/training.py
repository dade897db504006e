"""Run one training step of a net, after which the run's random numbers go on as if there had been no step."""

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from probe_runtime.planning import loss_in

from probe_mindspore.hooks.autograd import abandon, grad_enabled, is_differentiable, wait
from probe_mindspore.patching.primitives import labels_of
from probe_mindspore.seed import keep_random_state
from probe_mindspore.tensors.tensor_view import tensors_in

_NO_BACKWARD = "Nothing that the net returned needs a gradient, so there is no backward pass in this plan."


def train(
    net: nn.Cell,
    inputs: tuple[Any, ...],
    keywords: dict[str, Any],
    loss: Callable[[Any], Tensor] | None,
    optimizer: Any,
) -> list[str]:
    """Make a step: the net's call, the backward pass, and the optimizer's step where there is one.

    inputs, keywords: what the net is called with.
    loss: takes the net's output and returns the loss; None to take a loss in the output, or else the output's sum.

    Returns what the user should know of how it went.
    """

    def forward() -> Any:
        out = net(*inputs, **keywords)
        if loss is not None:
            return loss(out)
        return loss_in(out, Tensor, filter(is_differentiable, tensors_in(out)), _total)

    try:
        notes = _trained(net, forward, optimizer)
        wait()  # an operator may fail when Python is long past it
    except BaseException as e:
        abandon()
        e.add_note("This came while probe_mindspore.plan made a step of the net on these inputs.")
        raise
    return notes


def _trained(net: nn.Cell, forward: Callable[[], Any], optimizer: Any) -> list[str]:
    weights = list(net.trainable_params() if optimizer is None else optimizer.parameters)
    if not weights or not grad_enabled():
        forward()
        return [_NO_BACKWARD]
    found: list[Any] = []

    def some_loss() -> Any:
        found.append(forward())
        return Tensor(0.0, ms.float32) if found[0] is None else found[0]

    _, gradients = ms.value_and_grad(some_loss, None, weights)()
    if found[0] is None:
        return [_NO_BACKWARD]
    if optimizer is not None:
        optimizer(gradients)
    return []


def _total(t: Tensor) -> Any:
    return (t.abs() if t.is_complex() else t).astype(ms.float32).sum()


# How Primitives name their seeds; each that draws has some of these.
_SEEDS = ("Seed0", "Seed1", "seed", "seed0", "seed1", "seed2")
_MARK = "probe_plan"


@contextlib.contextmanager
def unchanged_randomness(models: Sequence[Any]) -> Iterator[None]:
    """Put the states of all random number generators on the CPU back when the block is left.

    The numbers of many operators come from states inside MindSpore's kernels, which nothing reads or sets. MindSpore
    has a kernel for each set of a Primitive's attributes. So the attributes are changed within the block (functions
    get other seeds, and Primitives one more attribute), and the states of the run's own kernels stay as they are.

    models: the models whose Cells hold Primitives.
    """
    with contextlib.ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        state: Any = np.random.get_state()
        stack.callback(np.random.set_state, state)
        keep_random_state(stack)
        seed = ms.get_seed()
        if seed is not None:
            ms.set_seed((seed ^ 0x2B5A_6C93) & 0x7FFF_FFFF or 1)  # another one
            np.random.set_state(state)  # set_seed has set numpy's, too
        for primitive, _ in labels_of(models).values():
            if any(hasattr(primitive, name) or name in primitive.attrs for name in _SEEDS):
                primitive.add_prim_attr(_MARK, True)
                stack.callback(primitive.del_prim_attr, _MARK)
        yield
