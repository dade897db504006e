"""Networks of everyday use that hold what is hard for taps in graphs."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from graph_nets import batch, build
from mindspore import Tensor, nn, ops

__all__ = ["NETS", "Aux", "Branches", "Loop", "Truth", "batch", "build"]


class Branch(nn.Cell):
    """A branch that only the run decides, with Cells on both sides."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Dense(3, 3), nn.Dense(3, 3), nn.Dense(3, 3)
        self.act = nn.Tanh()

    def construct(self, x):
        h = self.act(self.a(x))
        if h.sum() > 100:  # noqa: SIM108 - a statement, as people write it
            h = self.b(h)
        else:
            h = self.c(h)
        return h


def doubled(cell, args):
    return (args[0] * 2,)


def summed(cell, args, out):
    return out * args[0].sum()


class Branches(nn.Cell):
    """A branch below recompute, hooks of the user's, ops.stop_gradient, an output that nobody uses, shared Cells."""

    recomputed = True

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Dense(3, 3)
        self.inner = Branch()
        if self.recomputed:
            self.inner.recompute()
        self.shared = self.inner.c
        self.hooked = nn.Dense(3, 3)
        self.hooked.register_forward_pre_hook(doubled)
        self.watched = nn.Dense(3, 3)
        self.watched.register_forward_hook(summed)
        self.several = nn.CellList([nn.Dense(3, 3), nn.Tanh()])
        self.last = nn.Dense(3, 2)

    def construct(self, x):
        h = self.inner(self.first(x))
        for one in self.several:
            h = one(h)
        self.shared(h)
        held = ops.stop_gradient(self.hooked(h))
        return (self.last(self.watched(self.hooked(h))) + held.sum()).sum()


class Loop(nn.Cell):
    """A loop that only the run knows the length of."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.SequentialCell(nn.Dense(3, 3), nn.Tanh())
        self.last = nn.Dense(3, 2)

    def construct(self, x):
        i = Tensor(0)
        while i < 2:
            x = self.step(x)
            i = i + 1
        return self.last(x).sum()


class Aux(nn.Cell):
    """Gives more than the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.loss, self.told = nn.Dense(3, 3), nn.Dense(3, 2), nn.Dense(3, 2)

    def construct(self, x):
        h = self.body(x)
        return self.loss(h).sum(), self.told(h)


NETS = {"branches": Branches, "loop": Loop, "aux": Aux}


class Truth:
    """What each call of a Cell gave in PyNative, and the gradient that came back for it, by hooks of the test's own.

    Under the names of records: values, gradients and each parameter's whole gradient.
    """

    def __init__(self, kind: type[nn.Cell]) -> None:
        # PyNative calls again what is recomputed; the values are the same without
        net = build(type(kind.__name__, (kind,), {"recomputed": False}))
        self.values: dict[str, np.ndarray] = {}
        self.gradients: dict[str, np.ndarray] = {}
        self._calls: dict[str, int] = {}
        handles = []
        seen: set[int] = set()
        for path, cell in net.cells_and_names():
            if (
                path
                and "_recompute" not in path
                and id(cell) not in seen
                and not isinstance(cell, nn.CellList)
            ):
                seen.add(id(cell))
                handles.append(cell.register_forward_hook(self._hook(f"Cell.{path}.{type(cell).__name__}")))
        weights = net.trainable_params()
        has_aux = issubclass(kind, Aux)
        _, gradients = ms.value_and_grad(net, None, weights, has_aux=has_aux)(batch())
        self.weights = {w.name: g.asnumpy() for w, g in zip(weights, gradients, strict=True)}
        for handle in handles:
            handle.remove()

    def _hook(self, name):
        def hook(cell, args, out):
            n = self._calls.get(name, 0)
            self._calls[name] = n + 1
            self.values[f"{name}.forward.{n}"] = out.asnumpy().copy()
            out.register_hook(lambda g: self._came(f"{name}.backward.{n}", g))

        return hook

    def _came(self, name, gradient):
        self.gradients[name] = gradient.asnumpy().copy()
        return gradient
