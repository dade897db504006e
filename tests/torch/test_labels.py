"""Labels of requests in flight."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from contract_labels import *  # noqa: F403  the tests that both frameworks have
from dumping import opened, records
from torch import nn

REQUESTS, ROUNDS = 6, 5


def test_requests_that_compute_at_once_are_told_apart(tmp_path: Path) -> None:
    """All are in the middle of the model together, forward and backward."""
    all_here = threading.Barrier(REQUESTS)

    class Meet(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            all_here.wait(30)
            return x

    model = nn.Sequential(nn.Linear(3, 3), Meet(), nn.Linear(3, 1))
    with opened(tmp_path, level="mix") as debugger:

        def handle(number: int) -> None:
            with debugger.label(f"req-{number}"):
                for _ in range(ROUNDS):
                    x = torch.ones(number + 1, 3, requires_grad=True)
                    torch.autograd.grad(model(x).sum(), x)

        with debugger.one_step(model), ThreadPoolExecutor(REQUESTS) as pool:
            list(pool.map(handle, range(REQUESTS)))
    found = {
        name: r for name, r in records(tmp_path / "dump").items() if ".forward" in name and "input_args" in r
    }
    linear = [r for name, r in found.items() if "Linear.forward" in name]
    assert len(linear) == 2 * REQUESTS * ROUNDS
    for name, record in found.items():
        assert record["label"] == f"req-{record['input_args'][0]['shape'][0] - 1}", name
