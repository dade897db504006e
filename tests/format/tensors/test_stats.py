"""Statistics against exact arithmetic: fractions for sums, decimals for roots."""

import decimal
import math
from fractions import Fraction

import numpy as np
import pytest
from attrs import evolve
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from probe_format.statistics import KEYS, NOT_FINITE, WHOLE
from probe_format.tensors import native, sketch_of, stats
from probe_format.tensors.stats import NO_STATS, Stats, stats_json, stats_of

TINY = 1e-322  # a few steps of the smallest float64
FLOATS = ["float16", "float32", "float64"]
INTS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=1, max_side=5)


def root(square):
    """The float64 nearest to the square root of a fraction; infinity when there is none."""
    with decimal.localcontext() as context:
        context.prec = 60
        context.Emin, context.Emax = -99_999, 99_999
        return float((decimal.Decimal(square.numerator) / decimal.Decimal(square.denominator)).sqrt())


def exact(values):
    """(mean, mean of the absolute values, norm), each rounded once. All values are finite."""
    parts = [Fraction(v) for v in values]
    n = len(parts)
    return float(sum(parts) / n), float(sum(map(abs, parts)) / n), root(sum(p * p for p in parts))


def close(found, right, scale, precision):
    return abs(found - right) <= precision * scale + TINY


def check_finite(s, values, precision=1e-13):
    """``s`` describes these finite numbers."""
    assert type(s.mean) is float
    assert type(s.norm) is float
    assert (s.max, s.min) == (max(values), min(values))
    mean, size, norm = exact(values)
    assert close(s.mean, mean, size, precision), (s.mean, mean)
    if norm < 1.79e308:
        assert close(s.norm, norm, norm, precision), (s.norm, norm)
    assert s.all_finite
    assert (s.finite_max, s.finite_min) == (None, None)


def check_broken(s, values, digits=0.0):
    """``s`` describes these numbers, some of which are not finite."""
    nan = sum(math.isnan(v) for v in values)
    good = [v for v in values if math.isfinite(v)]
    assert (s.nan, s.posinf, s.neginf) == (nan, values.count(math.inf), values.count(-math.inf))
    assert s.finite_max == (pytest.approx(max(good), rel=digits, abs=0) if good else None)
    assert s.finite_min == (pytest.approx(min(good), rel=digits, abs=0) if good else None)
    if nan:
        assert all(math.isnan(x) for x in (s.max, s.min, s.mean, s.norm))
    else:
        assert s.norm == math.inf
        assert s.max == pytest.approx(max(values), rel=digits, abs=0)
        assert s.min == pytest.approx(min(values), rel=digits, abs=0)
        both = s.posinf and s.neginf
        assert math.isnan(s.mean) if both else s.mean == (math.inf if s.posinf else -math.inf)


def check(s, a, precision=1e-13):
    values = [float(v) for v in np.asarray(a).ravel()]
    if all(map(math.isfinite, values)):
        check_finite(s, values, precision)
    else:
        check_broken(s, values)


def floats(dtype, **kw):
    return hnp.arrays(dtype, SHAPES, elements=hnp.from_dtype(np.dtype(dtype), **kw))


@pytest.mark.parametrize("dtype", FLOATS)
@given(data=st.data())
def test_floats_are_exact_to_the_last_digits(dtype, data):
    a = data.draw(floats(dtype))
    s = stats_of(a, zero_count=True)
    check(s, a)
    assert s.zeros == sum(v == 0 for v in a.ravel())


@given(
    hnp.arrays(
        "float64", st.integers(1, 6), elements=st.sampled_from([1.7e308, -1.7e308, 1e-308, 5e-324, 0.0])
    )
)
@example(np.array([1.7e308, 1.7e308, -1.7e308]))
@example(np.array([3e-324, 5e-324]))
def test_extremes_of_float64_neither_overflow_nor_vanish(a):
    check(stats_of(a), a)
    check(native.stats_in(a), a)


@pytest.mark.parametrize("dtype", INTS)
@given(data=st.data())
def test_integers(dtype, data):
    info = np.iinfo(dtype)
    edge = st.sampled_from([info.min, info.max, info.max - 1, 0])
    a = data.draw(hnp.arrays(dtype, SHAPES, elements=edge | st.integers(int(info.min), int(info.max))))
    s = stats_of(a, zero_count=True)
    check_finite(s, [int(v) for v in a.ravel()])
    assert type(s.max) is int
    assert s.zeros == int((a == 0).sum())


@given(hnp.arrays("bool", SHAPES))
def test_bool(a):
    s = stats_of(a, zero_count=True)
    n, true = a.size, int(a.sum())
    assert (s.max, s.min, s.zeros) == (bool(a.any()), bool(a.all()), n - true)
    assert type(s.max) is bool
    assert (s.mean, s.norm) == (true / n, math.sqrt(true))


@pytest.mark.parametrize("part", ["float32", "float64"])
@given(data=st.data())
def test_complex_numbers_by_their_absolute_value(part, data):
    top = 2.0**100 if part == "float32" else 2.0**1000  # so that no absolute value overflows
    elements = hnp.from_dtype(np.dtype(part), min_value=-top, max_value=top)
    elements |= st.sampled_from([math.nan, math.inf, -math.inf])
    pairs = data.draw(hnp.arrays(part, st.tuples(st.integers(1, 8), st.just(2)), elements=elements))
    a = pairs.view(np.result_type(part, "complex64"))
    values = [math.hypot(v.real, v.imag) for v in a.astype("complex128").ravel()]
    s = stats_of(a)
    if not all(map(math.isfinite, values)):
        check_broken(s, values, 1e-15)
        return
    assert s.max == pytest.approx(max(values), rel=1e-15, abs=TINY)
    assert s.min == pytest.approx(min(values), rel=1e-15, abs=TINY)
    mean, _, norm = exact(values)
    assert s.mean == pytest.approx(mean, rel=1e-13, abs=TINY)
    assert s.norm == pytest.approx(norm, rel=1e-13, abs=TINY)


def test_narrow_floats_have_no_false_infinity():
    s = stats_of(np.full(2000, 60_000, np.float16))
    assert s == Stats(60_000.0, 60_000.0, 60_000.0, pytest.approx(60_000 * math.sqrt(2000)))


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e8m0fnu"]
)
def test_ml_dtypes(dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a = np.array([0.5, -2.0, 4.0] if dtype != "float8_e8m0fnu" else [0.5, 2.0, 4.0]).astype(
        getattr(ml_dtypes, dtype)
    )
    check(stats_of(a), a.astype("float64"))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, "bool", "complex64", "U3", "O", "M8[s]"])
def test_empty_arrays_have_no_numbers(dtype):
    assert stats_of(np.empty((0, 3), dtype)) == NO_STATS
    assert stats_of(np.empty((2, 0), dtype), zero_count=True) == Stats(zeros=0)


@pytest.mark.parametrize(
    "a", [np.array(["a"]), np.array([None]), np.array([1], "M8[s]"), np.zeros(2, "i4,f4")]
)
def test_what_is_no_number_has_no_numbers(a):
    assert stats_of(a) == NO_STATS


@pytest.mark.parametrize("value", [-3, -2.5, -0.0, math.inf, math.nan])
def test_one_element_is_an_array_like_others(value):
    for a in (np.array(value), np.array([[value]])):
        check(stats_of(a), a)
    assert not stats_of(np.array(value)).norm < 0


def test_layout_does_not_matter():
    a = np.arange(24, dtype="float32").reshape(2, 3, 4) - 7
    right = stats_of(a)
    for view in (
        a.T,
        np.asfortranarray(a),
        a[::-1, :, ::-1],
        a.astype(">f4"),
        np.broadcast_to(a, (1, 2, 3, 4)),
    ):
        assert stats_of(view) == right
    with_holes = a[:, ::2]
    check(stats_of(with_holes), with_holes)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_no_warning_whatever_the_numbers_and_whatever_the_user_asked_of_numpy(dtype, recwarn):
    arrays = [np.zeros(3), np.full(3, math.nan), np.array([math.inf, -math.inf]), np.array([1.7e308, 5e-324])]
    with np.errstate(all="ignore"):
        arrays = [a.astype(dtype) for a in arrays]
    arrays.append(np.frombuffer(b"\x01\x7f\xa0\x7f" * 8, dtype))  # signalling NaN among them
    arrays.append(np.resize(arrays[-1], 10_000))
    with np.errstate(all="raise"):
        for a in arrays:
            stats_of(a, zero_count=True)
            if dtype in ("float32", "float64"):
                native.stats_in(a)
                numbers_in(a)
    assert not list(recwarn)


@pytest.fixture(params=["probe-fast", "reference"])
def way(request, monkeypatch):
    """Each of the two ways to the numbers."""
    if request.param == "reference":
        monkeypatch.setattr(native, "WAY", "")
        monkeypatch.setattr(native, "numbers_at", native.by_reference)
    elif not native.WAY:
        pytest.skip("probe-fast has no library here")


def numbers_in(a):
    return native.numbers_at(a.ctypes.data, a.size, a.dtype.name)


def agree(a, narrow=None, precision=1e-13):
    """Either way tells the same of an array: extremes and counts exactly, Mean and Norm within the bounds."""
    s = native.stats_in(a, narrow=narrow, zero_count=True)
    right = stats_of(a, narrow=narrow, zero_count=True)
    with np.errstate(all="ignore"):
        size = float(np.mean(np.abs(stats.widened(a, narrow))))
    if right.all_finite and math.isfinite(size):
        assert evolve(s, mean=0.0, norm=0.0) == evolve(right, mean=0.0, norm=0.0)
        assert close(s.mean, right.mean, size, precision) and close(s.norm, right.norm, right.norm, precision)
    else:
        assert repr(s) == repr(right)  # repr: NaN is not equal to itself


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, "bool"])
def test_arrays_of_every_kind(way, dtype):
    @given(hnp.arrays(dtype, SHAPES, elements=hnp.from_dtype(np.dtype(dtype))))
    @example(np.zeros(9, dtype))
    @example(np.ones((3, 5), dtype).T)
    @example(np.broadcast_to(np.ones(3, dtype), (4, 3)))
    @example(np.arange(12).astype(dtype)[::-2])
    @example(np.ones(3, dtype).astype(np.dtype(dtype).newbyteorder()))
    def run(a):
        agree(a)
        s = native.stats_in(a)
        assert type(s.max) is type(stats_of(a).max)
        if dtype in ("float32", "float64"):
            check(s, a)

    run()


@pytest.mark.parametrize("name", ["bfloat16", "float8e4m3fn", "float8e5m2", "hifloat8", "float8e8m0fnu"])
def test_bits_of_formats_that_numpy_lacks(way, name):
    every = np.arange(1 << 16, dtype=np.uint16) if name == "bfloat16" else np.arange(256, dtype=np.uint8)
    rng = np.random.default_rng(0)
    few = [rng.choice(every, n) for n in (1, 2, 17, 300)]
    for bits in (every, every[: len(every) // 4], every[::3], *few):
        agree(bits, name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [255, 1025, 32_768, 32_769, 65_537, 300_001, 1_100_000])
def test_sizes_where_the_path_changes(way, dtype, size):
    a = (np.random.default_rng(size).standard_normal(size) + 3).astype(dtype)
    agree(a)
    s, found = native.stats_in(a, threads=lambda: 2), numbers_in(a)
    assert found in (None, (s.max, s.min, s.mean, s.norm))
    for bad in (math.nan, math.inf, -math.inf):
        for where in (0, size - 1):
            b = a.copy()
            b[where] = bad
            agree(b)
            assert numbers_in(b) is None


def test_infinities_of_both_signs_far_apart(way):
    a = np.ones(400_000, np.float32)
    a[0], a[-1] = math.inf, -math.inf
    s = native.stats_in(a)
    assert (s.posinf, s.neginf, s.finite_max) == (1, 1, 1.0)
    assert math.isnan(s.mean)


@pytest.mark.parametrize("dtype", [*FLOATS, "bfloat16"])
def test_numbers_at_an_address_are_those_of_the_array(way, dtype):
    bits = np.dtype("uint16" if dtype == "bfloat16" else dtype)

    @given(st.binary(min_size=8, max_size=320).filter(lambda b: len(b) % 8 == 0))
    @example(bytes(64))
    @example(np.linspace(-1, 1, 8193).tobytes())
    def run(data):
        a = np.frombuffer(data, bits)
        s = native.stats_in(a, narrow="bfloat16" if dtype == "bfloat16" else None)
        four = s.max, s.min, s.mean, s.norm
        found = native.numbers_at(a.ctypes.data, a.size, dtype)
        if found is None:  # a float64 whose squares are lost is for the reference to look at
            assert not all(map(math.isfinite, four)) or dtype == "float64"
        else:
            assert repr(found) == repr(four)  # repr: -0.0 is not 0.0

    run()


@pytest.mark.parametrize("narrow", [None, "bfloat16", "float8e5m2"])
def test_the_sketch_comes_with_the_numbers(way, narrow):
    rng = np.random.default_rng(3)
    a = rng.standard_normal((70, 33)).astype(np.float32)
    a = a if narrow is None else rng.integers(0, 100, a.shape).astype("u2" if narrow == "bfloat16" else "u1")
    for array in (a, a.T, a[::2], np.broadcast_to(a[0], (5, 33))):
        s = native.stats_in(array, narrow=narrow, sketch=True)
        assert s.sketch == pytest.approx(sketch_of(array.ravel(), narrow), rel=1e-7)
        assert stats_json(s)["sketch"] == s.sketch
        assert evolve(s, sketch=None, mean=0.0, norm=0.0) == evolve(
            stats_of(array, narrow=narrow), mean=0.0, norm=0.0
        )
    assert native.stats_in(np.arange(3), sketch=True).sketch is None
    assert native.stats_in(np.array([1.0, math.nan]), sketch=True).sketch is None


def test_each_statistic_is_told_where_it_applies():
    assert tuple(stats_json(stats_of(np.ones(3)))) == WHOLE
    broken = stats_json(stats_of(np.array([np.nan, np.inf, -np.inf, 0.0]), zero_count=True))
    assert set(broken) == set(KEYS)
    assert all(broken[key] == 1 for key in NOT_FINITE)


def test_json_of_statistics():
    assert stats_json(NO_STATS) == {"Max": None, "Min": None, "Mean": None, "Norm": None}
    assert list(stats_json(Stats(2, 1, 1.5, 2.0))) == ["Max", "Min", "Mean", "Norm"]
    assert stats_json(Stats(True, False, 0.5, 1.0, zeros=1)) == {
        "Max": True,
        "Min": False,
        "Mean": 0.5,
        "Norm": 1.0,
        "zero_count": 1,
    }
    assert stats_json(stats_of(np.array([math.nan, math.inf, 2.0, -1.0]))) == {
        "Max": "NaN",
        "Min": "NaN",
        "Mean": "NaN",
        "Norm": "NaN",
        "nan_count": 1,
        "posinf_count": 1,
        "neginf_count": 0,
        "finite_max": 2.0,
        "finite_min": -1.0,
    }
    only = stats_json(stats_of(np.array([-math.inf])))
    assert (only["Max"], only["Norm"], only["finite_max"], only["neginf_count"]) == (
        " -inf",
        "inf",
        None,
        1,
    )


@given(
    st.lists(st.sampled_from([0.0, 7e300, math.nan, math.inf, -math.inf]) | st.floats(), min_size=1),
    st.sampled_from([np.float64, np.float32, np.complex128]),
    st.integers(1, 5),
)
def test_blocks_of_an_array_give_its_statistics(values, dtype, block):
    with np.errstate(all="ignore"):
        a = np.array(values).astype(dtype)
    whole = stats.stats_of(a, zero_count=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stats, "BLOCK", block)
        found = stats.stats_of(a, zero_count=True)
    for name in ("max", "min", "nan", "posinf", "neginf", "finite_max", "finite_min", "zeros"):
        assert np.array_equal(
            [getattr(found, name)], [getattr(whole, name)], equal_nan=name in ("max", "min")
        ), name
    top = max(abs(whole.finite_max or 0), abs(whole.finite_min or 0), abs(whole.max), abs(whole.min))
    assert found.norm == pytest.approx(whole.norm, rel=1e-12, nan_ok=True)
    slack = 1e-12 * top if math.isfinite(top) else 0
    assert found.mean == pytest.approx(whole.mean, rel=1e-12, abs=slack, nan_ok=True)
