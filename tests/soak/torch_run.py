"""Two steps of a small network whose system calls fail (forked_runs.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from forked_runs import Refused, serve
from probe_format.errors import ConfigError
from probe_torch import PrecisionDebugger
from torch import nn

MODES = {
    "statistics": {},
    "tensor": {"task": "tensor"},
    "late": {"task": "tensor", "async_dump": True},
}


def run(folder: Path, mode: str, say: Callable[[str], None]) -> bytes:
    """Train two steps; return the bits of losses, gradients and weights."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    found = []
    try:
        debugger = PrecisionDebugger(dump_path=folder / "dump", level="mix", **MODES[mode])
    except ConfigError as error:
        raise Refused(str(error)) from None
    for step in range(2):
        debugger.start(net)
        x = torch.ones(2, 3)
        for number, layer in enumerate(net):
            x = layer(x)
            say(f"{step} Module.{number}.{type(layer).__name__}.forward.0")
        loss = x.square().sum()
        say(f"{step} Tensor.square.0.forward")
        loss.backward()
        for name in ("Functional.linear.1", "Functional.gelu.0"):
            say(f"{step} {name}.backward")
        debugger.stop()
        debugger.step()
        say(f"{step} whole")
        found += [loss, *(p.grad for p in net.parameters())]
        optimizer.step()
        optimizer.zero_grad()
    debugger.close()
    return b"".join(each.detach().numpy().tobytes() for each in (*found, *net.parameters()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve(run, *MODES)
