"""Open Probe as a user does, and read what it wrote with nothing but json: the tests' own, simple reader."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import opening
import torch
import torch.nn.functional as F
from documents import Json, construct, leaves, number, rank_dir, records, report, strict, write_config
from framework import Framework
from hostile import HOSTILE
from launching import FORKS
from probe_torch import PrecisionDebugger, plan
from probe_torch.tensors.leaf import TensorLeaf
from torch import Tensor, nn

__all__ = [
    "FRAMEWORK", "Json", "agrees", "capture", "construct", "dumped", "leaves", "load", "number", "opened",
    "rank_dir", "records", "report", "strict", "write_config",
]  # fmt: skip


def _gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    function(x).sum().backward()
    assert x.grad is not None
    return x.grad


opened = partial(opening.opened, PrecisionDebugger)
capture = partial(opening.capture, PrecisionDebugger)


@contextmanager
def dumped(folder: Path, model: Any = None, **keys: Any) -> Iterator[Any]:
    """Dump one step to `folder`/dump."""
    with opened(folder, **keys) as debugger, debugger.one_step(model):
        yield debugger


FRAMEWORK = Framework(
    debugger=PrecisionDebugger,
    plan=plan,
    leaf=TensorLeaf,
    functions=F,
    home=__name__,
    module=nn.Module,
    kind="Module",
    forward="forward",
    linear=nn.Linear,
    sequence=nn.Sequential,
    ones=torch.ones,
    array=lambda tensor: tensor.detach().numpy(),
    dot=lambda a, b: torch.dot(a, b),  # looked up when called, as in a user's file
    gradient=_gradient,
    train=lambda model, x: model(x).sum().backward(),
    forks=FORKS,
    hostile=len(HOSTILE),
    msprobe_arguments=(None,),  # the model
)


def agrees(leaf: Json, tensor: Tensor, tolerance: float = 1e-6) -> bool:
    """Whether a record has the shape and the four statistics of `tensor`, to a relative tolerance."""
    if leaf is None:
        return False
    truth = tensor.detach().double()
    expected = {
        "Max": truth.max().item(),
        "Min": truth.min().item(),
        "Mean": truth.mean().item(),
        "Norm": truth.norm().item(),
    }
    scale = max(truth.abs().max().item(), 1e-30)
    return leaf["shape"] == list(tensor.shape) and all(
        math.isclose(number(leaf[key]), value, rel_tol=tolerance, abs_tol=tolerance * scale)
        for key, value in expected.items()
    )


def load(dump: Path, leaf: Json, step: int = 0, rank: int | None = None) -> Tensor:
    """The tensor file that `leaf` names."""
    file = rank_dir(dump, step, rank) / "dump_tensor_data" / leaf["data_name"]
    if file.suffix == ".npy":
        return torch.from_numpy(np.load(file))
    value: Tensor = torch.load(file, weights_only=True)
    return value
