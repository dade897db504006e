"""`probe check` of a dump by MindSpore: honest functions are right, a wrong one is named, the rest has its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, mint, nn, ops
from probe_mindspore import PrecisionDebugger
from probe_mindspore.hooks.gradients import OWN

probe_analysis = pytest.importorskip("probe_analysis")


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Dense(8, 16)

    def construct(self, x: Any) -> Any:
        y = ops.relu(self.first(x)) * 2.0
        y = mint.nn.functional.softmax(y, -1)
        return (mint.matmul(y, y.T) + ops.dropout(y, p=0.5).sum()).sum()


def replayed(folder: Path) -> Any:
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    net = Net()
    debugger = PrecisionDebugger(task="tensor", level="mix", dump_path=str(folder))
    debugger.start(net)
    mindspore.value_and_grad(net, None, net.trainable_params())(
        Tensor(np.random.randn(4, 8).astype(np.float32))
    )
    debugger.stop()
    debugger.step()
    debugger.close()
    return folder


def test_honest_functions_are_right_and_the_rest_has_its_reason(tmp_path: Path) -> None:
    found = probe_analysis.check(replayed(tmp_path))
    assert found.first is None
    done = {each.call.name for _, each in found.ranked}
    why = {x.call.name: x.why for _, x in found.calls if x.error is None}
    backward = {"Mint.matmul.0.backward", "Functional.relu.0.backward"}
    assert {"MintFunctional.softmax.0.forward", "Mint.matmul.0.forward"} <= done
    if OWN:
        assert backward <= done
    else:  # an input of several calls has the gradients of all of them in each record
        whole = "gradients of inputs are from all who use them (MindSpore 2.7)"
        assert {why[name] for name in backward} == {whole}
    assert why["Functional.dropout.0.forward"] == "it draws random numbers"
    assert {w for name, w in why.items() if name.startswith("Primitive.") and "forward" in name} == {
        "its attributes are not in a dump (Primitive)"
    }


def test_a_function_that_is_wrong_by_a_thousandth_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = mint.matmul
    with monkeypatch.context() as patched:
        patched.setattr(mint, "matmul", lambda a, b: right(a, b) * 1.001)
        folder = replayed(tmp_path)
    found = probe_analysis.check(folder)
    assert found.first is not None and found.first[1].call.name == "Mint.matmul.0.forward"
