"""Small models in torch's words, and a training of them that gives back every number."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

__all__ = ["BATCHES", "MODELS", "Bytes", "Conv", "Sgd", "Text", "filled", "ones", "train"]

Bytes = dict[str, bytes]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.act = nn.GELU()
        self.down = nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        return x + self.down(self.act(self.up(self.norm(x))))


class Text(nn.Module):
    """Its forward gives the loss: mindtorch takes gradients of a function (0.5.1's loss.backward() does nothing)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.block = Block()
        self.head = nn.Linear(8, 10)

    def forward(self, batch: Any) -> Any:
        tokens, following = batch
        scores = self.head(self.block(self.embed(tokens)))
        return F.cross_entropy(scores.reshape(-1, 10), following.reshape(-1))


class Conv(nn.Module):
    """A function held by a module, a layer used twice, a tensor written to, and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.mix = nn.ModuleList([nn.Linear(16, 16)])
        self.act = F.relu

    def forward(self, batch: Any) -> Any:
        images, wanted = batch
        x = self.act(self.norm(self.conv(images))).reshape(2, 4, 16)
        x = self.mix[0](self.mix[0](x))
        x = F.scaled_dot_product_attention(x, x, x) * 2.0
        x.add_(1.0)
        # Not F.mse_loss: on the CPU no gradient passes a difference of two tensors (0.5.1).
        return ((torch.matmul(x, x.transpose(-1, -2)) + wanted) ** 2).mean()


class Sgd(torch.optim.Optimizer):
    """Of mindtorch's own optimizers none runs on the CPU (0.5.1: no addcdiv and no raw_sgd there)."""

    def __init__(self, parameters: Any, lr: float = 0.1) -> None:
        super().__init__(parameters, {"lr": lr})

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.copy_(torch.sub(p, torch.mul(p.grad, group["lr"])))


def _text(step: int) -> Any:
    return torch.tensor([[1 + step, 2, 3], [4, 5, 6]]), torch.tensor([[2 + step, 3, 4], [5, 6, 7]])


def _conv(step: int) -> Any:
    rng = np.random.default_rng(step)
    images, wanted = rng.standard_normal((2, 3, 4, 4)), rng.standard_normal((2, 4, 4))
    return torch.tensor(images.astype(np.float32)), torch.tensor(wanted.astype(np.float32))


MODELS: dict[str, Callable[[], nn.Module]] = {"text": Text, "conv": Conv}
BATCHES: dict[str, Callable[[int], Any]] = {"text": _text, "conv": _conv}


def ones(*shape: int) -> Any:
    return torch.tensor(np.ones(shape, np.float32))


def filled(model: nn.Module) -> nn.Module:
    """The model with the same weights each time, whatever mindtorch drew."""
    rng = np.random.default_rng(3)
    for p in model.parameters():
        p.copy_(torch.tensor(rng.standard_normal(tuple(p.shape)).astype(np.float32) * 0.3))
    return model


def train(name: str, debugger: Any = None, steps: int = 3) -> Bytes:
    """The bytes of every loss, gradient and weight of every step, without a debugger or with one."""
    model = filled(MODELS[name]())
    parameters = dict(model.named_parameters())
    optimizer = Sgd(list(parameters.values()))
    gradients = torch.autograd.value_and_grad(lambda batch: model(batch), list(parameters.values()))
    seen: Bytes = {}
    for step in range(steps):
        for p in parameters.values():
            p.grad = None  # zero_grad of 0.5.1 asks for a module that it does not have
        with nullcontext() if debugger is None else _Collecting(debugger, model):
            seen[f"{step}.loss"] = gradients(BATCHES[name](step)).asnumpy().tobytes()
            optimizer.step()
        for path, p in parameters.items():
            seen[f"{step}.grad.{path}"] = p.grad.asnumpy().tobytes()
            seen[f"{step}.weight.{path}"] = p.asnumpy().tobytes()
    return seen


class _Collecting:
    def __init__(self, debugger: Any, model: Any) -> None:
        self.debugger, self.model = debugger, model

    def __enter__(self) -> None:
        self.debugger.start(self.model)

    def __exit__(self, *error: object) -> None:
        self.debugger.stop()
        self.debugger.step()
