"""Run by msrun from test_distributed.py: two steps of a small model on two processes, watched or not.

`mindspore_ranks.py CONFIG OUT WHEN`: CONFIG is a path or "-"; OUT gets one file for each rank with the losses,
gradients and weights. WHEN: "before" or "after", whether the debugger is made before communication is initialised.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from contextlib import nullcontext
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, communication, mint, nn, ops


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Dense(8, 16), nn.Dense(16, 8)
        self.act = nn.ReLU()

    def construct(self, x: Tensor) -> Tensor:
        return (x + self.b(self.act(self.a(x)))).square().mean()


def main(config: str, out: str, when: str) -> None:
    faulthandler.dump_traceback_later(200, exit=True)  # a run that hangs says where
    ms.set_context(runtime_num_threads=1)
    debugger: Any = None

    def made() -> Any:
        from probe_mindspore import PrecisionDebugger

        return None if config == "-" else PrecisionDebugger(config)

    if when == "before":
        debugger = made()
    communication.init()
    if when == "after":
        debugger = made()
    rank = communication.get_rank()
    ms.set_seed(1)
    model = Net()
    model.set_train()
    optimizer = nn.SGD(model.trainable_params(), 0.1)
    forward = ms.value_and_grad(model, None, optimizer.parameters)
    reduce = ops.AllReduce()
    rng = np.random.default_rng(100 + rank)
    trace: dict[str, Any] = {}
    with debugger or nullcontext():
        for i in range(2):
            if debugger:
                debugger.start(model)
            loss, grads = forward(Tensor(rng.normal(size=(4, 8)).astype(np.float32)))
            grads = tuple(reduce(g) / 2 for g in grads)
            optimizer(grads)
            total = Tensor(np.full(2, rank + 1, np.float32))
            mint.distributed.all_reduce(total)
            if debugger:
                debugger.stop()
                debugger.step()
            trace[f"{i}.loss"], trace[f"{i}.total"] = loss.asnumpy().copy(), total.asnumpy().copy()
            for p, g in zip(optimizer.parameters, grads, strict=True):
                trace[f"{i}.{p.name}"], trace[f"{i}.grad.{p.name}"] = p.asnumpy().copy(), g.asnumpy().copy()
    np.savez(os.path.join(out, f"{rank}.npz"), **trace)


if __name__ == "__main__":
    main(*sys.argv[1:])
