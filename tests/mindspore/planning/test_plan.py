"""A plan says what the dump then writes, and leaves the net and every random number as they were."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import mindspore_zoo as zoo
import numpy as np
import pytest
from contract_plan import *  # noqa: F403  the tests and fixtures that both frameworks have
from mindspore import Parameter, Tensor, nn, ops
from mindspore_dumping import report, strict
from planned import Written, written
from probe_format.errors import UsageError
from probe_mindspore import PrecisionDebugger, plan
from probe_mindspore.planning import kept_state

pytestmark = pytest.mark.usefixtures("pynative")

CONFIGS: dict[str, dict[str, Any]] = {
    "L0": {"level": "L0", "task": "tensor"},
    "L1": {"level": "L1", "task": "tensor"},
    "mix": {"task": "tensor"},
    "statistics": {},
    "structure": {"task": "structure"},
    "backward": {"task": "tensor", "data_mode": ["backward"]},
    "list": {"task": "tensor", "list": ["0.Dense"]},
    "tensor_list": {"tensor_list": ["1.Dense"], "summary_mode": "xor"},
    "unshared": {"task": "tensor", "share": False, "extra_info": False},
    "later": {"task": "tensor", "async_dump": True, "summary_mode": "md5"},
}


def close(planned: int, real: int) -> bool:
    """Within five percent."""
    return abs(planned - real) <= 0.05 * real


def dumped(folder: Path, keys: dict[str, Any], model: Any, step: Callable[[], object]) -> Written:
    """What a dump of a step writes."""
    with PrecisionDebugger(**keys, dump_path=str(folder / "dump")) as debugger:
        debugger.start(model)
        step()
        debugger.stop()
        debugger.step()
    return written(folder / "dump")


def held_against(
    folder: Path,
    keys: dict[str, Any],
    model: Any,
    batch: tuple[Any, ...],
    *,
    optimizer: Any = None,
    **more: Any,
) -> None:
    """Plan, dump, compare."""
    planned = plan(model, {**keys, "dump_path": str(folder / "dump")}, *batch, optimizer=optimizer, **more)
    weights = model.trainable_params() if optimizer is None else optimizer.parameters

    def step() -> None:
        def forward() -> Any:
            return model(*batch)

        _, gradients = ms.value_and_grad(forward, None, weights)()
        if optimizer is not None:
            optimizer(gradients)

    real, said = dumped(folder, keys, model, step), report(folder / "dump")
    assert (planned.records, planned.tensors) == (
        said["records"],
        said["counts"]["recorded"].get("tensors", 0),
    )
    assert (planned.files, planned.documents) == (real.names, real.documents)
    # Up to four outputs of a BatchNorm are not set: what their memory holds may be equal or not.
    unset = 4 * sum(isinstance(cell, nn.BatchNorm2d) for _, cell in model.cells_and_names())
    assert abs(planned.written - real.files) <= unset
    assert close(planned.bytes, real.bytes) and close(planned.bytes_unshared, real.bytes_unshared)
    assert not planned.problems and not planned.notes


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.once] * (n not in ("L0", "L1", "mix"))) for n in CONFIGS]
)
def test_the_plan_is_what_is_written(name: str, tmp_path: Path) -> None:
    model, x = nn.SequentialCell(nn.Dense(4, 4), nn.Dense(4, 1)), Tensor(np.ones((1, 4), np.float32))
    optimizer = nn.SGD(model.trainable_params(), 1e-2) if name in ("L1", "mix") else None
    held_against(tmp_path, {"level": "mix", **CONFIGS[name]}, model, (x,), optimizer=optimizer)


class Cnn(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.relu = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU()
        self.pool, self.head = nn.MaxPool2d(2, 2), nn.Dense(2 * 9, 3)

    def construct(self, x: Tensor) -> Tensor:
        return self.head(self.pool(self.relu(self.bn(self.conv(x)))).reshape(x.shape[0], -1)).sum()


class Attention(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.softmax = nn.LayerNorm((4,)), nn.Dense(4, 12), nn.Softmax()

    def construct(self, x: Tensor) -> Tensor:
        q, k, v = ops.split(self.qkv(self.norm(x)), 4, axis=-1)
        return (x + ops.matmul(self.softmax(ops.matmul(q, k.swapaxes(-1, -2)) * 0.5), v)).sum()


class Lstm(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 4, batch_first=True), nn.Dense(4, 2)

    def construct(self, x: Tensor) -> Tensor:
        out, (h, _) = self.lstm(x)
        return self.head(out + h[-1].expand_dims(1)).sum()


class Twice(nn.Cell):
    """A Cell that is run again in the backward pass, one weight in two Cells, half precision, a dict and a keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.again = nn.Dense(4, 4, has_bias=False), nn.Dense(4, 4, has_bias=False)
        self.again.weight = self.first.weight
        self.inner = nn.SequentialCell(nn.Dense(4, 4), nn.Tanh())
        self.inner.recompute()
        self.inner.to_float(ms.float16)  # and bfloat16, whose files are float32

    def construct(self, x: dict[str, Tensor]) -> Tensor:
        y = self.again(self.inner(self.first(x["x"])).astype(ms.float32))
        return y.astype(ms.bfloat16).astype(ms.float32).sum()


NETS: dict[str, tuple[type[nn.Cell], tuple[int, ...]]] = {
    "cnn": (Cnn, (2, 1, 6, 6)),
    "attention": (Attention, (1, 3, 4)),
    "lstm": (Lstm, (1, 3, 4)),
    "twice": (Twice, (2, 4)),
}


@pytest.mark.parametrize("name", NETS)
def test_small_networks(name: str, tmp_path: Path) -> None:
    zoo.fixed()
    made, shape = NETS[name]
    model, x = made(), Tensor(np.random.default_rng(3).normal(size=shape).astype(np.float32))
    model.set_train()
    held_against(tmp_path, {"level": "mix", "task": "tensor"}, model, ({"x": x},) if made is Twice else (x,))


class Busy(nn.Cell):
    """Changes whatever it can reach."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.bn, self.drop = nn.Dense(4, 4), nn.BatchNorm1d(4), nn.Dropout(p=0.5)
        self.calls, self.cache, self.memory = 0, [], {"last": None}
        self.seen = Parameter(Tensor(np.zeros(4, np.float32)), name="seen", requires_grad=False)
        self.plain, self.array = Tensor(np.ones(4, np.float32)), np.zeros(3)
        self.half = Tensor(np.ones(4, np.float32)).astype(ms.bfloat16)
        self.own = np.random.default_rng(7)
        self.normal = ops.StandardNormal(seed=3, seed2=4)

    def construct(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.cache.append(x)
        self.memory["last"] = x
        self.fresh = x  # an attribute that was not there
        x[0] = 2.0
        ops.assign(self.seen, ops.stop_gradient(x[1]))
        self.plain.copy_(self.plain * 3)
        self.half.copy_(self.plain.astype(ms.bfloat16))
        self.array += self.own.random()
        self.fc.weight.set_data(self.fc.weight * 1.0)
        noise = self.normal((2, 4)) + ops.standard_normal((2, 4)) + float(np.random.rand()) + random.random()
        return self.drop(self.bn(self.fc(x))) + noise


def state(model: Any, optimizer: Any, x: Tensor) -> dict[str, Any]:
    """What could be seen of them."""
    tensors = {p.name: zoo.array(p) for p in (*model.get_parameters(), *optimizer.get_parameters())}
    tensors |= {"x": zoo.array(x), "plain": zoo.array(model.plain), "array": model.array.copy()}
    tensors["half"] = zoo.array(model.half.astype(ms.float32))
    about = [model.calls, len(model.cache), model.memory["last"], hasattr(model, "fresh"), model.training]
    about += [model.own.bit_generator.state, optimizer.global_step.asnumpy().tolist()]
    ids = [id(p) for p in (*model.get_parameters(), *optimizer.get_parameters(), model.cache, model.memory)]
    return {"tensors": {name: t.tobytes() for name, t in tensors.items()}, "about": about, "ids": ids}


@pytest.mark.parametrize("in_memory", [1 << 20, 0], ids=["in memory", "in a file"])
def test_nothing_is_changed(in_memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_state, "IN_MEMORY", in_memory)
    zoo.fixed()
    model, x = Busy(), Tensor(np.ones((2, 4), np.float32))
    model.set_train()
    optimizer = nn.Momentum(model.trainable_params(), 1e-1, 0.9)
    before, call = state(model, optimizer, x), nn.Cell.__call__
    keys = {"level": "mix", "task": "tensor", "dump_path": str(tmp_path / "d")}
    for _ in range(2):
        planned = plan(model, keys, x, optimizer=optimizer)
        assert planned.records > 10
        assert state(model, optimizer, x) == before
    assert nn.Cell.__call__ is call
    assert not list(tmp_path.iterdir()), "nothing is written where the dump goes"


class Noise(nn.Cell):
    """Draws random numbers as named."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.fc, self.drop, self.how = nn.Dense(1, 1), nn.Dropout(p=0.5), how
        self.normal = ops.StandardNormal(seed=3, seed2=4)
        self.chance = ops.Dropout(0.5, 1, 2)

    def construct(self, x: Tensor) -> Tensor:
        if self.how == "python":
            return x * float(np.random.rand()) * random.random()
        if self.how == "uniform":
            return ops.uniform(x.shape, Tensor(0.0, ms.float32), Tensor(1.0, ms.float32))
        return {
            "nn.Dropout": self.drop,
            "StandardNormal": lambda x: self.normal(x.shape),
            "Dropout": lambda x: self.chance(x)[0],
            "standard_normal": lambda x: ops.standard_normal(x.shape),
            "dropout": lambda x: ops.dropout(x, 0.5),
        }[self.how](x)


def drawn(how: str, *shape: int, folder: Path | None = None) -> list[list[float]]:
    """The numbers of four calls, with plans after the first two where a folder is given."""
    zoo.fixed()
    model, found, x = Noise(how), [], Tensor(np.ones(shape, np.float32))
    model.set_train()
    for i in range(4):
        found.append(model(x).asnumpy().reshape(-1).tolist())
        if folder is not None and i < 2:
            plan(model, {"level": "mix", "dump_path": str(folder / "d")}, x)
    return found


@pytest.mark.parametrize(
    "how", ["python", "uniform", "nn.Dropout", "StandardNormal", "Dropout", "standard_normal", "dropout"]
)
def test_random_numbers_go_on_as_without_a_plan(how: str, tmp_path: Path) -> None:
    """Kernels keep states of their own, one for each shape, so that each of these runs begins anew."""
    assert drawn(how, 2, 4) == drawn(how, 4, 2) == drawn(how, 8, 1, folder=tmp_path)


def test_without_gradients_there_is_no_backward(tmp_path: Path) -> None:
    keys = {"level": "L0", "dump_path": str(tmp_path / "d")}
    model, x = nn.SequentialCell(nn.Dense(4, 4)), Tensor(np.ones((2, 4), np.float32))
    with ms._no_grad():
        frozen = plan(model, keys, x)
    constant = plan(nn.SequentialCell(nn.Dense(4, 4), Argmax()), keys, x)
    for p in model.get_parameters():
        p.requires_grad = False
    for planned, records in ((plan(model, keys, x), 1), (frozen, 1), (constant, 2)):
        assert planned.records == records
        assert "no backward pass" in planned.notes[0] and planned.notes[0] in str(planned)


class Argmax(nn.Cell):
    def construct(self, x: Tensor) -> Tensor:
        return x.argmax(axis=-1)


def test_graph_mode_is_refused_also_after_an_error(tmp_path: Path) -> None:
    x, keys = Tensor(np.ones((2, 4), np.float32)), {"level": "mix", "dump_path": str(tmp_path / "d")}
    net = nn.SequentialCell(nn.Dense(4, 4))
    with pytest.raises(ValueError):
        plan(nn.SequentialCell(net, nn.Dense(5, 4)), keys, x)
    zoo.train(
        zoo.CASES["gpt"], "accumulate", steps=1
    )  # what MindSpore had begun to record is in nobody's way
    ms.set_context(mode=ms.GRAPH_MODE)
    with pytest.raises(UsageError, match="GRAPH_MODE"):
        plan(net, keys, x)


class Inner(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(4, 4)

    @ms.jit
    def construct(self, x: Tensor) -> Tensor:
        return ops.relu(self.fc(x))


def test_a_step_with_a_compiled_cell_has_two_parts(tmp_path: Path) -> None:
    model, x = nn.SequentialCell(nn.Dense(4, 4), Inner()), Tensor(np.ones((2, 4), np.float32))
    keys = {"level": "mix", "task": "tensor"}
    with ms._no_grad():
        planned = plan(model, {**keys, "dump_path": str(tmp_path / "dump")}, x)
        real = dumped(tmp_path, keys, model, lambda: model(x))
    assert (tmp_path / "dump" / "graph").is_dir()
    assert (planned.documents, planned.files) == (real.documents, real.names)
    assert planned.records == sum(
        len(strict(path)["data"]) for path in (tmp_path / "dump").rglob("dump.json")
    )
