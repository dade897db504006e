"""Define what the demo and the bench train: a small GPT, on bytes of the documentation that comes with Python."""

from collections.abc import Iterator
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_BYTES = 256


class Block(nn.Module):
    """Add pre-norm attention, then a pre-norm MLP, to the residual stream: (batch, length, width) to the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.act, self.down = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, s, d = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, s, d))
        grown: Tensor = self.down(self.act(self.up(self.norm2(x))))
        return x + grown


class Gpt(nn.Module):
    """Predict bytes with a transformer whose head is tied to its embedding."""

    def __init__(self, layers: int = 6, width: int = 256, heads: int = 4, length: int = 128) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(_BYTES, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, _BYTES, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        self.head.weight = self.token.weight

    def forward(self, window: Tensor) -> Tensor:
        """Return the mean loss in nats of predicting each byte from those before it.

        window: int64, (batch, length + 1).
        """
        given, wanted = window[:, :-1], window[:, 1:]
        x = self.token(given) + self.place(torch.arange(given.shape[1], device=given.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten())


def batches(size: int = 8, length: int = 128, seed: int = 0) -> Iterator[Tensor]:
    """Yield batches of random windows of the text, without end: int64, (size, length + 1)."""
    text = torch.frombuffer(bytearray("\n".join(topics.values()), "utf-8"), dtype=torch.uint8)
    chance = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(text) - length - 1, (size,), generator=chance)
        yield torch.stack([text[i : i + length + 1] for i in starts.tolist()]).long()
