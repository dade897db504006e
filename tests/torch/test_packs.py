"""`tensor_files: packed`: the contract of both frameworks."""

from pathlib import Path
from typing import Any

import probe_format
import pytest
import torch
from contract_packs import *  # noqa: F403  the tests that both frameworks have
from probe_format.cli.main import main as probe
from probe_torch import PrecisionDebugger
from torch import nn


class Sums(nn.Module):
    def forward(self, x: torch.Tensor, cfg: dict[str, Any]) -> torch.Tensor:
        return x + cfg["a"]["b"] + cfg["a.b"]


@pytest.mark.parametrize("keys", [{}, {"tensor_files": "packed"}, {"async_dump": True}], ids=str)
def test_keys_with_a_dot_have_files_of_their_own(tmp_path: Path, keys: dict[str, Any]) -> None:
    """Gradients of such arguments as well, which come one by one."""
    net = nn.Sequential(Sums())
    a, b = torch.ones(4, requires_grad=True), torch.full((4,), 2.0, requires_grad=True)
    with PrecisionDebugger(dump_path=str(tmp_path), level="L0", task="tensor", **keys) as debugger:
        debugger.start(net)
        net[0](torch.zeros(4), cfg={"a": {"b": a}, "a.b": b}).sum().backward()
        debugger.stop()
        debugger.step()
    assert probe(["verify", str(tmp_path)]) == 0
    (rank,) = probe_format.open(tmp_path).ranks
    record = next(each for each in rank.records if each.kind == "forward")
    assert [float(t.load()[0]) for t in record.tensors] == [0.0, 1.0, 2.0, 3.0]
