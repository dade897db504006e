"""What a compiled function reaches, which is asked at each of its calls in a run that `probe run` watches."""

from __future__ import annotations

import sys
from typing import Any

import pytest

ms = pytest.importorskip("mindspore")

from mindspore import nn  # noqa: E402
from probe_mindspore.patching.reach import Reach  # noqa: E402


def _net(blocks: int) -> nn.Cell:
    net = nn.SequentialCell(*(nn.SequentialCell(nn.ReLU(), nn.Tanh()) for _ in range(blocks)))
    net.again = net[0]
    return net


def _calls(net: nn.Cell) -> int:
    """How many functions are called to find out what a function with this network reaches."""
    called = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal called
        called += event in ("call", "c_call")

    def forward(x: Any) -> Any:
        return net(x)

    sys.setprofile(count)
    try:
        found = Reach.of(forward)
    finally:
        sys.setprofile(None)
    assert found.cells == [net] and not found.optimizers
    return called


def test_a_call_costs_no_more_for_more_cells() -> None:
    assert _calls(_net(110)) <= _calls(_net(10)) + 10


@pytest.mark.parametrize("deep", [False, True])
def test_an_optimizer_in_a_cell_is_reached(deep: bool) -> None:
    net = nn.Dense(2, 2)
    optimizer = nn.SGD(net.trainable_params(), 0.1)

    class Step(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.optimizer = net, optimizer

        def construct(self, x: Any) -> Any:
            return self.optimizer(self.inner(x))

    class Around(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.step = Step()

        def construct(self, x: Any) -> Any:
            return self.step(x)

    cell = Around() if deep else Step()
    assert Reach.of(lambda x: cell(x)).optimizers == [optimizer]
