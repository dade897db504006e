"""Define Llama-2 as one rank of a parallel run has it, for plans: no weights are needed to count what a dump writes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from attrs import frozen
from torch import Tensor, nn

__all__ = ["LLAMA_7B", "LLAMA_13B", "Llama", "LlamaSize"]


@frozen
class LlamaSize:
    """The sizes of a Llama-2 on one rank.

    layers, width, heads, inner, words: of the whole model.
    split: how many ranks share each layer (tensor parallelism).
    stages: how many ranks the layers are spread over (pipeline parallelism); each has embedding and head here.
    fused: whether attention is one call (flash attention), or is spelled out with a matrix of scores.
    """

    layers: int
    width: int
    heads: int
    inner: int
    words: int = 32000
    split: int = 1
    stages: int = 1
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


class Attention(nn.Module):
    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        mine = size.width // size.split
        self.heads, self.fused = size.heads // size.split, size.fused
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(size.width, mine, bias=False) for _ in range(3))
        self.o_proj = nn.Linear(mine, size.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        b, s, _ = x.shape
        q, k, v = (p(x).view(b, s, self.heads, -1).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = torch.matmul(q, k.transpose(2, 3)) / (q.shape[-1] ** 0.5)
            chances = F.softmax((scores + mask).float(), dim=-1).to(q.dtype)
            mixed = torch.matmul(chances, v)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(b, s, -1))
        return out


class Mlp(nn.Module):
    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        mine = size.inner // size.split
        self.gate_proj, self.up_proj = (nn.Linear(size.width, mine, bias=False) for _ in range(2))
        self.down_proj, self.act_fn = nn.Linear(mine, size.width, bias=False), nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(size.width), Norm(size.width)
        self.self_attn, self.mlp = Attention(size), Mlp(size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Llama(nn.Module):
    """Return the mean loss of predicting each token of ids, int64, (batch, length + 1)."""

    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        self.size = size
        self.embed_tokens = nn.Embedding(size.words // size.split, size.width)
        self.layers = nn.ModuleList([Layer(size) for _ in range(size.layers // size.stages)])
        self.norm, self.lm_head = Norm(size.width), nn.Linear(size.width, size.words // size.split, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        given, wanted = ids[:, :-1], ids[:, 1:]
        x = self.embed_tokens(given)
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
        logits = self.lm_head(self.norm(x)).float()
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten())
