"""Networks with what MindSpore compiles or runs a second time, for the training loop of the zoo.

RUNS says in which ways each is trained.
"""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore_zoo import CASES, WIDTH, Case, vectors

__all__ = ["ALL", "RUNS"]


@ms.jit
def weighted(constant, x):
    return ops.tanh(x) * constant + x * 0.5


class Masked(nn.Cell):
    """A jitted Cell whose first argument takes no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(WIDTH, WIDTH)

    @ms.jit
    def construct(self, mask, x):
        return self.fc(x) * mask


class Constants(nn.Cell):
    """Jitted calls as (constant, tensor)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.masked, self.last = nn.Dense(WIDTH, WIDTH), Masked(), nn.Dense(WIDTH, WIDTH)
        self.constant = Tensor(np.linspace(-1, 2, WIDTH).astype(np.float32))
        self.mask = Tensor((np.arange(WIDTH) % 3 > 0).astype(np.float32))

    def construct(self, x, y):
        h = weighted(self.constant, self.first(x))
        h = self.last(self.masked(self.mask, h))
        return ((h - y) ** 2).mean()


class Way(nn.Cell):
    """A branch and a loop that only the run decides, with Cells inside."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Dense(WIDTH, WIDTH), nn.Dense(WIDTH, WIDTH), nn.Dense(WIDTH, WIDTH)

    @ms.jit
    def construct(self, x):
        if x.sum() > 0:  # noqa: SIM108 - a statement, as people write it
            x = self.a(x)
        else:
            x = self.b(x) * 2
        i = Tensor(0, ms.int32)
        while i < 2:
            x = ops.tanh(self.c(x))
            i = i + 1
        return x


class Branches(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.way, self.last = nn.Dense(WIDTH, WIDTH), Way(), nn.Dense(WIDTH, WIDTH)

    def construct(self, x, y):
        h = self.last(self.way(self.first(x)))
        return ((h - y) ** 2).mean()


class Block(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc, self.act = nn.LayerNorm((WIDTH,)), nn.Dense(WIDTH, WIDTH), nn.GELU()

    def construct(self, x):
        return x + self.act(self.fc(self.norm(x)))


class Recomputed(nn.Cell):
    """Two blocks, whose values are computed again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.last = Block(), Block(), nn.Dense(WIDTH, WIDTH)
        self.two.recompute()

    def construct(self, x, y):
        h = self.last(self.two(self.one(x)))
        return ((h - y) ** 2).mean()


class ByFunction(Recomputed):
    """The same by `mindspore.recompute`."""

    def construct(self, x, y):
        h = self.last(ms.recompute(self.two, ms.recompute(self.one, x)))
        return ((h - y) ** 2).mean()


class Aux(nn.Cell):
    """Gives more than the loss, by way of a Cell that the loss does not see."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.last, self.told = (nn.Dense(WIDTH, WIDTH) for _ in range(3))

    def construct(self, x, y):
        h = ops.tanh(self.body(x))
        return ((self.last(h) - y) ** 2).mean(), self.told(h)


ALL: dict[str, Case] = {
    **CASES,
    "constants": (Constants, vectors),
    "branches": (Branches, vectors),
    "recomputed": (Recomputed, vectors),
    "recompute function": (ByFunction, vectors),
    "aux": (Aux, vectors),
}
#: case, way to train it
RUNS = [
    ("constants", "value_and_grad"),
    ("branches", "value_and_grad"),
    ("recomputed", "value_and_grad"),
    ("recompute function", "value_and_grad"),
    ("aux", "aux"),
    ("tied", "static_scaler"),
    ("residual", "dynamic_scaler"),
    ("constants", "export"),
    ("constants", "graph_dynamic_scaler"),
    ("branches", "graph_static_scaler"),
    ("recomputed", "graph_export"),
    ("aux", "graph_aux"),
]
