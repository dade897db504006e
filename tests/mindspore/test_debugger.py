"""What a user calls, option by option, on real steps."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from contract_debugger import *  # noqa: F403  the tests that both frameworks have
from mindspore import Tensor, mint, nn, ops
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import Model
from mindspore_dumping import agrees, capture, construct, load, opened, rank_dir, records, report, validate
from probe_mindspore import (
    MsprobeInitStep,
    MsprobeStep,
    ProbeInitStep,
    ProbeStep,
    module_kind,
)


def net() -> nn.SequentialCell:
    ms.set_seed(0)
    return nn.SequentialCell(nn.Dense(3, 3), nn.ReLU(), nn.Dense(3, 1))


def ones(*shape: int) -> Tensor:
    return Tensor(np.ones(shape, np.float32))


def train(model: nn.Cell) -> None:
    ms.value_and_grad(lambda x: model(x).sum(), 0, model.trainable_params())(ones(2, 3))


def test_mix_puts_functions_below_their_cell(tmp_path: Path) -> None:
    model = net()
    capture(tmp_path, lambda: train(model), model, level="mix")
    tree = construct(tmp_path / "dump")
    assert tree["Primitive.matmul.MatMul.0.forward"] == "Cell.0.Dense.forward.0"
    assert tree["Primitive.matmul.MatMul.0.backward"] == "Cell.0.Dense.backward.0"
    assert tree["Cell.0.Dense.forward.0"] is None
    stack = (rank_dir(tmp_path / "dump") / "stack.json").read_text()
    assert "test_debugger.py" in stack and "in train" in stack and "/probe_mindspore/" not in stack


def test_the_optimizer_has_a_node_of_its_own(tmp_path: Path) -> None:
    model = net()
    optimizer = nn.Adam(model.trainable_params())
    f = ms.value_and_grad(lambda x: model(x).sum(), None, optimizer.parameters)

    def step() -> None:
        _, grads = f(ones(2, 3))
        optimizer(grads)

    capture(tmp_path, step, model, level="mix")
    below = [name for name, parent in construct(tmp_path / "dump").items() if parent == "optimizer"]
    assert below and not [name for name in below if name.startswith("Cell.")]


def test_structure_has_places_and_no_values(tmp_path: Path) -> None:
    model = net()
    data = capture(tmp_path, lambda: train(model), model, level="mix", task="structure")
    tree = construct(tmp_path / "dump")
    assert not data
    assert {"Cell.0.Dense.forward.0", "Cell.2.Dense.backward.0", "Primitive.matmul.MatMul.0.forward"} <= set(
        tree
    )


def test_a_listed_function_goes_by_the_name_it_was_registered_under(tmp_path: Path) -> None:
    x = ones(2, 2)

    def calls() -> None:
        mint.matmul(x, x), ops.gelu(x), mint.add(x, x)

    with opened(tmp_path, level="L1") as debugger:
        debugger.register_custom_api(mint, "matmul")
        debugger.register_custom_api(ops, "gelu", "My")
        debugger.start()
        calls()
        debugger.restore_custom_api(mint, "matmul")
        debugger.restore_custom_api(ops, "gelu")
        calls()
        debugger.stop()
        debugger.step()
    before = ["mindspore.mint.matmul.0", "My.gelu.0", "Mint.add.0"]
    after = ["Mint.matmul.0", "Functional.gelu.0", "Mint.add.1"]
    assert [name.removesuffix(".forward") for name in records(tmp_path / "dump")] == before + after


def test_gradients_after_stop_belong_to_the_step(tmp_path: Path) -> None:
    model = net()
    with opened(tmp_path, level="L0") as debugger:

        def loss(x: Tensor) -> Tensor:
            out = model(x).sum()
            debugger.stop()
            return out

        debugger.start(model)
        ms.value_and_grad(loss, 0, model.trainable_params())(ones(2, 3))
        debugger.step()
    data = records(tmp_path / "dump")
    assert {"Cell.0.Dense.backward.0", "Cell.2.Dense.backward.0", "Cell.0.Dense.parameters_grad"} <= set(data)


def test_async_dump_writes_the_same_files(tmp_path: Path) -> None:
    written = {}
    for late in (False, True):
        model = net()
        folder = tmp_path / str(late)
        capture(folder, lambda m=model: train(m), model, level="mix", task="tensor", async_dump=late)
        files = (rank_dir(folder / "dump") / "dump_tensor_data").iterdir()
        written[late] = {p.name: np.load(p).tobytes() for p in files}
    assert written[False] == written[True] and len(written[True]) > 20


def test_threads_have_their_own_parents_and_no_number_is_lost(tmp_path: Path) -> None:
    model, count = net(), 4

    def work() -> None:
        threads = [
            threading.Thread(target=lambda: [model(ones(2, 3)) for _ in range(5)]) for _ in range(count)
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)

    data = capture(tmp_path, work, model, level="mix")
    assert {n for n in data if n.startswith("Cell.0.")} == {
        f"Cell.0.Dense.forward.{i}" for i in range(5 * count)
    }
    tree = construct(tmp_path / "dump")
    parents = [tree[n] for n in data if n.startswith("Primitive.matmul.MatMul")]
    assert len(parents) == len(set(parents)) == 2 * 5 * count


# ---------------- mindspore.train.Model
def data_set() -> Any:
    rng = np.random.RandomState(0)
    x, y = rng.randn(12, 3).astype(np.float32), rng.randn(12, 1).astype(np.float32)
    return NumpySlicesDataset({"x": x, "y": y}, shuffle=False).batch(4)


def fitted(callbacks: list[Any], **keys: Any) -> list[bytes]:
    model = net()
    optimizer = nn.Momentum(model.trainable_params(), 0.1, 0.9)
    Model(model, nn.MSELoss(), optimizer, **keys).train(1, data_set(), callbacks=callbacks)
    return [p.asnumpy().tobytes() for p in model.get_parameters()]


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_model_train_dumps_every_step_and_trains_the_same(level: str, tmp_path: Path) -> None:
    truth = fitted([])
    with opened(tmp_path, level=level) as debugger:
        assert fitted([ProbeStep(debugger)]) == truth
    steps = [records(tmp_path / "dump", i) for i in range(3)]
    assert not (tmp_path / "dump" / "step3").exists()
    assert all(steps) and list(steps[0]) == list(steps[2])
    if level != "L1":
        name = "Cell.0.Dense"
        assert {f"{name}.forward.0", f"{name}.backward.0", f"{name}.parameters_grad"} <= set(steps[0])
        assert not [n for n in steps[0] if "Momentum" in n and n.startswith("Cell")]
    if level != "L0":
        assert {"Primitive.matmul.MatMul.0.forward", "Primitive.bias_add.BiasAdd.1.backward"} <= set(steps[0])
    assert not [entry for entry in report(tmp_path / "dump")["not_seen"] if "Primitives" in entry["what"]]


def test_model_train_hands_over_its_network_at_every_level(tmp_path: Path) -> None:
    """The records at L1 are those of a debugger that was given the model."""
    found = []
    for given in (False, True):
        model = net()
        job = Model(model, nn.MSELoss(), nn.Momentum(model.trainable_params(), 0.1, 0.9))
        folder = tmp_path / str(given)
        with opened(folder, level="L1") as debugger:
            if given:
                debugger.start(model)
            job.train(1, data_set(), callbacks=[ProbeStep(debugger)])
        found.append(records(folder / "dump", 1))
    assert found[0] == found[1] and len(found[0]) > 10


def test_without_a_model_l1_says_what_it_does_not_see(tmp_path: Path) -> None:
    model = net()
    capture(tmp_path, lambda: train(model), level="L1")
    told = {entry["what"]: entry["why"] for entry in report(tmp_path / "dump")["not_seen"]}
    assert "no model" in told["calls of the Primitives that Cells hold"]


def test_cells_under_vmap_are_told_once(tmp_path: Path) -> None:
    """They ran in a graph that MindSpore compiles without taps only: nothing says that they were not called."""
    model = net()

    def run(x: Tensor) -> Tensor:
        return model(x)

    with pytest.warns(RuntimeWarning, match="Probe recorded nothing of the graph"):
        capture(tmp_path, lambda: ms.vmap(run)(ones(4, 3)), model, level="mix")
    validate(rank_dir(tmp_path / "dump"))
    told = {entry["what"]: entry["why"] for entry in report(tmp_path / "dump")["not_seen"]}
    assert {"Cell.0.Dense", "Cell.1.ReLU", "Cell.2.Dense"} <= told.keys()
    assert not [what for what, why in told.items() if "not called" in why]


def test_the_model_given_to_start_before_training_is_the_one(tmp_path: Path) -> None:
    model = nn.SequentialCell(net())
    with opened(tmp_path, level="L0") as debugger:
        debugger.start(model)
        optimizer = nn.SGD(model.trainable_params(), 0.1)
        Model(model, nn.MSELoss(), optimizer).train(1, data_set(), callbacks=[MsprobeStep(debugger)])
    for i in range(3):
        assert "Cell.0.0.Dense.forward.0" in records(tmp_path / "dump", i)


def test_steps_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    with opened(tmp_path, level="L0") as debugger:
        model = net()
        optimizer = nn.SGD(model.trainable_params(), 0.1)
        job = Model(model, nn.MSELoss(), optimizer)
        callbacks = [MsprobeInitStep(), ProbeStep(debugger)]
        job._train(1, data_set(), callbacks=callbacks, dataset_sink_mode=False, initial_step=5)
    assert sorted(p.name for p in (tmp_path / "dump").iterdir()) == ["step5", "step6", "step7"]


def test_the_names_of_msprobe_are_the_same_things() -> None:
    assert MsprobeStep is ProbeStep and MsprobeInitStep is ProbeInitStep


# ---------------- a torch that stands on MindSpore
def test_a_torch_on_mindspore_is_noticed_and_named_as_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seam: a module named torch whose Tensor is MindSpore's, and whose nn.Module is called like torch's."""

    class Module:
        def __init__(self) -> None:
            self._parameters: dict[str, Any] = {}

        def named_modules(self) -> Any:
            yield "", self
            for name, value in vars(self).items():
                if isinstance(value, Module):
                    yield name, value

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return self.forward(*args, **kwargs)  # type: ignore[attr-defined]

    class Double(Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    class Outer(Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Double()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)

    lists = SimpleNamespace(Module=Module, ModuleList=type("ModuleList", (Module,), {}))
    monkeypatch.setitem(__import__("sys").modules, "torch", SimpleNamespace(Tensor=ms.Tensor, nn=lists))
    found = module_kind.detect()
    assert (found.framework, found.prefix) == ("mindtorch", "Module")
    model = Outer()
    data = capture(tmp_path, lambda: model(ones(2)), model, level="L0", task="tensor")
    assert list(data) == ["Module.inner.Double.forward.0"]
    out = data["Module.inner.Double.forward.0"]["output"][0]
    assert agrees(out, np.full(2, 2.0)) and out["type"] == "mindspore.Tensor" and "requires_grad" in out
    assert np.array_equal(load(tmp_path / "dump", out), np.full(2, 2.0, np.float32))
    assert report(tmp_path / "dump")["header"]["framework"] == "mindtorch"
    assert "__call__" in vars(Module) and "probe" not in Module.__call__.__module__


def test_a_real_torch_is_no_torch_on_mindspore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", SimpleNamespace(Tensor=int))
    assert module_kind.detect() is module_kind.CELLS
