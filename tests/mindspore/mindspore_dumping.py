"""Open Probe as a user of MindSpore does, and look at what it wrote."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import opening
from documents import (
    Json,
    construct,
    leaves,
    number,
    rank_dir,
    records,
    report,
    strict,
    validate,
    write_config,
)
from framework import Framework
from mindspore import Tensor, nn, ops
from mindspore_launching import FORKS
from probe_mindspore import PrecisionDebugger, plan
from probe_mindspore.tensors.leaf import TensorLeaf

__all__ = [
    "FRAMEWORK", "Json", "agrees", "bits", "capture", "collected", "construct", "leaves", "load", "number", "opened",
    "rank_dir", "records", "report", "strict", "trained", "validate", "write_config",
]  # fmt: skip


opened = partial(opening.opened, PrecisionDebugger)
capture = partial(opening.capture, PrecisionDebugger)
FRAMEWORK = Framework(
    debugger=PrecisionDebugger,
    plan=plan,
    leaf=TensorLeaf,
    functions=ops,
    home=__name__,
    module=nn.Cell,
    kind="Cell",
    forward="construct",
    linear=nn.Dense,
    sequence=nn.SequentialCell,
    ones=lambda *shape: Tensor(np.ones(shape, np.float32)),
    array=lambda tensor: tensor.asnumpy(),
    dot=lambda a, b: ops.tensor_dot(a, b, 1),
    gradient=lambda function, x: ms.grad(lambda x: function(x).sum())(x),
    train=lambda model, x: ms.value_and_grad(lambda x: model(x).sum(), 0, model.trainable_params())(x),
    forks=FORKS,
    hostile=16,
)


@contextmanager
def collected(
    folder: Path, model: Any = None, *, token_range: list[int] | None = None, **keys: Any
) -> Iterator[Any]:
    """Record what runs inside the block as one step; gives the debugger."""
    with opened(folder, **keys) as debugger:
        debugger.start(model, token_range)
        yield debugger
        debugger.stop()
        debugger.step()


def bits(value: Any) -> list[bytes]:
    """The bytes of every tensor in nested tuples and lists."""
    if isinstance(value, (tuple, list)):
        return [one for item in value for one in bits(item)]
    return [value.asnumpy().tobytes()]


def trained(net: nn.Cell, *batch: Tensor) -> list[bytes]:
    """The bits of a network's loss, and of the gradients of its weights."""
    return bits(ms.value_and_grad(net, None, net.trainable_params())(*batch))


def agrees(leaf: Json, values: np.ndarray, tolerance: float = 1e-6) -> bool:
    """Whether a record has the shape and the four statistics of `values`, to a relative tolerance."""
    if leaf is None:
        return False
    wide = values.astype(np.float64)
    expected = {"Max": wide.max(), "Min": wide.min(), "Mean": wide.mean(), "Norm": np.linalg.norm(wide)}
    scale = max(float(np.abs(wide).max()), 1e-30)
    return leaf["shape"] == list(values.shape) and all(
        math.isclose(number(leaf[key]), float(value), rel_tol=tolerance, abs_tol=tolerance * scale)
        for key, value in expected.items()
    )


def load(dump: Path, leaf: Json, step: int = 0, rank: int | None = None) -> np.ndarray:
    """The tensor file that `leaf` names."""
    return np.asarray(np.load(rank_dir(dump, step, rank) / "dump_tensor_data" / leaf["data_name"]))
