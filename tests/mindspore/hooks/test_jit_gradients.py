"""Gradients of the arguments of jitted calls: only those arrive that somebody needs, and each is told of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from gradient_nets import values
from jit_forms import CONSTANT, FORMS, WEIGHT, Around, slot, truth
from mindspore import Tensor, nn, ops
from mindspore_dumping import agrees, bits, capture, collected, records, report, trained
from mindspore_hooks import held_compilations
from probe_mindspore.hooks import gradients
from probe_mindspore.hooks.nodes import InputGradients

pytestmark = pytest.mark.usefixtures("pynative")
LEVELS = [pytest.param("L0", marks=pytest.mark.once), "mix"]


def _get(slots: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        slots = None if slots is None else slots[key]
    return slots


@pytest.mark.parametrize("level", [pytest.param("L1", marks=pytest.mark.once), "mix"])
@pytest.mark.parametrize("form", FORMS)
def test_each_argument_has_its_own_gradient(form: str, level: str, tmp_path: Path) -> None:
    function, arguments, taking, not_taking = FORMS[form]
    jitted = ms.jit(function)
    made: list[Any] = []

    def network(x: Tensor) -> Tensor:
        args, kwargs = made[:] = arguments(x * 1)
        return jitted(*args, **kwargs).sum()

    def run() -> list[bytes]:
        return bits(ms.value_and_grad(network, 0, [WEIGHT])(values(2, 4)))

    without, seen = run(), []
    model = nn.SequentialCell(nn.Dense(4, 4))
    data = capture(tmp_path, lambda: seen.extend(run()), model if level == "mix" else None, level=level)
    assert seen == without
    assert report(tmp_path / "dump")["faults"] == []
    slots = data[f"Jit.{function.__name__}.0.backward"]["output"]
    for path in taking:
        assert agrees(_get(slots, slot(function, made, path)), truth(function, made, path)), path
    for path in not_taking:
        assert _get(slots, slot(function, made, path)) is None, path


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("argument", [None, 0, 1])
def test_a_mask_has_not_the_gradient_of_the_input(argument: int | None, level: str, tmp_path: Path) -> None:
    net, args = Around(), (values(4, seed=8), values(2, 4))
    run = ms.value_and_grad(net, argument, net.trainable_params())
    weight, bias = net.masked.d.weight.asnumpy(), net.masked.d.bias.asnumpy()
    mask, x = (a.asnumpy() for a in args)
    expected = [(x @ weight.T + bias).sum(0), np.ones((2, 1)) @ (mask[None] @ weight)]
    with collected(tmp_path, net, level=level):
        run(*args)
    data = records(tmp_path / "dump" / "pynative")
    for name in ("Cell.masked.Masked.backward.0", "Jit.Masked.0.backward"):
        if name in data:
            slots = data[name]["output"][-2:]  # the Cell itself is the first argument of its construct
            for n in (0, 1):  # what the run needs no gradient of has none
                assert agrees(slots[n], expected[n]) if argument == n else slots[n] is None, (name, n)
    assert ("Jit.Masked.0.backward" in data) == (level == "mix")


@pytest.mark.parametrize("scaler", [ms.amp.StaticLossScaler(8.0), ms.amp.DynamicLossScaler(8.0, 2, 10)])
def test_a_scaled_loss(scaler: Any, tmp_path: Path) -> None:
    net = nn.SequentialCell(nn.Dense(4, 4))
    forward = ms.value_and_grad(lambda x: scaler.scale(net(x).sum()), None, net.trainable_params())

    def run() -> list[bytes]:
        loss, grads = forward(values(2, 4))
        grads = scaler.unscale(grads)
        scaler.adjust(ms.amp.all_finite(grads))
        return bits((loss, grads))

    without, seen = run(), []
    data = capture(tmp_path, lambda: seen.extend(run()), net, level="mix")
    assert seen == without and report(tmp_path / "dump")["faults"] == []
    (name,) = [name for name in data if name.startswith("Jit._grad_scale_map") and name.endswith("backward")]
    constant, scaled = data[name]["output"]
    assert constant is None and scaled["Norm"] == 8.0


def _weighted(t: Tensor, u: Tensor) -> Tensor:
    return (t * u).sum()


class Mapped(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.d = nn.Dense(4, 4)

    def construct(self, x: Tensor) -> Tensor:
        return ops.vmap(_weighted, (None, 0))(CONSTANT[0], self.d(x)).sum()


@pytest.mark.parametrize("level", LEVELS)
def test_vmap_inside_a_cell(level: str, tmp_path: Path) -> None:
    net, seen = Mapped(), []
    without = trained(net, values(2, 4))
    data = capture(tmp_path, lambda: seen.extend(trained(net, values(2, 4))), net, level=level)
    assert seen == without and report(tmp_path / "dump")["faults"] == []
    told = data["Cell.d.Dense.backward.0"]["input"][0]
    assert agrees(told, np.tile(CONSTANT[0].asnumpy(), (2, 1)))
    if level == "mix":
        (name,) = [n for n in data if n.startswith("Jit.") and n.endswith("backward")]
        slots = data[name]["output"]
        assert slots[0] is None and agrees(slots[1], np.tile(CONSTANT[0].asnumpy(), (2, 1)))


def _thrice(q, k, v):
    return q * 2 + ops.sin(k) * 3 + v * v


@pytest.mark.parametrize("keyword", [False, True])
def test_a_jitted_call_tells_the_share_of_each_slot(keyword: bool, tmp_path: Path) -> None:
    """The graph has an edge for each argument; on 2.7, which shows none, each slot has the sum and says so."""
    jitted, h = ms.jit(_thrice), values(2, 4, seed=3)

    def network(x: Tensor) -> Tensor:
        y = x * 1
        return (jitted(y, y, v=y) if keyword else jitted(y, y, y)).sum()

    data = capture(tmp_path, lambda: ms.grad(network)(h), level="L1")
    shares = [np.full((2, 4), 2.0), 3 * np.cos(h.asnumpy()), 2 * h.asnumpy()]
    for n, tensor in enumerate(data["Jit._thrice.0.backward"]["output"]):
        assert agrees(tensor, shares[n] if gradients.OWN else sum(shares))
        assert ("shared_with" in tensor) == (not gradients.OWN)


class Thrice(nn.Cell):
    @ms.jit
    def construct(self, q, k, v):
        return q * 2 + k * 3 + v * 5


def test_two_keywords_of_a_jitted_cell_are_not_told_apart(tmp_path: Path) -> None:
    """A Cell's record has them in the order of the call, its graph in that of the signature: the sum then."""
    net = nn.SequentialCell()
    net.inner = Thrice()
    h = values(3)
    run = ms.grad(lambda x: (lambda y: net.inner(y, v=y, k=y).sum())(x * 1))
    with collected(tmp_path, net, level="L0"):
        run(h)
    slots = records(tmp_path / "dump" / "pynative")["Cell.inner.Thrice.backward.0"]["output"]
    assert all(agrees(s, np.full(3, 10.0)) and len(s["shared_with"]) == 2 for s in slots)


def test_gradients_that_cannot_be_told_apart_are_given_to_nobody() -> None:
    """Should a MindSpore leave the edges as they are, no gradient is filed under another's name."""
    edges = InputGradients({("a", 0): 0, ("b", 0): 1}, [(0, 0), (1, 1)], 2)
    assert edges.of(2) == [(0, 0), (1, 1)]
    with pytest.raises(LookupError, match="fewer gradients came"):
        edges.of(1)


class Chain(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.same, self.b = nn.Dense(4, 4), nn.Identity(), nn.Dense(4, 4)


@pytest.mark.parametrize("first", ["jitted", "Cell"])
def test_a_jitted_function_is_given_what_is_hooked(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler takes the hooks of an argument into the graph, and fails where it cannot read their source."""
    net = Chain()

    def run() -> list[bytes]:
        def begin(x):  # type: ignore[no-untyped-def]
            return net.a(x)

        def end(x):  # type: ignore[no-untyped-def]
            return net.b(x)

        made, given = ms.jit(begin) if first == "jitted" else net.same, ms.jit(end)
        take = ms.value_and_grad(lambda x: given(made(x)).sum(), 0, net.trainable_params())
        return bits(take(values(2, 4)))

    without, seen = run(), []
    held = held_compilations(monkeypatch)
    capture(tmp_path, lambda: seen.extend(run()), net, level="L0")
    assert seen == without
    assert report(tmp_path / "dump")["faults"] == []
    found = records(tmp_path / "dump" / "graph")
    assert {"Cell.b.Dense.backward.0", "Cell.a.Dense.backward.0"} & found.keys() == {
        "Cell.b.Dense.backward.0",
        *["Cell.a.Dense.backward.0"] * (first == "jitted"),
    }
    assert not held  # nothing stays
