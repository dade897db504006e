"""Dump one step of the twin in PyTorch: python torch_twin.py FOLDER LEVEL [FAULT]."""

from __future__ import annotations

import sys

import torch
import twin_numbers
from probe_torch import PrecisionDebugger
from torch import Tensor, nn

NAMES = {"scale": "weight", "shift": "bias"}


class Layer(nn.Module):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(twin_numbers.WIDTH, eps)
        self.up = nn.Linear(twin_numbers.WIDTH, twin_numbers.HIDDEN)
        self.act = nn.ReLU()
        self.down = nn.Linear(twin_numbers.HIDDEN, twin_numbers.WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.act(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        # What MindSpore takes when nobody says otherwise is 1e-7, in torch it is 1e-5.
        self.layers = nn.ModuleList(
            Layer(1e-2 if fault == "eps" and i else 1e-5) for i in range(twin_numbers.LAYERS)
        )
        self.head = nn.Linear(twin_numbers.WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        found: Tensor = self.head(x)
        return found


def main(folder: str, level: str, fault: str = "") -> None:
    torch.set_num_threads(1)
    net = Net(fault)
    named = dict(net.named_parameters())
    for name, value in twin_numbers.weights().items():
        head, _, last = name.rpartition(".")
        named[f"{head}.{NAMES.get(last, last)}"].data.copy_(torch.from_numpy(value))
    if fault == "weight":
        net.layers[1].up.weight.data[0, 0] += 0.25
    with PrecisionDebugger(dump_path=folder, level=level, task="statistics") as debugger:
        debugger.start(net)
        net(torch.from_numpy(twin_numbers.data())).square().mean().backward()
        debugger.stop()
        debugger.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
