"""A server that forks jobs of several gloo processes with `export` (used by test_export.py).

Reads one JSON request a line: {"config": path or null, "out": folder, "ranks": n, "steps": n}. Forks the ranks of a job
and prints their pids. Each trains so many steps, and writes a line to `<out>/<rank>.said` after each; in the end it
writes `<out>/<rank>.pt`: losses, gradients, weights.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from probe_torch import PrecisionDebugger
from torch import nn


def run(config: str | None, out: str, rank: int, ranks: int, steps: int) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks))
    folder = Path(out)
    dist.init_process_group("gloo", init_method=f"file://{out}/store", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    net = nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(12, 12), nn.Tanh())))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    debugger = None if config is None else PrecisionDebugger(config)
    trace: dict[str, Any] = {}
    with (
        (folder / f"{rank}.said").open("w", buffering=1) as said,
        warnings.catch_warnings(record=True) as told,
    ):
        warnings.simplefilter("always")
        for step in range(steps):
            if debugger is not None:
                debugger.start(net)
            loss = net(torch.randn(4, 12)).square().mean()
            loss.backward()
            for number, p in enumerate(net.parameters()):
                dist.all_reduce(p.grad)
                trace[f"{step}.grad.{number}"] = p.grad.clone()
            optimizer.step()
            optimizer.zero_grad()
            if debugger is not None:
                debugger.stop()
                debugger.step()
            trace[f"{step}.loss"] = loss.detach().clone()
            said.write(f"{step}\n")
            time.sleep(0.02)
        if debugger is not None:
            debugger.close()
    trace |= {f"weight.{name}": p.detach() for name, p in net.named_parameters()}
    trace["told"] = [str(each.message) for each in told if "export" in str(each.message)]
    torch.save(trace, folder / f"{rank}.pt")


def main() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        pids = []
        for rank in range(request["ranks"]):
            if (pid := os.fork()) == 0:
                status = 1
                try:
                    with nullcontext() if request.get("loud") else open(os.devnull, "w") as sys.stderr:
                        run(request["config"], request["out"], rank, request["ranks"], request["steps"])
                    status = 0
                finally:
                    os._exit(status)
            pids.append(pid)
        print(json.dumps(pids), flush=True)
        if sys.stdin.readline():  # "over"
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            print("over", flush=True)


if __name__ == "__main__":
    main()
