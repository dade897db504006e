"""What everyday networks hold costs no Cell of their graphs its records: branches, loops, recompute, hooks, aux."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from graph_everyday import NETS, Aux, Branch, Truth, batch, build  # noqa: E402
from graphing import dumped  # noqa: E402
from mindspore import Tensor, nn  # noqa: E402
from mindspore_dumping import bits  # noqa: E402
from probe_mindspore.graph import save  # noqa: E402
from probe_mindspore.graph.taps import HOOKED  # noqa: E402

pytestmark = pytest.mark.usefixtures("pynative")


def run(net: Any) -> list[bytes]:
    """Bits of the loss, of what comes beside it, and of the gradients of all weights."""
    taking = ms.value_and_grad(net, None, net.trainable_params(), has_aux=isinstance(net, Aux))
    return bits(taking(batch()))


def close(one: Any, other: Any) -> bool:
    return bool(np.allclose(one, other, rtol=1e-4, atol=1e-5))


@pytest.mark.parametrize("kind", NETS)
def test_every_number_is_that_of_pynative_and_no_bit_moves(kind: str, tmp_path: Path) -> None:
    truth = Truth(NETS[kind])
    ms.set_context(mode=ms.GRAPH_MODE)
    net = build(NETS[kind])
    without = run(net)
    with dumped(tmp_path, net) as dump:
        assert run(net) == without
    forward = {name: record for name, record in dump.data.items() if ".forward." in name}
    assert set(forward) == {name for name in truth.values if "watched" not in name}
    if kind == "branches":
        assert dump.unseen["Cell.watched.Dense"] == HOOKED
    for name, record in forward.items():
        assert close(dump.array(record["output"][0]), truth.values[name]), name
    backward = {name: record for name, record in dump.data.items() if ".backward." in name}
    arrived = {name for name, value in truth.gradients.items() if value.any() and "watched" not in name}
    assert arrived <= set(backward)
    for name in arrived:
        assert close(dump.array(backward[name]["input"][0]), truth.gradients[name]), name
    cells = dict(net.cells_and_names())
    told = {
        getattr(cells[owner.removeprefix("Cell.").rsplit(".", 2)[0]], name).name: dump.array(gradient)
        for owner, record in dump.data.items()
        if owner.endswith("parameters_grad")
        for name, (gradient,) in record.items()
    }
    assert {name for name in truth.weights if "watched" not in name} <= set(told)
    assert all(close(value, truth.weights[name]) for name, value in told.items())
    assert dump.report["faults"] == [] and not any("with taps" in why for why in dump.unseen.values())


class Step(nn.Cell):
    """A whole training step, with its loss scaler and optimizer, that GRAPH_MODE compiles as one."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__()
        self.net = net
        self.optimizer = nn.Momentum(net.trainable_params(), 0.01, 0.9)
        self.scaler = ms.amp.StaticLossScaler(8.0)
        self.take = ms.value_and_grad(self.scaled, None, self.optimizer.parameters)

    def scaled(self, x):
        return self.scaler.scale(self.net(x).sum())

    def construct(self, x):
        loss, gradients = self.take(x)
        gradients = self.scaler.unscale(gradients)
        return ms.ops.depend(loss, self.optimizer(gradients))


def test_a_whole_step_in_the_graph_with_its_loss_scaler(tmp_path: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    ends = []
    for watched in (False, True):
        net = build(lambda: nn.SequentialCell(Branch(), nn.Dense(3, 2)))
        step = Step(net).set_train()
        with dumped(tmp_path, net) if watched else nullcontext() as dump:
            step(batch())
        ends.append(bits([*net.trainable_params(), *step.optimizer.moments]))
    assert ends[0] == ends[1] and dump is not None
    # what arrives at a weight is the gradient of the scaled loss; the first momentum is that of the loss
    names = (name for name, p in net.parameters_and_names() if p.requires_grad)
    moments = dict(zip(names, step.optimizer.moments, strict=True))
    found = 0
    for owner, record in dump.data.items():
        if owner.endswith("parameters_grad"):
            for name, (gradient,) in record.items():
                parameter = f"{owner.removeprefix('Cell.').rsplit('.', 2)[0]}.{name}"
                found += 1
                assert close(dump.array(gradient), moments[parameter].asnumpy() * 8), parameter
    assert found == len(net.trainable_params())
    assert {"Cell.0.c.Dense.backward.0", "Cell.1.Dense.backward.0"} <= set(dump.data)


class InPython(nn.Cell):
    """What MindSpore leaves to Python in a graph; with a callback behind it the graph fails when it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Dense(3, 3), nn.Dense(3, 3)

    def construct(self, x):
        scale = ms.ops.relu(Tensor(np.exp(ms.ops.stop_gradient(self.b(x)).asnumpy())))
        return (self.a(x) * scale).sum()


def test_a_graph_that_cannot_call_back_runs_as_it_is(tmp_path: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    net = build(InPython)
    without = run(net)
    with pytest.warns(RuntimeWarning, match="nothing of the graph"), dumped(tmp_path, net) as dump:
        assert run(net) == without
    assert {"Cell.a.Dense", "Cell.b.Dense"} <= set(dump.unseen)
    assert all("is Python that MindSpore" in dump.unseen[f"Cell.{cell}.Dense"] for cell in "ab")


class Saved(nn.Cell):
    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder
        self.a = nn.Dense(3, 3)

    def construct(self, x):
        if x.sum() > 100:
            x = self.a(save.save_grad(self.folder, "never", x))
        else:
            x = self.a(save.save_grad(self.folder, "there", x)) * 2
        return x.sum()


def test_save_grad_in_a_branch(tmp_path: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    net = build(lambda: Saved(str(tmp_path)))
    wanted = ms.grad(net)(batch()).asnumpy()
    (file,) = tmp_path.rglob("*.npy")
    assert file.name.startswith("there_grad") and close(np.load(file), wanted)


class Summed(nn.Cell):
    def construct(self, x):
        return x.sum()


def test_two_networks_of_the_same_shapes_keep_their_gradients_apart(tmp_path: Path) -> None:
    """The parameters of a graph's gradients are those that it was given, not others that look alike."""
    ms.set_context(mode=ms.GRAPH_MODE)
    net = build(lambda: nn.SequentialCell(nn.Dense(3, 3), nn.Dense(3, 3), Summed()))
    first, second = net[0].trainable_params(), net[1].trainable_params()
    with dumped(tmp_path, net) as dump:
        for weights in (first, second):
            _, gradients = ms.value_and_grad(net, None, weights)(batch())
    assert set(dump.data["Cell.1.Dense.parameters_grad"]) == {"weight", "bias"}
    seen = dump.array(dump.data["Cell.1.Dense.parameters_grad"]["weight"][0])
    assert seen.tobytes() == gradients[0].asnumpy().tobytes()
    assert [name for name in dump.data if "parameters_grad" in name] == [
        "Cell.0.Dense.parameters_grad",
        "Cell.1.Dense.parameters_grad",
    ]
