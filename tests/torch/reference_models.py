# ruff: noqa
"""The network of which msprobe_llama_names.txt has the names that msprobe gives."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))
        self.eps = eps

    def forward(self, x):
        v = x.float().pow(2).mean(-1, keepdim=True)
        return (x.float() * torch.rsqrt(v + self.eps)).to(x.dtype) * self.weight


def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


class Attn(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.dh = h, d // h
        self.q = nn.Linear(d, d, bias=False)
        self.k = nn.Linear(d, d, bias=False)
        self.v = nn.Linear(d, d, bias=False)
        self.o = nn.Linear(d, d, bias=False)

    def forward(self, x, *, cos, sin, mask=None, is_causal=True, meta=None):
        B, S, D = x.shape
        q = self.q(x).view(B, S, self.h, self.dh).transpose(1, 2)
        k = self.k(x).view(B, S, self.h, self.dh).transpose(1, 2)
        v = self.v(x).view(B, S, self.h, self.dh).transpose(1, 2)
        q = q * cos + rotate_half(q) * sin
        k = k * cos + rotate_half(k) * sin
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal)
        return self.o(o.transpose(1, 2).reshape(B, S, D)), None


class SwiGLU(nn.Module):
    def __init__(self, d, m):
        super().__init__()
        self.gate = nn.Linear(d, m, bias=False)
        self.up = nn.Linear(d, m, bias=False)
        self.down = nn.Linear(m, d, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, d, h, m, norm=None):
        super().__init__()
        self.n1 = RMSNorm(d)
        self.attn = Attn(d, h)
        self.n2 = norm if norm is not None else RMSNorm(d)  # shared between layers
        self.mlp = SwiGLU(d, m)

    def forward(self, x, cos, sin):
        a, _ = self.attn(
            self.n1(x), cos=cos, sin=sin, meta={"layer": 1, "name": "blk", "t": (1, 2.5, None, True)}
        )
        x = x + a
        x = x + self.mlp(self.n2(x))
        return x


class MyScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, s):
        ctx.s = s
        return x * s

    @staticmethod
    def backward(ctx, g):
        return g * ctx.s, None


class Llama(nn.Module):
    def __init__(self, vocab=64, d=32, h=4, m=48, layers=2):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        nn.init.normal_(self.emb.weight, std=0.2)
        shared = RMSNorm(d)
        self.layers = nn.ModuleList([Block(d, h, m, shared) for _ in range(layers)])
        self.norm = RMSNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)
        self.head.weight = self.emb.weight  # tied
        self.dh = d // h
        self.drop = nn.Dropout(0.0)

    def forward(self, ids, labels):
        S = ids.shape[1]
        x = self.emb(ids)
        inv = 1.0 / (10000 ** (torch.arange(0, self.dh, 2).float() / self.dh))
        fr = torch.outer(torch.arange(S).float(), inv)
        e = torch.cat((fr, fr), -1)
        cos, sin = e.cos()[None, None], e.sin()[None, None]
        for l in self.layers:
            x = l(x, cos, sin)
        x = MyScale.apply(x, 1.5)
        x = self.drop(self.norm(x))
        logits = self.head(x)
        return F.cross_entropy(logits.view(-1, logits.size(-1)).float(), labels.reshape(-1))
