"""One training step of a small network, dumped by Probe or by msprobe: ``job.py TOOL CONFIG VARIANT``.

Run as a program, because each tool patches torch for the whole process, and msprobe has an environment
of its own. The two differ in one import line; everything else is the same script, which is the point.

VARIANT: "plain"; "perturbed" (the last layer's weight times 1.5); "nan" (the logarithm of a negative number);
"infinite" (that of infinity);
"accumulated" (two passes add up their gradients); "checkpointed" (one block is computed again in backward);
"masked" (a causal mask with -inf, and texts that look like a formula of a spreadsheet);
"shared" (a module gets one tensor three times, so that three slots of its backward record hold one sum).
"""

import errno
import os
import sys
from decimal import Decimal
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.inner = nn.Linear(16, 16)

    def forward(
        self, x: torch.Tensor, *, scale: float = 1.0, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        y = F.gelu(self.inner(self.norm(x))) * scale
        return x + (y if mask is None else y.masked_fill(mask, 0.0))


class Mix(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, *, v: torch.Tensor) -> torch.Tensor:
        return q * 2 + k * 3 - v * 4


class Masked(nn.Module):
    def forward(
        self, x: torch.Tensor, mode: str, *, note: str, turn: complex, share: Decimal, over: set[int]
    ) -> torch.Tensor:
        scores = x @ x.mT;+scores  # noqa: B018, E702  # fmt: skip
        mask = torch.full(scores.shape[-2:], float("-inf")).triu(1)
        return torch.softmax((scores + mask).masked_fill(mask < 0, -torch.inf), -1) @ x


class Net(nn.Module):
    """Shared blocks, keyword tensors, an in-place module, a tuple output, integers and booleans."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        self.first = Block()
        self.second = Block()
        self.conv = nn.Conv1d(16, 16, 3, padding=1)
        self.norm = nn.BatchNorm1d(16)
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(16, 5)
        self.checkpointed = False
        self.mix: nn.Module | None = None
        self.masked: nn.Module | None = None

    def forward(self, tokens: torch.Tensor, shift: float) -> torch.Tensor:
        x = self.embed(tokens)
        if self.mix is not None:
            x = self.mix(x, x, v=x)
        if self.masked is not None:
            x = self.masked(x, "=mean", note="a;-b", turn=-1j, share=Decimal("-0.5"), over={-1})
        x = self.first(x, scale=0.5)
        mask = tokens[..., None] == 3
        x = (
            checkpoint(self.second, x, mask=mask, use_reentrant=False)
            if self.checkpointed
            else self.second(x, mask=mask)
        )
        x = self.first(x)
        x = self.act(self.norm(self.conv(x.transpose(1, 2))))
        peak, _ = torch.max(x, dim=2)
        return self.head(torch.log(peak + shift))


SHIFTS = {"nan": -50.0, "infinite": float("inf")}


def lose_gradients() -> None:
    """Have no gradient described but the first of each call, and no file of a gradient written."""
    from probe_torch.tensors.leaf import TensorLeaf

    describe, writev = TensorLeaf.tensor, os.writev

    def tensor(self: Any, placement: Any, value: Any, path: Any, *args: Any, **keys: Any) -> bytes:
        if "forward" not in placement.record and (placement.category, *path) != ("input", 0):
            raise RuntimeError("broken on purpose")
        return describe(self, placement, value, path, *args, **keys)

    def write(fd: int, parts: Any) -> int:
        if ".backward." in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return writev(fd, parts)

    TensorLeaf.tensor, os.writev = tensor, write  # type: ignore[method-assign]


def main(tool: str, config: str, variant: str) -> None:
    if tool == "probe":
        from probe_torch import PrecisionDebugger
    else:
        from msprobe.pytorch import PrecisionDebugger

    torch.set_num_threads(1)
    torch.manual_seed(7)
    model = Net()
    if variant == "perturbed":
        with torch.no_grad():
            model.head.weight.mul_(1.5)
    model.checkpointed = variant == "checkpointed"
    if variant == "shared":
        model.mix = Mix()
    if variant == "masked":
        model.masked = Masked()
    tokens = torch.randint(0, 11, (4, 6))
    target = torch.randint(0, 5, (4,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    if variant == "lost":
        lose_gradients()
    debugger = PrecisionDebugger(config_path=config)
    debugger.start(model)
    for _ in range(2 if variant == "accumulated" else 1):
        loss = F.cross_entropy(model(tokens, SHIFTS.get(variant, 1.0)), target)
        loss.backward()
    optimizer.step()
    debugger.stop()
    debugger.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
