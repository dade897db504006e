"""Networks of Cells that return what they were given, or one value more than once."""

from __future__ import annotations

from typing import Any

from gradient_nets import Seeded, values
from mindspore import Parameter, Tensor, nn, ops

__all__ = ["NETS"]


class Residual(nn.Cell):
    """Its input beside what it made of it, as layers do that hand the residual stream on."""

    def construct(self, x: Tensor) -> Any:
        return x, ops.tanh(x) * 2


class Beside(nn.Cell):
    """An input that it does not use, beside something made of another."""

    def construct(self, x: Tensor, *, y: Tensor) -> Any:
        return {"kept": x, "made": y * 2}


class Twice(nn.Cell):
    """One value that it made, in two places."""

    def construct(self, x: Tensor) -> Any:
        y = ops.sin(x)
        return y, [y, 3]


class Same(nn.Cell):
    """Its input in two places."""

    def construct(self, x: Tensor) -> Any:
        return x, x


class Swapped(nn.Cell):
    """Two inputs, in the other order."""

    def construct(self, x: Tensor, y: Tensor) -> Any:
        return y, x


class Alone(nn.Cell):
    """Its input and nothing else, as a Dropout does that is not training."""

    def construct(self, x: Tensor) -> Tensor:
        return x


class Chained(nn.Cell):
    """One output made of another, which is used inside as well, as in an LSTM's cell."""

    def construct(self, x: Tensor) -> Any:
        y = ops.exp(x * 0.1)
        return y, y * 3


class Own(nn.Cell):
    """A parameter of its own, beside what it made with it."""

    def __init__(self) -> None:
        super().__init__()
        self.w = Parameter(values(8, seed=3), name="w")

    def construct(self, x: Tensor) -> Any:
        return self.w, x * self.w


class Returning(Seeded):
    """A chain of such Cells, each fed what the one before returned and what others use too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Dense(8, 8), nn.Dense(8, 3)
        self.residual, self.beside, self.twice, self.same = Residual(), Beside(), Twice(), Same()
        self.swapped, self.alone, self.chained, self.own = Swapped(), Alone(), Chained(), Own()

    def construct(self, x: Tensor) -> Tensor:
        h = self.first(x)
        a, b = self.residual(h)
        found = self.beside(a * 1.0, y=b)
        c, (d, _) = self.twice(found["kept"] + found["made"])
        e, f = self.same(c * 0.5)
        g, k = self.swapped(e * 2.0 + d, f * 3.0)
        m, n = self.chained(self.alone(g * 1.0))
        w, o = self.own(k + m)
        return self.head(a * 5 + n * 7 + w * 0.1 + o * h)


class Given(Seeded):
    """The same with the leaf that the caller gave."""

    def __init__(self) -> None:
        super().__init__()
        self.residual, self.twice, self.head = Residual(), Same(), nn.Dense(8, 3)

    def construct(self, x: Tensor) -> Tensor:
        a, b = self.residual(x)
        c, d = self.twice(a)
        return self.head(a * 3 + b * 5 + c * 7 + d)


#: name -> (the network, its input)
NETS: dict[str, Any] = {
    "returning": (Returning, lambda: values(4, 8)),
    "given": (Given, lambda: values(4, 8)),
}
