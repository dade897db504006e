"""Cells in GRAPH_MODE: what is recorded, that nothing moves, and what is said where nothing can be seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from graph_nets import Jitted, batch, build  # noqa: E402
from graphing import dumped  # noqa: E402
from mindspore import Parameter, Tensor, nn, ops  # noqa: E402
from mindspore_dumping import bits, trained  # noqa: E402
from probe_format.read.verify import verify  # noqa: E402
from probe_mindspore.graph.value_layouts import DYNAMIC  # noqa: E402
from probe_mindspore.tensors.leaf import TensorLeaf  # noqa: E402

pytestmark = pytest.mark.usefixtures("graph_mode")


def held_by(net: nn.Cell) -> list[tuple[set[str], type]]:
    """The names of what each Cell holds, and its class."""
    return [(set(vars(cell)), type(cell)) for _, cell in net.cells_and_names()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(dump, path, bits without, bits with, what Cells hold before and after) of the whole network.

    It is compiled before the dump begins.
    """
    ms.set_context(mode=ms.GRAPH_MODE)
    net, x = build(), batch()
    without, before = trained(net, x), held_by(net)
    path = tmp_path_factory.mktemp("dump")
    with dumped(path, net) as dump:
        seen = trained(net, x)
    return dump, path, without, seen, before, held_by(net)


def test_losses_and_gradients_keep_their_bits(whole: Any) -> None:
    _, _, without, seen, _, _ = whole
    assert without == seen


def test_every_call_has_its_records_and_parents(whole: Any) -> None:
    dump = whole[0]
    cells = ["blocks.0.Block", "blocks.1.Block", "doubled.Doubled", "head.SequentialCell"]
    cells += [f"blocks.{i}.{c}" for i in (0, 1) for c in ("dense.Dense", "norm.LayerNorm", "drop.Dropout")]
    cells += ["head.0.Dense", "head.1.ReLU"]
    twice = [c for c in cells if c.startswith("blocks.1.")]
    expected = {f"Cell.{c}.{d}.0" for c in cells for d in ("forward", "backward")}
    expected |= {f"Cell.{c}.{d}.1" for c in twice for d in ("forward", "backward")}
    owners = {c for c in cells if c.endswith(("Block", "Dense", "LayerNorm"))}
    expected |= {f"Cell.{c}.parameters_grad" for c in owners}
    assert set(dump.data) == expected
    for n in (0, 1):
        for d in ("forward", "backward"):
            assert dump.construct[f"Cell.blocks.1.norm.LayerNorm.{d}.{n}"] == f"Cell.blocks.1.Block.{d}.{n}"
    assert dump.construct["Cell.doubled.Doubled.forward.0"] is None
    assert [frames for _, frames in dump.stack.values()] == [[]]
    assert dump.report["faults"] == [] and dump.report["state"] == "complete"


def test_the_files_are_whole(whole: Any) -> None:
    (verdict,) = verify(whole[1] / "dump")
    assert (verdict.state, verdict.problems) == ("complete", ())


def test_one_record_in_full(whole: Any) -> None:
    record = whole[0].data["Cell.blocks.0.Block.forward.0"]
    (x,) = record["input_args"]
    assert x["type"] == "mindspore.Tensor" and x["dtype"] == "Float32" and x["shape"] == [4, 3]
    assert np.array_equal(whole[0].array(x), batch().asnumpy())
    factor, options = record["input_kwargs"]["factor"], record["input_kwargs"]["options"]
    assert factor["shape"] == [] and whole[0].array(factor).shape == ()
    assert options["q"] == [{"type": "int", "value": 1}, {"type": "int", "value": 2}]
    assert list(record["parameters"]) == ["scale"] and record["parameters"]["scale"]["shape"] == [3]
    y, rest = record["output"]
    product = whole[0].array(y) * whole[0].array(options["k"])
    assert np.array_equal(whole[0].array(rest["a"]), product)


def test_a_bprop_of_the_users_stays_and_is_seen(whole: Any) -> None:
    record = whole[0].data["Cell.doubled.Doubled.backward.0"]
    given, made = (whole[0].array(record[side][0]) for side in ("input", "output"))
    assert np.any(given) or not np.any(made)
    assert np.array_equal(made, given * 6)


def test_nothing_stays_on_the_cells(whole: Any) -> None:
    *_, before, after = whole
    assert before == after
    assert all("construct" not in names for names, _ in after)


def test_a_jitted_cell_has_the_same_records_and_keeps_its_bits(whole: Any, tmp_path: Path) -> None:
    """Gradients of Cells that are called twice too: MindSpore itself gets them wrong around a bprop there."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    without = trained(build(Jitted), batch())  # its dropout goes on from run to run
    net = build(Jitted)
    with dumped(tmp_path, net) as dump:
        assert trained(net, batch()) == without
    seen = dump.data["Cell.blocks.1.dense.Dense.parameters_grad"]["weight"][0]
    assert dump.array(seen).tobytes() in without
    assert dump.report["faults"] == [] and dump.unseen == {}
    graph = whole[0].data
    assert set(graph) == set(dump.data)
    for name, record in graph.items():
        for side in ("input_args", "output", "input"):
            for a, b in zip(record.get(side, ()), dump.data[name].get(side, ()), strict=True):
                if a and b and "Norm" in a:
                    assert np.isclose(a["Norm"], b["Norm"], rtol=1e-5, atol=1e-6), (name, side)


class Smooth(nn.Cell):
    """No dropout and no dead units, so that numbers say something."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Dense(3, 4)
        self.act = nn.Tanh()
        self.second = nn.Dense(4, 4)

    def construct(self, x):
        h = self.act(self.first(x))
        return (self.second(self.second(h)) * h).sum()


def test_gradients_are_those_of_pynative(tmp_path: Path) -> None:
    x = batch()
    net = build(Smooth)
    with dumped(tmp_path, net) as dump:
        ms.value_and_grad(net, 0, net.trainable_params())(x)
    ms.set_context(mode=ms.PYNATIVE_MODE)
    w1, b1, w2, b2 = (p.asnumpy().astype(np.float64) for p in net.trainable_params())
    _, (dx, weights) = ms.value_and_grad(net, 0, net.trainable_params())(x)
    h = np.tanh(x.asnumpy() @ w1.T + b1)
    s = h @ w2.T + b2
    t = s @ w2.T + b2
    ds = h @ w2
    expected = {
        ("second.Dense.backward.1", "input"): h,
        ("second.Dense.backward.1", "output"): ds,
        ("second.Dense.backward.0", "input"): ds,
        ("second.Dense.backward.0", "output"): ds @ w2,
        ("act.Tanh.backward.0", "input"): ds @ w2 + t,
        ("first.Dense.backward.0", "output"): dx.asnumpy(),
    }
    for (name, side), value in expected.items():
        seen = dump.array(dump.data[f"Cell.{name}"][side][0])
        assert np.allclose(seen, value, rtol=1e-5, atol=1e-5), (name, side)
    names = [("first", "weight"), ("first", "bias"), ("second", "weight"), ("second", "bias")]
    for (cell, name), value in zip(names, weights, strict=True):
        seen = dump.array(dump.data[f"Cell.{cell}.Dense.parameters_grad"][name][0])
        assert np.allclose(seen, value.asnumpy(), rtol=1e-5, atol=1e-6), (cell, name)


class Dropping(Smooth):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.Dropout(p=0.5)


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        pytest.param(Dropping, (0, 1, 2), id="dropout, every step"),
        pytest.param(Smooth, (1,), id="no dropout, one step of three"),
    ],
)
def test_training_moves_the_same_weights(tmp_path: Path, kind: type, steps: tuple[int, ...]) -> None:
    """A graph's random operators keep their state in the graph, so with dropout all steps must be of one graph."""
    moved = []
    for path in (None, tmp_path):
        net = build(kind)
        step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.01, 0.9)).set_train()
        for i in range(3):
            if path is None or i not in steps:
                step(batch())
                continue
            with dumped(path / str(i), net) as dump:
                step(batch())
            assert any("parameters_grad" in name for name in dump.data)
        moved.append(bits(net.trainable_params()))
    assert moved[0] == moved[1]


class Loop(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(3, 3)

    def construct(self, x, n):
        i = Tensor(0)
        while i < n:
            x = self.dense(x)
            i = i + 1
        return x


def test_a_loop_that_only_the_run_knows_the_length_of(tmp_path: Path) -> None:
    net = build(Loop)
    for n in (3, 1):
        with dumped(tmp_path / str(n), net, task="statistics") as dump:
            net(batch(), Tensor(n))
        assert [k for k in dump.data if "forward" in k] == [f"Cell.dense.Dense.forward.{i}" for i in range(n)]


class Normed(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.LayerNorm((3,)), nn.Dense(3, 2)

    def construct(self, x):
        return self.head(self.norm(x)).sum()


@pytest.mark.once
def test_the_dump_follows_the_configuration(tmp_path: Path) -> None:
    net = build(Normed)
    with dumped(tmp_path / "a", net, task="statistics", list=["norm"], summary_mode="md5") as dump:
        trained(net, batch())
    assert dump.data and all("norm.LayerNorm" in name for name in dump.data)
    assert "md5" in dump.data["Cell.norm.LayerNorm.forward.0"]["output"][0]
    assert not (dump.directory / "dump_tensor_data").exists()
    with dumped(tmp_path / "b", net, data_mode=["backward", "input"]) as dump:
        trained(net, batch())
    assert "output" not in dump.data["Cell.norm.LayerNorm.backward.0"]
    with dumped(tmp_path / "c", net, task="structure") as dump:
        trained(net, batch())
    assert dump.data == {} and len(dump.construct) == 4


class Tied(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.table = Parameter(Tensor(np.ones((5, 3)), ms.float32), name="table")
        self.embed = Embed(self.table)
        self.score = Score(self.table)

    def construct(self, ids):
        return self.score(self.embed(ids)).sum()


class Embed(nn.Cell):
    def __init__(self, table: Any) -> None:
        super().__init__()
        self.table = table

    def construct(self, ids):
        return ops.gather(self.table, ids, 0)


class Score(Embed):
    def construct(self, h):
        return ops.matmul(h, self.table.T)


def test_tied_weights_and_tensors_without_gradients(tmp_path: Path) -> None:
    net = Tied()
    ids = Tensor([1, 4], ms.int32)
    without = trained(net, ids)
    with dumped(tmp_path, net) as dump:
        assert trained(net, ids) == without
    for cell in ("embed.Embed", "score.Score"):
        (gradient,) = dump.data[f"Cell.{cell}.parameters_grad"]["table"]
        assert dump.array(gradient).tobytes() == without[1]
    assert dump.data["Cell.embed.Embed.backward.0"]["output"] == [None]


@pytest.mark.once
def test_inference_has_no_backward_records(tmp_path: Path) -> None:
    net = build(Normed).set_train(False)
    with dumped(tmp_path, net) as dump:
        net(batch())
    assert dump.data and all(".forward." in name for name in dump.data)


class Dynamic(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Tanh()
        self.fixed = nn.ReLU()

    def construct(self, x, y):
        return self.block(x).sum() + self.fixed(y).sum()


def test_an_unknown_shape_is_said_in_the_report(tmp_path: Path) -> None:
    net = Dynamic()
    net.set_inputs(Tensor(shape=[None, 3], dtype=ms.float32), Tensor(shape=[2], dtype=ms.float32))
    y = Tensor([1.0, -2.0])
    with dumped(tmp_path, net) as dump:
        out = net(batch(), y)
        net(batch(2), y)
    assert np.isclose(out.asnumpy(), np.tanh(batch().asnumpy()).sum() + 1)
    assert dump.unseen["tensors of Cell.block.Tanh"] == DYNAMIC
    (x,) = dump.data["Cell.block.Tanh.forward.1"]["input_args"]
    assert x["unsupported"] == DYNAMIC and x["Max"] is None
    assert dump.data["Cell.fixed.ReLU.forward.1"]["output"][0]["Max"] == 1.0


def test_a_fault_of_ours_costs_a_record_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = build(Normed)
    without = trained(net, batch())
    real = TensorLeaf.tensor

    def broken(self: Any, slot: Any, t: Any, path: Any) -> Any:
        if "norm" in slot.record:
            raise ValueError("ours")
        return real(self, slot, t, path)

    monkeypatch.setattr(TensorLeaf, "tensor", broken)
    with dumped(tmp_path, net) as dump:
        assert trained(net, batch()) == without
    assert any("ours" in f["message"] for f in dump.report["faults"])
    assert "Cell.head.Dense.backward.0" in dump.data


class Fallback(nn.Cell):
    """A Cell that gives back something that only Python can make: no tap can stand there."""

    def construct(self, x):
        return Tensor(np.exp(x.asnumpy()))


class WithFallback(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.odd = Fallback()
        self.relu = nn.ReLU()

    def construct(self, x):
        return self.odd(self.relu(x))


def test_what_cannot_be_tapped_runs_without_and_is_said(tmp_path: Path) -> None:
    net = WithFallback()
    with dumped(tmp_path, net) as dump:
        out = net(batch())
    assert np.allclose(out.asnumpy(), np.exp(np.maximum(batch().asnumpy(), 0)))
    seen = "Cell.odd.Fallback.forward.0" in dump.data
    assert seen or any("with taps" in why for why in dump.unseen.values())


def test_graphs_are_compiled_once_with_and_once_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mindspore._c_expression import GraphExecutor_

    net = build(Normed)
    compiled: list[int] = []
    real = GraphExecutor_.compile

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        compiled.append(1)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(GraphExecutor_, "compile", counted)
    net(batch())
    assert len(compiled) == 1
    for i in (0, 1):
        with dumped(tmp_path / str(i), net) as dump:
            net(batch())
        assert len(dump.data) == 2
        net(batch())
    assert len(compiled) == 2
