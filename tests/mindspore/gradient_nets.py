"""Networks on which a wrong gradient tap would show: residual streams, tied weights, several uses, bprop."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

Array = Any


def values(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Tensor:
    return Tensor(np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype))


class Seeded(nn.Cell):  # type: ignore[misc]
    """A Cell whose parameters are the same in each run, whatever the initializers drew."""

    def settle(self, seed: int = 1) -> Any:
        rng = np.random.default_rng(seed)
        for p in self.get_parameters():
            if p.requires_grad:
                p.set_data(Tensor((rng.standard_normal(p.shape) * 0.3).astype(np.float32)))
        return self


class ResidualMlp(Seeded):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.CellList([Block() for _ in range(3)])
        self.head = nn.Dense(8, 3)

    def construct(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class Block(nn.Cell):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm((8,))
        self.up = nn.Dense(8, 16)
        self.down = nn.Dense(16, 8)

    def construct(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        return self.down(ops.gelu(self.up(h)) * ops.sigmoid(self.up(h))) + x * ops.tanh(x)


class Attention(nn.Cell):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Dense(8, 8), nn.Dense(8, 8), nn.Dense(8, 8)
        self.drop = nn.Dropout(p=0.2)

    def construct(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Any:
        scores = ops.matmul(self.q(query), self.k(key).swapaxes(-1, -2)) / 8**0.5
        if mask is not None:
            scores = scores + mask
        weights = self.drop(ops.softmax(scores, -1))
        return {"out": ops.matmul(weights, self.v(value)), "weights": weights}


class PostNorm(Seeded):
    """x is used three times inside the attention and once more after it: where an identity node moves bits."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.norms = nn.CellList([nn.LayerNorm((8,)), nn.LayerNorm((8,))])
        self.head = nn.Dense(8, 3)

    def construct(self, x: Tensor) -> Tensor:
        for norm in self.norms:
            mask = ops.zeros((x.shape[1], x.shape[1]), ms.float32)
            x = norm(x + self.attention(x, x, value=x, mask=mask)["out"])
        return self.head(x).mean(1)


class Tied(Seeded):
    def __init__(self) -> None:
        super().__init__()
        self.table = Parameter(values(11, 8), name="table")
        self.mix = nn.Dense(8, 8)

    def construct(self, ids: Tensor) -> Tensor:
        h = ops.gather(self.table, ids, 0)
        h = ops.tanh(self.mix(h)) + self.mix(ops.sin(h))
        return ops.matmul(h, self.table.swapaxes(0, 1)).mean(1)


class Recurrent(Seeded):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 5, num_layers=2, batch_first=True)
        self.head = nn.Dense(5, 3)

    def construct(self, x: Tensor) -> Tensor:
        out, (h, c) = self.lstm(x)
        return self.head(out[:, -1] + h[-1] * c[0])


class Convolutional(Seeded):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.conv2, self.norm2 = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)
        self.pool = nn.MaxPool2d(2, 2)
        self.head = nn.Dense(4 * 16, 3)

    def construct(self, x: Tensor) -> Tensor:
        x = self.pool(ops.relu(self.norm1(self.conv1(x))))
        x = x + ops.relu(self.norm2(self.conv2(x)))
        return self.head(x.reshape(x.shape[0], -1))


class Own(nn.Cell):  # type: ignore[misc]
    """A Cell that says itself what its gradient is (not what autograd would say)."""

    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        return x * y

    def bprop(self, x: Tensor, y: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor, Tensor]:
        return dout * y * 2, dout * x * 3


class WithBprop(Seeded):
    def __init__(self) -> None:
        super().__init__()
        self.own = Own()
        self.head = nn.Dense(8, 3)

    def construct(self, x: Tensor) -> Tensor:
        y = ops.sin(x)
        return self.head(self.own(x, y) + self.own(y, y) + y)


class Pair(nn.Cell):  # type: ignore[misc]
    def construct(self, pack: Any, *, scale: Tensor) -> Any:
        a, (b, c) = pack["a"], pack["bc"]
        return [a * scale, {"b": b + a, "c": (c, scale)}], None


class Nested(Seeded):
    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair()
        self.scale = Parameter(values(8), name="scale")
        self.head = nn.Dense(8, 3)

    def construct(self, x: Tensor) -> Tensor:
        h = ops.exp(x * 0.1)
        (first, rest), _ = self.pair({"a": h, "bc": (x, h)}, scale=self.scale)
        c, scale = rest["c"]
        return self.head(first + rest["b"] * c + scale + h)


class InPlace(Seeded):
    """Writes into tensors and views of them, and into a parameter that is not a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Dense(8, 8), nn.Dense(8, 3)
        self.count = Parameter(Tensor([0.0], ms.float32), name="count", requires_grad=False)

    def construct(self, x: Tensor) -> Tensor:
        h = self.first(x)
        h[0] = h[1] * 2
        g = h * 1
        g[1:2] = x[0:1]
        ops.assign(self.count, self.count + 1)
        return self.head(ops.relu(g) + h)


#: name -> (the network, its input)
NETS: dict[str, Any] = {
    "residual": (ResidualMlp, lambda: values(4, 8)),
    "post_norm": (PostNorm, lambda: values(2, 5, 8)),
    "tied": (Tied, lambda: Tensor(np.arange(6).reshape(2, 3) % 4, ms.int32)),
    "lstm": (Recurrent, lambda: values(2, 4, 8)),
    "cnn": (Convolutional, lambda: values(2, 1, 8, 8)),
    "bprop": (WithBprop, lambda: values(4, 8)),
    "nested": (Nested, lambda: values(4, 8)),
    "in_place": (InPlace, lambda: values(4, 8)),
}
