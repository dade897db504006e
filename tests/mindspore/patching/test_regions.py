"""What is not the model: the optimizer has a node of its own; printing, data and parameters are left out."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mindspore as ms
import mindspore.dataset as ds
import mindspore.experimental.optim as experimental
import numpy as np
import pytest
from mindspore import Parameter, Tensor, amp, nn, ops
from mindspore.common.initializer import Normal, initializer
from mindspore_dumping import bits
from probe_mindspore.patching.apis import load_apis
from probe_mindspore.patching.patches import Patches
from probe_mindspore.patching.regions import OPTIMIZER, step_regions
from probe_runtime.patching.switch import is_muted
from scopes import Scopes
from tapping import Recorder

X = Tensor(np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2))


class Log(Recorder):
    """Calls and nodes of this thread in one list."""

    def push(self, node: str) -> None:
        self.calls.append(f"+{node}")

    def pop(self, node: str) -> None:
        self.calls.append(f"-{node}")


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def collecting(log: Log) -> Iterator[Callable[..., Any]]:
    patches = Patches(load_apis(views=True), log)
    scopes = Scopes(step_regions, log.push, log.pop)

    @contextlib.contextmanager
    def context(*models: nn.Cell) -> Iterator[Scopes]:
        with scopes:
            patches.apply(*models)
            try:
                yield scopes
            finally:
                patches.undo()

    kinds = (
        Tensor,
        Parameter,
        nn.Optimizer,
        experimental.Optimizer,
        amp.DynamicLossScaler,
        ds.engine.Iterator,
    )
    with context():  # MindSpore imports some of its own modules late
        pass
    before = [dict(vars(kind)) for kind in kinds]
    yield context
    for kind, names in zip(kinds, before, strict=True):
        assert [n for n, value in names.items() if vars(kind).get(n) is not value] == []
        assert vars(kind).keys() == names.keys()
    assert not is_muted()


def trained(make: Callable[[Any], Any]) -> tuple[nn.Cell, Any, Any]:
    ms.set_seed(1)
    net = nn.Dense(2, 3, weight_init="normal")
    _, grads = ms.value_and_grad(lambda x: net(x).sum(), None, net.trainable_params())(X)
    return net, make(net.trainable_params()), grads


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "Momentum": lambda p: nn.Momentum(p, 0.1, 0.9),
    "Adam": lambda p: nn.Adam(p, 0.1),
    "SGD": lambda p: nn.SGD(p, 0.1),
    "experimental.Adam": lambda p: experimental.Adam(p, lr=0.1),
    "experimental.SGD": lambda p: experimental.SGD(p, lr=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_is_a_node(name: str, collecting: Any, log: Log) -> None:
    def run() -> list[bytes]:
        net, optimizer, grads = trained(OPTIMIZERS[name])
        log.take()
        optimizer(grads)
        return bits(net.trainable_params())

    want = run()
    with collecting():
        assert run() == want
    assert log.calls[0] == f"+{OPTIMIZER}" and log.calls[-1] == f"-{OPTIMIZER}"
    assert [call for call in log.calls if call[0] in "+-"] == [f"+{OPTIMIZER}", f"-{OPTIMIZER}"]


def test_a_wrapped_training_step(collecting: Any, log: Log) -> None:
    net, optimizer, _ = trained(OPTIMIZERS["Momentum"])
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)
    with collecting(net):
        step(X, ops.zeros((4, 3), ms.float32))
    opened, closed = log.calls.index(f"+{OPTIMIZER}"), log.calls.index(f"-{OPTIMIZER}")
    assert "Primitive.matmul.MatMul" in log.calls[:opened]
    assert log.calls[opened + 1 : closed] == ["Jit.Momentum"]


def test_a_loss_scaler(collecting: Any, log: Log) -> None:
    scaler = amp.DynamicLossScaler(2.0**4, 2, 5)
    grads = (X, X)
    with collecting():
        scaler.scale(X)
        grads = scaler.unscale(grads)
        scaler.adjust(amp.all_finite(grads))
    node = [call for call in log.calls if call[0] in "+-"]
    assert node == [f"+{OPTIMIZER}", f"-{OPTIMIZER}"] * 3
    inside = False
    for call in log.calls[log.calls.index(f"+{OPTIMIZER}") :]:
        assert inside or call[0] in "+-"
        inside = call[0] == "+" or (inside and call[0] != "-")


def test_an_error_in_an_optimizer(
    collecting: Any, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the compiler leaves a report in the working directory
    _, optimizer, _ = trained(OPTIMIZERS["Adam"])
    with collecting():
        with pytest.raises(Exception):  # noqa: B017
            optimizer("no gradients")
        assert log.calls[0] == f"+{OPTIMIZER}"
        assert log.calls[-1] == f"-{OPTIMIZER}"


def test_stopped_from_inside_an_optimizer(log: Log) -> None:
    patches = Patches(load_apis(), log)
    scopes = Scopes(step_regions, log.push, log.pop)

    class Stopping(nn.SGD):
        def construct(self, gradients: Any) -> Any:
            patches.undo()
            scopes.__exit__(None, None, None)
            return True

    _, optimizer, grads = trained(lambda p: Stopping(p, 0.1))
    with scopes:
        patches.apply()
        optimizer(grads)
    assert log.calls == [f"+{OPTIMIZER}", f"-{OPTIMIZER}"]


def test_each_thread_has_its_own_nodes(collecting: Any, log: Log) -> None:
    both, seen = threading.Barrier(2), []

    class Slow(nn.SGD):
        def construct(self, gradients: Any) -> Any:
            both.wait(30)
            return True

    optimizers = [trained(lambda p: Slow(p, 0.1)) for _ in range(2)]

    def work(optimizer: Any, grads: Any) -> None:
        optimizer(grads)
        seen.append(log.take())

    with collecting():
        threads = [threading.Thread(target=work, args=row[1:]) for row in optimizers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seen == [[f"+{OPTIMIZER}", f"-{OPTIMIZER}"]] * 2


def test_printing(collecting: Any, log: Log) -> None:
    weight = Parameter(X, name="weight")

    def texts() -> list[str]:
        return [str(X), repr(X), f"{X}", f"{X!r}", str(weight), repr(weight), "%s" % X]  # noqa: UP031

    want = texts()
    with collecting() as scopes:
        assert texts() == want
    assert log.calls == []
    assert scopes.left_out["printing"] >= len(want)


def numbers() -> Iterator[tuple[Any, ...]]:
    for value in range(4):
        yield (ops.relu(Tensor(np.full(2, value, np.float32))).asnumpy(),)


def doubled(value: Any) -> Any:
    return (Tensor(value) * 2).asnumpy()


def test_reading_data(collecting: Any, log: Log) -> None:
    with collecting() as scopes:
        data = ds.GeneratorDataset(numbers, ["x"], shuffle=False, num_parallel_workers=1)
        data = data.map(doubled, ["x"], num_parallel_workers=2).batch(2)
        found = [row[0].asnumpy().tolist() for row in data.create_tuple_iterator(num_epochs=1)]
        found += [row["x"].asnumpy().tolist() for row in data.create_dict_iterator(num_epochs=1)]
        for row in data:
            ops.tanh(row[0])
    assert found == [[[0, 0], [2, 2]], [[4, 4], [6, 6]]] * 2
    assert log.calls == ["Functional.tanh"] * 2
    assert scopes.left_out["reading data"] > 0


def test_a_thread_of_a_dataset_is_not_the_model(collecting: Any, log: Log) -> None:
    seen: list[list[str]] = []

    def watched(value: Any) -> Any:
        ops.relu(Tensor(value))
        seen.append(log.take())
        return value

    with collecting():
        data = ds.GeneratorDataset(numbers, ["x"], shuffle=False).map(watched, ["x"])
        assert len(list(data.create_tuple_iterator(num_epochs=1))) == 4
        thread = threading.Thread(target=watched, args=(X.asnumpy(),))  # one that the user started is
        thread.start()
        thread.join()
    assert [] in seen and seen[-1] == ["Functional.relu"]
    assert [calls for calls in seen[:-1] if calls] == []


def test_making_parameters(collecting: Any, log: Log) -> None:
    with collecting() as scopes:
        made = [nn.Dense(2, 3), nn.Conv2d(1, 2, 3), nn.BatchNorm2d(3), nn.Embedding(3, 4), nn.LayerNorm((3,))]
        weight = Parameter(initializer(Normal(), [2, 2], ms.float32), name="weight")
        weight.init_data()
        weight.set_data(Tensor(np.ones((2, 2), np.float32)))
    assert log.calls == []
    assert scopes.left_out["making parameters"] > 0
    assert len(made) == 5


def test_optimizers_of_a_torch_on_mindspore_tell_by_hooks(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seam: mindtorch keeps the hooks of all optimizers in two dicts, and calls them around each step."""
    hooks: dict[str, dict[int, Any]] = {"pre": {}, "post": {}}

    def register(when: str, hook: Any) -> Any:
        hooks[when][id(hook)] = hook
        return SimpleNamespace(remove=lambda: hooks[when].pop(id(hook)))

    def step() -> None:
        assert [hook(None, (), {}) for hook in hooks["pre"].values()] in ([], [None])
        ops.relu(X)
        for hook in hooks["post"].values():
            hook(None, (), {})

    optimizers = SimpleNamespace(
        register_optimizer_step_pre_hook=lambda hook: register("pre", hook),
        register_optimizer_step_post_hook=lambda hook: register("post", hook),
    )
    clips = SimpleNamespace(clip_grad_norm_=lambda: ops.relu(X))
    torch = SimpleNamespace(
        Tensor=Tensor, optim=SimpleNamespace(optimizer=optimizers), nn=SimpleNamespace(utils=clips)
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    patches = Patches(load_apis(), log)
    with Scopes(step_regions, log.push, log.pop), patches:
        step(), clips.clip_grad_norm_(), ops.relu(X)
    step()
    relu = "Functional.relu"
    assert log.calls == ["+optimizer", relu, "-optimizer", "+clip_grad", relu, "-clip_grad", relu]
    assert hooks == {"pre": {}, "post": {}}
