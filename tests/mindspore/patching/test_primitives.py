"""Primitives that Cells hold: recorded under the attribute's name, and the Cells stay what they are."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from documents import objects
from mindspore import Tensor, nn, ops
from mindspore_dumping import bits, capture, report
from probe_mindspore.hooks import gradients
from probe_mindspore.patching.apis import Apis
from probe_mindspore.patching.patches import Patches
from probe_mindspore.patching.primitives import labels_of
from tapping import Recorder


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, weight_init="normal")
        self.dense = nn.Dense(32, 4, weight_init="normal")
        self.flat = ops.Flatten()
        self.act = ops.ReLU()
        self.same_act = self.act
        self.steps = [ops.Tanh(), ops.Exp()]
        self.softmax = ops.Softmax(-1)

    def construct(self, x: Tensor) -> Tensor:
        x = self.dense(self.flat(self.act(self.conv(x))))
        for step in self.steps:
            x = step(x)
        return self.softmax(self.same_act(x))


X = Tensor(np.random.default_rng(0).normal(size=(2, 1, 4, 4)).astype(np.float32))


@pytest.fixture
def tap() -> Recorder:
    return Recorder()


@pytest.fixture
def patches(tap: Recorder) -> Iterator[Patches]:
    kinds = [ops.Primitive, ops.ReLU, ops.MatMul, ops.Conv2D, ops.Softmax, ops.Tanh]
    before = [dict(vars(kind)) for kind in kinds]
    made = Patches(Apis(()), tap)
    yield made
    while made.applied:
        made.undo()
    assert [dict(vars(kind)) for kind in kinds] == before


@pytest.fixture
def net() -> Net:
    ms.set_seed(1)
    return Net()


def test_named_by_attribute_and_class(patches: Patches, tap: Recorder, net: Net) -> None:
    patches.apply(net)
    net(X)
    assert tap.take() == [
        "Primitive.conv2d.Conv2D",
        "Primitive.act.ReLU",
        "Primitive.flat.Flatten",
        *("Primitive.shape_op.Shape", "Primitive.matmul.MatMul", "Primitive.bias_add.BiasAdd"),
        *("Primitive.steps.Tanh", "Primitive.steps.Exp"),
        "Primitive.act.ReLU",  # one Primitive under two names goes by the first
        "Primitive.softmax.Softmax",
    ]
    ops.ReLU()(X)  # not of the model
    Net()(X)
    assert tap.calls == []


def test_a_list_of_models(patches: Patches, tap: Recorder) -> None:
    one, two = nn.Dense(4, 2), nn.ReLU()
    patches.apply(one, two)
    two(one(X))
    assert Counter(tap.calls)["Primitive.matmul.MatMul"] == 1
    assert tap.calls[-1] == "Primitive.relu.ReLU"


def test_models_change_from_one_dump_to_the_next(patches: Patches, tap: Recorder) -> None:
    one, two = nn.ReLU(), nn.Tanh()
    patches.apply(one)
    one(X), two(X)
    patches.undo()
    patches.apply(two)
    one(X), two(X)
    assert tap.calls == ["Primitive.relu.ReLU", "Primitive.tanh.Tanh"]


def test_no_model_no_primitives(patches: Patches, tap: Recorder, net: Net) -> None:
    with patches:
        net(X)
    assert tap.calls == []


def test_the_outermost_call_counts(tap: Recorder, net: Net) -> None:
    class Outer(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.act = ops.ReLU()

        def construct(self, x: Tensor) -> Tensor:
            return around(x, self.act)

    def around(x: Tensor, act: Any) -> Tensor:
        return act(x)

    space: Any = type("space", (), {"around": staticmethod(around)})
    patches = Patches(Apis(()), tap)
    patches.add(space, "around", "Mine")
    model = Outer()
    patches.apply(model)
    space.around(X, model.act), model(X)
    patches.undo()
    assert tap.calls == ["Mine.around", "Primitive.act.ReLU"]


def test_results_and_gradients_are_the_same(patches: Patches, tap: Recorder, net: Net) -> None:
    def run() -> list[bytes]:
        return bits(ms.value_and_grad(lambda x: net(x)[:, 0].sum(), None, net.trainable_params())(X))

    before = run()
    patches.apply(net)
    assert run() == before
    assert len(tap.calls) == 10


def test_the_cells_stay_what_they_are(patches: Patches, net: Net, tmp_path: Path) -> None:
    kinds = {name: type(value) for name, value in vars(net).items()}
    before = vars(net).copy()
    patches.apply(net)
    assert {name: type(value) for name, value in vars(net).items()} == kinds
    assert vars(net) == before
    assert type(net.act) is ops.ReLU and repr(net.act) == "Prim[ReLU]"
    twin = copy.deepcopy(net)
    ms.save_checkpoint(net, str(tmp_path / "net.ckpt"))
    ms.load_param_into_net(twin, ms.load_checkpoint(str(tmp_path / "net.ckpt")))
    patches.undo()
    assert type(twin.act) is ops.ReLU
    assert np.array_equal(twin(X).asnumpy(), net(X).asnumpy())


def test_labels_are_by_identity(net: Net) -> None:
    labels = {label.name: primitive for primitive, label in labels_of([net]).values()}
    assert labels["Primitive.act.ReLU"] is net.act
    assert "Primitive.same_act.ReLU" not in labels
    assert not any("_primitives" in name for name in labels)


def test_an_error_of_the_primitive(patches: Patches, net: Net) -> None:
    with pytest.raises(Exception) as plain:
        net.act("no tensor")
    patches.apply(net)
    with pytest.raises(type(plain.value)) as wrapped:
        net.act("no tensor")
    assert str(wrapped.value).splitlines()[:2] == str(plain.value).splitlines()[:2]


def test_public_primitives_are_recorded_as_functions(tmp_path: Path) -> None:
    """ops.tensor_scatter_update is no function, but a Primitive: it stays one, and its calls are seen."""
    before = ops.tensor_scatter_update
    x, at = Tensor(np.zeros((2, 2), np.float32)), Tensor([[0, 0]], ms.int32)
    state = ms.Parameter(x, name="state")

    def work() -> None:
        assert ops.tensor_scatter_update is before
        ops.tensor_scatter_update(x, at, Tensor([5.0], ms.float32))
        ops.scatter_nd_update(state, at, Tensor([3.0], ms.float32))
        x.copy_(state)
        nn.Adam([state], 0.1)((x,))  # MindSpore's own calls of such Primitives are its own

    data = capture(tmp_path, work, level="L1")
    made = {name: leaf["Max"] for name, record in data.items() for leaf in objects(record["output"]).values()}
    assert made["Functional.tensor_scatter_update.0.forward"] == 5.0
    assert made["Functional.scatter_nd_update.0.forward"] == 3.0
    assert made.get("Tensor.copy_.0.forward") == (3.0 if gradients.OWN else None)
    ours = [name for name in data if name.startswith("Functional.") and "scatter" not in name]
    assert not ours


def test_a_copy_within_a_gradient_keeps_its_gradient(tmp_path: Path) -> None:
    """On 2.7 a hook on the tensor that is written to would change it: the call is left out there, and told."""

    def network(x: Tensor) -> Tensor:
        cache = Tensor(np.ones(3, np.float32))
        y = x * 2
        cache.copy_(y)
        return (y * 3 + cache).sum()

    x = Tensor(np.ones(3, np.float32))
    found: list[Any] = []
    data = capture(tmp_path, lambda: found.append(ms.grad(network)(x)), level="L1")
    assert found[0].asnumpy().tolist() == ms.grad(network)(x).asnumpy().tolist() == [8.0, 8.0, 8.0]
    assert ("Tensor.copy_.0.forward" in data) == gradients.OWN
    told = report(tmp_path / "dump")["missing"]
    assert ("mindspore.Tensor.copy_" in str(told)) == (not gradients.OWN)
