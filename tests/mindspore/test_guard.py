"""Nothing of ours raises into the user's step: a fault in each of the places that MindSpore calls, one by one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from faults import broken
from gradient_nets import values
from mindspore import Tensor, nn, ops
from mindspore_dumping import opened, strict
from probe_mindspore.graph import calls, host_callback, taps
from probe_mindspore.hooks import autograd
from probe_mindspore.hooks.nodes import InputGradients
from probe_mindspore.hooks.parameter_gradients import ParameterGradients
from probe_mindspore.patching import jit_guard
from probe_mindspore.patching.patches import Patches
from probe_mindspore.tensors.leaf import TensorLeaf
from probe_runtime.collect.backward_records import BackwardRecords
from probe_runtime.collect.collector import Collector
from probe_runtime.collect.gradients import GradientTap
from probe_runtime.collect.guard import sheltered
from probe_runtime.collect.recorder import Recorder

pytestmark = pytest.mark.usefixtures("pynative")

#: Where MindSpore comes to us -> the first function of ours that is called there.
PLACES: dict[str, tuple[Any, str]] = {
    "a Cell or function begins": (Recorder, "begin"),
    "its inputs": (Recorder, "_enter"),
    "it ends": (Recorder, "end"),
    "its output": (Recorder, "_exit"),
    "the graph is hooked": (BackwardRecords, "attach"),
    "a gradient is recorded": (BackwardRecords, "_described"),
    "a hook on a parameter": (ParameterGradients, "_arrived"),
    "a parameter's gradient": (Collector, "parameter_gradient"),
    "a tensor": (TensorLeaf, "tensor"),
    "a region of the step": (Collector, "push"),
    "a jitted call": (jit_guard, "handed"),
    "originals back for the compiler": (Patches, "suspended"),
    "hooks off for the compiler": (ParameterGradients, "_without_hooks"),
    "taps on for the compiler": (taps.GraphTaps, "_tapped"),
    "a graph with taps runs": (taps.GraphTaps, "_ran"),
    "a host callback": (host_callback, "rebuild"),
    "a Cell in a graph begins": (calls.GraphCalls, "_note_dynamic"),
    "a gradient in a graph": (calls.GraphCalls, "_gradient"),
}
if autograd.GRAPH:
    PLACES["a hook on a node"] = (GradientTap, "fire")
    PLACES["the edges of a node"] = (InputGradients, "of")


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
    return [t.asnumpy().tobytes() for t in (loss, *grads, *net.get_parameters())]


@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize("place", PLACES)
def test_a_fault_there_costs_the_user_nothing(place: str, level: str, tmp_path: Path) -> None:
    if level == "L0" and place in ("a region of the step", "a jitted call", "originals back for the compiler"):
        level = "L1"  # no function is replaced at L0
    without = step(Net())
    net = Net()
    with opened(tmp_path, level=level) as debugger:
        with broken(*PLACES[place]) as times:
            debugger.start(net)
            seen = step(net)
        debugger.stop()
        debugger.step()
    assert seen == without
    assert times[0], "nobody came there"
    reports = [strict(path) for path in tmp_path.rglob("report.json")]
    if place == "taps on for the compiler":  # to the graph it is as if they did not compile
        assert any("injected" in item["why"] for r in reports for item in r["not_seen"])
        return
    assert any("injected" in fault["message"] for r in reports for fault in r["faults"])
    assert any("injected" in path.read_text() for path in tmp_path.rglob("dump_error_info.log"))


def _sheltered(ours: Callable[[Any], Any]) -> tuple[Any, list[int]]:
    times = [0]

    def original(x: int) -> int:
        times[0] += 1
        if x == 0:
            raise KeyError("the user's")
        return x * 2

    return sheltered("here", ours)(original), times


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_original_is_called_once_whenever_ours_fails(when: str) -> None:
    def ours(original: Any) -> Any:
        def stand_in(x: int) -> int:
            if when == "before":
                raise ZeroDivisionError
            original(x)
            raise ZeroDivisionError

        return stand_in

    call, times = _sheltered(ours)
    assert call(4) == 8 and times == [1]


def test_what_the_user_raises_goes_through_and_is_raised_once() -> None:
    call, times = _sheltered(lambda original: lambda x: original(x))
    with pytest.raises(KeyError, match="user's"):
        call(0)
    assert times == [1]
    caught: list[Any] = []
    thread = threading.Thread(target=lambda: caught.append(call(3)))
    thread.start()
    thread.join()
    assert caught == [6]


def test_ours_may_try_the_original_again_and_then_fail() -> None:
    def ours(original: Any) -> Any:
        def stand_in(x: int) -> int:
            try:
                original(0)
            except KeyError:
                raise ZeroDivisionError from None
            return 0

        return stand_in

    call, times = _sheltered(ours)
    assert call(4) == 8 and times == [2]
