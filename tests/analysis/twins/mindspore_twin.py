"""Dump one step of the twin in MindSpore: python mindspore_twin.py FOLDER LEVEL."""

from __future__ import annotations

import sys

import mindspore as ms
import twin_numbers
from mindspore import Tensor, nn, ops
from probe_mindspore import PrecisionDebugger

NAMES = {"scale": "gamma", "shift": "beta"}


class Layer(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm((twin_numbers.WIDTH,), epsilon=1e-5)
        self.up = nn.Dense(twin_numbers.WIDTH, twin_numbers.HIDDEN)
        self.act = nn.ReLU()
        self.down = nn.Dense(twin_numbers.HIDDEN, twin_numbers.WIDTH)

    def construct(self, x: Tensor) -> Tensor:
        return x + self.down(self.act(self.up(self.norm(x))))


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.CellList([Layer() for _ in range(twin_numbers.LAYERS)])
        self.head = nn.Dense(twin_numbers.WIDTH, 4)

    def construct(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def main(folder: str, level: str) -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = Net()
    named = dict(net.parameters_and_names())
    for name, value in twin_numbers.weights().items():
        head, _, last = name.rpartition(".")
        named[f"{head}.{NAMES.get(last, last)}"].set_data(Tensor(value))
    debugger = PrecisionDebugger(dump_path=folder, level=level, task="statistics")
    debugger.start(net)
    step = ms.value_and_grad(lambda x: ops.square(net(x)).mean(), None, net.trainable_params())
    step(Tensor(twin_numbers.data()))
    debugger.stop()
    debugger.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
