"""Run by torchrun from test_when.py: a small model on several processes, which average their gradients."""

import json
import os
import sys
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
from planted_run import FACTORS, train
from probe_torch import PrecisionDebugger
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class Planted(nn.Module):
    """The identity, times a factor."""

    factor = 1.0

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def made(kind: str, seed: int) -> tuple[nn.Module, Callable[[float], float]]:
    torch.manual_seed(seed)
    chance = torch.Generator().manual_seed(2 * seed + dist.get_rank())
    is_alone = False

    def reduced(_: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """Average the gradients, as DDP does, but for a rank that keeps its own."""
        own = bucket.buffer()
        sent = dist.all_reduce(own.clone(), async_op=True).get_future()
        return sent.then(lambda done: own if is_alone else done.value()[0] / dist.get_world_size())

    def drift() -> float:
        """Return a large number where the ranks have other weights by now."""
        own = torch.stack([p.detach().double().sum() for p in model.parameters()])
        of_all = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(of_all, own)
        return 1.0 if all(torch.equal(own, other) for other in of_all) else 100.0

    planted = Planted()
    net = nn.Sequential(nn.Linear(8, 16), planted, nn.ReLU(), nn.Linear(16, 1))
    model = DistributedDataParallel(net)
    model.register_comm_hook(None, reduced)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)

    def step(factor: float) -> float:
        nonlocal is_alone
        planted.factor, is_alone = abs(factor), factor == FACTORS["unreduced"]
        optimizer.zero_grad()
        loss = model(torch.randn(16, 8, generator=chance)).square().mean()
        loss.backward()
        optimizer.step()
        return drift() if kind == "unreduced" else float(loss.detach())

    return model, step


def main(request: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    asked = json.loads(request)
    train(asked, dist.get_rank(), dist.get_world_size(), PrecisionDebugger, partial(made, asked["kind"]))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # see ranks.py


if __name__ == "__main__":
    main(*sys.argv[1:])
