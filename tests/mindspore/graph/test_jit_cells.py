"""Cells inside what `mindspore.jit` compiles under PyNative."""

from __future__ import annotations

from pathlib import Path

import pytest

ms = pytest.importorskip("mindspore")

from graph_nets import batch, build  # noqa: E402
from graphing import dumped  # noqa: E402
from mindspore import nn  # noqa: E402
from mindspore_dumping import bits, trained  # noqa: E402

pytestmark = pytest.mark.usefixtures("pynative")


class Half(nn.Cell):
    """A jitted part in a network that otherwise runs in PyNative."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Dense(3, 3)
        self.inside = Inside()

    def construct(self, x):
        return self.inside(self.before(x)).sum()


class Inside(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(3, 2)
        self.relu = nn.Tanh()

    @ms.jit
    def construct(self, x):
        return self.relu(self.dense(x))


def test_only_what_is_in_the_graph_is_in_this_dump(tmp_path: Path) -> None:
    net = build(Half)
    without = trained(net, batch())
    with dumped(tmp_path, net) as dump:
        assert trained(net, batch()) == without
    forward = [name for name in dump.data if ".forward." in name]
    assert forward == [
        "Cell.inside.dense.Dense.forward.0",
        "Cell.inside.relu.Tanh.forward.0",
        "Cell.inside.Inside.forward.0",
    ]
    assert dump.construct["Cell.inside.dense.Dense.forward.0"] == "Cell.inside.Inside.forward.0"
    assert dump.unseen == {}


def test_a_jitted_function_shows_the_cells_it_calls(tmp_path: Path) -> None:
    def jitted(net):  # compiled anew
        @ms.jit
        def loss(x):
            return net(x).sum() * 2

        return ms.value_and_grad(loss, None, net.trainable_params())

    net = build(lambda: nn.SequentialCell(nn.Dense(3, 3), nn.Tanh(), nn.Dense(3, 2)))
    without = bits(jitted(net)(batch()))
    with dumped(tmp_path, net) as dump:
        assert bits(jitted(net)(batch())) == without
    cells = ("0.Dense", "1.Tanh", "2.Dense")
    assert [name for name in dump.data if ".forward." in name] == [f"Cell.{c}.forward.0" for c in cells]
