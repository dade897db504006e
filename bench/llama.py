"""Define Llama-2, laid out as Megatron does, for plans: no weights are needed to count what a dump writes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from attrs import frozen
from torch import Tensor, nn

__all__ = ["LLAMA_7B", "LLAMA_13B", "Llama", "LlamaSize"]


@frozen
class LlamaSize:
    """The sizes of a Llama-2.

    fused: whether attention is one call (flash attention), or is spelled out with a matrix of scores.
    """

    layers: int
    width: int
    heads: int
    inner: int
    words: int = 32000
    fused: bool = True


LLAMA_7B = LlamaSize(layers=32, width=4096, heads=32, inner=11008)
LLAMA_13B = LlamaSize(layers=40, width=5120, heads=40, inner=13824)


class Norm(nn.Module):
    """Scale to a root mean square of one, in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn pairs of features by the angles of their positions."""
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class CoreAttention(nn.Module):
    """Mix values by the softmax of scores: (batch, heads, length, width of a head) to the same."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = torch.matmul(q, k.transpose(2, 3)) / (q.shape[-1] ** 0.5)
        return torch.matmul(F.softmax((scores + mask).float(), dim=-1).to(q.dtype), v)


class Attention(nn.Module):
    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        self.heads = size.heads
        self.linear_qkv = nn.Linear(size.width, 3 * size.width, bias=False)
        self.core_attention = CoreAttention(size.fused)
        self.linear_proj = nn.Linear(size.width, size.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        b, s, _ = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.linear_qkv(x).chunk(3, -1))
        mixed = self.core_attention(rotated(q, cos, sin), rotated(k, cos, sin), v, mask)
        out: Tensor = self.linear_proj(mixed.transpose(1, 2).reshape(b, s, -1))
        return out


class Mlp(nn.Module):
    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        self.linear_fc1 = nn.Linear(size.width, 2 * size.inner, bias=False)
        self.linear_fc2 = nn.Linear(size.inner, size.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.linear_fc1(x).chunk(2, -1)
        out: Tensor = self.linear_fc2(F.silu(gate) * up)
        return out


class Layer(nn.Module):
    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        self.input_norm, self.mlp_norm = Norm(size.width), Norm(size.width)
        self.attention, self.mlp = Attention(size), Mlp(size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.attention(self.input_norm(x), cos, sin, mask)
        out: Tensor = x + self.mlp(self.mlp_norm(x))
        return out


class Llama(nn.Module):
    """Return the mean loss of predicting each token of ids, int64, (batch, length + 1)."""

    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        self.size = size
        self.embedding = nn.Embedding(size.words, size.width)
        self.layers = nn.ModuleList([Layer(size) for _ in range(size.layers)])
        self.norm, self.head = Norm(size.width), nn.Linear(size.width, size.words, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        given, wanted = ids[:, :-1], ids[:, 1:]
        x = self.embedding(given)
        length, half = given.shape[1], self.size.width // self.size.heads // 2
        steps = torch.arange(length, device=x.device, dtype=torch.float32)
        speeds = 1e4 ** -(torch.arange(half, device=x.device, dtype=torch.float32) / half)
        angles = torch.cat([torch.outer(steps, speeds)] * 2, -1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        mask = None
        if not self.size.fused:
            mask = torch.full((length, length), float("-inf"), device=x.device, dtype=x.dtype).triu(1)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        logits = self.head(self.norm(x)).float()
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten())
