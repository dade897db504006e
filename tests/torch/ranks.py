"""Run by torchrun from test_distributed.py: two steps of a small model under DDP or FSDP2, watched or not.

`python -m torch.distributed.run --nproc-per-node 2 ranks.py KIND CONFIG OUT`: CONFIG is a path or "-";
OUT gets one file for each rank with the losses, gradients and weights.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from loops import Nothing
from probe_torch import PrecisionDebugger
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 8)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.b(self.act(self.a(x)))


class PartlyUsed(Net):
    """A net of which rank 1 leaves out a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.c(x) if dist.get_rank() == 0 else x)


def local(t: Tensor) -> Tensor:
    return (t.to_local() if isinstance(t, DTensor) else t).detach().clone()


def wrapped(kind: str) -> nn.Module:
    torch.manual_seed(0)
    net = Net()
    if kind == "ddp":
        return DistributedDataParallel(net)
    if kind == "unused":
        return DistributedDataParallel(PartlyUsed(), find_unused_parameters=True)
    for name in ("record_event", "wait_event"):
        if not hasattr(torch.cpu.Stream, name):
            # FSDP2 of 2.6 runs on devices only: its CPU's stream lacks these two. Newer ones do nothing either.
            setattr(torch.cpu.Stream, name, lambda stream, event=None: None)
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(net.a, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net


def collectives(rank: int) -> dict[str, Any]:
    """What the functions of torch.distributed return must not change."""
    t = torch.full((2,), float(rank + 1))
    work = dist.all_reduce(t, async_op=True)
    waited = work.wait()
    parts = [torch.zeros(2), torch.zeros(2)]
    dist.all_gather(parts, torch.full((2,), float(rank)))
    things: list[Any] = [None, None]
    dist.all_gather_object(things, {"rank": rank})
    received = torch.full((2,), torch.nan)  # as memory may hold that nobody has written
    exchange = dist.P2POp(dist.isend, parts[rank], 1 - rank), dist.P2POp(dist.irecv, received, 1 - rank)
    for each in dist.batch_isend_irecv([*exchange]):
        each.wait()
    told = {"waited": waited, "things": [o["rank"] for o in things]}
    return {"sum": t, "parts": torch.stack(parts), "received": received, **told}


@contextmanager
def a_rank(config: str, out: str) -> Iterator[tuple[int, Any, dict[str, Any]]]:
    """Be a process of a group, and end it. Yields the rank, a debugger, and a dict, which is left in OUT."""
    faulthandler.dump_traceback_later(200, exit=True)  # a run that hangs says where
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, trace = dist.get_rank(), dict[str, Any]()
    debugger: Any = Nothing() if config == "-" else PrecisionDebugger(config)
    yield rank, debugger, trace
    debugger.close()
    torch.save(trace, os.path.join(out, f"{rank}.pt"))
    dist.barrier()
    dist.destroy_process_group()
    # torch 2.13 with gloo now and then hangs or aborts while the interpreter is taken down, with Probe or
    # without (seen in both): everything is on disk, so leave at once.
    sys.stdout.flush()
    os._exit(0)


def main(kind: str, config: str, out: str) -> None:
    with a_rank(config, out) as (rank, debugger, trace):
        model = wrapped(kind)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(100 + rank)
        for i in range(2):
            with debugger.one_step(model):
                loss = model(torch.randn(4, 8)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                trace[f"{i}.loss"] = loss.detach()
                for name, p in model.named_parameters():
                    assert p.grad is not None
                    trace[f"{i}.grad.{name}"], trace[f"{i}.{name}"] = local(p.grad), local(p)
                trace[f"{i}.collectives"] = collectives(rank)


if __name__ == "__main__":
    main(*sys.argv[1:])
