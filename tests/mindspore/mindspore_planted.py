"""Run by msrun from test_when.py: a small model on several processes, which average their gradients."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, communication, nn, ops
from planted_run import train
from probe_mindspore import PrecisionDebugger


class Planted(nn.Cell):
    """The identity, times a factor."""

    factor = 1.0

    def construct(self, x: Tensor) -> Tensor:
        return x * self.factor


def made(seed: int) -> tuple[nn.Cell, Callable[[float], float]]:
    ms.set_seed(seed)
    rng = np.random.default_rng((seed, communication.get_rank()))
    planted = Planted()
    net = nn.SequentialCell(nn.Dense(8, 16), planted, nn.ReLU(), nn.Dense(16, 1))
    optimizer = nn.SGD(net.trainable_params(), 1e-4)
    forward: Any = ms.value_and_grad(lambda x: net(x).square().mean(), None, optimizer.parameters)
    reduce = ops.AllReduce()

    def step(factor: float) -> float:
        planted.factor = factor
        loss, gradients = forward(Tensor(rng.normal(size=(16, 8)).astype(np.float32)))
        optimizer(tuple(reduce(g) / communication.get_group_size() for g in gradients))
        return float(loss.asnumpy())

    return net, step


def main(request: str) -> None:
    ms.set_context(runtime_num_threads=1)
    communication.init()
    train(
        json.loads(request), communication.get_rank(), communication.get_group_size(), PrecisionDebugger, made
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
