"""The dumps of MindSpore for `bench.alike`: `mindspore_dumps.py FOLDER [NAME ...]`, with one checkout's packages."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from cases import Case, config_file, in_threads, main, of_training, recovered
from mindspore import Tensor, mint, nn, ops
from probe_mindspore import PrecisionDebugger

WIDTH = 8


class Attention(nn.Cell):
    """Dense, ops.matmul, methods of Tensor, mint, a Primitive that a Cell holds."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Dense(WIDTH, 3 * WIDTH), nn.Dense(WIDTH, WIDTH)
        self.softmax = ops.Softmax(axis=-1)

    def construct(self, x: Tensor, mask: Tensor | None = None, *, scale: float = 0.5) -> Tensor:
        q, k, v = ops.split(self.qkv(x), WIDTH, axis=-1)
        s = mint.matmul(q, k.swapaxes(-1, -2)) * scale
        if mask is not None:
            s = s + mask
        return self.out(mint.matmul(self.softmax(s), v))


class Inner(nn.Cell):
    """Takes a mapping, returns a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.act = nn.Dense(WIDTH, WIDTH), nn.ReLU()

    def construct(self, pack: dict[str, Any]) -> Any:
        y = self.act(self.fc(pack["a"]))
        return y, y.sum(), None


class Net(nn.Cell):
    """Shared Cells, nested values, several outputs, a Primitive."""

    def __init__(self, recomputed: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, pad_mode="same", has_bias=True)
        self.flatten, self.fc1, self.norm = (
            nn.Flatten(),
            nn.Dense(4 * 6 * 6, 2 * WIDTH),
            nn.LayerNorm((WIDTH,)),
        )
        self.attention, self.inner, self.relu = Attention(), Inner(), nn.ReLU()
        self.blocks = nn.CellList([nn.Dense(WIDTH, WIDTH), nn.Dense(WIDTH, WIDTH)])
        self.seq, self.add = nn.SequentialCell(nn.Dense(WIDTH, WIDTH), nn.GELU()), ops.Add()
        self.head, self.unused = nn.Dense(WIDTH, 5), nn.Dense(WIDTH, WIDTH)
        if recomputed:
            self.blocks[0].recompute()

    def construct(self, x: Tensor, label: Tensor) -> Tensor:
        h = self.fc1(self.flatten(self.relu(self.conv(x)))).reshape(-1, 2, WIDTH)
        h = self.norm(h)
        h = self.add(h, self.attention(h, mask=None, scale=0.3))
        y, s, _ = self.inner({"a": h, "n": 3})
        for block in self.blocks:
            y = self.relu(block(y))
        y = mint.nn.functional.relu(self.seq(y)) + s * 0.01
        return ops.cross_entropy(self.head(y.mean(1)), label)


def data(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return a batch."""
    chance = np.random.RandomState(seed)
    return Tensor(chance.randn(2, 3, 6, 6).astype(np.float32)), Tensor(np.array([1, 3], np.int32))


def filled(net: Any) -> Any:
    """Return the network with weights that no generator of MindSpore's made."""
    chance = np.random.default_rng(0)
    for parameter in net.get_parameters():
        parameter.set_data(Tensor(chance.normal(size=parameter.shape) * 0.3, ms.float32))
    return net.set_train()


def trained(
    folder: Path, *, steps: int = 2, recomputed: bool = False, graph: bool = False, **keys: Any
) -> None:
    """Train for a few dumped steps."""
    ms.set_context(mode=ms.GRAPH_MODE if graph else ms.PYNATIVE_MODE)
    ms.set_seed(1)
    net = filled(Net(recomputed))
    optimizer = nn.Adam(net.trainable_params(), learning_rate=0.01)
    forward = ms.value_and_grad(net if graph else lambda x, y: net(x, y), None, optimizer.parameters)
    with PrecisionDebugger(config_file(folder, **keys)) as debugger:
        for i in range(steps):
            debugger.start(net)
            _, gradients = forward(*data(i))
            optimizer(gradients)
            debugger.stop()
            debugger.step()
    ms.set_context(mode=ms.PYNATIVE_MODE)


class Tower(nn.Cell):
    """Three layers, one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Dense(WIDTH, WIDTH), nn.Dense(WIDTH, WIDTH)

    def construct(self, x: Tensor, fail: bool = False) -> Tensor:
        x = ops.tanh(self.a(x))
        if fail:
            raise ValueError("as it\nis")
        return self.b(self.a(x)) * x


def number(*shape: int) -> Tensor:
    """Return numbers that are the same each time."""
    return Tensor(np.random.default_rng(3).normal(size=shape).astype(np.float32))


def accumulated(folder: Path, **keys: Any) -> None:
    """Several passes in one step; one through the network and by its input; gradients of gradients."""
    net, x = filled(Tower()), number(2, WIDTH)
    with PrecisionDebugger(config_file(folder, **keys)) as debugger:
        debugger.start(net)
        for _ in range(2):
            ms.value_and_grad(lambda x: net(x).sum(), 0, net.trainable_params())(x)
        ms.grad(lambda x: ops.gelu(x).sum())(x)
        ms.grad(ms.grad(lambda x: ops.tanh(x).sum()))(x)
        debugger.stop()
        debugger.step()


def raised(folder: Path, **keys: Any) -> None:
    """An exception in a Cell and in a function; the run goes on."""
    net, x = filled(Tower()), number(2, WIDTH)
    with PrecisionDebugger(config_file(folder, **keys)) as debugger:
        debugger.start(net)
        for fail in (True, False):
            try:
                ms.value_and_grad(lambda x, fail=fail: net(x, fail=fail).sum(), 0, net.trainable_params())(x)
            except ValueError as error:
                print("raised", error)
        try:
            ops.reshape(x, (3, 3, 3))
        except (ValueError, RuntimeError, TypeError) as error:
            print("raised", type(error).__name__)
        debugger.stop()
        debugger.step()


def odd_values(folder: Path, **keys: Any) -> None:
    """Dtypes and values of every kind as arguments."""
    x = np.linspace(-2, 2, 24).reshape(4, 6).astype(np.float32)
    kinds = (ms.float64, ms.float16, ms.bfloat16, ms.int8, ms.int64, ms.bool_, ms.uint8, ms.complex64)
    tensors = [
        *(Tensor(x, kind) for kind in kinds), Tensor(3.5), Tensor(x).T, Tensor(np.zeros((0, 3), np.float32)),
        Tensor([1.0, float("nan"), float("inf")]), ms.Parameter(Tensor(x), name="own"),
    ]  # fmt: skip
    values = [
        None, True, 2**70, 1.5, float("nan"), 1j, "text \x1b", b"bytes", (1, [2, {"k": 3}]), slice(1, None),
        ms.float32, np.arange(6.0), len, {"a": {"b": Tensor(x)}}, [],
    ]  # fmt: skip

    class Takes(nn.Cell):
        def construct(self, *args: Any, **kwargs: Any) -> Any:
            return args[0]

    class Holds(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.takes = Takes()

    net = Holds()
    with PrecisionDebugger(config_file(folder, **keys)) as debugger:
        debugger.start(net)
        for value in [*tensors, *values]:
            net.takes(value, 1, keyword=value)
        ops.add(tensors[0], tensors[0])
        ops.split(Tensor(x), 2)
        mint.max(Tensor(x), 1)
        debugger.stop()
        debugger.step()


def threads(folder: Path, **keys: Any) -> None:
    """Eight threads, each with a Cell of its own and values that no other has; forward only."""
    net = filled(nn.CellList([nn.Dense(WIDTH, WIDTH) for _ in range(8)]))
    barrier = threading.Barrier(8)

    def work(i: int) -> None:
        barrier.wait(30)
        for k in range(5):
            ops.gelu(net[i](Tensor(np.full((i + 1, WIDTH), 1.0 + k, np.float32))))

    with PrecisionDebugger(config_file(folder, **keys)) as debugger:
        debugger.start(net)
        in_threads(work, 8)
        debugger.stop()
        debugger.step()


def saved(folder: Path, **keys: Any) -> None:
    """Level debug: values and their gradients."""
    x = number(3, 4)
    with PrecisionDebugger(config_file(folder, level="debug", **keys)) as debugger:
        debugger.start()

        def work(x: Tensor) -> Tensor:
            y = PrecisionDebugger.save({"y": x * 2, "n": 3}, "y")["y"]
            PrecisionDebugger.save(x, "x")
            PrecisionDebugger.save("text", "plain", save_backward=False)
            return ops.exp(y).sum()

        for _ in range(2):
            ms.grad(work)(x)
            ms.grad(work)(x)
            PrecisionDebugger.step()
        debugger.stop()


class Kills(nn.Cell):
    """The identity, whose backward kills the process."""

    def construct(self, x: Tensor) -> Tensor:
        return x * 1

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        os.kill(os.getpid(), signal.SIGKILL)
        return (dout,)


def killed(folder: Path, **keys: Any) -> None:
    """Die in the second step's backward pass."""
    net, kills, x = filled(Tower()), Kills(), number(2, WIDTH)
    with PrecisionDebugger(config_file(folder, **keys)) as debugger:
        debugger.start(net)
        ms.grad(lambda x: net(x).sum(), 0, net.trainable_params())(x)
        debugger.stop()
        debugger.step()
        debugger.start(net)
        ms.grad(lambda x: net(kills(net(x))).sum(), 0, net.trainable_params())(x)


def alone(folder: Path, name: str) -> None:
    """Make a dump in a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--child", name, str(folder)], check=False)
    print("ended with", done.returncode)


GRAPHS: dict[str, Case] = {
    "graph_L0": partial(trained, graph=True, level="L0"),
    "graph_L0_tensor": partial(trained, graph=True, level="L0", task="tensor", steps=1),
    "graph_recomputed": partial(trained, graph=True, level="L0", recomputed=True, steps=1),
}
KILLED: dict[str, Case] = {
    "killed_statistics": killed,
    "killed_tensor": partial(killed, task="tensor"),
}
CASES: dict[str, Case] = {
    **of_training(trained),
    "recomputed": partial(trained, recomputed=True, steps=1),
    "recomputed_tensor": partial(trained, recomputed=True, task="tensor", level="L0", steps=1),
    "list": partial(trained, list=["blocks.1", "matmul"], steps=1),
    "scope": partial(trained, scope=["Cell.norm.LayerNorm.forward.0", "Cell.inner.Inner.forward.0"], steps=1),
    "backward": partial(trained, data_mode=["backward"], steps=1),
    "accumulated": accumulated,
    "accumulated_async_tensor": partial(accumulated, task="tensor", async_dump=True),
    "raised": raised,
    "odd_values": odd_values,
    "odd_values_tensor": partial(odd_values, task="tensor"),
    "threads": threads,
    "saved": saved,
    "saved_tensor": partial(saved, task="tensor"),
    **{name: partial(alone, name=name) for name in GRAPHS},
    **{name: partial(recovered, script=__file__, name=name) for name in KILLED},
}  # fmt: skip

if __name__ == "__main__":
    ms.set_context(mode=ms.PYNATIVE_MODE)
    warnings.simplefilter("always")
    main(__file__, CASES, {**KILLED, **GRAPHS})
