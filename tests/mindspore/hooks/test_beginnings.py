"""A Cell that is itself given to `mindspore.grad` or `mindspore.recompute`: gradients begin inside its own call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops
from mindspore_dumping import agrees, capture, report
from probe_mindspore.hooks import gradients


class Two(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.d = nn.Dense(4, 4)
        self.e = nn.Dense(4, 4)

    def construct(self, x: Tensor) -> Tensor:
        return self.e(self.d(x)) * x


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.b = Two()
        self.o = nn.Dense(4, 4)

    def construct(self, x: Tensor) -> Tensor:
        return self.o(ms.recompute(self.b, x)).sum()


def _numbers(seed: int) -> Tensor:
    return Tensor(np.random.default_rng(seed).standard_normal((2, 4)).astype(np.float32))


def _run(tmp_path: Path, level: str, net: nn.Cell, f: Callable[..., Any], *args: Tensor) -> tuple[Any, Any]:
    """(what f gives, the same bits with and without Probe; the records)."""
    plain, seen = f(*args), []
    recorded = capture(tmp_path, lambda: seen.append(f(*args)), net, level=level)
    for a, b in zip(_flat(plain), _flat(seen[0]), strict=True):
        np.testing.assert_array_equal(a, b)
    return seen[0], recorded


def _flat(value: Any) -> list[Any]:
    return [a for one in value for a in _flat(one)] if isinstance(value, (tuple, list)) else [value.asnumpy()]


def _told(tmp_path: Path) -> str:
    """Where the graph can't be seen: the note instead of a record."""
    notes = report(tmp_path / "dump")["not_seen"]
    (why,) = (n["why"] for n in notes if n["what"].startswith("the backward records of Cell.b.Two"))
    return str(why)


LEVELS = pytest.mark.parametrize("level", ["L0", "mix"])
HOW: dict[str, Callable[[nn.Cell], Callable[..., Any]]] = {
    "grad": lambda cell: lambda x, g: ms.grad(cell)(x),
    "sens": lambda cell: lambda x, g: ops.GradOperation(sens_param=True)(cell)(x, g),
    "value_and_grad": lambda cell: lambda x, g: ms.value_and_grad(cell, 0, cell.trainable_params())(x)[1][0],
}


@LEVELS
@pytest.mark.parametrize("how", HOW)
def test_a_recorded_cell_given_to_grad_has_its_backward_record(tmp_path: Path, how: str, level: str) -> None:
    net, g = Net(), _numbers(2)
    x_grad, recorded = _run(tmp_path, level, net, HOW[how](net.b), _numbers(1), g)
    if not gradients.OWN:
        assert "mindspore.grad" in _told(tmp_path)
        return
    record = recorded["Cell.b.Two.backward.0"]
    assert agrees(record["output"][0], x_grad.asnumpy())
    assert agrees(record["input"][0], g.asnumpy() if how == "sens" else np.ones((2, 4), np.float32))


@LEVELS
def test_a_recomputed_cell_has_its_backward_record(tmp_path: Path, level: str) -> None:
    net, x = Net(), _numbers(1)
    grads, recorded = _run(tmp_path, level, net, ms.grad(net, 0, net.trainable_params()), x)
    if not gradients.OWN:
        assert "recompute" in _told(tmp_path)
        return
    record = recorded[
        "Cell.b.Two.backward.1"
    ]  # of the run inside the backward pass, which the gradients are of
    assert agrees(record["output"][0], grads[0].asnumpy())
    arrived = np.ones((2, 4), np.float32) @ net.o.weight.asnumpy()
    assert agrees(record["input"][0], arrived)


def test_a_run_without_gradients_has_none_and_no_note(tmp_path: Path) -> None:
    net = Net()
    _, recorded = _run(tmp_path, "L0", net, net.b, _numbers(1))
    assert not [name for name in recorded if "backward" in name]
    assert not [
        n for n in report(tmp_path / "dump")["not_seen"] if n["what"].startswith("the backward records of")
    ]
