"""L0: every Cell is recorded under its name, with what it was given, gave, and got back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn
from mindspore_dumping import agrees, capture, collected, construct, load, records, report
from probe_mindspore.hooks import gradients
from probe_mindspore.hooks.modules import watched_calls
from probe_mindspore.module_kind import CELLS


def tensor(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(np.random.RandomState(seed).randn(*shape).astype(np.float32))


def trained(net: nn.Cell) -> Any:
    return ms.value_and_grad(net, None, net.trainable_params())


class Twice(nn.Cell):
    """A Cell that is called twice, below a list and a dict of Cells."""

    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU()
        self.blocks = nn.CellList([nn.Dense(4, 4), nn.Dense(4, 4)])
        self.named = nn.CellDict({"head": nn.Dense(4, 2)})
        self.unused = nn.Dense(4, 4)

    def construct(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = self.relu(block(x))
        return self.named["head"](x).sum()


def test_names_counts_and_parents(tmp_path: Path) -> None:
    net, x = Twice(), tensor(3, 4)
    data = capture(tmp_path, lambda: trained(net)(x), net, level="L0")
    forward = [name for name in data if ".forward." in name]
    assert forward == [
        "Cell.blocks.0.Dense.forward.0",
        "Cell.relu.ReLU.forward.0",
        "Cell.blocks.1.Dense.forward.0",
        "Cell.relu.ReLU.forward.1",
        "Cell.named.head.Dense.forward.0",
    ]
    assert {name.replace("backward", "forward") for name in data if ".backward." in name} == set(forward)
    assert set(construct(tmp_path / "dump").values()) == {None}
    said = report(tmp_path / "dump")
    assert [n["what"] for n in said["not_seen"] if n["what"].startswith("Cell.")] == ["Cell.unused.Dense"]
    assert said["counts"]["seen"]["modules"] == said["counts"]["recorded"]["modules"] == 5


def test_values_parameters_and_gradients(tmp_path: Path) -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Dense(4, 2)

        def construct(self, x: Tensor) -> Tensor:
            return (self.fc(x) * 2).sum()

    net, x = Net(), tensor(3, 4)
    data = capture(tmp_path, lambda: ms.value_and_grad(net, 0, net.trainable_params())(x), net, level="L0")
    call = data["Cell.fc.Dense.forward.0"]
    weight, bias = net.fc.weight.asnumpy(), net.fc.bias.asnumpy()
    assert agrees(call["input_args"][0], x) and agrees(call["output"][0], x.asnumpy() @ weight.T + bias)
    assert agrees(call["parameters"]["weight"], weight) and agrees(call["parameters"]["bias"], bias)
    back = data["Cell.fc.Dense.backward.0"]
    twos = np.full((3, 2), 2.0)
    assert agrees(back["input"][0], twos) and agrees(back["output"][0], twos @ weight)
    grads = data["Cell.fc.Dense.parameters_grad"]
    assert agrees(grads["weight"][0], twos.T @ x.asnumpy()) and agrees(grads["bias"][0], twos.sum(0))


def test_tensor_files_hold_the_values(tmp_path: Path) -> None:
    net, x = Twice(), tensor(3, 4)
    data = capture(tmp_path, lambda: trained(net)(x), net, level="L0", task="tensor")
    given = data["Cell.blocks.0.Dense.forward.0"]["input_args"][0]
    assert given["data_name"] == "Cell.blocks.0.Dense.forward.0.input.0.npy"
    assert np.array_equal(load(tmp_path / "dump", given), x.asnumpy())
    grad = data["Cell.named.head.Dense.parameters_grad"]["bias"][0]
    assert grad["data_name"] == "Cell.named.head.Dense.parameters_grad.bias.npy"
    assert np.array_equal(load(tmp_path / "dump", grad), np.full(2, 3.0, np.float32))


def test_a_list_of_models_is_told_apart_by_index(tmp_path: Path) -> None:
    first, second, x = Twice(), Twice(), tensor(3, 4)
    data = capture(tmp_path, lambda: (first(x), second(x)), [first, second], level="L0")
    assert {"Cell.0.relu.ReLU.forward.1", "Cell.1.relu.ReLU.forward.1"} <= set(data)
    assert not [name for name in data if not name.startswith(("Cell.0.", "Cell.1."))]


def test_a_shared_cell_has_its_first_name(tmp_path: Path) -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Dense(4, 4)
            self.b = self.a

        def construct(self, x: Tensor) -> Tensor:
            return self.b(self.a(x))

    data = capture(tmp_path, lambda: Net()(tensor(2, 4)), (net := Net()), level="L0")
    assert not data  # another Net was called
    data = capture(tmp_path / "own", lambda: net(tensor(2, 4)), net, level="L0")
    assert list(data) == ["Cell.a.Dense.forward.0", "Cell.a.Dense.forward.1"]


def test_tied_parameters_are_filed_under_every_owner(tmp_path: Path) -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Dense(4, 4, has_bias=False)
            self.b = nn.Dense(4, 4, has_bias=False)
            self.b.weight = self.a.weight

        def construct(self, x: Tensor) -> Tensor:
            return self.b(self.a(x)).sum()

    net = Net()
    data = capture(tmp_path, lambda: trained(net)(tensor(2, 4)), net, level="L0")
    a, b = data["Cell.a.Dense.parameters_grad"], data["Cell.b.Dense.parameters_grad"]
    assert a == b and len(a["weight"]) == 1


class Square(nn.Cell):
    """A Cell with a gradient of its own: wrong on purpose, so that it is seen to be used."""

    def construct(self, x: Tensor) -> Tensor:
        return x * x

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        return (dout * 5,)


def test_a_cell_with_bprop_is_recorded_and_keeps_its_gradient(tmp_path: Path) -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.square = Square()

        def construct(self, x: Tensor) -> Tensor:
            return self.square(x).sum()

    net, x = Net(), tensor(2, 3)
    seen: list[Any] = []
    data = capture(tmp_path, lambda: seen.append(ms.grad(net)(x)), net, level="L0")
    assert np.array_equal(seen[0].asnumpy(), np.full((2, 3), 5.0, np.float32))
    assert agrees(data["Cell.square.Square.forward.0"]["output"][0], x.asnumpy() ** 2)
    back = data["Cell.square.Square.backward.0"]
    assert agrees(back["input"][0], np.ones((2, 3))) and agrees(back["output"][0], np.full((2, 3), 5.0))


class Pack(nn.Cell):
    """Takes a dict, a keyword and a list; gives a dict."""

    def construct(self, pack: Any, *, scale: Any = None, more: Any = ()) -> Any:
        y = pack["a"] * scale + more[0]
        return {"y": y, "pair": (y.sum(), 3)}


def test_dict_and_keyword_inputs_have_their_own_gradients(tmp_path: Path) -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.pack = Pack()

        def construct(self, x: Tensor, s: Tensor, m: Tensor) -> Tensor:
            return self.pack({"a": x, "n": 1}, scale=s, more=[m])["pair"][0] * 2

    x, s, m = tensor(2, 3), tensor(2, 3, seed=1), tensor(2, 3, seed=2)
    net = Net()
    data = capture(tmp_path, lambda: ms.grad(net, (0, 1, 2))(x, s, m), net, level="L0")
    call = data["Cell.pack.Pack.forward.0"]
    assert agrees(call["input_args"][0]["a"], x) and call["input_args"][0]["n"] == {"type": "int", "value": 1}
    assert agrees(call["input_kwargs"]["scale"], s) and agrees(call["input_kwargs"]["more"][0], m)
    assert agrees(call["output"]["y"], x.asnumpy() * s.asnumpy() + m.asnumpy())
    into = data["Cell.pack.Pack.backward.0"]["output"]
    assert agrees(into[0]["a"], 2 * s.asnumpy()) and into[0]["n"] is None
    assert agrees(into[1], 2 * x.asnumpy()) and agrees(into[2][0], np.full((2, 3), 2.0))


def test_an_optimizer_inside_the_model_is_left_out_and_told(tmp_path: Path) -> None:
    net = nn.WithLossCell(nn.SequentialCell(nn.Dense(4, 2)), nn.MSELoss())
    step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.1, 0.9))
    data = capture(tmp_path, lambda: step(tensor(3, 4), tensor(3, 2)), step, level="L0")
    assert not [name for name in data if "ptimizer" in name]
    assert "Cell.network._backbone.0.Dense.parameters_grad" in data
    assert {n["what"] for n in report(tmp_path / "dump")["not_seen"]} >= {"optimizer"}


def test_an_exception_costs_the_output_alone(tmp_path: Path) -> None:
    class Broken(nn.Cell):
        def construct(self, x: Tensor) -> Tensor:
            raise ValueError("on purpose")

    net = nn.SequentialCell(nn.Dense(4, 4), Broken())
    with collected(tmp_path, net, level="L0"):
        with pytest.raises(ValueError, match="on purpose"):
            net(tensor(2, 4))
        net[0](tensor(2, 4))
    data = records(tmp_path / "dump")
    assert data["Cell.1.Broken.forward.0"]["raised"] == "ValueError: on purpose"
    assert data["Cell.0.Dense.forward.1"]["output"]


def test_only_the_own_share_of_a_gradient_is_filed(tmp_path: Path) -> None:
    """x goes into two Cells: each one's record has what came through that Cell (where the graph can be seen)."""

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Dense(4, 4), nn.Dense(4, 4)

        def construct(self, x: Tensor) -> Tensor:
            x = x * 1
            return (self.a(x) + self.b(x)).sum()

    net, x = Net(), tensor(2, 4)
    data = capture(tmp_path, lambda: ms.grad(net)(x), net, level="L0")
    shares = [np.ones((2, 4)) @ cell.weight.asnumpy() for cell in (net.a, net.b)]
    whole = [sum(shares)] * 2
    for name, share in zip("ab", shares if gradients.OWN else whole, strict=True):
        assert agrees(data[f"Cell.{name}.Dense.backward.0"]["output"][0], share)
    told = [n["what"] for n in report(tmp_path / "dump")["not_seen"]]
    assert ("own share of the gradients of inputs" in told) != gradients.OWN


def test_hooks_of_the_users_run_and_nothing_stays_behind(tmp_path: Path) -> None:
    call, fired = nn.Cell.__dict__["__call__"], []
    net = Twice()
    net.relu.register_forward_hook(lambda cell, args, out: fired.append("forward"))
    capture(tmp_path, lambda: trained(net)(tensor(3, 4)), net, level="L0")
    assert fired == ["forward", "forward"]
    assert nn.Cell.__dict__["__call__"] is call and "__call__" not in vars(net.relu)


def test_parameters_of_the_model_itself_are_told(tmp_path: Path) -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.scale = Parameter(tensor(1), name="scale")
            self.fc = nn.Dense(4, 4)

        def construct(self, x: Tensor) -> Tensor:
            return self.fc(x) * self.scale

    net = Net()
    capture(tmp_path, lambda: net(tensor(2, 4)), net, level="L0")
    assert "parameters of the model itself: scale" in [
        n["what"] for n in report(tmp_path / "dump")["not_seen"]
    ]


_CALL = nn.Cell.__call__


class Bound(nn.Dense):
    __call__ = nn.Cell.__call__


class Saved(nn.Dense):
    def __call__(self, *args: Any) -> Any:
        return _CALL(self, *args)


def test_a_class_may_have_bound_the_call_of_cells(tmp_path: Path) -> None:
    net = nn.SequentialCell(Bound(2, 2), Bound(2, 2), Saved(2, 2), nn.Dense(2, 2))
    step = ms.value_and_grad(lambda x: net[2](net[0](x)).sum(), None, net.trainable_params())
    data = capture(tmp_path, lambda: step(tensor(1, 2)), net, level="L0")
    assert {name for name in data if "forward" in name} == {"Cell.0.Bound.forward.0"}
    assert "Cell.0.Bound.backward.0" in data and vars(Bound)["__call__"] is nn.Cell.__call__ is _CALL
    not_seen = report(tmp_path / "dump")["not_seen"]
    assert {each["what"]: each["why"] for each in not_seen if each["what"].startswith("Cell.")} == {
        "Cell.1.Bound": "not called in this step",
        "Cell.2.Saved": "no call was seen, of a class with a __call__ of its own",
        "Cell.3.Dense": "not called in this step",
    }


def test_the_flavour_of_plain_mindspore() -> None:
    assert CELLS.framework == "mindspore" and nn.Optimizer in CELLS.optimizers


def test_calls_that_are_told_are_recorded_also_after_somebody_kept_one(tmp_path: Path) -> None:
    net, kept, told = nn.SequentialCell(nn.Dense(2, 2)), [], []

    def work() -> None:
        kept.append(nn.Cell.__call__)
        net(tensor(1, 2))

    for i in range(2):
        with watched_calls(lambda cell, _: told.append(cell)):
            data = capture(tmp_path / str(i), work, net, level="L0")
        assert "Cell.0.Dense.forward.0" in data
    assert (told, kept) == ([net, net[0]] * 2, [nn.Cell.__call__] * 2)


def test_what_mixed_precision_makes_of_a_chain_of_cells_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It calls copies that only a plain list has."""
    monkeypatch.chdir(tmp_path)  # MindSpore may write its source there, and adds to the path
    monkeypatch.setattr(sys, "path", [*sys.path])
    net = ms.amp.auto_mixed_precision(nn.SequentialCell(nn.Dense(4, 4), nn.ReLU()), "O1")
    assert not capture(tmp_path, lambda: net(tensor(2, 4)), net, level="L0")
    said = {item["what"] for item in report(tmp_path / "dump")["not_seen"]}
    assert "Cells in the list cell_list of the model" in said
