"""The modules of a model, walked in few calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from dumping import capture, report
from probe_torch.hooks.modules import outermost_calls
from probe_torch.submodules import named_submodules
from torch import nn


def test_modules_are_named_as_torch_names_them() -> None:
    """Also modules that several have, TorchScript's, and classes with a way of their own."""

    class Own(nn.Module):
        def __init__(self, inside: nn.Module) -> None:
            super().__init__()
            self.inside, self.none = inside, None
            self.register_module("absent", None)
            self.table = nn.ModuleDict({"x": nn.ReLU(), "y": inside})

        def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Module]]:
            return ((f"{name}!", module) for name, module in super().named_modules(*args, **kwargs))

    class Plain(Own):
        named_modules = nn.Module.named_modules

    shared = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
    for model in (
        *(shared, nn.Sequential(shared, nn.Sequential(shared[0]), shared), Plain(shared), Own(shared)),
        *(nn.Sequential(Own(shared), shared), torch.jit.script(shared)),
    ):
        assert named_submodules(model) == list(model.named_modules())


class Equal(nn.Linear):
    """A module that is equal to every other one, and has no hash."""

    def __eq__(self, other: object) -> bool:
        return True


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_modules_that_are_equal_and_have_no_hash(tmp_path: Path, level: str) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = Equal(2, 2), Equal(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x))  # type: ignore[no-any-return]

    net = Net()
    data = capture(tmp_path, lambda: net(torch.ones(1, 2)).sum().backward(), net, level=level)
    assert not report(tmp_path / "dump")["faults"]
    if level != "L1":
        for way in ("forward.0", "backward.0", "parameters_grad"):
            assert {f"Module.{name}.Equal.{way}" for name in "ab"} <= data.keys()


def test_calls_that_are_told_are_recorded_also_after_somebody_kept_one(tmp_path: Path) -> None:
    net, kept, told = nn.Sequential(nn.Linear(2, 2)), [], []

    def work() -> None:
        kept.append(nn.Module.__call__)
        net[0](torch.ones(1, 2))

    for i in range(2):
        with outermost_calls(told.append):
            data = capture(tmp_path / str(i), work, net, level="L0")
        assert "Module.0.Linear.forward.0" in data
    assert (told, kept) == ([net[0]] * 2, [nn.Module.__call__] * 2)


def test_buffers_are_recorded_as_they_are_when_the_call_begins(tmp_path: Path) -> None:
    net = nn.Sequential(nn.BatchNorm1d(2, affine=False), nn.ReLU())
    net[0].register_buffer("none", None)
    data = capture(tmp_path, lambda: net(torch.tensor([[1.0, 2.0], [3.0, 6.0]])), net, level="L0")
    found = data["Module.0.BatchNorm1d.forward.0"]
    assert list(found["buffers"]) == ["running_mean", "running_var", "num_batches_tracked"]
    assert found["parameters"] == {} and found["buffers"]["running_var"]["Mean"] == 1.0
    assert found["buffers"]["running_mean"]["Norm"] == 0.0 and net[0].running_mean.norm() > 0
    assert "buffers" not in data["Module.1.ReLU.forward.0"]
