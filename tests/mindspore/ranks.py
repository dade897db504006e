"""One of two processes under msrun: a network with a reduction of its gradients. Arguments: config or -, folder."""

from __future__ import annotations

import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, communication, mint, nn, ops


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(4, 3)
        self.act = nn.ReLU()

    def construct(self, x: Tensor) -> Tensor:
        return self.act(self.fc(x)).sum()


def main(config: str, folder: str) -> None:
    communication.init()
    rank = communication.get_rank()
    ms.set_seed(1)
    net = Net()
    f = ms.value_and_grad(net, None, net.trainable_params())
    reduce = ops.AllReduce()
    x = Tensor(np.random.RandomState(rank).randn(2, 4).astype(np.float32))
    debugger = None
    if config != "-":
        from probe_mindspore import PrecisionDebugger

        debugger = PrecisionDebugger(config)
    seen = []
    for _ in range(2):
        if debugger is not None:
            debugger.start(net)
        loss, grads = f(x)
        total = [reduce(g) for g in grads]
        loss = loss * 1
        mint.distributed.all_reduce(loss)
        for p, g in zip(net.trainable_params(), total, strict=True):
            ops.assign_sub(p, g * 0.1)
        if debugger is not None:
            debugger.stop()
            debugger.step()
        seen += [t.asnumpy() for t in (loss, *total, *net.trainable_params())]
    np.savez(Path(folder) / f"{rank}.npz", *seen)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
