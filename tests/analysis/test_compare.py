"""Distances of tensors, by statistics and by element, against numpy computed another way."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from probe_analysis.compare.distance import compare_arguments, compare_elements, distance
from probe_analysis.compare.tolerance import Tolerance, dtype_name, eps_of

FLOATS = nps.arrays(
    np.float32, nps.array_shapes(max_dims=2, max_side=6), elements=st.floats(-1e6, 1e6, width=32)
)


def tensor(**keys: object) -> dict[str, object]:
    given: dict[str, object] = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3]}
    return given | {"Max": 1.0, "Min": -1.0, "Mean": 0.0, "Norm": 2.0} | keys


def test_what_is_equal_has_no_distance() -> None:
    assert distance(tensor(), tensor()).relative == 0.0
    assert distance(tensor(md5="01234567"), tensor(md5="01234567", Max=1.5)).relative == 0.0


@pytest.mark.parametrize(
    ("change", "relative", "words"),
    [
        ({"Max": 1.01}, 0.01 / 1.01, "Max 1 against 1.01"),
        ({"Norm": 2.2}, 0.2 / 2.2, "Norm 2 against 2.2"),
        ({"Mean": 0.1}, 0.1 / (2.0 / math.sqrt(6)), "Mean 0 against 0.1"),
        ({"shape": [3, 2]}, math.inf, "shape 2x3 against 3x2"),
        ({"dtype": "torch.bfloat16"}, math.inf, "dtype float32 against bfloat16"),
        ({"Max": "NaN", "Min": "NaN", "Norm": "NaN"}, math.inf, "not finite"),
        ({"nan_count": 1}, math.inf, "1 nan"),
    ],
)
def test_a_change_has_its_size_and_its_words(change: dict[str, object], relative: float, words: str) -> None:
    found = distance(tensor(), tensor(**change))
    assert found.relative == pytest.approx(relative)
    assert words in found.what


def test_frameworks_name_dtypes_differently() -> None:
    assert distance(tensor(), tensor(dtype="Float32", type="mindspore.Tensor")).relative == 0.0
    assert dtype_name("torch.bfloat16") == dtype_name("BFloat16")
    assert eps_of("BFloat16") == 2.0**-7
    assert eps_of("Int64") == 0.0


def test_other_bits_with_the_same_statistics_differ_by_one_rounding() -> None:
    assert distance(tensor(md5="0"), tensor(md5="1")).relative == eps_of("float32")


@given(FLOATS, st.data())
def test_elements_against_numpy(a: np.ndarray, data: st.DataObject) -> None:
    b = data.draw(nps.arrays(np.float32, a.shape, elements=st.floats(-1e6, 1e6, width=32)))
    found = compare_elements(a, b, "float32", 1e-3)
    apart = np.abs(a.astype(np.float64) - b.astype(np.float64))
    largest = max(np.abs(a).max(), np.abs(b).max())
    assert found.max_abs == apart.max()
    assert found.relative == pytest.approx(apart.max() / float(largest) if largest else 0.0)
    assert found.beyond == pytest.approx(np.mean(apart > 1e-3 * float(largest)))
    one, two = a.ravel().astype(np.float64), b.ravel().astype(np.float64)
    if one.any() and two.any():
        cosine = one @ two / (np.linalg.norm(one) * np.linalg.norm(two))
        assert found.cosine == pytest.approx(cosine, abs=1e-6)


@given(st.floats(2.0**-99, 2.0**99, width=32), st.integers(0, 50))
def test_units_in_the_last_place(x: float, steps: int) -> None:
    a = np.array([x], np.float32)
    b = a
    for _ in range(steps):
        b = np.nextafter(b, np.float32(0))
    # Below a power of two the unit is half as large.
    assert steps / 2 - 1 <= compare_elements(a, b, "float32", 0.0).max_ulp <= steps


def test_nan_equals_nan_and_nothing_else() -> None:
    a = np.array([1.0, np.nan, np.inf], np.float32)
    assert compare_elements(a, a.copy(), "float32", 0.0).max_abs == 0.0
    assert compare_elements(a, np.array([1.0, 2.0, np.inf], np.float32), "float32", 0.0).max_abs == math.inf


def test_the_tolerance_grows_with_the_length_of_the_sums() -> None:
    rule = Tolerance()
    short, long = (rule.of([{"dtype": "float32", "shape": [4, n]}]) for n in (16, 1024))
    assert long == pytest.approx(8 * short)
    assert rule.of([{"dtype": "bfloat16", "shape": [4, 1024]}]) == 4 * 2.0**-7
    assert rule.of([{"dtype": "int64", "shape": [4]}]) == 0.0
    assert Tolerance(fixed=0.5).of([{"dtype": "float32", "shape": [4]}]) == 0.5


def test_arguments_are_compared_by_value() -> None:
    one = [
        ("input_args.1", {"type": "float", "value": 1e-5}),
        ("input_kwargs.dim", {"type": "int", "value": -1}),
    ]
    two = [
        ("input_args.1", {"type": "float", "value": 1e-6}),
        ("input_kwargs.dim", {"type": "int", "value": -1}),
    ]
    assert [str(d) for d in compare_arguments(one, two)] == ["input_args.1 1e-05 against 1e-06"]
    assert compare_arguments(one, one) == ()
    assert str(compare_arguments(one, one[:1])[0]) == "input_kwargs.dim -1 against not given"
    assert compare_arguments(one, one[:1], both=True) == ()
