"""Small models that between them do what real training code does, and one way to train them all.

Every case is deterministic (one thread, seeded), takes a few milliseconds a step, and keeps the construction
that makes its big sister hard to look at: in-place activations, residual streams, tied and shared weights,
routing by index, relative bias, recurrences, outputs that are views or dataclasses or the input itself.
"""

from __future__ import annotations

import dataclasses
import math
import os
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from loops import Nothing
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

#: Where the networks run: `PROBE_DEVICE=cuda` runs the tests that train them on a device.
DEVICE = os.environ.get("PROBE_DEVICE", "cpu")
VOCAB = 31
WIDTH = 16


def _rerun(kind: str, module: Callable[..., Any], *args: Any) -> Any:
    """Call `module`, under activation checkpointing when `kind` says which sort."""
    if kind == "none":
        return module(*args)
    return checkpoint(module, *args, use_reentrant=kind == "reentrant")


# ---------------- CNN: BatchNorm, in-place ReLU, residuals
class ResBlock(nn.Module):
    def __init__(self, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.down = nn.AvgPool2d(stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += self.down(x)
        return self.relu(y)  # the one ReLU module runs twice, in place, on a residual sum


class Cnn(nn.Module):
    def __init__(self, rerun: str = "none") -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, 1, 1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.blocks = nn.ModuleList([ResBlock(8), ResBlock(8, 2)])
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.drop = nn.Dropout(0.1, inplace=True)
        self.head = nn.Linear(8, 10)
        self.rerun = rerun

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        x = self.stem(images)
        for block in self.blocks:
            x = _rerun(self.rerun, block, x)
        x = self.head(self.drop(self.pool(x).flatten(1)))
        return F.cross_entropy(x.float(), labels)


# ---------------- GPT: LayerNorm, dropout, tied head
class GptBlock(nn.Module):
    def __init__(self, width: int = WIDTH, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        b, s, d = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(self.ln1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0, is_causal=True)
        x = x + self.drop(self.out(y.transpose(1, 2).reshape(b, s, d)))
        return x + self.drop(self.mlp(self.ln2(x)))


class Gpt(nn.Module):
    def __init__(self, rerun: str = "none") -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, WIDTH), nn.Embedding(16, WIDTH)
        self.drop = nn.Dropout(0.1)
        self.blocks = nn.ModuleList([GptBlock(), GptBlock()])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.tok.weight
        self.rerun = rerun

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.drop(self.tok(ids) + self.pos(torch.arange(ids.shape[1])))
        for block in self.blocks:
            x = _rerun(self.rerun, block, x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, VOCAB).float(), labels.view(-1))


# ---------------- Llama: RMSNorm, RoPE, SwiGLU, tied, shared norm
class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def _rotate_half(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


class LlamaAttention(nn.Module):
    def __init__(self, width: int = WIDTH, heads: int = 4, kv_heads: int = 2) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, kv_heads * self.size, bias=False)
        self.v = nn.Linear(width, kv_heads * self.size, bias=False)
        self.o = nn.Linear(width, width, bias=False)

    def forward(
        self, hidden_states: Tensor, *, rope: tuple[Tensor, Tensor], mask: Tensor | None = None
    ) -> tuple[Tensor, None]:
        b, s, d = hidden_states.shape
        cos, sin = rope
        q = self.q(hidden_states).view(b, s, self.heads, -1).transpose(1, 2)
        k = self.k(hidden_states).view(b, s, self.kv_heads, -1).transpose(1, 2)
        v = self.v(hidden_states).view(b, s, self.kv_heads, -1).transpose(1, 2)
        q, k = q * cos + _rotate_half(q) * sin, k * cos + _rotate_half(k) * sin
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.o(y.transpose(1, 2).reshape(b, s, d)), None


class SwiGlu(nn.Module):
    def __init__(self, width: int = WIDTH, inner: int = 24) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class LlamaBlock(nn.Module):
    def __init__(self, shared: nn.Module) -> None:
        super().__init__()
        self.n1, self.n2 = RmsNorm(WIDTH), shared
        self.attn, self.mlp = LlamaAttention(), SwiGlu()

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attn(hidden_states=self.n1(x), rope=(cos, sin))[0]
        return x + self.mlp(self.n2(x))


class Llama(nn.Module):
    def __init__(self, rerun: str = "none") -> None:
        super().__init__()
        self.emb = nn.Embedding(VOCAB, WIDTH)
        shared = RmsNorm(WIDTH)
        self.layers = nn.ModuleList([LlamaBlock(shared), LlamaBlock(shared)])
        self.norm = shared
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.emb.weight
        self.rerun = rerun

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.emb(ids)
        angles = torch.outer(torch.arange(ids.shape[1]).float(), 1e4 ** (-torch.arange(0, 4, 2).float() / 4))
        angles = torch.cat((angles, angles), -1)
        for layer in self.layers:
            x = _rerun(self.rerun, layer, x, angles.cos(), angles.sin())
        return F.cross_entropy(self.head(self.norm(x)).view(-1, VOCAB).float(), labels.view(-1))


# ---------------- MoE: top-k routing, index_add, scatter, aux loss
class MoeLayer(nn.Module):
    def __init__(self, experts: int = 4, top: int = 2) -> None:
        super().__init__()
        self.top, self.count = top, experts
        self.router = nn.Linear(WIDTH, experts, bias=False)
        self.experts = nn.ModuleList([SwiGlu(inner=8) for _ in range(experts)])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        flat = x.reshape(-1, WIDTH)
        odds = self.router(flat).float().softmax(-1)
        weights, chosen = odds.topk(self.top, -1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(flat.dtype)
        y = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            rows, slot = torch.where(chosen == i)
            if rows.numel():
                y.index_add_(0, rows, (expert(flat[rows]) * weights[rows, slot, None]).to(y.dtype))
        load = torch.zeros_like(odds).scatter(1, chosen, 1.0).mean(0)
        return y.view_as(x), self.count * (load * odds.mean(0)).sum()


class Moe(nn.Module):
    def __init__(self, rerun: str = "none") -> None:
        super().__init__()
        self.emb = nn.Embedding(VOCAB, WIDTH)
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.layers = nn.ModuleList([MoeLayer(), MoeLayer()])
        self.head = nn.Linear(WIDTH, VOCAB)
        self.rerun = rerun

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x, extra = self.emb(ids), 0.0
        for norm, layer in zip(self.norms, self.layers, strict=True):
            y, aux = _rerun(self.rerun, layer, norm(x))
            x, extra = x + y, extra + aux
        return F.cross_entropy(self.head(x).view(-1, VOCAB).float(), labels.view(-1)) + 0.01 * extra


# ---------------- T5: relative bias, cross attention, one embedding
class T5Attention(nn.Module):
    def __init__(self, biased: bool = False, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.bias = nn.Embedding(8, heads) if biased else None

    def forward(
        self, x: Tensor, memory: Tensor | None = None, bias: Tensor | None = None, causal: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        source = x if memory is None else memory
        b, s, d = x.shape
        q, k, v = (
            m(t).view(b, -1, self.heads, d // self.heads).transpose(1, 2)
            for m, t in ((self.q, x), (self.k, source), (self.v, source))
        )
        scores = torch.matmul(q, k.transpose(-1, -2))
        if bias is None and self.bias is not None:
            apart = torch.arange(s)[:, None] - torch.arange(source.shape[1])[None]
            bias = self.bias(apart.clamp(-4, 3) + 4).permute(2, 0, 1).unsqueeze(0)
        if bias is not None:
            scores += bias
        if causal:
            scores = scores.masked_fill(torch.ones(s, s, dtype=torch.bool).triu(1), float("-inf"))
        y = F.dropout(F.softmax(scores.float(), -1).type_as(scores), 0.1, self.training)
        return self.o(torch.matmul(y, v).transpose(1, 2).reshape(b, s, d)), bias


class T5Layer(nn.Module):
    def __init__(self, decoder: bool, biased: bool) -> None:
        super().__init__()
        self.n1, self.attn = RmsNorm(WIDTH), T5Attention(biased)
        self.n2, self.cross = (RmsNorm(WIDTH), T5Attention()) if decoder else (None, None)
        self.n3, self.ff = RmsNorm(WIDTH), SwiGlu()
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor, memory: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        y, bias = self.attn(self.n1(x), bias=bias, causal=memory is not None)
        x = x + self.drop(y)
        if self.cross is not None and self.n2 is not None:
            x = x + self.drop(self.cross(self.n2(x), memory=memory)[0])
        return x + self.drop(self.ff(self.n3(x))), bias


class T5(nn.Module):
    def __init__(self, rerun: str = "none") -> None:
        super().__init__()
        self.shared = nn.Embedding(VOCAB, WIDTH)
        self.encoder = nn.ModuleList([T5Layer(False, i == 0) for i in range(2)])
        self.decoder = nn.ModuleList([T5Layer(True, i == 0) for i in range(2)])
        self.norm = RmsNorm(WIDTH)
        self.rerun = rerun

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x, bias = self.shared(ids), None
        for layer in self.encoder:
            x, bias = _rerun(self.rerun, layer, x, None, bias)
        memory, bias = self.norm(x), None
        y = self.shared(F.pad(labels[:, :-1], (1, 0)))
        for layer in self.decoder:
            y, bias = _rerun(self.rerun, layer, y, memory, bias)
        logits = F.linear(self.norm(y) * WIDTH**-0.5, self.shared.weight)
        return F.cross_entropy(logits.view(-1, VOCAB).float(), labels.view(-1))


# ---------------- RNN: LSTM and GRU
class Rnn(nn.Module):
    def __init__(self, rerun: str = "none") -> None:
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 8)
        self.lstm = nn.LSTM(8, 8, num_layers=2, batch_first=True, dropout=0.1)
        self.gru = nn.GRU(8, 8, batch_first=True, bidirectional=True)
        self.cell = nn.GRUCell(16, 8)
        self.head = nn.Linear(8, VOCAB)
        self.rerun = rerun

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x, (h, c) = self.lstm(self.emb(ids))
        y, _ = _rerun(self.rerun, self.gru, x)
        state = (h + c).mean(0)
        steps = []
        for t in range(ids.shape[1]):
            state = self.cell(y[:, t], state.to(y.dtype))
            steps.append(state)
        return F.cross_entropy(self.head(torch.stack(steps, 1)).view(-1, VOCAB).float(), labels.view(-1))


# ---------------- recurrent cells, which need no kernel of their own in any precision
class Cells(nn.Module):
    def __init__(self, rerun: str = "none") -> None:
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 8)
        self.lstm = nn.LSTMCell(8, 8)
        self.rnn = nn.RNNCell(8, 8)
        self.head = nn.Linear(8, VOCAB)
        self.rerun = rerun

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.emb(ids)
        h = c = s = x.new_zeros(ids.shape[0], 8)
        steps = []
        for t in range(ids.shape[1]):
            h, c = self.lstm(x[:, t], (h.to(x.dtype), c.to(x.dtype)))
            s = _rerun(self.rerun, self.rnn, h, s.to(h.dtype))
            steps.append(s)
        return F.cross_entropy(self.head(torch.stack(steps, 1)).view(-1, VOCAB).float(), labels.view(-1))


# ---------------- SSM: selective scan, in-place writes into a buffer
class SsmLayer(nn.Module):
    def __init__(self, state: int = 4) -> None:
        super().__init__()
        self.state = state
        self.norm = nn.LayerNorm(WIDTH)
        self.into = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=2, groups=WIDTH)
        self.select = nn.Linear(WIDTH, 1 + 2 * state, bias=False)
        self.log_a = nn.Parameter(torch.log(torch.arange(1, state + 1).float()).repeat(WIDTH, 1))
        self.skip = nn.Parameter(torch.ones(WIDTH))
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y, gate = self.into(self.norm(x)).chunk(2, -1)
        y = F.silu(self.conv(y.transpose(1, 2))[..., : x.shape[1]]).transpose(1, 2)
        delta, b, c = self.select(y).split([1, self.state, self.state], -1)
        delta = F.softplus(delta)
        decay = torch.exp(delta[..., None] * -self.log_a.exp())
        h = torch.zeros(x.shape[0], WIDTH, self.state)
        scanned = torch.empty_like(y)
        for t in range(x.shape[1]):
            h = decay[:, t] * h + (delta[:, t] * y[:, t])[..., None] * b[:, t, None, :]
            scanned[:, t] = (h * c[:, t, None, :]).sum(-1)
        return x + self.out((scanned + self.skip * y) * F.silu(gate))


class Ssm(nn.Module):
    def __init__(self, rerun: str = "none") -> None:
        super().__init__()
        self.emb = nn.Embedding(VOCAB, WIDTH)
        self.layers = nn.ModuleList([SsmLayer(), SsmLayer()])
        self.head = nn.Linear(WIDTH, VOCAB)
        self.rerun = rerun

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.emb(ids)
        for layer in self.layers:
            x = _rerun(self.rerun, layer, x)
        return F.cross_entropy(self.head(x).view(-1, VOCAB).float(), labels.view(-1))


# ---------------- oddities, each in a model of its own
class HalfMlp(nn.Module):
    """Its first operation saves nothing for backward, so that its caller may overwrite its input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.act = nn.LeakyReLU(0.1, inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.fc(self.norm(x * 0.5)))


class InPlaceResidual(nn.Module):
    """`x += f(x)`: what a module was given, and what it returned, is overwritten soon after."""

    def __init__(self, rerun: str = "none") -> None:
        super().__init__()
        self.into = nn.Linear(WIDTH, WIDTH)
        self.fs = nn.ModuleList([HalfMlp() for _ in range(3)])
        self.act = nn.Hardtanh(-1.0, 1.0, inplace=True)
        self.rerun = rerun

    def forward(self, rows: Tensor, target: Tensor) -> Tensor:
        x = self.into(rows)
        for f in self.fs:
            # A checkpoint keeps its input until it runs again, so it gets one that stays.
            x += f(x) if self.rerun == "none" else _rerun(self.rerun, f, x.clone())
        return F.mse_loss(self.act(x).float(), target)


@dataclasses.dataclass
class DataOutput:
    logits: Tensor
    loss: Tensor | None = None
    extra: tuple[Any, ...] = ()


class ModelOutput(OrderedDict):  # type: ignore[type-arg]
    """What HuggingFace models return: an ordered dictionary whose keys are attributes too."""

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError as missing:
            raise AttributeError(key) from missing


class ReturnsData(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> DataOutput:
        y = self.fc(x)
        return DataOutput(y, y.mean(), (1, "a", y * 2))


class ReturnsMapping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH)

    def forward(self, *, inputs_embeds: Tensor, mask: Tensor | None = None) -> ModelOutput:
        y = self.fc(inputs_embeds)
        return ModelOutput(last_hidden_state=y, pooled=y[0], hidden_states=(inputs_embeds, y))


class Scale(torch.autograd.Function):
    """A custom function that returns a second, non-differentiable output and takes a plain number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> tuple[Tensor, Tensor]:
        ctx.factor = factor
        signs = x.sign()
        ctx.mark_non_differentiable(signs)
        return x * factor, signs

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.factor, None


class Scaled(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return Scale.apply(x, 1.5)


class Splits(nn.Module):
    """Several outputs that are views of one base: chunk, unbind, and one the caller throws away."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        first, second = x.chunk(2, -1)
        return first, second, *x.unbind(0)[:2]


class WritesInViews(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x.clone()
        y[:, ::2] *= 2.0
        y[:, 1].zero_()
        y.view(-1)[:3].add_(1.0)
        y.narrow(1, 4, 4).relu_()
        return y


class SameTensor(nn.Module):
    """Returns its input, as Identity and a dropout of zero do, and calls a shared module twice."""

    def __init__(self) -> None:
        super().__init__()
        self.id = nn.Identity()
        self.fc = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, unused: Tensor | None = None) -> tuple[Tensor, Tensor, None]:
        y = self.fc(self.fc(self.id(x)))
        return y, x, None


class Oddities(nn.Module):
    def __init__(self, rerun: str = "none") -> None:
        super().__init__()
        self.data, self.mapping = ReturnsData(), ReturnsMapping()
        self.scaled, self.splits, self.views, self.same = Scaled(), Splits(), WritesInViews(), SameTensor()
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.act = F.gelu  # a function kept as an attribute
        self.rerun = rerun

    def forward(self, rows: Tensor, target: Tensor) -> Tensor:
        out = self.data(rows)
        assert out.loss is not None
        with torch.no_grad():
            shift = self.frozen(rows).mean()
        hidden = self.mapping(inputs_embeds=out.logits + shift, mask=None)
        x, signs = self.scaled(hidden.last_hidden_state)
        first, second, row, _ = self.splits(x)
        x = torch.cat((first * signs[..., : first.shape[-1]], second), -1) + row + hidden["pooled"]
        x = _rerun(self.rerun, self.views, x)
        y, x, _ = self.same(x, unused=None)
        return (
            F.mse_loss((self.act(y) + x).float(), target)
            + out.loss.float() * 0.1
            + out.extra[2].float().std()
        )


# ---------------- cases, variants, training
@dataclasses.dataclass(frozen=True)
class Case:
    """One architecture: how to build it and what a batch is. `model(*batch)` is the loss."""

    build: Callable[[str], nn.Module]
    batch: Callable[[], tuple[Tensor, ...]]


@dataclasses.dataclass(frozen=True)
class Variant:
    """How a step is made: checkpointing, precision, accumulation, repeated backward, optimiser, clipping, parameters
    that are swapped, gradients by torch.func.
    """

    rerun: str = "none"  # "reentrant", "non_reentrant"
    autocast: bool = False
    micro: int = 1
    twice: bool = False
    optimizer: str = "adamw"  # "sgd", "fused"
    clip: bool = False
    swap: bool = False
    modes: bool = False
    func: bool = False
    vmap: bool = False


def _tokens() -> tuple[Tensor, ...]:
    # Python's and numpy's generators choose the data, so that a draw by the tool changes the next batch.
    ids = torch.tensor([[random.randrange(VOCAB) for _ in range(6)] for _ in range(2)])
    return ids, torch.from_numpy(np.random.randint(0, VOCAB, (2, 6)))


def _images() -> tuple[Tensor, ...]:
    return torch.randn(3, 1, 8, 8), torch.from_numpy(np.random.randint(0, 10, 3))


def _rows() -> tuple[Tensor, ...]:
    return torch.randn(4, WIDTH), torch.from_numpy(np.random.randn(4, WIDTH).astype("float32"))


CASES: dict[str, Case] = {
    "cnn": Case(Cnn, _images),
    "gpt": Case(Gpt, _tokens),
    "llama": Case(Llama, _tokens),
    "moe": Case(Moe, _tokens),
    "t5": Case(T5, _tokens),
    "rnn": Case(Rnn, _tokens),
    "cells": Case(Cells, _tokens),
    "ssm": Case(Ssm, _tokens),
    "inplace": Case(InPlaceResidual, _rows),
    "oddities": Case(Oddities, _rows),
}

PLAIN = Variant()
#: Not for every case: inside torch.func no buffer may be written, and below vmap no value may be asked for.
FUNC = {"func": Variant(func=True), "per sample": Variant(func=True, vmap=True)}
VARIANTS: dict[str, Variant] = {
    "plain": PLAIN,
    "checkpoint": Variant(rerun="non_reentrant"),
    "checkpoint_reentrant": Variant(rerun="reentrant"),
    "autocast": Variant(autocast=True),
    "accumulate": Variant(micro=2, clip=True, optimizer="sgd"),
    "twice": Variant(twice=True),
    "swap": Variant(swap=True),
    "fused": Variant(optimizer="fused"),
    "modes": Variant(modes=True),
}


class Watch(Protocol):
    """What is started around each step: Probe, or something made to be caught."""

    def start(self, model: nn.Module) -> object: ...
    def stop(self) -> object: ...
    def step(self) -> object: ...


@contextmanager
def fixed(seed: int = 0) -> Iterator[None]:
    """One thread and seeded generators; everything as before at the end."""
    threads = torch.get_num_threads()
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])


def build(case: Case, variant: Variant = PLAIN) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A freshly initialised model and its optimiser, both in foreach mode."""
    model = case.build(variant.rerun).to(DEVICE)
    params = [p for p in model.parameters() if p.requires_grad]
    if variant.optimizer == "sgd":
        return model, torch.optim.SGD(params, lr=0.05, momentum=0.9, foreach=True)
    if variant.optimizer == "fused":
        return model, torch.optim.AdamW(params, lr=1e-3, fused=True)
    return model, torch.optim.AdamW(params, lr=1e-3, foreach=True)


class Rounded(TorchFunctionMode):
    """A mode that takes part: what it does not see, or sees too often, changes the bits."""

    count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        out = func(*args, **(kwargs or {}))
        # By name: while functions are replaced, F.linear is not what a mode is told, which is the original.
        linear = getattr(func, "__name__", "") == "linear"
        return out * (1 + self.count / 65536) if linear else out


def step(
    case: Case,
    variant: Variant,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    watch: Watch | None = None,
) -> Tensor:
    """One training step, watched from the forward pass to the update; the summed loss."""
    batches = [tuple(t.to(DEVICE) for t in case.batch()) for _ in range(variant.micro)]
    watch = watch or Nothing()
    watch.start(model)
    if variant.swap:
        _swap(model)
    optimizer.zero_grad(set_to_none=True)
    total = torch.zeros(())
    for batch in batches:
        if variant.func:
            total += _by_torch_func(model, batch, variant.vmap)
            continue
        with (
            torch.autocast(DEVICE, torch.bfloat16) if variant.autocast else nullcontext(),
            Rounded() if variant.modes else nullcontext(),
        ):
            loss = model(*batch)
        if variant.twice:
            loss.backward(retain_graph=True)
        loss.backward()
        total += loss.detach()
    if variant.clip:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    if variant.swap:
        _swap(model)
    watch.stop()
    watch.step()
    return total


def _by_torch_func(model: nn.Module, batch: tuple[Tensor, ...], vmap: bool) -> Tensor:
    """The loss, and gradients in `.grad`, as torch.func makes them; with `vmap` for each sample by itself."""
    params = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}

    def loss_of(given: dict[str, Tensor], *batch: Tensor) -> Tensor:
        loss: Tensor = torch.func.functional_call(model, given, batch)
        return loss

    run = torch.func.grad_and_value(loss_of)
    if vmap:
        each = torch.func.vmap(run, in_dims=(None, *(0 for _ in batch)), randomness="different")
        grads, losses = each(params, *(t.unsqueeze(1) for t in batch))
        grads, loss = {name: g.mean(0) for name, g in grads.items()}, losses.sum()
    else:
        grads, loss = run(params, *batch)
    for name, p in model.named_parameters():
        if name in grads:
            p.grad = grads[name].detach()
    return loss.detach()


def _swap(model: nn.Module) -> None:
    """Give every parameter other memory by `torch.utils.swap_tensors`, as conversions and loading do on request."""
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        for module in model.modules():
            # RNNs keep weak references to their weights, which makes torch refuse.
            if not list(module.children()) and not isinstance(module, nn.RNNBase):
                module.to(torch.float64).to(torch.float32)
                module.load_state_dict({name: value.clone() for name, value in module.state_dict().items()})
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def train(
    case: Case, variant: Variant = PLAIN, watch: Watch | None = None, steps: int = 2, seed: int = 0
) -> dict[str, Tensor]:
    """Train from the seed; everything that a looker-on could have changed, by name."""
    trace: dict[str, Tensor] = {}
    with fixed(seed), nullcontext() if DEVICE == "cpu" else torch.device(DEVICE):
        model, optimizer = build(case, variant)
        for i in range(steps):
            trace[f"{i}.loss"] = step(case, variant, model, optimizer, watch)
            for name, p in model.named_parameters():
                if p.grad is not None:
                    trace[f"{i}.grad.{name}"] = p.grad.detach().clone()
                trace[f"{i}.weight.{name}"] = p.detach().clone()
            for name, b in model.named_buffers():
                trace[f"{i}.buffer.{name}"] = b.detach().clone()
            trace[f"{i}.rng.torch"] = torch.get_rng_state().clone()
            trace[f"{i}.rng.python"] = torch.tensor(random.getstate()[1])
            state: Any = np.random.get_state()
            trace[f"{i}.rng.numpy"] = torch.from_numpy(state[1].astype(np.int64)).clone()
            trace[f"{i}.rng.numpy_at"] = torch.tensor([state[2], state[3]])
    return trace


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(_BITS[tensor.element_size()])


def differences(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    """The names whose bits differ (a zero's sign and a NaN's payload count), or that only one side has."""
    names = sorted(one.keys() ^ other.keys())
    for name in one.keys() & other.keys():
        a, b = one[name], other[name]
        if a.dtype != b.dtype or a.shape != b.shape or not torch.equal(_bits(a), _bits(b)):
            names.append(name)
    return sorted(names)


def finite(trace: dict[str, Tensor]) -> bool:
    """Whether every value is finite and the losses are not all the same: the case trains at all."""
    losses = {float(v) for k, v in trace.items() if k.endswith(".loss")}
    return (
        all(bool(torch.isfinite(v).all()) for v in trace.values())
        and len(losses) > 1
        and not any(math.isnan(x) for x in losses)
    )
