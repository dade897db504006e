"""The short way through usual values gives what the general way gives."""

from __future__ import annotations

import collections
import decimal
import enum
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from probe_format import jsonio
from probe_format.values import MAX_LEAVES
from probe_format.write import Coverage
from probe_runtime.collect.parts import Parts, slots
from probe_torch.tensors.leaf import Placement, TensorLeaf, TensorOptions
from torch import nn

Made = Callable[[random.Random], Any]


class Named(NamedTuple):
    a: Any


class Own(torch.Tensor):
    pass


class Number(int):
    pass


class Colour(enum.IntEnum):
    RED = 1


MODEL = nn.Linear(2, 3)
TENSORS = [
    torch.randn(2, 3),
    torch.arange(3),
    MODEL.weight,
    torch.zeros(0),
    torch.tensor(2.5, requires_grad=True),
]
SCALARS: list[Any] = [
    *(None, True, False, 1, 0, -5, 1.0, 0.0, -0.0, 1e-5, 1e16, 1 / 3, math.nan, math.inf, -math.inf),
    *("", "mean", 'quo"te\n', "Größe", "\ud800", 2**53, 2**64, -(2**70), ...),
    *(
        torch.float32,
        torch.device("cpu"),
        torch.Size([2, 3]),
        torch.Size([]),
        torch.contiguous_format,
        torch.strided,
    ),
    *(slice(None), slice(1, None, 2), slice(0, 1), slice(False, True)),
]
UNUSUAL: list[Any] = [
    *({"x": 1}, Named(1), Number(3), Colour.RED, Own([1.0]), np.ones(2), np.float32(1)),
    *(1j, decimal.Decimal(1), b"x", {1, 2}, len, int, object(), torch.return_types.max((1, 2)), [[1]], ([],)),
    *(slice(torch.tensor(1), None), slice("a"), collections.OrderedDict(a=1), range(3), 10**5000),
]


class Bench:
    """A leaf and what describes parts with it, as a step has them."""

    def __init__(self, tmp_path: Path) -> None:
        self.notes: list[str] = []
        self.leaf = TensorLeaf(TensorOptions(tmp_path), Coverage(), lambda event: None)
        self.parts = Parts(self.leaf, self.notes.append)

    def short(self, args: Any, kwargs: Any, *, show: bool) -> list[Any]:
        """What the loop says: the JSON, the forms, the tensors with their paths."""
        first, second = Placement("r", "input", False, show), Placement("r", "kwargs", False, show)
        with self.leaf.aside():
            given, form = self.parts.sequence(first, enumerate(args))
            named, named_form = self.parts.mapping(second, kwargs)
        said = [jsonio.loads(jsonio.dumps(x)) if show else None for x in (given, named)]
        return [*said, form, named_form, *(self._found(p) for p in (first, second))]

    def general(self, args: Any, kwargs: Any, *, show: bool) -> list[Any]:
        """The same from the encoder."""
        first, second = Placement("r", "input", False, show), Placement("r", "kwargs", False, show)
        encoder = self.parts.encoder(first)
        given = [encoder.describe(value, (i,)) for i, value in enumerate(args)]
        encoder = self.parts.encoder(second)
        named = {key: encoder.describe(value, (key,)) for key, value in kwargs.items()}
        forms = [slots(given), slots(named.values())]
        said = [jsonio.loads(jsonio.dumps(x)) if show else None for x in (given, named)]
        return [*said, *forms, *(self._found(p) for p in (first, second))]

    def _found(self, placement: Placement) -> list[Any]:
        return [(path, id(t)) for path, t in placement.found]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def usual(rng: random.Random) -> Any:
    """A value for the short way."""
    one = [lambda: rng.choice(SCALARS[:-1]), lambda: rng.choice(TENSORS)]
    several = [lambda: [rng.choice(one)() for _ in range(rng.randrange(4))]]
    return rng.choice([*one, *several, lambda: tuple(several[0]())])()


@pytest.mark.parametrize("show", [True, False])
def test_both_ways_say_the_same(bench: Bench, show: bool) -> None:
    rng = random.Random(5)
    for _ in range(600):
        args = tuple(usual(rng) for _ in range(rng.randrange(5)))
        kwargs = {f'k{i}"': usual(rng) for i in range(rng.randrange(3))}
        assert bench.parts.are_plain(args)
        assert bench.parts.are_plain(kwargs.values())
        assert bench.short(args, kwargs, show=show) == bench.general(args, kwargs, show=show)


def test_both_ways_write_the_same_bytes(bench: Bench) -> None:
    # With these another encoder writes the whole list, and other digits of the floats in it.
    odd = ("\ud800", 2**64, -(2**70))
    values = [*(v for v in SCALARS if v not in odd), *TENSORS]
    values = [*values, [*values[:3]], (), [], (TENSORS[0], 1)]
    for _ in range(2):  # unknown, then known
        described, form = bench.parts.sequence(Placement("r", "input", False), enumerate(values))
        encoder = bench.parts.encoder(Placement("r", "input", False))
        expected = [encoder.describe(value, (i,)) for i, value in enumerate(values)]
        assert jsonio.dumps(described) == jsonio.dumps(expected)
        assert form == slots(expected)


@pytest.mark.parametrize("value", UNUSUAL, ids=lambda value: type(value).__name__)
def test_whatever_may_run_the_users_code_goes_the_general_way(bench: Bench, value: Any) -> None:
    if type(value) is int:  # too long to be written: the encoder says so each time
        for n in (1, 2):
            described, _ = bench.parts.sequence(Placement("r", "input", False), enumerate([value]))
            assert described[0]["unsupported"]
            assert len(bench.notes) == n
        return
    for values in ([value], [1, value], [[value]], [(1, value)]):
        assert not bench.parts.are_plain(values)


def test_too_many_values_go_the_general_way(bench: Bench) -> None:
    assert bench.parts.are_plain([[1] * (MAX_LEAVES - 1)])
    assert not bench.parts.are_plain([[1] * MAX_LEAVES])
    assert not bench.parts.are_plain([1] * (MAX_LEAVES + 1))


def test_equal_values_of_other_types_are_told_apart(bench: Bench) -> None:
    values = [1, True, 1.0, 0, False, 0.0, -0.0, torch.Size([1]), (1,), slice(1, None), "1"]
    described, _ = bench.parts.sequence(Placement("r", "input", False), enumerate(values * 2))
    said = jsonio.loads(jsonio.dumps(described))
    assert said[: len(values)] == said[len(values) :]
    assert len({repr(one) for one in said}) == len(values)
