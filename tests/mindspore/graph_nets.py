"""Networks for the tests of graphs."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops


class Doubled(nn.Cell):
    """A Cell with a bprop of its own, which gives three times what is right, to be told apart."""

    def construct(self, x):
        return x * 2

    def bprop(self, x, out, dout):
        return (dout * 6,)


class Block(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(3, 3)
        self.norm = nn.LayerNorm((3,))
        self.drop = nn.Dropout(p=0.5)
        self.scale = Parameter(Tensor(np.ones(3), ms.float32), name="scale")

    def construct(self, x, *, factor=None, options=None):
        y = self.drop(self.norm(ops.relu(self.dense(x)))) * self.scale
        if factor is not None:
            y = y * factor
        return y, {"a": y * options["k"]}


class Net(nn.Cell):
    """A CellList, keyword and dict arguments, a Cell called twice, a bprop, a SequentialCell, shared Cells."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.CellList([Block(), Block()])
        self.again = self.blocks[1]
        self.doubled = Doubled()
        self.head = nn.SequentialCell(nn.Dense(3, 2), nn.ReLU())

    def construct(self, x):
        for block in self.blocks:
            x, _ = block(x, factor=x.sum(), options={"k": x, "q": [1, 2]})
        x = self.doubled(x)
        x = self.again(x, options={"k": x})[1]["a"]
        return self.head(x).sum()


class Jitted(Net):
    @ms.jit
    def construct(self, x):
        for block in self.blocks:
            x, _ = block(x, factor=x.sum(), options={"k": x, "q": [1, 2]})
        x = self.doubled(x)
        x = self.again(x, options={"k": x})[1]["a"]
        return self.head(x).sum()


def build(kind: type = Net) -> nn.Cell:
    """The same weights each time."""
    ms.set_seed(1)
    net = kind()
    rng = np.random.default_rng(0)
    for p in net.trainable_params():
        p.set_data(Tensor(rng.normal(size=p.shape), ms.float32))
    return net.set_train()


def batch(rows: int = 4) -> Tensor:
    return Tensor(np.random.default_rng(1).normal(size=(rows, 3)), ms.float32)
