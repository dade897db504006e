"""Train a small model on several real processes, each time with one rank at fault, and dump it.

replicas_model.py FOLDER FAULT=LEVEL ... on each rank; rank 1 is the one at fault. The last fault may be one after which
the ranks cannot talk any more.
"""

import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from probe_torch import PrecisionDebugger
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 3
ODD = 1


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, 12)
        self.up, self.down = nn.Linear(12, 24), nn.Linear(24, 12)
        self.norm, self.dropout = nn.LayerNorm(12), nn.Dropout(0.1)
        self.extra = nn.Linear(12, 12)
        self.head = nn.Linear(12, 32)

    def forward(self, tokens: torch.Tensor, skip: bool = False) -> torch.Tensor:
        x = self.embedding(tokens)
        x = x + self.dropout(self.down(torch.relu(self.up(self.norm(x)))))
        if not skip:
            x = x + self.extra(x)
        found: torch.Tensor = self.head(x)
        return found


def own_bucket(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Take part in the reduction, and then use the gradients from before it."""
    dist.all_reduce(bucket.buffer().clone())
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def averaged(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    dist.all_reduce(bucket.buffer())
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer().div_(dist.get_world_size()))
    return done


def wrapped(fault: str, net: nn.Module, rank: int) -> nn.Module:
    if fault in ("reduced by hand", "a copy is reduced", "a reduce is left out"):
        return net
    model = DistributedDataParallel(net, find_unused_parameters=fault == "skipped module")
    if fault == "reduce missing":
        model.register_comm_hook(None, own_bucket if rank == ODD else averaged)
    return model


def reduce_by_hand(fault: str, net: nn.Module, odd: bool) -> None:
    for name, p in net.named_parameters():
        if odd and fault == "a reduce is left out" and name == "down.weight":
            continue
        assert p.grad is not None
        dist.all_reduce(
            p.grad.clone() if odd and fault == "a copy is reduced" and name == "down.weight" else p.grad
        )
        p.grad.div_(dist.get_world_size())


def train(fault: str, folder: Path, level: str, rank: int) -> None:
    odd = rank == ODD
    torch.manual_seed(rank if fault == "other weights" else 0)
    net = Net()
    model = net if fault == "other weights" else wrapped(fault, net, rank)
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    if fault == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9)
    debugger = PrecisionDebugger(dump_path=str(folder), level=level, task="statistics")
    data = torch.Generator().manual_seed(50 + rank)
    torch.manual_seed(100 + rank)
    for step in range(STEPS):
        tokens = torch.randint(0, 32, (4, 8), generator=data)
        debugger.start(model) if level != "L1" else debugger.start()
        try:
            out = model(tokens, odd) if fault == "skipped module" else model(tokens)
            loss = nn.functional.cross_entropy(out.flatten(0, 1), tokens.flatten())
            loss.backward()
            if model is net and fault != "other weights":
                reduce_by_hand(fault, net, odd and step == 1)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            if fault == "touched weight" and odd and step == 0:
                net.up.weight.data[3, 4] += 1e-3
            if rank == 0:
                torch.log(loss.detach())  # what the first rank alone does for its log
        finally:
            debugger.stop()
            debugger.step()
    debugger.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    cannot_talk = any(each.startswith("a reduce is left out") for each in sys.argv[2:])
    if cannot_talk and (child := os.fork()):  # which gloo may abort, as what it gets has another size
        os.waitpid(child, 0)
        os._exit(0)
    dist.init_process_group("gloo")
    if cannot_talk:
        dist.barrier()  # from here on all three only train
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=8))
    for each in sys.argv[2:]:
        name, _, level = each.partition("=")
        try:
            train(name, Path(sys.argv[1], each.replace(" ", "_")), level, dist.get_rank())
        except RuntimeError as error:
            print(f"{name}: {error}", file=sys.stderr)
    sys.stderr.flush()
    os._exit(0)
