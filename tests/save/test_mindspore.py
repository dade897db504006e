"""Tensors of MindSpore and their gradients in PyNative mode: exact, and nothing in the run changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import probe_save as ps
import pytest
from saving import data, document, load

ms = pytest.importorskip("mindspore")

from mindspore import Parameter, Tensor, nn, ops  # noqa: E402


@pytest.fixture
def full(tmp_path: Path) -> Iterator[ps.Saver]:
    with ps.Saver(dump_path=tmp_path, task="tensor", summary_mode="md5") as found:
        yield found


def array(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_values_and_gradients(full: ps.Saver, tmp_path: Path) -> None:
    x = Tensor(array(3, 4))

    def forward(x: Any) -> Any:
        y = full.save({"y": x * 2, "n": [3, None, "s"]}, "dct")["y"]
        full.save(ops.relu(y), "unused")
        return (y * y).sum() + y.sum() * 3

    gradient = ms.grad(forward)(x)
    full.save(x, "outside")
    full.step()
    found = data(tmp_path)
    y = array(3, 4) * 2
    assert found["dct.0.debug"]["n"] == [{"type": "int", "value": 3}, None, {"type": "str", "value": "s"}]
    assert found["dct.0.debug"]["y"]["dtype"] == "Float32"
    assert np.array_equal(load(tmp_path, "dct.0.debug", "y"), y)
    arrived = load(tmp_path, "dct_grad.0.debug", "y")
    assert np.allclose(arrived, 2 * y + 3, rtol=1e-6)
    assert np.array_equal(gradient.asnumpy(), 2 * arrived)
    assert found["dct_grad.0.debug"]["n"] == [None, None, None]
    assert found["unused_grad.0.debug"] is None
    assert found["outside_grad.0.debug"] is None
    header = document(tmp_path / "step0" / "rank")
    assert header["framework"] == "mindspore"
    assert found["dct.0.debug"]["y"]["data_name"] == "dct.0.debug.y.npy"


class Net(nn.Cell):
    def __init__(self, look: Callable[[Any, str], Any]) -> None:
        super().__init__()
        self.first = nn.Dense(8, 16, weight_init=Tensor(array(16, 8)), bias_init="zeros")
        self.second = nn.Dense(16, 4, weight_init=Tensor(array(4, 16, seed=1)), bias_init="ones")
        self.norm = nn.LayerNorm((16,))
        self.look = look

    def construct(self, x: Any) -> Any:
        h = self.look(self.first(self.look(x, "x")), "h")
        h = self.look(ops.gelu(self.look(self.norm(h) + h, "sum")), "gelu")
        self.look([h, {"w": self.first.weight}], "nested")
        return self.look(self.second(h), "out")


def train(look: Callable[[Any, str], Any], end: Callable[[], None]) -> list[Any]:
    ms.set_seed(1)
    net = Net(look)
    optimizer = nn.Adam(net.trainable_params(), learning_rate=1e-2)
    loss_fn = nn.CrossEntropyLoss()

    def forward(x: Any, y: Any) -> Any:
        return look(loss_fn(net(x), y), "loss")

    grad = ms.value_and_grad(forward, None, net.trainable_params())
    numbers: list[Any] = []
    for i in range(3):
        loss, grads = grad(Tensor(array(5, 8, seed=i)), Tensor(np.arange(5) % 4, ms.int32))
        optimizer(grads)
        numbers += [loss.asnumpy(), *(g.asnumpy() for g in grads)]
        end()
    return [*numbers, *(p.asnumpy() for p in net.get_parameters())]


def test_a_network_trains_the_same_bit_for_bit(tmp_path: Path) -> None:
    plain = train(lambda value, name: value, lambda: None)
    with ps.Saver(dump_path=tmp_path, task="tensor") as saver:
        watched = train(saver.save, saver.step)
    assert len(plain) == len(watched)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(plain, watched, strict=True))
    for step in range(3):
        found = data(tmp_path, step)
        for name in ("h", "sum", "gelu", "out", "loss"):
            assert found[f"{name}_grad.0.debug"] is not None, name
        assert found["nested_grad.0.debug"][1]["w"]["shape"] == [16, 8]
        assert found["x_grad.0.debug"] is None or found["x_grad.0.debug"]["shape"] == [5, 8]
    # the weight's gradient is that which the training got
    assert np.array_equal(load(tmp_path, "nested_grad.0.debug", "1.w"), plain[1])


def test_a_parameter_keeps_no_hook(full: ps.Saver, tmp_path: Path) -> None:
    w = Parameter(Tensor(array(3)), name="w")
    for step in range(2):

        def forward(x: Any) -> Any:
            return (full.save(w, "w") * x).sum()

        ms.value_and_grad(forward, None, [w])(Tensor(array(3, seed=2)))
        full.step()
        assert np.array_equal(load(tmp_path, "w_grad.0.debug", step=step), array(3, seed=2))
        assert list(data(tmp_path, step)) == ["w.0.debug", "w_grad.0.debug"]


def test_a_saved_parameter_does_not_disturb_a_jit(full: ps.Saver, tmp_path: Path) -> None:
    w = Parameter(Tensor(array(3)), name="w")

    @ms.jit
    def compiled(x: Any) -> Any:
        return (w * x).sum()

    full.save(w, "w")
    out = ms.value_and_grad(compiled, 0, [w])(Tensor(array(3, seed=2)))
    assert np.allclose(out[0].asnumpy(), (array(3) * array(3, seed=2)).sum())
    assert np.array_equal(out[1][1][0].asnumpy(), array(3, seed=2))


def test_the_debugger_gives_the_same_files(tmp_path: Path) -> None:
    from probe_mindspore import PrecisionDebugger

    with PrecisionDebugger(dump_path=str(tmp_path / "debugger"), level="debug", task="tensor"):
        train(PrecisionDebugger.save, PrecisionDebugger.step)
    with ps.Saver(dump_path=tmp_path / "saver", task="tensor") as saver:
        train(saver.save, saver.step)
    for step in range(3):
        assert data(tmp_path / "debugger", step) == data(tmp_path / "saver", step)
