"""Networks whose gradients MindSpore adds up in another order as soon as anything stands in its graph.

Each is of what everyday networks hold: a tensor that several read, a Cell called more than once, state that a step
writes. With those of compiled_zoo they are the zoo of compiled graphs.
"""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from compiled_zoo import ALL as COMPILED
from compiled_zoo import Block
from graph_strangers import STRANGERS
from mindspore import Parameter, Tensor, mint, nn, ops
from mindspore_zoo import WIDTH, Case, vectors

__all__ = ["ALL", "SAMPLE"]


class Loss(nn.Cell):
    """Gives the squared error of what ``body`` makes."""

    def construct(self, x, y):
        return ((self.body(x) - y) ** 2).mean()

    def body(self, x):
        raise NotImplementedError


class Gate(nn.Cell):
    """Reads its input three times."""

    def __init__(self) -> None:
        super().__init__()
        self.d, self.e = nn.Dense(WIDTH, WIDTH), nn.Dense(WIDTH, WIDTH)

    def construct(self, h):
        return self.d(h) * ops.sigmoid(self.e(h)) + h


class Twice(Loss):
    """Calls a Cell twice on one tensor, which the compiler merges."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.s, self.o = nn.Dense(WIDTH, WIDTH), Gate(), nn.Dense(WIDTH, WIDTH)

    def body(self, x):
        h = self.a(x)
        return self.o(self.s(h) + self.s(h))


class Residuals(Loss):
    """Residual over residual."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.s, self.t, self.o = nn.Dense(WIDTH, WIDTH), Gate(), Gate(), nn.Dense(WIDTH, WIDTH)

    def body(self, x):
        h = self.a(x)
        inner = h + self.s(h)
        return self.o(h + inner + self.t(inner))


class Three(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Dense(WIDTH, WIDTH) for _ in range(3))

    def construct(self, a, b, c):
        return ops.tanh(self.q(a)) * self.k(b) + self.v(c) * a


class Thrice(Loss):
    """Gives one tensor for three."""

    dropout = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.a, self.t, self.o = nn.Dense(WIDTH, WIDTH), Three(), nn.Dense(WIDTH, WIDTH)
        self.p = nn.Dropout(p=self.dropout)

    def body(self, x):
        h = self.p(self.a(x))
        return self.o(self.t(h, h, h))


class Dropped(Thrice):
    """The same behind a dropout."""

    dropout = 0.3


class LongShort(Loss):
    """An LSTMCell, unrolled."""

    kind: Any = nn.LSTMCell

    def __init__(self) -> None:
        super().__init__()
        self.c, self.o = self.kind(WIDTH, WIDTH), nn.Dense(WIDTH, WIDTH)

    def body(self, x):
        h = ops.zeros_like(x)
        c = ops.zeros_like(x)
        for i in range(3):
            h, c = self.c(x * (i + 1.0), (h, c))
        return self.o(h)


class Gated(LongShort):
    """A GRUCell, unrolled."""

    kind = nn.GRUCell

    def body(self, x):
        h = ops.zeros_like(x)
        for i in range(3):
            h = self.c(x * (i + 1.0), h)
        return self.o(h)


class Shared(nn.Cell):
    """Attention on a memory."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Dense(WIDTH, WIDTH) for _ in range(4))

    def construct(self, h, memory):
        scores = ops.softmax(ops.matmul(self.q(h), self.k(memory).T) * 0.3)
        return h + self.o(ops.matmul(scores, self.v(memory)))


class OneMemory(Loss):
    """Two layers of attention on one memory."""

    def __init__(self) -> None:
        super().__init__()
        self.m, self.one, self.two = nn.Dense(WIDTH, WIDTH), Shared(), Shared()

    def body(self, x):
        memory = self.m(x)
        return self.two(self.one(x, memory), memory)


class Experts(Loss):
    """A choice between experts for each row, by `where`."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.one, self.two = nn.Dense(WIDTH, WIDTH), Gate(), Gate()

    def body(self, x):
        h = self.gate(x)
        return ops.where(h.sum(-1, keepdims=True) > 0, self.one(h), self.two(h))


class Listed(Loss):
    """A list of Cells called in a loop, and then once more."""

    def __init__(self) -> None:
        super().__init__()
        self.several = nn.CellList([nn.Dense(WIDTH, WIDTH), nn.Tanh(), Gate()])

    def body(self, x):
        for _ in range(2):
            for one in self.several:
                x = one(x)
        return x


class Counting(Loss):
    """State that each step writes, and reads before and after."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.o = nn.Dense(WIDTH, WIDTH), Counted()

    def body(self, x):
        return self.o(self.o(self.a(x)))


class Counted(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.d = nn.Dense(WIDTH, WIDTH)
        self.mean = Parameter(Tensor(np.zeros(WIDTH, np.float32)), name="mean", requires_grad=False)

    def construct(self, x):
        h = self.d(x) - self.mean
        ops.assign(self.mean, self.mean * 0.9 + ops.stop_gradient(h).mean(0) * 0.1)
        return h


class Normed(Loss):
    """One BatchNorm, called twice: its moving statistics are written in between."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.n, self.o = nn.Dense(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Dense(WIDTH, WIDTH)

    def body(self, x):
        return self.o(self.n(ops.tanh(self.n(self.a(x)))))


class Stopped(Loss):
    """A tensor with and without its gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.s, self.o = nn.Dense(WIDTH, WIDTH), Gate(), nn.Dense(WIDTH, WIDTH)

    def body(self, x):
        h = self.a(x)
        return self.o(self.s(h) + ops.stop_gradient(self.s(h)) * h)


class Viewed(Loss):
    """Reads views of a tensor, which the compiler orders like writes."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Dense(WIDTH, WIDTH), nn.Dense(WIDTH, WIDTH)

    def body(self, x):
        h = self.a(x)
        return self.b(mint.matmul(h, mint.matmul(mint.transpose(h, 0, 1), h)))


class AllRecomputed(Loss):
    """Blocks in a row that are computed again in the backward pass: the compiler never ended on them around taps."""

    def __init__(self) -> None:
        super().__init__()
        self.several = nn.CellList([Block(), Block(), Block()])
        for one in self.several:
            one.recompute()

    def body(self, x):
        for one in self.several:
            x = one(x)
        return x


class Reshaped(Loss):
    """A shape back and forth, of which the compiler makes none."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Dense(WIDTH, WIDTH), nn.Dense(WIDTH, WIDTH)

    def body(self, x):
        return self.b(self.a(x.reshape(2, 2, WIDTH)).reshape(-1, 2, 1, WIDTH)).reshape(-1, WIDTH)


class Convolved(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.c, self.d = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3)
        self.n, self.o = nn.BatchNorm2d(4), nn.Dense(4, 3)

    def construct(self, x, y):
        h = ops.relu(self.n(self.c(x)))
        h = self.n(h + self.d(h))
        return ops.cross_entropy(self.o(h.mean((2, 3))), y)


def _images(rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    x = rng.normal(size=(4, 1, 8, 8)).astype(np.float32)
    return Tensor(x), Tensor(rng.integers(0, 3, 4), ms.int32)


class Sequence(nn.Cell):
    """An encoder, a decoder on what it gives, and attention that is given one tensor twice."""

    def __init__(self) -> None:
        super().__init__()
        made = {"dropout": 0.0, "batch_first": True}
        self.i, self.o = nn.Dense(8, 16), nn.Dense(16, 4)
        self.e = nn.TransformerEncoderLayer(16, 2, 32, **made)
        self.d = nn.TransformerDecoderLayer(16, 2, 32, **made)
        self.mha = nn.MultiheadAttention(16, 2, batch_first=True)

    def construct(self, x, y):
        z = self.i(x)
        h = self.d(z, self.e(z))
        return ((self.o(self.mha(h, z, h)[0]) - y) ** 2).mean()


def _sequences(rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    return Tensor(rng.normal(size=(2, 5, 8)).astype(np.float32)), Tensor(
        rng.normal(size=(2, 5, 4)).astype(np.float32)
    )


_OF_VECTORS = (
    Twice, Residuals, Thrice, Dropped, LongShort, Gated, OneMemory, Experts, Listed, Counting, Normed, Stopped,
    Reshaped, AllRecomputed, Viewed,
)  # fmt: skip
ALL: dict[str, Case] = {
    **COMPILED,
    **{kind.__name__.lower(): (kind, vectors) for kind in _OF_VECTORS},
    "convolved": (Convolved, _images),
    "sequence": (Sequence, _sequences),
    **STRANGERS,
}
#: Those that CI runs.
SAMPLE = ("twice", "dropped", "longshort", "normed", "branches", "recompute function", "given", "inplace")
