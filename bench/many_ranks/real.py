"""Train a small model on 8 processes, in tensor, pipeline, data and expert parallelism, and dump two steps.

`python -m torch.distributed.run --nproc-per-node 8 -m bench.many_ranks.real FOLDER LAYERS`: what `template.py` makes
the pattern of many ranks of. Ranks are numbered as Megatron does: tensor parallel ones first, then data, then pipeline.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from probe_torch import PrecisionDebugger
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, TOKENS, WORDS = 16, 8, 32
TP = DP = PP = 2


class Summed(torch.autograd.Function):
    """The sum over the ranks of a group; its gradient goes to each of them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        y = x.clone()
        dist.all_reduce(y, group=group)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0], None


class Copied(torch.autograd.Function):
    """The same on each rank of a group; its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        y = grads[0].clone()
        dist.all_reduce(y, group=ctx.group)
        return y, None


class Exchanged(torch.autograd.Function):
    """Each rank of a group gets a part of each."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        y = torch.empty_like(x)
        dist.all_to_all_single(y, x.contiguous(), group=group)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        y = torch.empty_like(grads[0])
        dist.all_to_all_single(y, grads[0].contiguous(), group=ctx.group)
        return y, None


class Layer(nn.Module):
    """Two linear layers that are cut over the tensor parallel ranks, and experts of which each data rank has one."""

    def __init__(self, tp: Any, ep: Any) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH // TP), nn.Linear(2 * WIDTH // TP, WIDTH, bias=False)
        self.gate, self.experts = nn.Linear(WIDTH, DP), nn.ModuleList([nn.Linear(WIDTH, WIDTH)])
        self.tp, self.ep = tp, ep

    def forward(self, x: Tensor) -> Tensor:
        y = self.down(F.gelu(self.up(Copied.apply(self.norm(x), self.tp))))
        x = x + Summed.apply(y, self.tp)
        share = torch.softmax(self.gate(x), -1)[:, :1]
        y = Exchanged.apply(F.relu(self.experts[0](Exchanged.apply(x, self.ep))), self.ep)
        return x + share * y


class Stage(nn.Module):
    def __init__(self, pp: int, layers: int, tp: Any, ep: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH) if pp == 0 else None
        self.layers = nn.ModuleList(Layer(tp, ep) for _ in range(layers))
        self.head = nn.Linear(WIDTH, WORDS) if pp == PP - 1 else None

    def forward(self, x: Tensor) -> Tensor:
        if self.embedding is not None:
            x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        return x if self.head is None else self.head(x)


def main(folder: Path, layers: int) -> None:
    rank = dist.get_rank()
    tp, dp, pp = rank % TP, rank // TP % DP, rank // (TP * DP)
    grid = torch.arange(TP * DP * PP).view(PP, DP, TP)
    groups: dict[str, Any] = {}
    for name, lists in (
        ("tp", grid.flatten(0, 1)),
        ("dp", grid.transpose(1, 2).flatten(0, 1)),
        ("pp", grid.flatten(1).T),
    ):
        for ranks in lists.tolist():
            made = dist.new_group(ranks)
            groups |= {name: made} if rank in ranks else {}
    torch.manual_seed(pp)
    stage = Stage(pp, layers, groups["tp"], groups["dp"])
    for name, p in stage.named_parameters():  # what is cut is another part on each
        torch.manual_seed(
            hash(name) % 1000
            + 10 * pp
            + (tp if ".up." in name or ".down." in name else 0)
            + (3 * dp if "experts" in name else 0)
        )
        with torch.no_grad():
            p.add_(0.05 * torch.randn_like(p))
    optimizer = torch.optim.AdamW(stage.parameters(), 1e-3, foreach=True)
    debugger = PrecisionDebugger(dump_path=str(folder), level="mix", task="statistics")
    data = torch.Generator().manual_seed(50 + dp)
    other = rank + TP * DP if pp == 0 else rank - TP * DP
    for _ in range(2):
        tokens = torch.randint(0, WORDS, (TOKENS,), generator=data)
        debugger.start(stage)
        if pp == 0:
            y = stage(tokens)
            dist.send(y.detach().contiguous(), other)
            grad = torch.empty_like(y)
            dist.recv(grad, other)
            y.backward(grad)
        else:
            x = torch.empty(TOKENS, WIDTH)
            dist.recv(x, other)
            x.requires_grad_()
            loss = F.cross_entropy(stage(x), tokens)
            loss.backward()
            assert x.grad is not None
            dist.send(x.grad, other)
        for name, p in stage.named_parameters():
            if p.grad is not None and "experts" not in name:
                dist.all_reduce(p.grad, group=groups["dp"])
        total = torch.stack([p.grad.norm() for p in stage.parameters() if p.grad is not None]).norm() ** 2
        dist.all_reduce(total)
        optimizer.step()
        optimizer.zero_grad()
        debugger.stop()
        debugger.step()
    debugger.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    main(Path(sys.argv[1]), int(sys.argv[2]))
    sys.stderr.flush()
    os._exit(0)
