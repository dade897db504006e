"""Train small transformers, each with one fault planted in it, and dump them.

python planted_model.py FOLDER FAULT=LEVEL,STEPS[,THREADS] ...

A fault that begins with ``wide`` is planted in a model of 256 in place of 32 numbers for each token, whose sums several
threads divide among them.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from probe_torch import PrecisionDebugger
from torch import nn

WHERE = 2  # the block with the fault


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, fault: str) -> None:
        super().__init__()
        self.heads, self.fault = heads, fault
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        base = 500000.0 if fault == "rope base" else 10000.0
        inner = width // heads
        self.register_buffer("frequency", 1.0 / base ** (torch.arange(0, inner, 2).float() / inner))

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        angles = torch.outer(torch.arange(x.shape[-2]).float(), self.frequency)
        cos, sin, a, b = angles.cos(), angles.sin(), x[..., ::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (m(x).view(batch, length, self.heads, -1).transpose(1, 2) for m in (self.q, self.k, self.v))
        q, k = self.rotated(q), self.rotated(k)
        seen = torch.ones(length, length, dtype=torch.bool).tril(1 if self.fault == "mask off by one" else 0)
        scores = (q @ k.transpose(-1, -2) / math.sqrt(width // self.heads)).masked_fill(~seen, float("-inf"))
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.norm = RMSNorm(width, 1e-6 if fault == "eps" else 1e-5)
        self.attention = Attention(width, 4, fault)
        self.norm2 = RMSNorm(width, 1e-5)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm(x))
        low, high = (3.0, -3.0) if self.fault == "swapped kwargs" else (-3.0, 3.0)
        h = torch.clamp(self.norm2(x), min=low, max=high)
        if self.fault == "bf16":
            u = F.linear(h.bfloat16(), self.up.weight.bfloat16(), self.up.bias.bfloat16()).float()
        elif self.fault == "quantised":
            scale = self.up.weight.abs().max() / 7
            u = F.linear(h, (self.up.weight / scale).round() * scale, self.up.bias)
        else:
            u = self.up(h)
        u = F.gelu(u, approximate="tanh" if self.fault == "kwargs" else "none")
        if self.fault == "dropout seed":
            torch.manual_seed(77)
        z = self.dropout(self.down(u))
        if self.fault == "detached":
            z = z.detach()
        if self.fault == "fp16 overflow":
            z = (z.half() * 60000 * 60000).float()
        return z if self.fault == "residual" else x + z


class Model(nn.Module):
    def __init__(self, fault: str, blocks: int = 4, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, width)
        self.blocks = nn.ModuleList(Block(width, fault if i == WHERE else "") for i in range(blocks))
        self.norm = RMSNorm(width, 1e-5)
        self.head = nn.Linear(width, 64, bias=False)
        self.register_buffer("shift", torch.zeros(width))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x + self.shift))


def train(
    fault: str, folder: Path, level: str = "mix", steps: int = 1, threads: int = 0, **options: Any
) -> None:
    if threads:
        torch.set_num_threads(threads)
    torch.manual_seed(0)
    wide, fault = fault.startswith("wide"), fault.removeprefix("wide").strip()
    model = Model(fault, width=256) if wide else Model(fault)
    if fault == "transposed weight":
        weight = model.blocks[WHERE].attention.o.weight
        weight.data = weight.data.t().clone()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, betas=(0.9, 0.95 if fault == "beta" else 0.999))
    debugger = PrecisionDebugger(dump_path=str(folder), level=level, task="statistics", **options)
    data = torch.Generator().manual_seed(5)
    for step in range(steps):
        tokens = torch.randint(0, 64, (32, 64) if wide else (4, 16), generator=data)
        torch.manual_seed(100 + step)
        debugger.start(model) if level != "L1" else debugger.start()
        out = model(tokens[:, :-1])
        if fault == "log of zero":
            out = torch.log(F.relu(out))
        loss = F.cross_entropy(out.flatten(0, 1), tokens[:, 1:].flatten())
        (loss * (512.0 if fault == "loss scale" else 1024.0)).backward()
        optimizer.step()
        optimizer.zero_grad()
        debugger.stop()
        debugger.step()
        if fault != "stale buffer":
            model.shift += 1e-3  # between the steps, where nothing is recorded
    debugger.close()


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)
    for each in sys.argv[2:]:
        name, _, rest = each.partition("=")
        level, _, tail = rest.partition(",")
        steps, _, threads = tail.partition(",")
        train(
            name,
            Path(sys.argv[1], each.replace(" ", "_").replace(",", "_")),
            level,
            int(steps),
            int(threads or 0),
        )
