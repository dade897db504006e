"""Distances of tensors, by statistics and by element, against numpy computed another way."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from probe_analysis.compare.distance import compare_arguments, compare_elements, distance
from probe_analysis.compare.dtypes import dtype_name, eps_of
from probe_analysis.compare.estimates import beyond, level_of
from probe_analysis.compare.level import ROUNDINGS, own_level, sketched
from probe_format.tensors import array_object

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
        ({"dtype": "torch.bfloat16"}, 0.0, "dtype float32 against bfloat16"),  # numbers count as numbers
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
    found = compare_elements(a, b, "float32")
    apart = np.abs(a.astype(np.float64) - b.astype(np.float64))
    largest = max(np.abs(a).max(), np.abs(b).max())
    assert found.max_abs == apart.max()
    assert found.relative == pytest.approx(apart.max() / float(largest) if largest else 0.0)
    one, two = a.ravel().astype(np.float64), b.ravel().astype(np.float64)
    longest = max(np.linalg.norm(one), np.linalg.norm(two))
    assert found.apart == pytest.approx(np.linalg.norm(apart) / longest if longest else 0.0)
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
    assert steps / 2 - 1 <= compare_elements(a, b, "float32").max_ulp <= steps


def test_nan_equals_nan_and_nothing_else() -> None:
    a = np.array([1.0, np.nan, np.inf], np.float32)
    assert compare_elements(a, a.copy(), "float32").max_abs == 0.0
    assert compare_elements(a, np.array([1.0, 2.0, np.inf], np.float32), "float32").max_abs == math.inf


def test_what_one_call_makes_grows_with_the_length_of_the_sums() -> None:
    short, long = (own_level([{"dtype": "float32", "shape": [4, n]}]) for n in (16, 1024))
    assert long == pytest.approx(8 * short)
    assert own_level([{"dtype": "bfloat16", "shape": [4, 1024]}]) == ROUNDINGS * 2.0**-9
    assert own_level([{"dtype": "int64", "shape": [4]}]) == 0.0


def of(x: np.ndarray) -> dict[str, object]:
    shape, wide = list(x.shape), x.astype(np.float64)
    numbers = {"Max": wide.max(), "Min": wide.min(), "Mean": wide.mean(), "Norm": np.sqrt((wide**2).sum())}
    return tensor(shape=shape, **{key: float(value) for key, value in numbers.items()})


def test_the_statistics_tell_the_level_of_independent_errors_and_a_factor_stands_out() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(512, 64))
    for e in (1e-4, 1e-2):
        told = [level_of(of(x), of(x * (1 + e * draw.normal(size=x.shape)))) for _ in range(8)]
        assert all(beyond(found.norm, found.rest, e) < 5.0 for found in told)
        assert 0.1 * e < np.mean([found.pooled for found in told]) < 3 * e
    wrong = level_of(of(x), of(x * 1.02))
    assert beyond(wrong.norm, wrong.rest, 1e-2) > 10.0


def test_whole_numbers_are_never_rounded() -> None:
    one, two = (tensor(dtype="torch.int64", Max=n, Min=0, Mean=1.0, Norm=2.0) for n in (3, 4))
    assert level_of(one, one).largest == 0.0
    assert level_of(one, two).whole and math.isinf(level_of(one, two).largest)


@pytest.mark.parametrize("dtype", ["torch.int64", "torch.uint64"])
@pytest.mark.parametrize("step", [1, 7])
def test_whole_numbers_that_are_one_as_floats_differ(dtype: str, step: int) -> None:
    one, two = (tensor(dtype=dtype, Max=n, Min=0, Mean=1.0, Norm=2.0) for n in (2**60, 2**60 + step))
    assert 0.0 < distance(one, two).relative == step / (2**60 + step)
    assert distance(one, two).what == f"Max {2**60} against {2**60 + step}"
    assert distance(one, {**one}).relative == 0.0


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int8"])
@given(data=st.data())
def test_elements_that_are_whole_numbers_are_subtracted_exactly(dtype: str, data: st.DataObject) -> None:
    least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    some, step = st.integers(least, most), st.integers(-3, 3)
    near = st.builds(lambda x, by: (x, min(max(x + by, least), most)), some, step)
    pairs = [*data.draw(st.lists(near | st.tuples(some, some), max_size=5)), (most, most - 1)]
    a, b = (np.array([pair[n] for pair in pairs], dtype) for n in (0, 1))
    found = compare_elements(a, b, dtype)
    assert found.max_abs == max((float(abs(x - y)) for x, y in pairs))
    assert found.relative > 0.0 and found.apart > 0.0 and found.max_ulp == 0.0
    assert compare_elements(a, a.copy(), dtype).max_abs == 0.0


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


def test_a_sketch_tells_what_the_four_statistics_do_not() -> None:
    """Elements that are exchanged, and how far apart two tensors are as a whole; nothing without one on both sides."""
    rng = np.random.default_rng(3)
    a = rng.normal(size=(40, 50)).astype(np.float32)
    b = rng.permutation(a)
    one, two = (array_object(x, sketch=True) for x in (a, b))
    truth = float(np.linalg.norm(a - b) / np.linalg.norm(a))
    assert sketched(one, two) == pytest.approx(truth, rel=0.5)
    found = distance(one, two)
    assert found.relative == sketched(one, two) and found.what.startswith("elements about ")
    level = level_of(one, two)
    assert level is not None and level.largest == sketched(one, two) and level.pooled == 1.0
    bare = {key: value for key, value in two.items() if key != "sketch"}
    damaged = [{**two, "sketch": bad} for bad in ([0.5], "x", [None] * 16, [True] * 16)]
    for other in (bare, *damaged):
        assert sketched(one, other) is None and distance(one, other).relative < 1e-6
    assert distance(one, {**one}).relative == 0.0
