"""Nothing of ours raises into the user's step: a fault in each of the places that torch calls, one by one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import contract_guard
import pytest
import torch
from contract_guard import check_a_fault, check_the_report
from faults import broken, broken_callback
from framework import Framework
from probe_runtime.collect import GradientTap
from probe_runtime.collect.collector import Collector
from probe_torch.hooks import gradients, leaf_gradients, parameter_gradients
from probe_torch.tensors.leaf import TensorLeaf
from torch import nn

PLACES: dict[str, Callable[[], AbstractContextManager[list[int]]]] = {
    **contract_guard.PLACES,
    "the graph is walked": partial(broken, gradients, "add_consumers"),
    "a hook on a node": partial(broken, GradientTap, "fire"),
    "a hook on a leaf": partial(broken, leaf_gradients, "aside"),
    "a hook on a parameter": partial(broken_callback, parameter_gradients, "guarded"),
    "a tensor": partial(broken, TensorLeaf, "tensor"),
    "a gradient": partial(broken, TensorLeaf, "tensor"),
    "a region's end": partial(broken, Collector, "pop"),
}
AT_L1 = {"a region of the step", "a region's end"}  # no function is replaced at L0


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.passes, self.last = nn.Linear(4, 4), nn.Identity(), nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.passes({"scale": self.scale})[
            "scale"
        ]  # a tensor below a dict is described in another way
        return self.last(torch.tanh(self.first(x)) * scale).sum()


def step(net: Net) -> list[bytes]:
    """Loss, gradients and parameters of one training step."""
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, fused=True)
    x = torch.linspace(-1, 1, 8).view(2, 4)
    loss = net(x)
    loss.backward()
    optimizer.step()
    found = [loss.detach(), *net.parameters(), *(p.grad for p in net.parameters() if p.grad is not None)]
    return [bytes(t.detach().view(-1).view(torch.uint8).tolist()) for t in found]


def made() -> Net:
    torch.manual_seed(3)
    return Net()


@pytest.mark.filterwarnings("ignore:Probe met")
@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize("place", PLACES)
def test_a_fault_there_costs_the_user_nothing(
    framework: Framework, place: str, level: str, tmp_path: Path
) -> None:
    if level == "L0" and place in AT_L1:
        level = "L1"
    check_a_fault(framework, PLACES[place], made, step, tmp_path, level)
    if place == "a tensor":  # costs that one value, which says so
        assert "injected" in (tmp_path / "dump/step0/rank/dump.json").read_text()
        return
    check_the_report(tmp_path)
