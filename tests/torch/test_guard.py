"""Nothing of ours raises into the user's step: a fault in each of the places that torch calls, one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from dumping import opened, strict
from faults import broken
from probe_runtime.collect.backward_records import BackwardRecords
from probe_runtime.collect.collector import Collector
from probe_runtime.collect.gradients import GradientTap
from probe_runtime.collect.recorder import Recorder
from probe_torch.hooks import gradients, leaf_gradients, parameter_gradients
from probe_torch.tensors.leaf import TensorLeaf
from probe_torch.tensors.sharing import Sharing
from torch import nn

#: Where torch comes to us -> the first function of ours that is called there.
PLACES: dict[str, tuple[Any, str]] = {
    "a module or function begins": (Recorder, "begin"),
    "its inputs": (Recorder, "_enter"),
    "it ends": (Recorder, "end"),
    "its output": (Recorder, "_exit"),
    "the graph is hooked": (BackwardRecords, "attach"),
    "the graph is walked": (gradients, "_consumers"),
    "a hook on a node": (GradientTap, "fire"),
    "a hook on a leaf": (leaf_gradients, "aside"),
    "a gradient is recorded": (BackwardRecords, "_described"),
    "a hook on a parameter": (parameter_gradients.ParameterGradients, "_on_arrival"),
    "a parameter's gradient": (Collector, "parameter_gradient"),
    "a tensor": (TensorLeaf, "leaf"),
    "a gradient": (TensorLeaf, "tensor"),
    "what is shared": (Sharing, "find"),
    "a way to the bytes": (TensorLeaf, "touched"),
    "a write out of sight": (TensorLeaf, "wrote"),
    "an optimizer begins": (TensorLeaf, "step_begins"),
    "an optimizer ends": (TensorLeaf, "step_ends"),
    "a region of the step": (Collector, "push"),
    "a region's end": (Collector, "pop"),
}
AT_L1 = {"a region of the step", "a region's end"}  # no function is replaced at L0


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.passes, self.last = nn.Linear(4, 4), nn.Identity(), nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.first(x)) * self.passes(self.scale)).sum()


def step(net: Net) -> list[bytes]:
    """Loss, gradients and parameters of one training step."""
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, fused=True)
    x = torch.linspace(-1, 1, 8).view(2, 4)
    loss = net(x)
    loss.backward()
    x.data.mul_(1)
    torch._fused_sgd_(
        [torch.ones(2)], [torch.ones(2)], [], weight_decay=0.0, momentum=0.0, lr=0.1, dampening=0.0,
        nesterov=False, maximize=False, is_first_step=True,
    )  # fmt: skip
    optimizer.step()
    found = [loss.detach(), *net.parameters(), *(p.grad for p in net.parameters() if p.grad is not None)]
    return [bytes(t.detach().view(-1).view(torch.uint8).tolist()) for t in found]


def made() -> Net:
    torch.manual_seed(3)
    return Net()


@pytest.mark.filterwarnings("ignore:Probe met")
@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize("place", PLACES)
def test_a_fault_there_costs_the_user_nothing(place: str, level: str, tmp_path: Path) -> None:
    if level == "L0" and place in AT_L1:
        level = "L1"
    without = step(made())
    net = made()
    with opened(tmp_path, level=level) as debugger:
        with broken(*PLACES[place]) as times:
            debugger.start(net)
            seen = step(net)
        debugger.stop()
        debugger.step()
    assert seen == without
    assert times[0], "nobody came there"
    folder = tmp_path / "dump/step0/rank"
    if place == "a tensor":  # costs that one value, which says so
        assert "injected" in (folder / "dump.json").read_text()
        return
    assert any("injected" in fault["message"] for fault in strict(folder / "report.json")["faults"])
    assert "injected" in (folder / "dump_error_info.log").read_text()
