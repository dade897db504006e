"""Gradient taps on real MindSpore: each value against what MindSpore gives for the same call alone.

On 2.7 the graph cannot be seen, and an input's gradient is that of the whole tensor: both are tested.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from gradient_nets import NETS, Block, Own, values
from gradient_taps import Watched, every_cell, number
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common import hook_handle
from mindspore.common._grad_function import _Function
from mindspore_dumping import agrees, bits, capture
from probe_mindspore.hooks import autograd, gradients

only_own = pytest.mark.skipif(not gradients.OWN, reason=gradients.WHY_NOT_OWN)
Array = Any


def alone(f: Callable[..., Any], g: Tensor, *args: Tensor) -> list[Array]:
    """The gradients of f's arguments, f being the whole network and g the gradient of its output."""
    return [number(t) for t in ops.GradOperation(get_all=True, sens_param=True)(f)(*args, g)]


def close(a: Array, b: Array) -> bool:
    return bool(np.allclose(a, b, rtol=1e-6, atol=1e-6))


def twice(x: Tensor) -> Tensor:
    return ops.tanh(x) * x + ops.sin(x)


# ---------------- the share of a call
USES: dict[str, Callable[[Watched, Tensor], Tensor]] = {
    "alone": lambda w, x: w.call(twice, x),
    "used later": lambda w, x: w.call(twice, x) * ops.exp(x),
    "used before": lambda w, x: ops.exp(x) * w.call(twice, x),
    "residual": lambda w, x: x + w.call(twice, x),
    "two calls": lambda w, x: w.call(twice, x) + w.call(twice, x) * 3,
}


@pytest.mark.parametrize("leaf", [True, False], ids=["leaf", "computed"])
@pytest.mark.parametrize("use", USES)
def test_the_share_of_a_call(use: str, leaf: bool) -> None:
    x, w = values(3, 4), Watched()
    made: list[Tensor] = []

    def network(x: Tensor) -> Tensor:
        made.append(x if leaf else x * 2)
        return USES[use](w, made[0]).sum()

    total = ms.grad(network)(x)
    w.end()
    for call in range(w.calls):
        g = Tensor(w.outputs(call)[(0,)])
        (share,) = alone(twice, g, made[0])
        expected = share if gradients.OWN else number(total) / (1 if leaf else 2)
        assert close(w.inputs(call)[(0,)], expected)
    assert not any(s.partial for s in w.seen)
    if use != "alone" and gradients.OWN:
        assert not close(w.inputs()[(0,)], number(total) / (1 if leaf else 2))


def test_the_gradient_of_the_output_is_that_of_all_its_users() -> None:
    w = Watched()

    def network(x: Tensor) -> Tensor:
        y = w.call(ops.exp, x)
        return (y * 3 + y * y).sum()

    x = values(4)
    ms.grad(network)(x)
    w.end()
    assert close(w.outputs()[(0,)], 3 + 2 * np.exp(number(x)))


def test_q_k_and_v_from_one_tensor_stand_in_three_places() -> None:
    w, x = Watched(), values(3, 4)
    mask = values(3, 3, seed=1)

    def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return ops.matmul(ops.softmax(ops.matmul(q, k.swapaxes(0, 1)) + mask), v)

    def network(x: Tensor) -> Tensor:
        return (x + w.call(attention, x, x, v=x, mask=mask) * 2).sum()

    total = ms.grad(network)(x)
    w.end()
    (share,) = alone(lambda x: attention(x, x, x, mask), Tensor(w.outputs()[(0,)]), x)
    got = w.inputs()
    assert set(got) == {(0,), (1,), ("v",)}
    for g in got.values():
        assert close(g, share if gradients.OWN else number(total))


def test_nested_arguments_and_outputs_and_keywords() -> None:
    w, x, s = Watched(), values(4), Parameter(values(4, seed=2), name="s")

    def cell(pack: dict[str, Any], *, scale: Tensor) -> Any:
        a, (b, c) = pack["a"], pack["bc"]
        return [a * scale, {"k": (b + c, None, 7)}], c * 2

    def network(x: Tensor) -> Tensor:
        (first, rest), last = w.call(cell, {"a": x * 1, "bc": (x * 2, x * 3)}, scale=s)
        return (first * 5).sum() + (rest["k"][0] * 7).sum() + last.sum()

    ms.value_and_grad(network, 0, [s])(x)
    w.end()
    out, got = w.outputs(), w.inputs()
    assert set(out) == {(0, 0), (0, 1, "k", 0), (1,)}
    assert close(out[0, 0], np.full(4, 5)) and close(out[0, 1, "k", 0], np.full(4, 7))
    assert set(got) == {(0, "a"), (0, "bc", 0), (0, "bc", 1), ("scale",)}
    assert close(got[0, "a"], 5 * number(s)) and close(got["scale",], 5 * number(x))
    assert close(got[0, "bc", 0], np.full(4, 7)) and close(got[0, "bc", 1], np.full(4, 9))


@only_own
def test_what_a_call_takes_from_outside_is_no_way_into_it() -> None:
    """z was made from the same x before the call: the walk must stop at what is older."""
    w, x = Watched(), values(3)

    def network(x: Tensor) -> Tensor:
        z = x * 5
        return w.call(lambda x: x * z, x).sum()

    ms.grad(network)(x)
    w.end()
    assert close(w.inputs()[(0,)], 5 * number(x))


def test_outputs_by_number_and_indexes_without_gradients() -> None:
    w, x = Watched(), values(5)

    def network(x: Tensor) -> Tensor:
        top, where = w.call(ops.topk, x * 2, 2)
        first, second = w.call(lambda x: ops.split(x, [2, 3]), x)
        assert not gradients.takes_gradient(where) and gradients.takes_gradient(top)
        return top.sum() * 3 + (second * 4).sum() + first.sum() + where.sum()

    ms.grad(network)(x)
    w.end()
    assert set(w.outputs(0)) == {(0,)} and close(w.outputs(0)[(0,)], [3, 3])
    assert close(w.outputs(1)[(0,)], [1, 1]) and close(w.outputs(1)[(1,)], [4, 4, 4])
    assert sorted(w.inputs(0)[(0,)].tolist()) == [0, 0, 0, 3, 3]


def test_half_precision_stays_half() -> None:
    seen: list[Any] = []

    def network(x: Tensor) -> Tensor:
        h = x.astype(ms.float16)
        entry = gradients.enter([((0,), h)])
        out = h * h
        gradients.attach(
            entry,
            [((0,), out)],
            lambda _: None,
            lambda n, o, i, *_: seen.extend(g.dtype for _, g in (*o, *i)),
        )
        return out.astype(ms.float32).sum()

    ms.grad(network)(values(3))
    assert seen == [ms.float16, ms.float16]


# ---------------- what is not reached, passed on, or left as it was
def test_a_user_that_no_gradient_reaches_leaves_the_sum_partial() -> None:
    w, x = Watched(), values(3)
    ms.grad(lambda x: w.call(lambda x: (x * 2, x * 3), x)[0].sum())(x)
    w.end()
    assert set(w.outputs()) == {(0,)}
    assert close(w.inputs()[(0,)], [2, 2, 2])
    assert any(s.partial for s in w.seen) == gradients.OWN


@pytest.mark.parametrize("leaf", [True, False], ids=["leaf", "computed"])
def test_an_input_passed_on_untouched(leaf: bool) -> None:
    w, x = Watched(), values(3)
    ms.grad(lambda x: (w.call(lambda x: x, x if leaf else x * 2) * 5).sum())(x)
    w.end()
    assert close(w.outputs()[(0,)], [5, 5, 5]) and close(w.inputs()[(0,)], [5, 5, 5])


@only_own
@pytest.mark.parametrize("leaf", [True, False], ids=["leaf", "computed"])
def test_an_input_passed_on_and_used_gives_the_share_of_the_use(leaf: bool) -> None:
    w, x = Watched(), values(3)
    ms.grad(lambda x: sum(t.sum() for t in w.call(lambda x: (x, x * 3), x if leaf else x * 2)))(x)
    w.end()
    assert set(w.outputs()) == {(1,)} and close(w.inputs()[(0,)], [3, 3, 3])
    assert [s.partial for s in w.seen if s.inputs] == [True]


def test_stopped_gradients() -> None:
    w, x = Watched(), values(3)

    def network(x: Tensor) -> Tensor:
        still = w.call(lambda x: ops.stop_gradient(x) * 2, x)
        return (w.call(lambda x, y: x * y, x, still)).sum()

    ms.grad(network)(x)
    w.end()
    if gradients.OWN:
        assert (0,) not in w.inputs(0)
        assert close(w.inputs(1)[(0,)], 2 * number(x))


def test_outside_of_a_gradient_nothing_is_remembered() -> None:
    assert not gradients.recording() and autograd.backward_pass() == -1
    assert gradients.enter([((0,), values(3))]) is None
    within: list[bool] = []

    def network(x: Tensor) -> Tensor:
        within.append(gradients.recording())
        return x.sum()

    ms.grad(network)(values(3))
    assert within == [True] and not gradients.recording()


@only_own
def test_the_backward_pass_is_known_from_inside() -> None:
    within: list[bool] = []
    p = Parameter(values(3), name="p")
    gradients.watch(p, lambda g: within.append(autograd.backward_pass() != -1))
    ms.grad(lambda x: (x * p).sum(), None, [p])(values(3))
    assert within == [True] and autograd.backward_pass() == -1


# ---------------- ways of taking gradients, passes, orders
@pytest.mark.parametrize("way", ["grad", "value_and_grad", "GradOperation", "sens", "vjp"])
def test_every_way_of_taking_gradients(way: str) -> None:
    w, x = Watched(), values(3)

    def network(x: Tensor) -> Tensor:
        return w.call(ops.exp, x) * 2

    one = Tensor(np.ones(3, np.float32))
    if way == "grad":
        ms.grad(network)(x)
    elif way == "value_and_grad":
        ms.value_and_grad(network)(x)
    elif way == "GradOperation":
        ops.GradOperation()(network)(x)
    elif way == "sens":
        ops.GradOperation(sens_param=True)(network)(x, one)
    else:
        _, back = ms.vjp(network, x)
        back(one)
    w.end()
    last = w.calls - 1  # vjp of 2.7 runs the function once more
    assert close(w.outputs(last)[(0,)], [2, 2, 2]) and close(w.inputs(last)[(0,)], 2 * np.exp(number(x)))


def test_each_run_is_a_call_of_its_own() -> None:
    w, x = Watched(), values(3)
    gradient = ms.grad(lambda x: w.call(ops.sin, x).sum())
    gradient(x), gradient(x)
    w.end()
    assert [w.inputs(call)[(0,)].tolist() for call in (0, 1)] == [np.cos(number(x)).tolist()] * 2
    assert not w.inputs(0, 1)


def test_higher_order_is_a_later_pass() -> None:
    w, x = Watched(), values(3)

    def inner(x: Tensor) -> Tensor:
        return ms.grad(lambda x: w.call(lambda x: x * x * x, x * 1).sum())(x).sum()

    second = ms.grad(inner)(x)
    w.end()
    assert close(number(second), 6 * number(x))
    assert close(w.inputs(0, 0)[(0,)], 3 * number(x) ** 2)
    assert w.inputs(0, 1), "the second pass goes through the call again"


def test_a_bprop_of_its_own() -> None:
    w, x = Watched(), values(3)
    with every_cell(w):
        ms.grad(lambda x: Own()(x, ops.sin(x)).sum())(x)
    got = w.inputs()
    assert close(got[0,], 2 * np.sin(number(x))) == gradients.OWN
    assert close(got[1,], 3 * number(x))


def test_a_function_with_a_backward_of_its_own() -> None:
    class Double(_Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            return g * 7, None

    w, x = Watched(), values(3)
    ms.grad(lambda x: w.call(Double.apply, x * 1, x * 2).sum())(x)
    w.end()
    assert close(w.inputs()[(0,)], [7, 7, 7])
    other = w.inputs().get((1,))
    assert other is None or not other.any()


def test_a_function_under_jit_is_one_call() -> None:
    w, x = Watched(), values(3)

    @ms.jit
    def f(x: Tensor) -> Tensor:
        return ops.sin(x) * 2

    ms.grad(lambda x: w.call(f, x).sum())(x)
    w.end()
    assert close(w.inputs()[(0,)], 2 * np.cos(number(x))) and close(w.outputs()[(0,)], [1, 1, 1])


# ---------------- writes in place keep their effect and their gradients
def set_item(y: Tensor, x: Tensor) -> Tensor:
    y[0] = x[1]
    return y


def add_in_place(y: Tensor, x: Tensor) -> Tensor:
    y += x
    return y


def multiply_in_place(y: Tensor, x: Tensor) -> Tensor:
    y *= x
    return y


WRITES: dict[str, tuple[Callable[[Tensor, Tensor], Any], Callable[[Array, Array], Array]]] = {
    "x[i] = ...": (set_item, lambda y, x: np.concatenate([x[1:2], y[1:]])),
    "copy_": (lambda y, x: y.copy_(x), lambda y, x: x),
    "+=": (add_in_place, lambda y, x: y + x),
    "*=": (multiply_in_place, lambda y, x: y * x),
}


@pytest.mark.parametrize("write", WRITES)
def test_writes_in_place(write: str) -> None:
    f, expected = WRITES[write]
    x = values(3, 2)

    def run(call: Callable[..., Any]) -> tuple[bytes, bytes, Array]:
        made: list[Tensor] = []

        def network(x: Tensor) -> Tensor:
            y = x * 2
            made.append(call(f, y, x))
            return (made[0] * made[0]).sum()

        gradient = ms.grad(network)(x)
        return gradient.asnumpy().tobytes(), made[0].asnumpy().tobytes(), number(made[0])

    w = Watched()
    plain, watched = run(lambda f, *args: f(*args)), run(w.call)
    w.end()
    assert plain[:2] == watched[:2]
    assert close(watched[2], expected(2 * number(x), number(x)))
    assert close(w.outputs()[(0,)], 2 * watched[2])
    old = w.inputs().get((0,))
    if write == "x[i] = ...":  # what was there before has no more part in the result
        assert close(old[0], [0, 0]) and close(old[1:], 2 * watched[2][1:])
    if write == "copy_":
        assert old is None or close(old, np.zeros((3, 2)))


def test_assign_keeps_its_effect_and_the_weights_their_gradients() -> None:
    def run(call: Callable[..., Any]) -> list[bytes]:
        p = Parameter(values(3), name="p")
        total = Parameter(Tensor([0.0, 0.0, 0.0]), name="total", requires_grad=False)

        def network(x: Tensor) -> Tensor:
            y = x * p
            call(ops.assign, total, y)
            call(ops.assign_add, total, x)
            return (y * total).sum()

        found = ms.value_and_grad(network, 0, [p])(values(3, seed=4))
        assert total.asnumpy().any()
        return bits([found, total])

    w = Watched()
    assert run(lambda f, *args: f(*args)) == run(w.call)
    w.end()


# ---------------- parameters
def test_the_gradient_of_a_parameter_arrives_once_and_whole() -> None:
    p, arrived = Parameter(values(3), name="p"), []
    handle = gradients.watch(p, lambda g: arrived.append(number(g)))

    def network(x: Tensor) -> Tensor:
        return (x * p + ops.exp(p)).sum()

    gradient = ms.grad(network, None, [p])
    truth = [number(gradient(values(3, seed=i))[0]) for i in (1, 2)]
    assert len(arrived) == 2 and all(map(close, arrived, truth))
    ms.grad(network)(values(3))
    assert len(arrived) == 2, "nobody asked for the weights"
    assert handle is not None
    handle.remove()
    handle.remove()
    gradient(values(3))
    assert len(arrived) == 2 and not p.hooks()


def test_a_frozen_parameter_says_nothing() -> None:
    p, arrived = Parameter(values(3), name="p", requires_grad=False), []
    handle = gradients.watch(p, arrived.append)
    ms.grad(lambda x: (x * p).sum())(values(3))
    assert not arrived
    if handle is not None:
        handle.remove()


# ---------------- nothing is left behind
def _run(w: Watched, *leaves: Tensor) -> None:
    dense = nn.Dense(4, 4)
    with every_cell(w):
        ms.value_and_grad(lambda x: (dense(x) + w.call(lambda x: x, x)).sum(), 0, dense.trainable_params())(
            *leaves
        )


def test_handles_take_everything_off_leaves() -> None:
    w, x = Watched(), values(2, 4)
    _run(w, x)
    assert w.seen and not x.hooks()
    seen = len(w.seen)
    ms.grad(lambda x: ops.exp(x).sum())(x)
    assert len(w.seen) == seen


def test_hooks_on_a_graph_that_still_runs_can_be_taken_off() -> None:
    w = Watched()

    def network(x: Tensor) -> Tensor:
        y = w.call(ops.exp, x)
        w.end()
        return y.sum()

    ms.grad(network)(values(3))
    assert not w.seen


def test_a_call_that_raises_leaves_nothing_on_its_inputs() -> None:
    x = values(3)

    def network(x: Tensor) -> Tensor:
        with contextlib.suppress(ZeroDivisionError):
            Watched().call(lambda x: 1 / 0, x)
        gc.collect()
        assert not x.hooks()
        return x.sum()

    ms.grad(network)(x)


def test_jit_functions_are_not_compiled_again() -> None:
    before = hook_handle._hook_version()
    _run(Watched(), values(2, 4))
    handle = gradients.watch(Parameter(values(3), name="p"), lambda g: None)
    assert handle is not None
    handle.remove()
    assert hook_handle._hook_version() == before


def test_nothing_is_kept_alive() -> None:
    class Sink:
        def emit(self, *_: Any) -> None: ...

    def run() -> list[weakref.ref[Any]]:
        sink, handles, refs = Sink(), [], []

        def network(x: Tensor) -> Tensor:
            h = x * 2
            entry = gradients.enter([((0,), h)])
            y = twice(h)
            handles.extend(gradients.attach(entry, [((0,), y)], lambda _: None, sink.emit))
            refs.extend([weakref.ref(h), weakref.ref(y)])
            return y.sum()

        ms.grad(network)(values(3))
        for handle in handles:
            handle.remove()
        return [weakref.ref(sink), *refs]

    refs = run()
    gc.collect()  # 2.7 leaves the function itself in a cycle
    assert [ref() for ref in refs] == [None, None, None]


# ---------------- bits
def train(name: str, way: str, watched: Callable[[], Any]) -> list[bytes]:
    """Loss, gradients and parameters of two steps."""
    ms.set_seed(3)
    ms.manual_seed(3)
    make, batch = NETS[name]
    network, x = make().settle(), batch()
    network.set_train()
    optimizer = nn.Momentum(network.trainable_params(), 0.1, 0.9)

    class WithLoss(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def construct(self, x: Tensor) -> Tensor:
            y = self.network(x)
            return (y * y).sum() * 0.1

    model = WithLoss()
    with_x = x.dtype == ms.float32
    weights = network.trainable_params()
    out: list[Tensor] = []
    for _ in range(2):
        with watched():
            if way == "train_one_step":
                out.append(nn.TrainOneStepCell(model, optimizer).set_train()(x))
                continue
            if way == "grad_operation":
                of_inputs, of_weights = ops.GradOperation(get_all=True, get_by_list=True)(model, weights)(x)
                out += of_inputs if with_x else []
            else:
                loss, got = ms.value_and_grad(model, 0 if with_x else None, weights)(x)
                of_weights = got[1] if with_x else got
                out += [loss, *got[:1]] if with_x else [loss]
            optimizer(of_weights)
            out += of_weights
        out += [Tensor(p.asnumpy()) for p in network.get_parameters()]
    assert all(np.isfinite(t.asnumpy()).all() for t in out)
    return bits(out)


@pytest.mark.parametrize("way", ["value_and_grad", "grad_operation", "train_one_step"])
@pytest.mark.parametrize("name", NETS)
def test_not_a_bit_moves(name: str, way: str) -> None:
    plain = train(name, way, contextlib.nullcontext)
    assert plain == train(name, way, contextlib.nullcontext), "not repeatable: nothing can be said"
    w = Watched()
    assert plain == train(name, way, lambda: every_cell(w))
    assert any(s.outputs for s in w.seen)
    assert way == "train_one_step" or any(s.inputs for s in w.seen)


def test_identity_nodes_would_move_bits() -> None:
    """Why there are none, and that the test above can fail."""

    @contextlib.contextmanager
    def nodes() -> Iterator[None]:
        original = nn.Cell.__call__

        def call(cell: nn.Cell, *args: Any, **kwargs: Any) -> Any:
            if isinstance(cell, Block):
                args = tuple(ops.HookBackward(lambda g: None)(a) for a in args)
            return original(cell, *args, **kwargs)

        nn.Cell.__call__ = call
        try:
            yield
        finally:
            nn.Cell.__call__ = original

    plain = train("residual", "value_and_grad", contextlib.nullcontext)
    assert plain != train("residual", "value_and_grad", nodes)


# ---------------- in the records
class Shares(nn.Cell):  # type: ignore[misc]
    """Its three arguments take the gradients 2, 3 and 5 times that of its output."""

    def construct(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return q * 2 + k * 3 + v * 5


class ThreeTimes(nn.Cell):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.attention = Shares()

    def construct(self, x: Tensor) -> Tensor:
        h = x * 1
        return self.attention(h, h, h).sum()


@pytest.mark.parametrize("mode", ["PyNative", "graph"])
def test_one_tensor_in_three_slots(tmp_path: Any, mode: str) -> None:
    """A graph tells the share of each slot; PyNative the sum, and each slot names the others that have it."""
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    try:
        model = ThreeTimes()
        data = capture(tmp_path, lambda: ms.grad(model)(values(4)), model, level="L0")
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)
    slots = data["Cell.attention.Shares.backward.0"]["output"]
    for n, (tensor, share) in enumerate(zip(slots, (2, 3, 5), strict=True)):
        if mode == "graph":
            assert agrees(tensor, np.full(4, share)) and "shared_with" not in tensor
        else:
            assert agrees(tensor, np.full(4, 10))
            assert tensor["shared_with"] == [f"output.{i}" for i in range(3) if i != n]


def test_this_mindspore_is_known() -> None:
    version = tuple(map(int, ms.__version__.split(".")[:2]))
    assert (version >= (2, 8)) == autograd.GRAPH
