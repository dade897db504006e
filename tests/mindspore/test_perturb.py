"""perturb: every float one step away, by numpy's own nextafter, and everything else as it was."""

from __future__ import annotations

import random
from typing import Any

import mindspore as ms
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from mindspore import nn
from probe_format.errors import UsageError
from probe_mindspore import perturb

KINDS = {ms.float64: np.float64, ms.float32: np.float32, ms.float16: np.float16}
ENDS = (0.0, -0.0, np.inf, -np.inf, np.nan)


def assert_one_step(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> None:
    still = (x == 0) | ~np.isfinite(x)
    assert x.dtype == y.dtype and x.shape == y.shape
    with np.errstate(all="ignore"):
        up, down = np.nextafter(x, x.dtype.type(np.inf)), np.nextafter(x, x.dtype.type(-np.inf))
    assert np.all((y == up) | (y == down) | still)
    assert np.array_equal(y[still], x[still], equal_nan=True)
    assert np.array_equal(np.signbit(x), np.signbit(y))
    assert np.all(still | ((y != x) & np.isfinite(y) & (y != 0)))


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_each_number_is_the_next_one(dtype: Any, data: st.DataObject, seed: int) -> None:
    kind = np.dtype(KINDS[dtype])
    shapes = nps.array_shapes(min_dims=0, max_dims=3, max_side=5)
    bits = data.draw(nps.arrays(f"u{kind.itemsize}", shapes)).view(kind)
    limits = np.finfo(kind)
    ends = np.array([*ENDS, limits.max, -limits.max, limits.smallest_subnormal, limits.tiny], kind)
    for values in (bits, ends):
        after = perturb(ms.Tensor(values), seed)
        assert after.dtype == dtype
        assert_one_step(values, after.asnumpy())
        assert perturb(values, seed).tobytes() == after.asnumpy().tobytes()


def test_every_number_of_bfloat16() -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    wide = (bits.astype(np.uint32) << 16).view(np.float32)
    for seed in range(3):
        found = perturb(ms.Tensor(wide, ms.bfloat16), seed)
        assert found.dtype == ms.bfloat16
        after = found.asnumpy().view(np.uint16)
        still = (wide == 0) | ~np.isfinite(wide)
        assert np.array_equal(after[still & ~np.isnan(wide)], bits[still & ~np.isnan(wide)])
        apart = after.astype(int) - bits.astype(int)
        assert set(apart[~still]) == {-1, 1}  # the numbers of one sign are in the order of their bits
        moved = (after.astype(np.uint32) << 16).view(np.float32)[~still]
        assert np.all(np.isfinite(moved) & (moved != 0))


def test_complex_numbers_move_in_both_parts() -> None:
    for kind in (np.complex64, np.complex128):
        x = (np.random.default_rng(0).normal(size=(3, 2)) + 1j).astype(kind)
        after = perturb(ms.Tensor(x)).asnumpy()
        assert after.dtype == kind
        assert_one_step(x.real.copy(), after.real.copy())
        assert_one_step(x.imag.copy(), after.imag.copy())


def test_structures_seeds_and_random_states() -> None:
    ids, x = ms.Tensor([1, 2, 3]), ms.Tensor(np.linspace(1, 2, 5, dtype=np.float32))
    states = random.getstate(), str(np.random.get_state()), ms.get_rng_state().asnumpy().tolist()
    before = x.asnumpy().copy()
    value = {"ids": ids, "x": [x, (x, None)], "eps": 1e-5}
    after: Any = perturb(value, 3)
    assert after["ids"] is ids
    assert after["eps"] == 1e-5
    assert after["x"][0] is after["x"][1][0]
    assert_one_step(before, after["x"][0].asnumpy())
    assert np.array_equal(x.asnumpy(), before)
    assert np.array_equal(perturb(x, 3).asnumpy(), after["x"][0].asnumpy())
    assert not np.array_equal(perturb(x, 4).asnumpy(), after["x"][0].asnumpy())
    assert states == (random.getstate(), str(np.random.get_state()), ms.get_rng_state().asnumpy().tolist())


def test_the_weights_of_a_network_that_takes_tokens() -> None:
    net = nn.SequentialCell(nn.Embedding(8, 4), nn.Dense(4, 4))
    tokens = ms.Tensor(np.arange(8, dtype=np.int32))
    before = {name: p.asnumpy().copy() for name, p in net.parameters_dict().items()}
    out = net(tokens).asnumpy()
    with pytest.raises(UsageError, match="load_param_into_net"):
        perturb(tokens)
    moved: Any = perturb(net.parameters_dict())
    assert {name: p.name for name, p in moved.items()} == {name: name for name in before}
    ms.load_param_into_net(net, moved)
    for name, p in net.parameters_dict().items():
        assert_one_step(before[name], p.asnumpy())
    assert not np.array_equal(net(tokens).asnumpy(), out)
    assert np.allclose(net(tokens).asnumpy(), out, atol=1e-5)


def test_what_cannot_be_moved_is_told() -> None:
    sparse = ms.COOTensor(ms.Tensor([[0, 1]], ms.int32), ms.Tensor([1.0]), (2, 2))
    for value, words in (
        (sparse, "COOTensor"),
        (ms.Tensor(np.ones(2, np.float32), ms.float8_e5m2), "Float8E5M2"),
        ({"x": ms.Tensor([1])}, "no tensor of floats in this dict"),
    ):
        with pytest.raises(UsageError, match=words):
            perturb(value)
    with pytest.raises(UsageError, match="seed must be"):
        perturb(ms.Tensor([1.0]), -1)
