"""Run one training step of a model with fake tensors, after which the run's random numbers go on as if there had been
no step."""

import contextlib
import linecache
import random
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from probe_format.errors import UsageError
from probe_format.own_code import FRAMEWORKS, OWN_MODULES, is_own
from probe_runtime.planning import loss_in
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)
from torch.utils._pytree import tree_leaves

_NEEDS_NUMBERS = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException)
_NO_BACKWARD = "Nothing that the model returned needs a gradient, so there is no backward pass in this plan."


def train(
    model: nn.Module,
    inputs: tuple[Any, ...],
    keywords: dict[str, Any],
    loss: Callable[[Any], torch.Tensor] | None,
    optimizer: torch.optim.Optimizer | None,
) -> list[str]:
    """Make a step: the model's call, the backward pass, and the optimizer's step where there is one.

    model: the model, whose tensors are fake.
    inputs, keywords: what it is called with.
    loss: takes its output and returns the loss; None for one that is in the output, or the sum of the output.

    Returns what the user should know of how it went. Raises UsageError where the step asks for a tensor's numbers.
    """
    try:
        out = model(*inputs, **keywords)
        found = loss(out) if loss is not None else _loss(out)
        if found is None or not found.requires_grad:
            return [_NO_BACKWARD]
        found.backward()  # type: ignore[no-untyped-call]
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
        return []
    except _NEEDS_NUMBERS as e:
        raise UsageError(
            f"A plan computes no numbers, and {_line(e)} asks for some ({_operator(e)}): .item(), a condition on a "
            "tensor, or a shape that depends on values. Plan without that part, or dump a real step with task "
            "statistics and look at its size."
        ) from e
    except Exception as e:
        e.add_note(
            "This came while probe_torch.plan ran the model on tensors that have shapes and no numbers."
        )
        raise


def _loss(out: Any) -> torch.Tensor | None:
    flowing = (t for t in tree_leaves(out) if isinstance(t, torch.Tensor) and t.requires_grad)
    return loss_in(out, torch.Tensor, flowing, _total)


def _total(t: torch.Tensor) -> torch.Tensor:
    return (t.abs() if t.is_complex() else t).sum().float()


def _line(error: BaseException) -> str:
    """Return the line of the user's code that an error came from."""
    mine = [
        (f, n)
        for f, n in traceback.walk_tb(error.__traceback__)
        if not is_own(f.f_globals.get("__name__"), (*OWN_MODULES, *FRAMEWORKS))
    ]
    if not mine:
        return "the model"
    frame, number = mine[-1]
    file = frame.f_code.co_filename
    linecache.checkcache(file)
    return f"{file}:{number} `{linecache.getline(file, number).strip()}`"


def _operator(error: BaseException) -> str:
    return str(getattr(error, "func", None) or (error.args[0] if error.args else type(error).__name__))


@contextlib.contextmanager
def unchanged_randomness() -> Iterator[None]:
    """Put the states of all random number generators on the CPU back when the block is left."""
    states = torch.random.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        torch.random.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])
