"""Run by torchrun from test_when.py: a small model on several processes, which average their gradients."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from planted_run import train
from probe_torch import PrecisionDebugger
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class Planted(nn.Module):
    """The identity, times a factor."""

    factor = 1.0

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def made(seed: int) -> tuple[nn.Module, Callable[[float], float]]:
    torch.manual_seed(seed)
    planted = Planted()
    net = nn.Sequential(nn.Linear(8, 16), planted, nn.ReLU(), nn.Linear(16, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)

    def step(factor: float) -> float:
        planted.factor = factor
        optimizer.zero_grad()
        loss = model(torch.randn(16, 8)).square().mean()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return model, step


def main(request: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(json.loads(request), dist.get_rank(), dist.get_world_size(), PrecisionDebugger, made)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # see ranks.py


if __name__ == "__main__":
    main(*sys.argv[1:])
