"""Operators that are called as such are recorded at L1, under names of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from dumping import agrees, capture
from torch import Tensor, nn


@torch.library.custom_op("probe_tests::scale", mutates_args=())
def scale(x: Tensor, by: float) -> Tensor:
    return torch.mul(x, by)


@scale.register_fake
def _(x: Tensor, by: float) -> Tensor:
    return torch.empty_like(x)


scale.register_autograd(
    lambda ctx, grad: (grad * ctx.by, None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]),
)


def forwards(data: dict[str, Any]) -> list[str]:
    return [name for name in data if name.endswith(".forward")]


@pytest.mark.parametrize("level", ["L1", "mix"])
def test_every_way_to_call_an_operator(tmp_path: Path, level: str) -> None:
    x = torch.randn(3, requires_grad=True)
    outputs: list[Tensor] = []

    def work() -> None:
        calls = scale, torch.ops.probe_tests.scale, torch.ops.probe_tests.scale.default
        outputs.extend(call(x, 2.0) for call in calls)
        outputs.append(torch.ops.aten.add(x, x))
        outputs.append(torch.ops.aten.add.Tensor(x, x, alpha=3))
        torch.stack(outputs).sum().backward()

    data = capture(tmp_path, work, nn.Identity(), level=level)
    names = [f"Ops.probe_tests.scale.{i}.forward" for i in range(3)] + [
        f"Ops.aten.add.{i}.forward" for i in range(2)
    ]
    assert [name for name in forwards(data) if name.startswith("Ops.")] == names
    for name, output in zip(names, outputs, strict=True):
        assert agrees(data[name]["output"][0], output) and agrees(data[name]["input_args"][0], x)
        back = data[name.replace("forward", "backward")]
        assert agrees(back["input"][0], torch.ones(3)), "the gradient of what it returned"
    assert data["Ops.aten.add.1.forward"]["input_kwargs"]["alpha"]["value"] == 3


def test_an_exported_program(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    x = torch.randn(5, 3)
    program = torch.export.export(net, (x,)).module()
    true = program(x)
    data = capture(tmp_path, lambda: program(x), level="L1")
    called = [name.rsplit(".", 2)[0] for name in forwards(data)]
    assert called == ["Ops.aten.linear", "Ops.aten.relu", "Ops.aten.linear"]
    assert agrees(data["Ops.aten.linear.1.forward"]["output"][0], true)


def test_what_torch_calls_for_itself_is_not_the_models(tmp_path: Path) -> None:
    net = nn.Linear(3, 3)
    net(torch.ones(3)).sum().backward()
    optimizer = torch.optim.AdamW(net.parameters())
    data = capture(tmp_path, optimizer.step, level="L1")
    assert not [name for name in data if name.startswith("Ops.")]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled_code_calls_no_operators_of_the_model(tmp_path: Path, backend: str) -> None:
    compiled = torch.compile(lambda x: torch.ops.probe_tests.scale(x, 2.0) + 1, backend=backend)
    x = torch.ones(3)
    true = compiled(x)
    data = capture(tmp_path, lambda: compiled(x), level="L1")
    assert not [name for name in data if name.startswith("Ops.")]
    assert torch.equal(true, compiled(x))
