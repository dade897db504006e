"""Cells inside what `mindspore.jit` compiles under PyNative."""

from __future__ import annotations

from pathlib import Path

import pytest

ms = pytest.importorskip("mindspore")

from graph_nets import batch, build  # noqa: E402
from graphing import Dump, dumped  # noqa: E402
from mindspore import nn  # noqa: E402
from mindspore_dumping import bits, trained  # noqa: E402
from probe_mindspore.graph.taps import HOOKED  # noqa: E402

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
        self.dense = nn.Dense(3, 3)
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


class Sharing(nn.Cell):
    """A Cell that a jitted one calls, and that is called in PyNative too: by itself, or by another that holds it."""

    def __init__(self, way: str) -> None:
        super().__init__()
        inside = Inside()
        if way == "held first":
            self.plain = nn.SequentialCell(inside.dense)
        self.inside = inside
        if way == "held later":
            self.plain = nn.SequentialCell(inside.dense)
        self.is_held = way != "called"

    def construct(self, x):
        return self.inside(self.plain(x) if self.is_held else self.inside.dense(x)).sum()


@pytest.mark.parametrize("way", ["held first", "held later", "called"])
def test_a_cell_that_is_called_in_a_graph_and_outside_is_recorded_in_both(tmp_path: Path, way: str) -> None:
    net = build(lambda: Sharing(way))
    without = trained(net, batch())
    with dumped(tmp_path, net) as dump:
        assert trained(net, batch()) == without
    name = "Cell.plain.0.Dense" if way == "held first" else "Cell.inside.dense.Dense"
    beside = Dump(tmp_path / "dump/pynative/step0/rank")
    beside.read()
    for part in (dump, beside):
        assert {f"{name}.forward.0", f"{name}.backward.0"} <= set(part.data), (way, list(part.data))
        assert not any(what.startswith("Cell.") for what in part.unseen)
    assert f"{name}.parameters_grad" in dump.data


def test_a_cell_that_only_pynative_called_is_not_said_to_be_uncalled(tmp_path: Path) -> None:
    class Idle(Sharing):
        def construct(self, x):
            return self.plain(x).sum()

    net = build(lambda: Idle("held first"))
    with dumped(tmp_path, net) as dump:
        trained(net, batch())
    beside = Dump(tmp_path / "dump/pynative/step0/rank")
    beside.read()
    assert {"Cell.plain.0.Dense.forward.0", "Cell.plain.0.Dense.parameters_grad"} <= set(beside.data)
    assert dump.unseen["Cell.plain.0.Dense"] == "not called in a graph in this step"


def test_a_jitted_function_of_a_model_with_jitted_cells_is_seen_inside(tmp_path: Path) -> None:
    net = build(Half)

    @ms.jit
    def both(x):
        return net.inside(net.before(x)).sum()

    with dumped(tmp_path, net) as dump:
        both(batch())
    assert {"Cell.before.Dense.forward.0", "Cell.inside.dense.Dense.forward.0"} <= set(dump.data)


def test_a_hooked_cell_outside_of_graphs_is_not_said_to_be_in_one(tmp_path: Path) -> None:
    net = build(Half)
    net.before.register_forward_hook(lambda cell, inputs, output: None)
    with dumped(tmp_path, net) as dump:
        trained(net, batch())
    beside = Dump(tmp_path / "dump/pynative/step0/rank")
    beside.read()
    assert "Cell.before.Dense.forward.0" in beside.data
    assert dump.unseen == {} and HOOKED not in beside.unseen.values()
