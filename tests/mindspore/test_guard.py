"""Nothing of ours raises into the user's step: a fault in each of the places that MindSpore calls, one by one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import contract_guard
import mindspore as ms
import numpy as np
import pytest
from contract_guard import check_a_fault, check_the_report
from documents import strict
from faults import broken, broken_callback
from framework import Framework
from gradient_nets import values
from mindspore import Tensor, nn, ops
from mindspore_dumping import bits
from probe_mindspore.graph import host_callback, taps
from probe_mindspore.graph.calls import GraphCalls
from probe_mindspore.hooks import autograd, gradients, uncompiled_hooks
from probe_mindspore.hooks.nodes import InputGradients
from probe_mindspore.patching import jit_guard
from probe_mindspore.patching.patches import Patches
from probe_mindspore.tensors.leaf import TensorLeaf
from probe_runtime.collect import GradientTap

pytestmark = pytest.mark.usefixtures("pynative")

PLACES: dict[str, Callable[[], AbstractContextManager[list[int]]]] = {
    **contract_guard.PLACES,
    "a hook on a parameter": partial(broken_callback, gradients, "watch"),
    "a tensor": partial(broken, TensorLeaf, "tensor"),
    "a jitted call": partial(broken, jit_guard, "handed"),
    "originals back for the compiler": partial(broken, Patches, "suspended"),
    "hooks off for the compiler": partial(broken_callback, uncompiled_hooks, "around_compilation"),
    "taps on for the compiler": partial(broken_callback, taps, "CopiedCompilations", 1),
    "a graph with taps runs": partial(broken_callback, taps, "CopiedCompilations", 3),
    "a host callback": partial(broken, host_callback, "rebuild"),
    "a Cell in a graph begins": partial(broken, GraphCalls, "enter"),
    "a gradient of an input in a graph": partial(broken, GraphCalls, "of_input"),
    "a gradient of an output in a graph": partial(broken, GraphCalls, "of_output"),
}
if autograd.GRAPH:
    PLACES["a hook on a node"] = partial(broken, GradientTap, "fire")
    PLACES["the edges of a node"] = partial(broken, InputGradients, "of")


class Piece(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.d = nn.Dense(4, 4)

    @ms.jit
    def construct(self, mask, x):
        return self.d(x) * mask


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.piece, self.last = nn.Dense(4, 4), Piece(), nn.Dense(4, 4)
        rng = np.random.default_rng(5)
        for p in self.get_parameters():
            p.set_data(Tensor(rng.standard_normal(p.shape).astype(np.float32)))

    def construct(self, x: Tensor) -> Tensor:
        return self.last(self.piece(values(4, seed=8), ops.tanh(self.first(x)))).sum()


def step(net: Net) -> list[bytes]:
    """Loss, gradients and parameters of one training step."""
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
    loss, grads = ms.value_and_grad(net, None, optimizer.parameters)(values(2, 4))
    optimizer(grads)
    return bits([loss, *grads, *net.get_parameters()])


#: No function is replaced at L0: there a Cell alone leads to us.
AT_L0 = ("a call begins", "it ends", "a gradient is recorded", "a host callback")


@pytest.mark.parametrize(
    ("place", "level"),
    [
        *(pytest.param(p, "mix", marks=[pytest.mark.once] * (p in contract_guard.PLACES)) for p in PLACES),
        *(pytest.param(p, "L0", marks=pytest.mark.once) for p in AT_L0),
        ("a jitted call", "L1"),
    ],
)
def test_a_fault_there_costs_the_user_nothing(
    framework: Framework, place: str, level: str, tmp_path: Path
) -> None:
    check_a_fault(framework, PLACES[place], Net, step, tmp_path, level)
    if place == "taps on for the compiler":  # to the graph it is as if they did not compile
        reports = [strict(path) for path in tmp_path.rglob("report.json")]
        assert any("injected" in item["why"] for report in reports for item in report["not_seen"])
        return
    check_the_report(tmp_path)
