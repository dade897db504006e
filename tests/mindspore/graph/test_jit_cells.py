"""Cells inside what `mindspore.jit` compiles under PyNative."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from bytecode import needs_bytecode  # noqa: E402
from graph_nets import Jitted, Net, batch, build  # noqa: E402
from graphing import dumped  # noqa: E402
from mindspore import nn  # noqa: E402
from probe_mindspore.graph.taps import BYTECODE  # noqa: E402
from probe_mindspore.hooks.modules import is_bytecode  # noqa: E402

pytestmark = pytest.mark.usefixtures("pynative")


def run(net: Any, *args: Any, of: Any = None) -> list[bytes]:
    """Bits of the loss and of the gradients of all weights."""
    loss, weights = ms.value_and_grad(of or net, None, net.trainable_params())(*args)
    return [loss.asnumpy().tobytes(), *(w.asnumpy().tobytes() for w in weights)]


def test_a_jitted_cell_shows_what_is_inside_and_keeps_its_bits(tmp_path: Path) -> None:
    without = run(build(Jitted), batch())  # its dropout goes on from run to run
    net = build(Jitted)
    with dumped(tmp_path, net) as dump:
        assert run(net, batch()) == without
    names = set(dump.data)
    for n in (0, 1):
        for direction in ("forward", "backward"):
            assert f"Cell.blocks.1.dense.Dense.{direction}.{n}" in names
    assert "Cell.blocks.1.dense.Dense.parameters_grad" in names
    seen = dump.data["Cell.blocks.1.dense.Dense.parameters_grad"]["weight"][0]
    assert dump.array(seen).tobytes() in without
    assert dump.report["faults"] == [] and dump.unseen == {}


def test_the_same_numbers_as_in_graph_mode(tmp_path: Path) -> None:
    """Gradients of Cells that are called twice too: MindSpore itself gets them wrong around a bprop there."""
    dumps = []
    for mode, kind in ((ms.GRAPH_MODE, Net), (ms.PYNATIVE_MODE, Jitted)):
        ms.set_context(mode=mode)
        net = build(kind)
        with dumped(tmp_path / kind.__name__, net, task="statistics") as dump:
            run(net, batch())
        dumps.append(dump.data)
    graph, jit = dumps
    assert set(graph) == set(jit)
    for name, record in graph.items():
        for side in ("input_args", "output", "input"):
            for a, b in zip(record.get(side, ()), jit[name].get(side, ()), strict=True):
                if a and b and "Norm" in a:
                    assert np.isclose(a["Norm"], b["Norm"], rtol=1e-5, atol=1e-6), (name, side)


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
    without = run(net, batch())
    with dumped(tmp_path, net) as dump:
        assert run(net, batch()) == without
    forward = [name for name in dump.data if ".forward." in name]
    assert forward == [
        "Cell.inside.dense.Dense.forward.0",
        "Cell.inside.relu.Tanh.forward.0",
        "Cell.inside.Inside.forward.0",
    ]
    assert dump.construct["Cell.inside.dense.Dense.forward.0"] == "Cell.inside.Inside.forward.0"
    assert dump.unseen == {}


def test_a_jitted_function_shows_the_cells_it_calls(tmp_path: Path) -> None:
    def jitted(net):
        @ms.jit
        def loss(x):
            return net(x) * 2

        return loss

    alike, net = build(Net), build(Net)
    without = run(alike, batch(), of=jitted(alike))  # its dropout goes on from run to run
    loss = jitted(net)
    with dumped(tmp_path, net) as dump:
        assert run(net, batch(), of=loss) == without
    assert len([name for name in dump.data if ".forward." in name]) == 16


class Bytecode(Inside):
    @ms.jit(capture_mode="bytecode")
    def construct(self, x):
        return self.relu(self.dense(x))


@needs_bytecode
def test_bytecode_is_said_to_be_unseen_and_runs_as_it_is(tmp_path: Path) -> None:
    net = build(Half)
    net.inside = build(Bytecode)
    assert is_bytecode(net.inside) and not is_bytecode(build(Inside))
    without = run(net, batch())
    with dumped(tmp_path, net) as dump:
        assert run(net, batch()) == without
    assert dump.unseen["inside inside"] == BYTECODE
