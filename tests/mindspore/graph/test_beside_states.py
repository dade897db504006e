"""What a graph keeps from run to run, and does to the world outside, stays as it is beside a copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

import mindspore_zoo as zoo  # noqa: E402
from compiled_runs import changed, folder_of, otherwise, uncopied  # noqa: E402
from graph_nets import batch, build  # noqa: E402
from graph_siblings import Twice  # noqa: E402
from graphing import dumped  # noqa: E402
from mindspore import Tensor, nn, ops  # noqa: E402
from mindspore_dumping import bits  # noqa: E402

pytestmark = [
    pytest.mark.once,
    pytest.mark.usefixtures("pynative"),
    pytest.mark.filterwarnings("ignore:Probe"),
]


class Drawing(nn.Cell):
    """Draws noise by an operator with a seed of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.act = nn.Dense(3, 3), nn.Tanh()
        self.noise = ops.StandardNormal(seed=7)

    def construct(self, x):
        h = self.a(x)
        return self.act(h + self.noise((4, 3)) * 0.1).sum()


def test_noise_is_that_of_the_run(tmp_path: Path) -> None:
    def trained(path: Path | None) -> list[bytes]:
        net = build(Drawing)
        take, seen = ms.value_and_grad(net, None, net.trainable_params()), []
        for _ in range(3):
            if path is None:
                found = take(batch())
            else:
                with dumped(path / str(len(seen)), net) as dump:
                    found = take(batch())
                (entry,) = dump.report["graphs"].values()
                assert entry["equal"] == 1 and len(dump.data) == 5
            seen.append(b"".join(bits(found)))
        return seen

    ms.set_context(mode=ms.GRAPH_MODE)
    plain = trained(None)
    assert len(set(plain)) == 3 and trained(tmp_path) == plain


class Stepped(nn.Cell):
    """Draws from a generator of its own, by the numbers that it gives: no kernel of the CPU takes these."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.act = nn.Dense(3, 3), nn.Tanh()
        self.generator, self.by = ms.Generator(), Tensor(4, ms.int64)

    def construct(self, x):
        seed, offset = self.generator._step(self.by)
        kept = ops.sin(ops.arange(3).astype(ms.float32) + (seed + offset).astype(ms.float32)) > 0
        return self.act(self.a(ops.dropout(x)) * kept).sum()


@pytest.mark.parametrize("way", ["graph", "jit"])
def test_a_generator_goes_on_by_the_run_alone(way: str, tmp_path: Path) -> None:
    def trained(path: Path | None) -> list[bytes]:
        net = build(Stepped)
        net.generator.manual_seed(5)

        @ms.jit
        def jitted(x):
            return net(x)

        call = jitted if way == "jit" else net
        take, seen = ms.value_and_grad(call, None, net.trainable_params()), []
        for _ in range(3):
            if path is None:
                found = take(batch())
            else:
                with dumped(path / str(len(seen)), net) as dump:
                    found = take(batch())
                assert "Cell.act.Tanh.backward.0" in dump.data and dump.report["faults"] == []
                assert all(entry["runs"] == entry["equal"] for entry in dump.report["graphs"].values())
            seen.append(b"".join(bits([found, net.generator.get_state()])))
        return seen

    if way == "graph":
        ms.set_context(mode=ms.GRAPH_MODE)
    plain = trained(None)
    assert len(set(plain)) == 3 and trained(tmp_path) == plain


class Scaled(nn.Cell):
    """A whole step with a dynamic loss scaler: what overflows is left out, and the scale changes."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__()
        self.net = net
        self.optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
        self.scaler = ms.amp.DynamicLossScaler(2.0**10, 2, 1)
        self.take = ms.value_and_grad(self.scaled, None, self.optimizer.parameters)

    def scaled(self, x):
        return self.scaler.scale(self.net(x).sum())

    def construct(self, x):
        loss, gradients = self.take(x)
        gradients = self.scaler.unscale(gradients)
        finite = ms.amp.all_finite(gradients)
        self.scaler.adjust(finite)
        if finite:
            loss = ops.depend(loss, self.optimizer(gradients))
        return self.scaler.unscale(loss)


@pytest.mark.parametrize("half", [False, True])
def test_a_dynamic_loss_scaler_in_the_graph(half: bool, tmp_path: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    x = batch().asnumpy()
    batches = [Tensor(x), Tensor(x * np.float32(1e38) * np.float32(10)), Tensor(x)]

    def trained(path: Path | None) -> list[Any]:
        net = build(lambda: nn.SequentialCell(nn.Dense(3, 3), nn.Tanh(), nn.Dense(3, 2)))
        net = ms.amp.auto_mixed_precision(net, "O2") if half else net
        step, seen = Scaled(net).set_train(), []
        for i, one in enumerate(batches):
            if path is None:
                loss = step(one)
            else:
                with dumped(path / str(i), net) as dump:
                    loss = step(one)
                assert any(".forward." in name for name in dump.data) and dump.report["faults"] == []
                assert all(entry["runs"] == entry["equal"] == 1 for entry in dump.report["graphs"].values())
            seen += bits([loss, step.scaler.scale_value, *net.trainable_params(), *step.optimizer.moments])
        return seen

    assert trained(tmp_path) == trained(None)


class Moving(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.n = nn.Dense(3, 3), nn.BatchNorm1d(3)

    def construct(self, x):
        return self.n(self.a(x)).sum()


def test_moving_statistics_are_those_at_entry(tmp_path: Path) -> None:
    """With a first NaN in the third batch, the statistics that the third call is given are finite."""
    ms.set_context(mode=ms.GRAPH_MODE)
    net = build(Moving)
    take = ms.value_and_grad(net, None, net.trainable_params())
    broken = batch().asnumpy()
    broken[0, 0] = np.nan
    given = []
    for i, one in enumerate((batch(), batch(), Tensor(broken), batch())):
        before = net.n.moving_mean.asnumpy().copy()
        with dumped(tmp_path / str(i), net) as dump:
            take(one)
        seen = dump.data["Cell.n.BatchNorm1d.forward.0"]["parameters"]["moving_mean"]
        assert dump.array(seen).tobytes() == before.tobytes()
        given.append(bool(np.isfinite(before).all()))
    assert given == [True, True, True, False]


class Writing(nn.Cell):
    """Writes a Parameter beside what it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.d = nn.Dense(3, 3)
        self.seen = ms.Parameter(Tensor(np.zeros(3, np.float32)), name="seen", requires_grad=False)

    def construct(self, x):
        ops.assign(self.seen, self.seen * 0.5 + 1.0)
        return self.d(x)


class Sharing(nn.Cell):
    """Reads what it gives to such a Cell once more."""

    far = False

    def __init__(self) -> None:
        super().__init__()
        self.a, self.w = nn.Dense(3, 3), Writing()

    def construct(self, x):
        h = self.a(x)
        if self.far and x.sum() > 100:
            h = h * 2.0
        return (h + self.w(h)).square().sum()


class FarSharing(Sharing):
    far = True


@pytest.mark.parametrize("kind", [Sharing, FarSharing])
def test_a_gradient_of_an_input_is_the_share_of_the_call_where_a_parameter_is_written(
    kind: type[nn.Cell], tmp_path: Path
) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    net = build(kind)
    with dumped(tmp_path, net) as dump:
        ms.value_and_grad(net, None, net.trainable_params())(batch())
    back = dump.data["Cell.w.Writing.backward.0"]
    share = dump.array(back["input"][0]) @ net.w.d.weight.asnumpy()
    assert np.allclose(dump.array(back["output"][0]), share, 1e-4, 1e-5)


def test_equal_calls_that_the_compiler_merges_have_a_record_each_and_say_so(tmp_path: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    net = build(Twice)
    x, y = zoo.vectors(np.random.default_rng(0))
    with dumped(tmp_path, net) as dump:
        ms.value_and_grad(net, None, net.trainable_params())(x, y)
    calls = [dump.data[f"Cell.s.Gate.forward.{i}"]["output"][0] for i in range(2)]
    assert dump.array(calls[0]).tobytes() == dump.array(calls[1]).tobytes()
    assert {"Cell.s.Gate.backward.0", "Cell.s.Gate.backward.1"} <= set(dump.data)
    (entry,) = dump.report["graphs"].values()
    assert entry["equal"] == 1 and "Cell.s.Gate" in entry["shares"]


class Calling(nn.Cell):
    """Calls a function of the user's on the host."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.a, self.act = nn.Dense(3, 3), nn.Tanh()
        self.call = ops.Custom(function, lambda x: x, lambda x: x, "pyfunc")

    def construct(self, x):
        h = self.act(self.a(x))
        return h.sum() + self.call(ops.stop_gradient(h)).sum()


def test_a_host_function_is_called_once(tmp_path: Path) -> None:
    calls = []

    def function(x):
        calls.append(x.copy())
        return x * 2

    ms.set_context(mode=ms.GRAPH_MODE)
    net = build(lambda: Calling(function))
    without = net(batch()).asnumpy().tobytes()
    assert len(calls) == 1
    with dumped(tmp_path, net) as dump:
        assert net(batch()).asnumpy().tobytes() == without
    ms.runtime.synchronize()
    assert len(calls) == 2 and len(dump.data) == 2


@pytest.mark.parametrize(
    ("name", "way"),
    [("stopped", "value_and_grad"), ("bprop", "value_and_grad"), ("aux", "aux"), ("tied", "half")],
)
def test_a_sample_of_what_gradients_may_be_told(name: str, way: str, tmp_path: Path) -> None:
    assert changed(name, way, tmp_path / "pynative", task="tensor") == []
    assert changed(name, f"graph_{way}", tmp_path / "graph", task="tensor") == []
    assert uncopied(tmp_path / "graph" / "dump") == []
    if way != "half":
        assert otherwise(folder_of(tmp_path / "graph", f"graph_{way}"), tmp_path / "pynative" / "dump") == []
