"""Define what the demo and the bench train: a small GPT, on bytes of the documentation that comes with Python."""

from collections.abc import Iterator
from pydoc_data.topics import topics
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

_BYTES = 256


class Block(nn.Cell):  # type: ignore[misc]
    """Add pre-norm attention, then a pre-norm MLP, to the residual stream: (batch, length, width) to the same."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.norm1, self.norm2 = nn.LayerNorm((width,)), nn.LayerNorm((width,))
        self.qkv, self.out = nn.Dense(width, 3 * width), nn.Dense(width, width)
        self.up, self.act, self.down = nn.Dense(width, 4 * width), nn.GELU(), nn.Dense(4 * width, width)
        self.mask = Tensor(np.triu(np.full((length, length), -1e4, np.float32), 1))

    def construct(self, x: Any) -> Any:
        b, s, d = x.shape
        q, k, v = ops.split(self.qkv(self.norm1(x)), d, axis=-1)
        q = q.reshape(b, s, self.heads, -1).swapaxes(1, 2)
        k = k.reshape(b, s, self.heads, -1).swapaxes(1, 2)
        v = v.reshape(b, s, self.heads, -1).swapaxes(1, 2)
        weights = ops.softmax(ops.matmul(q, k.swapaxes(-1, -2)) * self.scale + self.mask, axis=-1)
        mixed = ops.matmul(weights, v).swapaxes(1, 2).reshape(b, s, d)
        x = x + self.out(mixed)
        return x + self.down(self.act(self.up(self.norm2(x))))


class Gpt(nn.Cell):  # type: ignore[misc]
    """Predict bytes with a transformer whose head is tied to its embedding; its result is the mean loss in nats."""

    def __init__(self, layers: int = 4, width: int = 128, heads: int = 4, length: int = 64) -> None:
        super().__init__()
        self.token = nn.Embedding(_BYTES, width, embedding_table="normal")
        self.position = nn.Embedding(length, width, embedding_table="normal")
        self.blocks = nn.CellList([Block(width, heads, length) for _ in range(layers)])
        self.norm = nn.LayerNorm((width,))
        self.head = nn.Dense(width, _BYTES, has_bias=False)
        self.head.weight = self.token.embedding_table
        self.numbers = Tensor(np.arange(length, dtype=np.int32))

    def construct(self, given: Any, wanted: Any) -> Any:
        """Return the loss. given, wanted: int32 (batch, length); wanted[i] follows given[:i + 1]."""
        x = self.token(given) + self.position(self.numbers)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return ops.cross_entropy(logits.reshape(-1, _BYTES), wanted.reshape(-1))


def batches(size: int = 8, length: int = 64, seed: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield random windows of the text forever: (given, wanted), both int32 (size, length)."""
    text = np.frombuffer("\n".join(topics.values()).encode(), np.uint8)
    chance = np.random.default_rng(seed)
    while True:
        starts = chance.integers(0, len(text) - length - 1, size)
        windows = np.stack([text[i : i + length + 1] for i in starts]).astype(np.int32)
        yield Tensor(windows[:, :-1], ms.int32), Tensor(windows[:, 1:], ms.int32)
