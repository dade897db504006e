"""Statistics against exact arithmetic: fractions for sums, decimals for roots."""

import decimal
import importlib.util
import math
import sys
from contextlib import contextmanager
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from probe_format.tensors import stats, stats_fast, widen
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
    check(stats_fast.quick_stats(a), a)


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
                stats_fast.quick_stats(a)
                stats_fast.numbers_at(a.ctypes.data, a.size, dtype)
    assert not list(recwarn)


def kernels():
    """The families of numkong's kernels that this processor has, best first, without and with fewer and fewer.

    Each set of them gives other code, so each is a processor that somebody has.
    """
    if stats_fast.numkong is None:
        return [[]]
    able = [name for name, here in stats_fast.numkong.get_capabilities().items() if here and name != "serial"]
    return [able[:n] for n in range(len(able), -1, -1)]


@contextmanager
def processor_with(names):
    """Only these families of kernels, as on a processor that has no other."""
    able = kernels()[0]
    for name in able:
        (stats_fast.numkong.enable_capability if name in names else stats_fast.numkong.disable_capability)(
            name
        )
    try:
        yield
    finally:
        for name in able:
            stats_fast.numkong.enable_capability(name)


def without_numkong():
    """The module as it is where numkong is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "numkong", None)
        found = importlib.util.find_spec(stats_fast.__name__)
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
    assert module.numkong is None
    return module


BY_NUMPY = without_numkong().quick


@pytest.fixture(params=["numpy", *kernels()], ids=lambda p: p if p == "numpy" else "+".join(["numkong", *p]))
def part(request, monkeypatch):
    """Every way to the moments of a piece, on every processor that this one can be switched to."""
    if request.param == "numpy":
        monkeypatch.setattr(stats_fast, "quick", BY_NUMPY)
        yield "numpy"
        return
    if stats_fast.numkong is None:
        pytest.skip("numkong is not installed")
    assert stats_fast.quick.__code__ != BY_NUMPY.__code__, "numkong is here, but not proven"
    with processor_with(request.param):
        yield "numkong"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_elements_that_are_all_the_last_of_their_kind(part, dtype):
    """numkong.minmax has no answer for the largest finite float32 where there is no AVX-512."""
    info = np.finfo(dtype)
    for edge in (info.max, info.tiny, info.smallest_subnormal, 0.0, 1.0):
        for size in (1, 3, 8, 17, 64, 1000):
            for sign in (1, -1):
                both_agree(np.full(size, sign * edge, dtype))


def test_every_way_is_proven_where_it_is_used(part):
    assert stats_fast.proven(stats_fast.quick)


@pytest.mark.parametrize("fault", ["no extremes", "float32 sums", "blind to nan", "wrong top"])
def test_a_way_that_is_wrong_is_not_proven(fault):
    def part(a):
        top, bottom, total, squares = BY_NUMPY(a)
        if fault == "blind to nan":
            good = a[np.isfinite(a)]
            return BY_NUMPY(good) if good.size else (0.0, 0.0, 0.0, 0.0)
        if fault == "wrong top":
            return (0.0 if bottom == np.finfo(a.dtype).tiny else top), bottom, total, squares
        if fault == "float32 sums":
            return top, bottom, total * 1.01, squares
        return bottom, top, total, squares

    assert not stats_fast.proven(part)


def both_agree(a):
    """The fused numbers are those of exact arithmetic, and where anything is odd those of the reference."""
    s = stats_fast.quick_stats(a)
    check(s, a, 1e-5 if a.dtype == np.float32 else 1e-12)
    if not s.all_finite:
        assert repr(s) == repr(stats_of(a))  # repr: NaN is not equal to itself
    assert stats_fast.quick_stats(a, zero_count=True).zeros == a.size - np.count_nonzero(a)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("chunk", [4, 1 << 17])
def test_fused_agrees_with_exact_arithmetic(part, dtype, chunk, monkeypatch):
    monkeypatch.setattr(stats_fast, "CHUNK", chunk)

    @settings(max_examples=60)
    @given(hnp.arrays(dtype, st.integers(1, 14), elements=hnp.from_dtype(np.dtype(dtype))))
    @example(np.full(9, 1e-22, dtype))
    @example(np.zeros(9, dtype))
    @example(np.array([math.inf, 0, 0, 0, 0, 0, 0, 0, -math.inf], dtype))
    @example(np.full(9, np.finfo(dtype).max, dtype))
    @example(np.array([-0.0] * 9, dtype))
    @example(np.array([math.inf] + [-np.finfo(dtype).max / 4] * 7, dtype))  # whose finite part overflows
    def run(a):
        both_agree(a)

    run()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [255, 256, 257, 8191, 8193, 131_072, 131_073, 300_001])
def test_fused_at_the_sizes_where_its_path_changes(part, dtype, size):
    a = (np.random.default_rng(size).standard_normal(size) + 3).astype(dtype)
    s, right = stats_fast.quick_stats(a), stats_of(a)
    assert (s.max, s.min) == (right.max, right.min)
    precision = 1e-5 if dtype == "float32" else 1e-13
    assert s.mean == pytest.approx(math.fsum(a) / size, rel=precision)
    assert s.norm == pytest.approx(right.norm, rel=precision)
    for bad in (math.nan, math.inf, -math.inf):
        for where in (0, size // 2, size - 1):
            b = a.copy()
            b[where] = bad
            assert repr(stats_fast.quick_stats(b)) == repr(stats_of(b))


def test_infinities_of_both_signs_far_apart(part):
    a = np.ones(3 * stats_fast.CHUNK, np.float32)
    a[0], a[-1] = math.inf, -math.inf
    s = stats_fast.quick_stats(a)
    assert (s.posinf, s.neginf, s.finite_max) == (1, 1, 1.0)
    assert math.isnan(s.mean)


def test_a_long_array_of_tiny_constants_keeps_its_norm(part):
    n = 2 * stats_fast.CHUNK
    a = np.full(n, 1e-22, np.float32)
    assert stats_fast.quick_stats(a).norm == pytest.approx(float(a[0]) * math.sqrt(n), rel=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_at_an_address_are_those_of_the_array(part, dtype):
    @settings(max_examples=60)
    @given(hnp.arrays(dtype, st.integers(1, 40), elements=hnp.from_dtype(np.dtype(dtype))))
    @example(np.ones(8192, dtype))
    @example(np.linspace(-1, 1, 8193, dtype=dtype))
    @example(np.full(9, 1e-22, dtype))
    @example(np.zeros(9, dtype))
    @example(np.full(9, np.finfo(dtype).max, dtype))
    def run(a):
        s = stats_fast.quick_stats(a)
        four = s.max, s.min, s.mean, s.norm
        right = four if all(map(math.isfinite, four)) else None
        assert repr(stats_fast.numbers_at(a.ctypes.data, a.size, dtype)) == repr(
            right
        )  # repr: -0.0 is not 0.0

    run()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_numbers_at_an_address_are_those_of_the_array(part, dtype):
    stats_fast.widens.cache_clear()
    assert stats_fast.widens(dtype) is (part == "numkong")
    every = np.arange(1 << 16, dtype=np.uint16)
    few = np.random.default_rng(0).integers(0, 1 << 16, (300, 5), dtype=np.uint16)
    for bits in (every[:1], every[:9], every[0x3C00:0x3C80], every[:0x2000], every[0x7000:0x7D00], *few):
        with np.errstate(all="ignore"):
            wide = widen(bits, dtype) if dtype == "bfloat16" else bits.view(dtype).astype(np.float32)
        s = stats_fast.quick_stats(wide)
        four = s.max, s.min, s.mean, s.norm
        right = four if part == "numkong" and all(map(math.isfinite, four)) else None
        assert repr(stats_fast.numbers_at(bits.ctypes.data, bits.size, dtype)) == repr(right)
    stats_fast.widens.cache_clear()


@given(hnp.arrays("float32", st.integers(1, 40), elements=st.floats(-(2.0**-52), 2.0**-52, width=32)))
@example(np.array([-0.0, 0.0], np.float32))
@example(np.array([0.0, -0.0, 1e-45], np.float32))
def test_numbers_too_small_for_their_squares_are_those_of_the_reference(a):
    if a.dot(a) < 1e-30:
        assert repr(stats_fast.quick_stats(a)) == repr(stats_of(a))


def test_combine_declines_what_needs_the_reference():
    assert stats_fast.combine([(1.0, 1.0, 2.0, 2.0), (1.0, 0.0, 1.0, math.inf)], 4) is None
    assert stats_fast.combine([(1e-20, 1e-20, 1e-20, 1e-40)], 1) is None
    assert stats_fast.combine([(0.0, 0.0, 0.0, 0.0)] * 2, 4) == Stats(0.0, 0.0, 0.0, 0.0)
    assert stats_fast.combine([(2.0, 0.0, 2.0, 4.0), (1.0, -1.0, 0.0, 12.0)], 4) == Stats(2.0, -1.0, 0.5, 4.0)


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
