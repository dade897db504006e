"""Train a small model on real processes, where one rank has another buffer, argument, mode or constant, and dump it.

given_model.py FOLDER TASK FAULT=LEVEL ... on each rank; rank 1 is the one at fault.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from probe_torch import PrecisionDebugger
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

STEPS = 2
ODD = 1


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(16, 16), nn.Linear(16, 16)
        self.norm, self.bn, self.drop = nn.LayerNorm(16, eps=1e-5), nn.BatchNorm1d(16), nn.Dropout(0.1)
        self.register_buffer("inv_freq", 1.0 / (100.0 ** (torch.arange(0, 16) / 16.0)))
        self.inv_freq: torch.Tensor
        self.slopes = torch.linspace(0.5, 0.1, 6)  # no buffer, which nobody broadcasts
        self.scale = 0.25

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        angles = torch.outer(torch.arange(6.0), self.inv_freq)
        x = self.norm(x) * angles.cos() + x
        scores = self.q(x) @ self.k(x).transpose(1, 2) * self.scale - self.slopes
        x = x + self.drop(torch.softmax(scores, -1) @ x)
        return self.bn(x.flatten(0, 1)).view_as(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.head = nn.Linear(8, 16), nn.Linear(16, 4)
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.up(x)
        for block in self.blocks:
            x = block(x)
        found: torch.Tensor = self.head(x)
        return found


def spoil(fault: str, block: Block) -> None:
    """Make one block of the odd rank another."""
    if fault == "running mean":
        block.bn.running_mean += 0.01  # type: ignore[operator]
    elif fault == "inv_freq":
        block.inv_freq *= 1.02
    elif fault == "eval dropout":
        block.drop.eval()
    elif fault == "eval norm":
        block.bn.eval()
    elif fault == "dropout":
        block.drop.p = 0.12
    elif fault == "eps":
        block.norm.eps = 1e-6
    elif fault == "scale":
        block.scale = 0.26
    elif fault == "constant":
        block.slopes = block.slopes * 1.02


def train(fault: str, folder: Path, task: str, level: str, rank: int) -> None:
    torch.manual_seed(0)
    net = Net()
    if fault == "frozen statistics":
        net.eval()
    model = DistributedDataParallel(net, broadcast_buffers=fault == "honest broadcast")
    if rank == ODD:
        spoil(fault, net.blocks[1])  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    debugger = PrecisionDebugger(dump_path=str(folder), level=level, task=task)
    data = torch.Generator().manual_seed(50 + rank)
    torch.manual_seed(100 + rank)
    for step in range(STEPS):
        if step == 0 or fault != "honest same data":
            x, y = torch.randn(4, 6, 8, generator=data), torch.randint(0, 4, (24,), generator=data)
            mask = torch.rand(24, generator=data) > 0.3
        debugger.start(model) if level != "L1" else debugger.start()
        loss = F.cross_entropy(model(x).flatten(0, 1), y, reduction="none")
        loss = (loss * mask).sum() * (1.0 / float(mask.sum()))  # a number that follows from the data
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        debugger.stop()
        debugger.step()
    debugger.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for each in sys.argv[3:]:
        name, _, level = each.partition("=")
        train(name, Path(sys.argv[1], each.replace(" ", "_")), sys.argv[2], level, dist.get_rank())
    sys.stderr.flush()
    os._exit(0)
