"""The contract of `reload`."""

from __future__ import annotations

from pathlib import Path

from contract_reload import *  # noqa: F403
from contract_reload import LEVELS, levels_under_probe_run
from framework import Framework

SCRIPT = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for text in FILES:
    model(torch.ones(2)).sum().backward()
    write(text)
    optimizer.step()
"""


def test_under_probe_run(framework: Framework, tmp_path: Path) -> None:
    assert levels_under_probe_run(framework, tmp_path, SCRIPT) == LEVELS
