"""Jitted pieces whose way is decided when they run, under PyNative's gradients: the user's step always runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from gradient_nets import values
from mindspore import Tensor, nn
from mindspore_dumping import collected, strict, trained

pytestmark = pytest.mark.usefixtures("pynative")


class Pair(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.d, self.e = nn.Dense(4, 4), nn.Dense(4, 4)


class If(Pair):
    @ms.jit
    def construct(self, x):
        y = self.d(x)
        if y.sum() > 0:  # noqa: SIM108 - as people write it
            y = self.e(y)
        else:
            y = y * 2
        return y


class TwoIfs(Pair):
    @ms.jit
    def construct(self, x):
        y = self.d(x)
        if y.sum() > 0:
            y = self.e(y)
        if y.mean() > 0:
            y = self.d(y)
        return y


class TwoLoops(Pair):
    @ms.jit
    def construct(self, x):
        y = self.d(x)
        n = Tensor(0, ms.int32)
        while n < 2:
            y = self.e(y)
            n = n + 1
        while n < 4:
            y = self.d(y)
            n = n + 1
        return self.e(y)


def chosen(net: Any, y: Any) -> Any:
    if y.sum() > 0:
        y = net.e(y)
    return net.d(y)  # what both ways go on with


class Helped(Pair):
    @ms.jit
    def construct(self, x):
        y = chosen(self, chosen(self, x))
        n = Tensor(0, ms.int32)
        while n < 2:
            y = chosen(self, y)
            n = n + 1
        return y


def untouched(cell: Any, of_inputs: Any, of_outputs: Any) -> None:
    return None


class Hooked(Pair):
    def __init__(self) -> None:
        super().__init__()
        self.d.register_backward_hook(untouched)

    @ms.jit
    def construct(self, x):
        return self.e(self.d(x))


class Net(nn.Cell):
    def __init__(self, kind: type[Pair]) -> None:
        super().__init__()
        self.piece, self.last = kind(), nn.Dense(4, 4)
        rng = np.random.default_rng(5)
        for p in self.get_parameters():
            p.set_data(Tensor(rng.standard_normal(p.shape).astype(np.float32)))

    def construct(self, x: Tensor) -> Tensor:
        return self.last(self.piece(x)).sum()


@pytest.mark.parametrize("level", [pytest.param("L0", marks=pytest.mark.once), "mix"])
@pytest.mark.parametrize("kind", [If, TwoIfs, TwoLoops, Helped, Hooked])
@pytest.mark.filterwarnings("ignore:Probe recorded")
def test_the_step_runs_with_its_own_bits_and_what_is_left_out_is_told(
    kind: type[Pair], level: str, tmp_path: Path
) -> None:
    without = trained(Net(kind), values(2, 4))
    net = Net(kind)
    with collected(tmp_path, net, level=level):
        assert trained(net, values(2, 4)) == without
    said = {
        item["what"]: item["why"]
        for path in tmp_path.rglob("report.json")
        for item in strict(path)["not_seen"]
    }
    names = [name for path in tmp_path.rglob("dump.json") for name in strict(path)["data"]]
    assert any(
        name.startswith(("Cell.piece.d.Dense.forward", "Cell.piece.e.Dense.forward")) for name in names
    )
    if kind is Hooked:
        assert "hooks" in said["Cell.piece.d.Dense"]
    elif kind in (If, TwoIfs):
        assert "Cell.piece.d.Dense.backward.0" in names
    else:  # MindSpore cannot export the gradients of a loop with taps
        assert "decided when it runs" in said["gradients of Cell.piece.d.Dense"]
