"""Count the Python-level calls of a dumped step of torch: `python bench/counted/torch_step.py TOOL LEVEL TASK FOLDER`.

Runs by path, in any environment with torch: it imports the tool that it counts and, of ours, what lies beside it. The
network is 100 times linear and relu, so a step is 100 of each, forward and backward. Prints a line of JSON.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from counting import BATCH, LAYERS, WIDTH, config_file, count, run
from torch import nn


class Tower(nn.Module):
    """linear, relu, linear, relu, ..."""

    def __init__(self) -> None:
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
        self.relus = nn.ModuleList([nn.ReLU() for _ in range(LAYERS)])

    def forward(self, x: Any) -> Any:
        for linear, relu in zip(self.linears, self.relus, strict=True):
            x = relu(linear(x))
        return x


def tower() -> tuple[Tower, Any]:
    """Return the network and its input, the same in every run; activations and gradients keep their size."""
    torch.manual_seed(0)
    model = Tower()
    for linear in model.linears:
        # On an all-positive input the layer is close to a mean, which neither grows nor dies, nor does its gradient.
        nn.init.uniform_(linear.weight, 0.5 / WIDTH, 1.5 / WIDTH)
        nn.init.uniform_(linear.bias, 0.0, 0.01)
    return model, torch.rand(BATCH, WIDTH)


def counted(tool: str, level: str, task: str, folder: Path, top: int) -> dict[str, Any]:
    """Return the counts of one tool's dump."""
    torch.set_num_threads(1)
    model, x = tower()
    config = config_file(tool, level, task, folder)
    if tool == "msprobe":
        from msprobe.pytorch import PrecisionDebugger  # type: ignore[import-not-found]
    else:
        from probe_torch import PrecisionDebugger

        if tool.startswith("without "):
            sys.path.append(str(Path(__file__).parents[1]))
            from parts import without

            without(tool.removeprefix("without "))
    probe = PrecisionDebugger(config_path=config)
    found = count(probe, model, lambda: model(x).sum().backward(), folder, top)
    gradients = [linear.weight.grad for linear in model.linears]
    assert all(g.abs().max() > 1e-6 and g.isfinite().all() for g in gradients), "a gradient vanished"
    return found


if __name__ == "__main__":
    run(counted, *sys.argv[1:])
