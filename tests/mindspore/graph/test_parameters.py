"""A Parameter given to a Cell as an argument, in a compiled graph: the report says why its gradient is null."""

from __future__ import annotations

from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn
from mindspore_dumping import capture, report


class Scale(nn.Cell):
    def construct(self, x: Tensor, w: Tensor) -> Tensor:
        return x * w


class Net(nn.Cell):
    def __init__(self, *, given: bool) -> None:
        super().__init__()
        self.s = Scale()
        self.w = Parameter(Tensor(np.arange(1, 5, dtype=np.float32)), name="w")
        self.given = given

    def construct(self, x: Tensor) -> Tensor:
        return self.s(x, self.w if self.given else self.w * 2).sum()


@pytest.mark.parametrize("given", [True, False])
def test_a_parameter_as_an_argument_is_told(tmp_path: Path, given: bool) -> None:
    net = Net(given=given)
    x = Tensor(np.ones((2, 4), np.float32))
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        gradient = ms.grad(net, 0, net.trainable_params())
        recorded = capture(tmp_path, lambda: gradient(x), net, level="L0")
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)
    (name,) = (name for name in recorded if ".backward." in name)
    told = [
        n["what"]
        for n in report(tmp_path / "dump")["not_seen"]
        if n["what"].startswith("gradients of the Param")
    ]
    assert (recorded[name]["output"][1] is None) == given
    assert told == (["gradients of the Parameters among the arguments of Cell.s.Scale"] if given else [])
