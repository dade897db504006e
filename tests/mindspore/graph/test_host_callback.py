"""A Python function called from inside a compiled graph: what arrives, in which order, and what may go wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from bytecode import needs_bytecode  # noqa: E402
from mindspore import Tensor, nn  # noqa: E402
from mindspore.ops import operations as P  # noqa: E402
from probe_format.tensors.narrow_floats import widen  # noqa: E402
from probe_format.values import unsupported  # noqa: E402
from probe_mindspore.graph import host_callback  # noqa: E402
from probe_mindspore.graph.gradient_callback import GradientCall  # noqa: E402
from probe_mindspore.graph.host_callback import FIRST, HostCall, Message  # noqa: E402
from probe_mindspore.graph.value_layouts import DYNAMIC, UnknownValue  # noqa: E402

DTYPES = "float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool_ complex64 complex128"


pytestmark = pytest.mark.usefixtures("graph_mode")


class Log:
    """A callback that keeps copies of what it got; answers with 100, 101, ..."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def __call__(self, message: Message) -> int:
        self.messages.append(Message(message.token, _copied(message.value), message.extra, message.place))
        return 99 + len(self.messages)

    @property
    def values(self) -> list[Any]:
        return [m.value for m in self.messages]


def _copied(value: Any) -> Any:
    """The nest with (dtype, array or the reason why there is none) for each tensor."""
    if isinstance(value, (list, tuple)):
        return type(value)(_copied(v) for v in value)
    if isinstance(value, dict):
        return {k: _copied(v) for k, v in value.items()}
    if not hasattr(value, "narrow"):
        return value
    if value.data is None:
        return (value.dtype, value.reason)
    return (value.dtype, widen(value.data, value.narrow) if value.narrow else value.data.copy())


class Calling(nn.Cell):
    def __init__(self, log: Log) -> None:
        super().__init__()
        self.call = HostCall(log)


class Watched(Calling):
    def construct(self, x):
        self.call(x)
        return x


@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3)], ids=["2x3", "0-d", "empty"])
@pytest.mark.parametrize("dtype", DTYPES.split())
def test_every_dtype_and_shape(dtype: str, shape: tuple[int, ...]) -> None:
    log = Log()
    given = Tensor(np.full(shape, 3), getattr(ms, dtype))
    out = Watched(log)(given)
    assert out.dtype == given.dtype and out.shape == shape
    ((seen_dtype, seen),) = log.values
    assert seen_dtype == str(given.dtype)
    assert seen.shape == shape
    assert np.array_equal(seen, np.full(shape, True if dtype == "bool_" else 3))
    if dtype != "bfloat16":
        assert seen.dtype == given.asnumpy().dtype


@pytest.mark.parametrize("value", [1e300, -0.0, float("nan")])
def test_a_scalar_keeps_its_bits(value: float) -> None:
    log = Log()
    Watched(log)(Tensor(value, ms.float64))
    assert log.values[0][1].tobytes() == np.float64(value).tobytes()


class Nest(Calling):
    def construct(self, x, e):
        self.call({"a": x, "l": [e, (None, True, 1, 1.0, "text", x)], "no": ()}, FIRST, 7, 8)
        return x


def test_a_nest_keeps_its_shape() -> None:
    log = Log()
    Nest(log)(Tensor([1.0, 2.0]), Tensor(np.ones((0, 2)), ms.int8))
    (m,) = log.messages
    assert (m.token, m.extra, m.place) == (0, 7, 8)
    assert list(m.value) == ["a", "l", "no"] and m.value["no"] == ()
    assert m.value["a"][1].tolist() == [1.0, 2.0]
    empty, inner = m.value["l"]
    assert empty[0] == "Int8" and empty[1].shape == (0, 2)
    assert inner[:5] == (None, True, 1, 1.0, "text") and [type(v) for v in inner[1:4]] == [bool, int, float]


class Many(Calling):
    def construct(self, x):
        few = ()
        for _ in range(64):
            few = (*few, x)
        self.call(few)
        self.call((*few, x))
        return x


def test_64_tensors_at_once_and_a_word_for_more() -> None:
    log = Log()
    Many(log)(Tensor([1.0]))
    assert len(log.values[0]) == 64
    assert "more tensors" in log.values[1]


class InOrder(Calling):
    """Calls that nothing ties together, two of them equal, and calls in a loop."""

    def construct(self, x):
        token = self.call(x, FIRST, 1)
        self.call(x, FIRST, 1)
        self.call(x * 2, token, 2)
        i = Tensor(0)
        while i < 3:
            self.call(i, FIRST, 3)
            i = i + 1
        self.call(x, FIRST, 4)
        return x


@pytest.mark.parametrize(
    "how", ["graph mode", "jit", pytest.param("bytecode", marks=needs_bytecode), "pynative"]
)
def test_calls_come_in_the_order_of_the_program_and_none_is_lost(how: str) -> None:
    log = Log()
    net: Any = InOrder(log)
    run = net
    if how != "graph mode":
        ms.set_context(mode=ms.PYNATIVE_MODE)
    if how == "jit":
        run = ms.jit(net)
    if how == "bytecode":
        run = ms.jit(net, capture_mode="bytecode")
    for _ in range(2):
        run(Tensor([1.0]))
    ms.runtime.synchronize()  # PyNative runs its kernels behind Python
    once = [1, 1, 2, 3, 3, 3, 4]
    assert [m.extra for m in log.messages] == once * 2
    assert log.messages[2].token == 100 and log.messages[9].token == 107


class Trained(nn.Cell):
    def __init__(self, forward: Log, backward: Log) -> None:
        super().__init__()
        self.inner = nn.Dense(3, 2)
        self.call = HostCall(forward)
        self.gradient = GradientCall(backward)

    def construct(self, x, scale):
        total = 0
        for i in range(2):
            token = self.call(x)
            y = self.gradient(self.inner(self.gradient(x, token, i, 0)), token, i, 1)
            total = total + self.gradient(y.sum() * scale, token, i, 2)
        return total


def _gradients(net: Any, *args: Any) -> Any:
    value, (inputs, weights) = ms.value_and_grad(net, 0, net.trainable_params())(*args)
    return value.asnumpy(), inputs.asnumpy(), [w.asnumpy() for w in weights]


@pytest.mark.parametrize("how", ["graph mode", "jit"])
def test_gradients_come_with_the_token_of_their_call(how: str) -> None:
    forward, backward = Log(), Log()
    ms.set_seed(1)
    net: Any = Trained(forward, backward)
    x, scale = Tensor(np.ones((2, 3)), ms.float32), Tensor(0.5, ms.float32)
    if how == "jit":
        ms.set_context(mode=ms.PYNATIVE_MODE)
        net.construct = ms.jit(net.construct)
    _, inputs, _ = _gradients(net, x, scale)
    assert len(forward.messages) == 2
    by_call: dict[tuple[int, int], Any] = {}
    for m in backward.messages:
        assert m.token == 100 + m.extra
        by_call[m.extra, m.place] = m.value[1]
    assert set(by_call) == {(i, p) for i in (0, 1) for p in (0, 1, 2)}
    for i in (0, 1):
        assert by_call[i, 2].shape == () and by_call[i, 2] == 1.0
        assert np.array_equal(by_call[i, 1], np.full((2, 2), 0.5))
    assert np.array_equal(by_call[0, 0] + by_call[1, 0], inputs)


def test_a_callback_that_raises_never_stops_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    faults: list[Exception] = []
    monkeypatch.setattr(host_callback, "on_fault", [faults.append])

    def bad(message: Message) -> int:
        raise ValueError("mine")

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.call = HostCall(bad)
            self.gradient = GradientCall(bad)

        def construct(self, x):
            token = self.call(x)
            return self.gradient(x * 2, token, 0, 0)

    x = Tensor([1.0, 2.0])
    assert ms.grad(Net())(x).asnumpy().tolist() == [2.0, 2.0]
    assert [str(f) for f in faults] == ["mine", "mine"]


def test_an_unknown_shape_is_said_and_the_rest_arrives() -> None:
    log = Log()
    net = Nest(log)
    net.set_inputs(Tensor(shape=[None], dtype=ms.float32), Tensor(np.ones((0, 2)), ms.int8))
    net(Tensor([1.0, 2.0]), Tensor(np.ones((0, 2)), ms.int8))
    (value,) = log.values
    assert value["a"] == ("Float32", DYNAMIC)
    assert value["l"][0][0] == "Int8" and value["l"][1][4] == "text"


class Scalars(nn.Cell):
    def __init__(self, log: Log) -> None:
        super().__init__()
        self.call = HostCall(log)
        self.shape = P.Shape()

    def construct(self, x, n):
        self.call((n, x))
        return x * n


def test_a_number_known_only_at_run_time_is_a_variable() -> None:
    log = Log()
    Scalars(log)(Tensor([1.0]), ms.mutable(3))
    assert isinstance(log.values[0][0], UnknownValue)
    assert b'"type":"probe_mindspore.graph_values.Variable"' in unsupported(log.values[0][0], "")
    assert log.values[0][1][1].tolist() == [1.0]


class Plainly(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Dense(3, 2)

    def construct(self, x, scale):
        total = 0
        for _ in range(2):
            total = total + self.inner(x).sum() * scale
        return total


def test_the_numbers_of_the_graph_are_the_same_with_and_without() -> None:
    x = Tensor(np.random.default_rng(1).normal(size=(2, 3)), ms.float32)
    results = []
    for make in (Plainly, lambda: Trained(Log(), Log())):
        ms.set_seed(3)
        net = make()
        for p in net.trainable_params():
            p.set_data(ms.Tensor(np.random.default_rng(2).normal(size=p.shape), ms.float32))
        results.append(_gradients(net, x, Tensor(0.3, ms.float32)))
    (a, b, c), (d, e, f) = results
    assert a.tobytes() == d.tobytes() and b.tobytes() == e.tobytes()
    assert [w.tobytes() for w in c] == [w.tobytes() for w in f]
