"""Supply the runs of the contract on task `watch`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from loops import Nothing
from probe_torch import PrecisionDebugger
from torch import nn


def _norm(t: torch.Tensor) -> float:
    return float(t.detach().double().norm())


@pytest.fixture
def watched_run(request: pytest.FixtureRequest) -> Any:
    """AdamW on a small net, by hand."""

    def run(dump: Path | None, steps: int, **keys: Any) -> Any:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
        keys = {"task": "watch", **keys}
        debugger: Any = Nothing() if dump is None else PrecisionDebugger(dump_path=dump, **keys)
        request.addfinalizer(debugger.close)
        seen = []
        for _ in range(steps):
            with debugger.one_step(net):
                net(torch.randn(3, 4)).square().sum().backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                row = {}
                for name, p in net.named_parameters():
                    row["gradients", name], row["weights", name] = _norm(p.grad), _norm(p)
                    for key in ("exp_avg", "exp_avg_sq"):
                        if p in optimizer.state:
                            row["moments", f"{name}.{key}"] = _norm(optimizer.state[p][key])
                before = [p.detach().clone() for p in net.parameters()]
                optimizer.step()
                for (name, p), old in zip(net.named_parameters(), before, strict=True):
                    row["updates", name] = _norm(p.double() - old.double())
                optimizer.zero_grad()
                seen.append(row)
        debugger.close()
        return [p.detach().numpy().tobytes() for p in net.parameters()], seen

    return run


@pytest.fixture
def watched_loop() -> Path:
    return Path(__file__).parent / "watched_loop.py"
