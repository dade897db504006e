"""GRAPH_MODE, jitted Cells and jitted functions through the debugger: where the dumps are, and the same bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import probe_format
import pytest
from mindspore import Tensor, nn
from mindspore_dumping import bits, collected, opened, records, report
from probe_mindspore.graph import taps

LEVELS = [pytest.param("L0", marks=pytest.mark.once), "mix"]
CELLS = ["first.Dense", "inner.a.Dense", "inner.act.ReLU", "inner.b.Dense", "inner.Plain", "last.Dense"]
KINDS = ["forward.0", "backward.0", "parameters_grad"]


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
    found = []

    def both(debugger: Any) -> None:
        for _ in range(2):
            if debugger is not None:
                debugger.start(net)
            loss, grads = step(x)
            if debugger is not None:
                debugger.stop()
                debugger.step()
            found.extend(bits((loss, grads)))

    if folder is None:
        both(None)
    else:
        with opened(folder, level=level) as debugger:
            both(debugger)
    return found + bits(list(net.get_parameters()))


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
    for step in (0, 1):  # the second finds its graph compiled
        graph = records(tmp_path / "dump" / "graph", step)
        assert set(graph) == {f"Cell.{cell}.{kind}" for cell in CELLS for kind in KINDS} - {
            f"Cell.{cell}.parameters_grad" for cell in ("inner.act.ReLU", "inner.Plain")
        }
        assert graph["Cell.inner.a.Dense.parameters_grad"]["weight"][0]["shape"] == [4, 4]
        assert not records(tmp_path / "dump", step)
        why = {item["what"]: item["why"] for item in report(tmp_path / "dump", step)["not_seen"]}
        assert {why[f"Cell.{cell}"] for cell in CELLS} == {"inside a compiled graph"}


class Partly(Net):
    """A function under jit for the inner Cell; gradients are taken outside of it."""

    def __init__(self) -> None:
        super().__init__(Plain)
        inner = self.inner

        @ms.jit
        def piece(x: Tensor) -> Tensor:
            return inner(x)

        object.__setattr__(self, "piece", piece)

    def construct(self, x: Tensor) -> Tensor:
        return self.last(self.piece(self.first(x))).sum()


@pytest.mark.parametrize(
    "kind", [pytest.param(Partly, marks=pytest.mark.once), lambda: Net(Jitted)], ids=["function", "Cell"]
)
@pytest.mark.parametrize("level", LEVELS)
def test_a_parameters_gradient_is_in_one_part(
    level: str, kind: Callable[[], nn.Cell], tmp_path: Path
) -> None:
    net = kind()
    x = Tensor(np.random.RandomState(0).randn(3, 4).astype(np.float32))
    forward = ms.value_and_grad(net, None, net.trainable_params())
    with opened(tmp_path, level=level) as debugger:
        for _ in range(2):
            for _ in range(2):  # start() again in the same step
                debugger.start(net)
                forward(x)
                debugger.stop()
            debugger.step()
    outside = tmp_path / "dump" / ("." if kind is Partly else "pynative")
    graph, pynative = (
        {name for name in records(part, 1) if ".parameters_grad" in name}
        for part in (tmp_path / "dump" / "graph", outside)
    )
    both = ("", ".1")  # one for each run
    assert graph == {f"Cell.inner.{cell}.Dense.parameters_grad{n}" for cell in "ab" for n in both}
    assert pynative == {f"Cell.{cell}.Dense.parameters_grad{n}" for cell in ("first", "last") for n in both}


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_stays_where_mindspore_compiles(level: str, tmp_path: Path) -> None:
    kinds = [getattr(ms._c_expression, name, None) for name in ("GraphExecutor_", "JitExecutor_")]
    before = [vars(kind).get("compile") for kind in kinds if kind is not None]
    run(Jitted, tmp_path, level)
    assert [vars(kind).get("compile") for kind in kinds if kind is not None] == before


def test_a_graph_that_takes_no_taps_is_told_where_the_step_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> Any:
        raise ValueError("no tap can be here")

    monkeypatch.setattr(taps, "tapped", refuse)
    with pytest.warns(RuntimeWarning, match="nothing of the graph of .*train: .*no tap"):
        run(Plain, tmp_path, in_function=True)
    assert sorted(p.name for p in (tmp_path / "dump").iterdir()) == ["step0", "step1"]
    for step in (0, 1):
        why = {item["what"]: item["why"] for item in report(tmp_path / "dump", step)["not_seen"]}
        assert "no tap can be here" in why["inside the graph of run.<locals>.train"]


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


@pytest.mark.parametrize(
    ("kind", "wanted"), [(Plain, ["no.such"]), (Jitted, ["inner.a", "first", "no.such"])]
)
def test_an_entry_that_matched_nothing_is_told_once(
    kind: type[nn.Cell], wanted: list[str], tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    net = Net(kind)
    with collected(tmp_path, net, level="L0", list=wanted):
        net(Tensor(np.ones((3, 4), np.float32)))
    told = [str(w.message) for w in recwarn if "matched nothing" in str(w.message)]
    assert len(told) == 1 and "'no.such'" in told[0] and "/graph/" not in told[0]
