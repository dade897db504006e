"""Dump a step of a small model in processes that end inside of it.

cut_model.py FOLDER: writes LEVEL/whole, LEVEL/forward and LEVEL/backward, where the process ends in that pass.
"""

import os
import sys
from pathlib import Path

import torch
from dumped_steps import dumped
from torch import nn


class Block(nn.Module):
    def __init__(self, end: str) -> None:
        super().__init__()
        self.a, self.b, self.end = nn.Linear(8, 8), nn.Linear(8, 8), end

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.a(x)
        if self.end == "forward":
            os._exit(0)
        if self.end == "backward":
            h.register_hook(lambda gradient: os._exit(0))
        found: torch.Tensor = self.b(h.relu()) + x
        return found


def run(folder: Path, end: str, level: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(Block(""), Block(end), Block(""))
    dumped(folder, lambda _: net(torch.full((2, 8), 0.3)).square().mean().backward(), net, level=level)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for level in ("L0", "mix"):
        for end in ("forward", "backward", ""):
            # Each in a child that has run no backward pass yet, whose threads a fork would lose.
            child = os.fork()
            if not child:
                run(Path(sys.argv[1], level, end or "whole"), end, level)
                os._exit(0)
            os.waitpid(child, 0)
