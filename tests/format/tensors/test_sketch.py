"""The sketch: what the specification says of each element, and an estimate of how far two tensors are apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from probe_format.tensors import array_object, sketch_of

FLOATS = st.floats(-1e6, 1e6, width=32)


def sign(row: int) -> int:
    """By the text of spec/statistics.md."""
    h = row
    h = ((h ^ (h >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    h = ((h ^ (h >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return -1 if (h ^ (h >> 16)) & 1 else 1


def by_the_text(values: list[float]) -> list[float]:
    sums = [0.0] * 16
    for i, x in enumerate(values):
        sums[i % 16] += sign(i // 16) * x
    return sums


@given(hnp.arrays(np.float32, st.integers(1, 200), elements=FLOATS))
def test_it_is_what_the_specification_says(a: Any) -> None:
    assert sketch_of(a) == pytest.approx(by_the_text(a.tolist()), rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("n", [(1 << 16) - 1, 1 << 16, (1 << 17) + 5])
def test_long_ones_are_taken_in_pieces(n: int) -> None:
    a = np.random.default_rng(n).normal(size=n)
    assert sketch_of(a) == pytest.approx(by_the_text(a.tolist()), rel=1e-7)


def test_it_estimates_how_far_two_tensors_are_apart() -> None:
    """Without bias, give or take a third: what Norm does not see, a turn, or errors that cancel."""
    rng, found = np.random.default_rng(5), []
    for _ in range(200):
        a = rng.normal(size=900)
        b = a + 0.02 * rng.permutation(a)
        one, two = (np.array(sketch_of(x)) for x in (a, b))
        found.append(np.linalg.norm(one - two) / np.linalg.norm(a - b))
    assert abs(np.mean(found) - 1) < 0.05 and np.std(found) < 0.25


def test_there_is_none_without_elements_and_without_finite_sums() -> None:
    assert sketch_of(np.empty(0)) is None
    for bad in (np.nan, np.inf):
        assert sketch_of(np.float64([1.0, bad])) is None
    assert (
        sketch_of(np.float64([1.7e308] * 33)) is None
        or np.isfinite(sketch_of(np.float64([1.7e308] * 33))).all()
    )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_elements_count_in_c_order(dtype: str) -> None:
    a = np.random.default_rng(1).normal(size=(12, 20)).astype(dtype)
    wanted = sketch_of(np.ascontiguousarray(a).ravel())
    for other in (np.asfortranarray(a), np.repeat(a, 2, 1)[:, ::2], a[::-1][::-1]):
        assert array_object(other, sketch=True)["sketch"] == wanted
    assert "sketch" not in array_object(a)
    assert "sketch" not in array_object(a.astype(np.int32), sketch=True)
