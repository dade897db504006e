"""Run by torchrun from test_parallel.py: functional collectives and tensor parallelism, one rank late.

`python -m torch.distributed.run --nproc-per-node 2 parallel.py KIND CONFIG OUT`: CONFIG is a path or "-"; OUT gets
one file for each rank with what was computed, and what the test's own hooks saw.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from ranks import a_rank
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

N = 1024


def late(rank: int) -> None:
    if rank == 1:
        time.sleep(1)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.m, self.same, self.unused = nn.Tanh(), nn.Identity(), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.m(x)
        return found


class Attention(nn.Module):
    """Its input has three shares of gradient, each from a part of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.q(x), self.k(x), self.v(x)
        found: Tensor = self.o(torch.softmax(q @ k.T, -1) @ v)
        return found


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.up, self.act, self.down = (
            Attention(),
            nn.Linear(8, 16),
            nn.ReLU(),
            nn.Linear(16, 8),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        return x + self.down(self.act(self.up(x)))


def asynchronous(rank: int, net: nn.Module, trace: dict[str, Any], i: int) -> None:
    """The result of a functional collective is used, used twice, viewed, and not used at all."""
    x = torch.ones(N) * (rank + 1)
    late(rank)
    y = functional.all_reduce(x, "sum", dist.group.WORLD)
    trace[f"{i}.used"] = net(y)
    z = functional.all_gather_tensor(x, 0, dist.group.WORLD)
    net.get_submodule("same")(z.view(2, N))
    trace[f"{i}.gathered"] = net(z)
    never = functional.all_reduce(x * 2, "sum", dist.group.WORLD)
    net.get_submodule("unused")(never)
    if i == 0:
        trace["kept"] = never  # waited for after the step
    raw = torch.ops._c10d_functional.all_reduce(x * 3, "sum", dist.group.WORLD.group_name)
    net.get_submodule("same")(raw)
    trace[f"{i}.raw"] = torch.ops._c10d_functional.wait_tensor(raw).clone()
    t = x * 4
    work = dist.all_reduce(t, async_op=True)
    trace[f"{i}.done"] = work.is_completed()
    net.get_submodule("same")(t)
    work.wait()
    trace[f"{i}.work"] = net.get_submodule("same")(t).clone()


def parallel(rank: int, net: nn.Module, trace: dict[str, Any], i: int) -> None:
    torch.manual_seed(i)
    late(rank)
    x = torch.randn(4, 8, requires_grad=True)
    loss = net(x).square().sum()
    loss.backward()
    assert x.grad is not None
    trace[f"{i}.loss"] = local(loss)
    trace[f"{i}.x.grad"] = local(x.grad)
    torch.optim.SGD(net.parameters(), lr=1e-2).step()
    for name, p in net.named_parameters():
        assert p.grad is not None
        trace[f"{i}.grad.{name}"] = local(p.grad)
        trace[f"{i}.weight.{name}"] = local(p)
    net.zero_grad()


def redistributed(rank: int, net: nn.Module, trace: dict[str, Any], i: int) -> None:
    mesh = dist.init_device_mesh("cpu", (2,))
    late(rank)
    x = distribute_tensor(torch.arange(16.0).reshape(4, 4), mesh, [Shard(0)])
    whole = x.redistribute(mesh, [Replicate()], async_op=True)
    trace[f"{i}.whole"] = local(net(whole))
    total = DTensor.from_local(torch.ones(4) * (rank + 1), mesh, [Replicate()]).redistribute(mesh, [Shard(0)])
    trace[f"{i}.total"] = local(net(total))


def local(t: Tensor) -> Tensor:
    t = t.to_local() if isinstance(t, DTensor) else t
    return t.wait() if isinstance(t, functional.AsyncCollectiveTensor) else t.detach().clone()


def hooked(net: nn.Module, seen: dict[str, Tensor]) -> list[Any]:
    """What each module was given and gave, by the test's own hooks; they wait, as a user's would."""
    handles = []
    for name, module in net.named_modules():
        if name:

            def hook(_: Any, args: Any, out: Any, name: str = name) -> None:
                seen.setdefault(f"{name}.in", local(args[0]).clone())
                seen.setdefault(f"{name}.out", local(out).clone())

            handles.append(module.register_forward_hook(hook))
    return handles


def main(kind: str, config: str, out: str) -> None:
    with a_rank(config, out) as (rank, debugger, trace):
        torch.manual_seed(0)
        net: nn.Module = Transformer() if kind == "parallel" else Net()
        if kind == "parallel":
            plan = {
                **{f"attention.{name}": ColwiseParallel() for name in "qkv"},
                "attention.o": RowwiseParallel(),
                "up": ColwiseParallel(),
                "down": RowwiseParallel(),
            }
            parallelize_module(net, dist.init_device_mesh("cpu", (2,)), plan)  # type: ignore[arg-type]
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for i in range(2):
                handles = (
                    hooked(net, trace.setdefault(f"{i}.hooks", {}))
                    if kind == "parallel" and config == "-"
                    else []
                )
                with debugger.one_step(net):
                    WORK[kind](rank, net, trace, i)
                for handle in handles:
                    handle.remove()
        trace["fake warnings"] = [str(w.message) for w in said if "FakeTensor" in str(w.message)]
        trace |= {key: local(value) for key, value in trace.items() if isinstance(value, Tensor)}


WORK = {"asynchronous": asynchronous, "parallel": parallel, "redistributed": redistributed}

if __name__ == "__main__":
    main(*sys.argv[1:])
