"""One of the gloo processes of a job with `export` (test_export.py): `python exported.py CONFIG OUT STEPS`.

CONFIG is a path or "-". It trains so many steps, and writes a line to `OUT/<rank>.said` after each; in the end it
writes `OUT/<rank>.pt`: losses, gradients, weights.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from loops import Nothing
from probe_torch import PrecisionDebugger
from torch import nn


def main(config: str, out: str, steps: str) -> None:
    torch.set_num_threads(1)
    folder, rank = Path(out), int(os.environ["RANK"])
    ranks = int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{out}/store", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    net = nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(12, 12), nn.Tanh())))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    debugger: Any = Nothing() if config == "-" else PrecisionDebugger(config)
    trace: dict[str, Any] = {}
    with (
        (folder / f"{rank}.said").open("w", buffering=1) as said,
        warnings.catch_warnings(record=True) as told,
    ):
        warnings.simplefilter("always")
        for step in range(int(steps)):
            with debugger.one_step(net):
                loss = net(torch.randn(4, 12)).square().mean()
                loss.backward()
                for number, p in enumerate(net.parameters()):
                    dist.all_reduce(p.grad)
                    trace[f"{step}.grad.{number}"] = p.grad.clone()
                optimizer.step()
                optimizer.zero_grad()
            trace[f"{step}.loss"] = loss.detach().clone()
            said.write(f"{step}\n")
            time.sleep(0.02)
        debugger.close()
    trace |= {f"weight.{name}": p.detach() for name, p in net.named_parameters()}
    trace["told"] = [str(each.message) for each in told if "export" in str(each.message)]
    torch.save(trace, folder / f"{rank}.pt")


if __name__ == "__main__":
    status = 1
    try:
        main(*sys.argv[1:])
        status = 0
    finally:
        os._exit(status)  # see ranks.py
