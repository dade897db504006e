"""The contract of `on_non_finite`, and what only torch has: scalers, checkpoints, probe run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from contract_on_non_finite import *  # noqa: F403
from contract_on_non_finite import Step
from dumping import FRAMEWORK, dumped
from launching import FORKS
from probe_format.errors import NonFiniteError
from torch import nn


class Overflow(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * float("inf")


@pytest.mark.parametrize("enabled", [True, False])
def test_an_overflow_that_a_scaler_skips_triggers_nothing(tmp_path: Path, enabled: bool) -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=enabled)
    before = [p.detach().clone() for p in net.parameters()]
    caught = []
    with dumped(tmp_path, net, level="mix", on_non_finite="raise"):
        try:
            loss = Overflow.apply(net(torch.ones(3, 2))).sum()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        except NonFiniteError as error:
            caught.append(error.record)
    if enabled:
        assert not caught
        assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    else:
        assert caught and "backward" in caught[0]


def test_the_gradient_of_a_parameter_alone(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(2, 2))
    next(net.parameters()).register_hook(lambda g: g * float("inf"))

    def work() -> None:
        torch_debugger = FRAMEWORK.debugger
        torch_debugger.stop()
        torch_debugger.start(net)
        net(torch.ones(3, 2)).sum().backward()

    step = Step(FRAMEWORK, tmp_path, work, level="L0")
    error = step.error or step.error_at_stop
    assert error is not None and error.record == "Module.0.Linear.parameters_grad"


def test_a_recomputed_call_is_told_once(tmp_path: Path) -> None:
    from torch.utils.checkpoint import checkpoint

    x = torch.full((2,), -1.0, requires_grad=True)
    error = Step(
        FRAMEWORK, tmp_path, lambda: checkpoint(lambda t: t.sqrt(), x, use_reentrant=False).sum().backward()
    ).of
    assert error.record == "Tensor.sqrt.0.forward"


SCRIPT = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    y = model(torch.ones(2))
    if step == 1:
        y = torch.log(y - y - 1)
    y.sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("late", ["false", "true"])
def test_under_probe_run(tmp_path: Path, late: str) -> None:
    (tmp_path / "x.py").write_text(SCRIPT)
    keys = ["--level", "mix", "--dump_path", "dump", "--on_non_finite", "raise", "--async_dump", late]
    done = FORKS.run("-m", "probe_format", "run", *keys, "x.py", cwd=tmp_path, ends=1)
    assert "NonFiniteError: Torch.log.0.forward makes the first value that is not finite" in done.stderr
    assert ("x.py:8 in <module>: y = torch.log(y - y - 1)." in done.stderr) == (late == "false")
    assert "Probe met" not in done.stderr and "looking for steps ended" not in done.stderr
    assert {path.parent.parent.name for path in (tmp_path / "dump").glob("*/*/dump.json")} == {
        "step0",
        "step1",
    }


def test_pdb_is_entered(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(SCRIPT)
    keys = ["--level", "L1", "--dump_path", "dump", "--on_non_finite", "break"]
    debugged = FORKS.talk("-m", "probe_format", "run", *keys, "x.py", cwd=tmp_path)
    printed, said = debugged.communicate("p error.record\nc\n")
    assert debugged.code == 0, said
    assert "'Torch.log.0.forward'" in printed
