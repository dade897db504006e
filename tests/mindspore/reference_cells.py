"""The network of the reference dumps (tests/format/corpus/mindspore), dumped by msprobe 26.2 on MindSpore 2.10 CPU.

Copied from the project's reference (example_cells.py); the dumps were made from it with `ms.set_seed(1)` and
`value_and_grad(lambda x, y: net(x, y), None, net.trainable_params())`.
"""

import numpy as np
from mindspore import Tensor, mint, nn, ops


class Attn(nn.Cell):
    """attention-like: Dense, ops.matmul, Tensor methods, mint.nn.functional.softmax"""

    def __init__(self, d):
        super().__init__()
        self.qkv = nn.Dense(d, 3 * d)
        self.proj = nn.Dense(d, d)
        self.softmax = ops.Softmax(axis=-1)  # Primitive attribute
        self.scale = 1.0 / (d**0.5)

    def construct(self, x, mask=None, *, scale=None):
        q, k, v = ops.split(self.qkv(x), x.shape[-1], axis=-1)
        s = mint.matmul(q, k.swapaxes(-1, -2)) * (scale or self.scale)
        if mask is not None:
            s = s + mask
        p = self.softmax(s)
        return self.proj(mint.matmul(p, v))


class Inner(nn.Cell):
    def __init__(self, d):
        super().__init__()
        self.fc = nn.Dense(d, d)
        self.act = nn.ReLU()

    def construct(self, pack):
        # dict input, tuple output
        a = pack["a"]
        y = self.act(self.fc(a))
        return y, y.sum()


class Net(nn.Cell):
    def __init__(self, d=8):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, pad_mode="same", has_bias=True)
        self.flatten = nn.Flatten()
        self.fc1 = nn.Dense(4 * 6 * 6, d)
        self.norm = nn.LayerNorm((d,))
        self.attn = Attn(d)
        self.inner = Inner(d)
        self.relu = nn.ReLU()  # called twice
        self.blocks = nn.CellList([nn.Dense(d, d), nn.Dense(d, d)])
        self.seq = nn.SequentialCell(nn.Dense(d, d), nn.GELU())
        self.add = ops.Add()  # Primitive attribute
        self.head = nn.Dense(d, 5)
        self.unused = nn.Dense(d, d)

    def construct(self, x, label):
        h = self.relu(self.conv(x))
        h = self.flatten(h)
        h = self.norm(self.fc1(h))
        h = h.reshape(2, -1, 8)
        h = self.add(h, self.attn(h, mask=None, scale=0.3))
        y, s = self.inner({"a": h, "n": 3})
        for b in self.blocks:
            y = b(y)
        y = self.relu(y)
        y = self.seq(y)
        y = mint.nn.functional.relu(y)
        y = ops.gelu(y) + s * 0.01
        logits = self.head(y.mean(1))
        loss = ops.cross_entropy(logits, label)
        return loss


def data(seed=0):
    rng = np.random.RandomState(seed)
    x = Tensor(rng.randn(4, 3, 6, 6).astype(np.float32))
    y = Tensor(np.array([1, 3], np.int32))
    return x, y
