"""GRAPH_MODE, jitted Cells and jitted functions through the debugger: where the dumps are, and the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import probe_format
import pytest
from dumping import opened, records
from mindspore import Tensor, nn

LEVELS = ["L0", "mix"]


class Plain(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.act, self.b = nn.Dense(4, 4), nn.ReLU(), nn.Dense(4, 2)

    def construct(self, x: Tensor) -> Tensor:
        return self.b(self.act(self.a(x)))


class Jitted(Plain):
    @ms.jit
    def construct(self, x: Tensor) -> Tensor:
        return self.b(self.act(self.a(x)))


class Net(nn.Cell):
    def __init__(self, inner: type[nn.Cell]) -> None:
        super().__init__()
        self.first, self.inner, self.last = nn.Dense(4, 4), inner(), nn.Dense(2, 1)

    def construct(self, x: Tensor) -> Tensor:
        return self.last(self.inner(self.first(x))).sum()


def run(
    kind: type[nn.Cell], folder: Path | None, level: str = "L0", *, in_function: bool = False
) -> list[bytes]:
    """The bits of two steps; dumped below folder/dump where there is one."""
    ms.set_seed(1)
    net = Net(kind)
    x = Tensor(np.random.RandomState(0).randn(3, 4).astype(np.float32))
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    forward = ms.value_and_grad(net, None, optimizer.parameters)

    def train(x: Tensor) -> Any:
        loss, grads = forward(x)
        optimizer(grads)
        return loss, grads

    step = ms.jit(train) if in_function else train
    bits = []

    def both(debugger: Any) -> None:
        for _ in range(2):
            if debugger is not None:
                debugger.start(net)
            loss, grads = step(x)
            if debugger is not None:
                debugger.stop()
                debugger.step()
            bits.extend(t.asnumpy().tobytes() for t in (loss, *grads))

    if folder is None:
        both(None)
    else:
        with opened(folder, level=level) as debugger:
            both(debugger)
    return bits + [p.asnumpy().tobytes() for p in net.get_parameters()]


@pytest.fixture
def graph_mode() -> Iterator[None]:
    ms.set_context(mode=ms.GRAPH_MODE)
    yield
    ms.set_context(mode=ms.PYNATIVE_MODE)


@pytest.mark.parametrize("level", LEVELS)
def test_jitted_cells_have_a_dump_below_graph(level: str, tmp_path: Path) -> None:
    assert run(Jitted, tmp_path, level) == run(Jitted, None)
    assert sorted(p.name for p in (tmp_path / "dump").iterdir()) == ["graph", "pynative"]
    graph, pynative = (records(tmp_path / "dump" / part, 1) for part in ("graph", "pynative"))
    assert {
        "Cell.inner.a.Dense.forward.0",
        "Cell.inner.b.Dense.backward.0",
        "Cell.inner.Jitted.forward.0",
    } <= set(graph)
    assert "Cell.inner.a.Dense.parameters_grad" in graph
    assert {"Cell.first.Dense.forward.0", "Cell.inner.Jitted.forward.0", "Cell.last.Dense.backward.0"} <= set(
        pynative
    )
    assert not [n for n in pynative if n.startswith("Cell.inner.a")]
    assert not [n for n in graph if n.startswith("Cell.first")]
    # The same numbers seen from both sides.
    one, other = (d["Cell.inner.Jitted.forward.0"]["output"][0] for d in (graph, pynative))
    assert (one["Max"], one["Min"], one["shape"]) == (other["Max"], other["Min"], other["shape"])
    assert len(probe_format.open(tmp_path / "dump").steps) == 4


def test_a_jitted_function_that_calls_the_models_cells(tmp_path: Path) -> None:
    assert run(Plain, tmp_path, in_function=True) == run(Plain, None, in_function=True)
    assert sorted(p.name for p in (tmp_path / "dump").iterdir()) == ["graph", "step0", "step1"]
    # Which of its records there are differs between the versions (limits in the README).
    assert [n for n in records(tmp_path / "dump" / "graph", 1) if n.startswith("Cell.inner.a.Dense.")]


@pytest.mark.parametrize("level", LEVELS)
def test_pynative_alone_leaves_no_graph_folder(level: str, tmp_path: Path) -> None:
    assert run(Plain, tmp_path, level) == run(Plain, None)
    assert sorted(p.name for p in (tmp_path / "dump").iterdir()) == ["step0", "step1"]


@pytest.mark.usefixtures("graph_mode")
def test_graph_mode_has_the_plain_layout(tmp_path: Path) -> None:
    assert run(Plain, tmp_path) == run(Plain, None)
    assert sorted(p.name for p in (tmp_path / "dump").iterdir()) == ["step0", "step1"]
    data = records(tmp_path / "dump", 1)
    for name in ("first.Dense", "inner.a.Dense", "inner.act.ReLU", "inner.Plain", "last.Dense"):
        assert {f"Cell.{name}.forward.0", f"Cell.{name}.backward.0"} <= set(data)
    assert "Cell.inner.b.Dense.parameters_grad" in data


@pytest.mark.usefixtures("graph_mode")
def test_mix_in_graph_mode_has_both(tmp_path: Path) -> None:
    assert run(Plain, tmp_path, "mix") == run(Plain, None)
    assert sorted(p.name for p in (tmp_path / "dump").iterdir()) == ["graph", "pynative"]
    assert "Cell.inner.a.Dense.forward.0" in records(tmp_path / "dump" / "graph", 1)
    assert [n for n in records(tmp_path / "dump" / "pynative", 1) if n.startswith("Jit.")]
