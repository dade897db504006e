"""Layouts: the views against a slow reference that goes element by element."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_format.errors import FormatError
from probe_kernel.files.tensor_layouts import convert

SMALL = st.integers(1, 5)
C0 = st.sampled_from([2, 4, 16])
ORDERS4, ORDERS5 = ("NCHW", "NHWC", "HWCN"), ("NCDHW", "NDHWC", "DHWCN")


def up(n: int, k: int) -> int:
    return -(-n // k)


def numbered(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.int64).reshape(shape)


def turned(x: np.ndarray, axes: str, order: str) -> np.ndarray:
    return x.transpose([axes.index(a) for a in order])


def slow_nc1hwc0(x: np.ndarray, c0: int) -> np.ndarray:
    n, c, h, w = x.shape
    out = np.zeros((n, up(c, c0), h, w, c0), x.dtype)
    for i, j, k, m in itertools.product(*map(range, x.shape)):
        out[i, j // c0, k, m, j % c0] = x[i, j, k, m]
    return out


def slow_ndc1hwc0(x: np.ndarray, c0: int) -> np.ndarray:
    n, c, d, h, w = x.shape
    out = np.zeros((n, d, up(c, c0), h, w, c0), x.dtype)
    for i, j, e, k, m in itertools.product(*map(range, x.shape)):
        out[i, e, j // c0, k, m, j % c0] = x[i, j, e, k, m]
    return out


def slow_fractal_z(x: np.ndarray, n0: int, c0: int) -> np.ndarray:
    n, c, h, w = x.shape
    out = np.zeros((up(c, c0) * h * w, up(n, n0), n0, c0), x.dtype)
    for i, j, k, m in itertools.product(*map(range, x.shape)):
        out[(j // c0 * h + k) * w + m, i // n0, i % n0, j % c0] = x[i, j, k, m]
    return out


def slow_fractal_z_3d(x: np.ndarray, n0: int, c0: int) -> np.ndarray:
    n, c, d, h, w = x.shape
    c1 = up(c, c0)
    out = np.zeros((d * c1 * h * w, up(n, n0), n0, c0), x.dtype)
    for i, j, e, k, m in itertools.product(*map(range, x.shape)):
        out[((e * c1 + j // c0) * h + k) * w + m, i // n0, i % n0, j % c0] = x[i, j, e, k, m]
    return out


def slow_fractal_nz(x: np.ndarray, n0: int, c0: int) -> np.ndarray:
    *outer, rows, columns = x.shape
    out = np.zeros((*outer, up(columns, c0), up(rows, n0), n0, c0), x.dtype)
    for at in itertools.product(*map(range, x.shape)):
        *o, r, c = at
        out[(*o, c // c0, r // n0, r % n0, c % c0)] = x[at]
    return out


@given(SMALL, st.integers(1, 40), SMALL, SMALL, C0, st.sampled_from(ORDERS4), st.sampled_from(ORDERS4))
def test_nc1hwc0(n: int, c: int, h: int, w: int, c0: int, order: str, target: str) -> None:
    x = numbered((n, c, h, w))
    original = turned(x, "NCHW", order).shape
    device = slow_nc1hwc0(x, c0)
    if order == "NCHW":  # another order may fit the device's shape as well: which was meant, nobody tells
        np.testing.assert_array_equal(
            convert(device, "NC1HWC0", target, original), turned(x, "NCHW", target), strict=True
        )
        np.testing.assert_array_equal(convert(device, "NC1HWC0", "ND", original), x)
    else:
        found = convert(device, "NC1HWC0", "ND", original)
        assert found.shape == original
    padded = convert(device, "NC1HWC0", "NCHW")
    np.testing.assert_array_equal(padded[:, :c], x)
    assert padded.shape[1] == up(c, c0) * c0 and not padded[:, c:].any()


def test_the_order_of_the_original_shape_is_found_where_only_one_fits() -> None:
    x = numbered((2, 20, 3, 5))
    device = slow_nc1hwc0(x, 16)
    for order in ORDERS4:
        mine = turned(x, "NCHW", order)
        np.testing.assert_array_equal(convert(device, "NC1HWC0", "ND", mine.shape), mine)
        np.testing.assert_array_equal(
            convert(device, "NC1HWC0", "NHWC", mine.shape), turned(x, "NCHW", "NHWC")
        )


@given(SMALL, st.integers(1, 20), SMALL, SMALL, SMALL, C0, st.sampled_from(ORDERS5))
def test_ndc1hwc0(n: int, c: int, d: int, h: int, w: int, c0: int, target: str) -> None:
    x = numbered((n, c, d, h, w))
    device = slow_ndc1hwc0(x, c0)
    np.testing.assert_array_equal(
        convert(device, "NDC1HWC0", target, x.shape), turned(x, "NCDHW", target), strict=True
    )


@given(st.integers(1, 20), st.integers(1, 20), SMALL, SMALL, C0, C0, st.sampled_from(ORDERS4))
def test_fractal_z(n: int, c: int, h: int, w: int, n0: int, c0: int, target: str) -> None:
    x = numbered((n, c, h, w))
    flat = slow_fractal_z(x, n0, c0)
    wide = flat.reshape(up(c, c0), h, w, *flat.shape[1:])
    for device in (flat, wide):
        np.testing.assert_array_equal(
            convert(device, "FRACTAL_Z", target, x.shape), turned(x, "NCHW", target), strict=True
        )


@given(st.integers(1, 9), st.integers(1, 9), SMALL, SMALL, SMALL, C0, st.sampled_from(ORDERS5))
def test_fractal_z_3d(n: int, c: int, d: int, h: int, w: int, c0: int, target: str) -> None:
    x = numbered((n, c, d, h, w))
    device = slow_fractal_z_3d(x, 16, c0)
    np.testing.assert_array_equal(
        convert(device, "FRACTAL_Z_3D", target, x.shape), turned(x, "NCDHW", target), strict=True
    )


@given(st.lists(SMALL, max_size=2), st.integers(1, 40), st.integers(1, 40), C0, C0)
def test_fractal_nz(outer: list[int], rows: int, columns: int, n0: int, c0: int) -> None:
    x = numbered((*outer, rows, columns))
    device = slow_fractal_nz(x, n0, c0)
    np.testing.assert_array_equal(convert(device, "FRACTAL_NZ", "ND", x.shape), x, strict=True)
    whole = convert(device, "FRACTAL_NZ", "ND")
    np.testing.assert_array_equal(whole[..., :rows, :columns], x)
    if not outer:  # a vector is one row
        np.testing.assert_array_equal(
            convert(slow_fractal_nz(x[:1], n0, c0), "FRACTAL_NZ", "ND", (columns,)), x[0]
        )


@pytest.mark.parametrize("shape", [(10, 20), (3, 10, 20), (1, 2, 3, 10, 20), (20,)])
@pytest.mark.parametrize("target", ["NCHW", "NHWC", "HWCN", "NCDHW"])
def test_a_matrix_stays_one_whatever_the_target(shape: tuple[int, ...], target: str) -> None:
    """Measured with msaccucmp 26.2.0: ``-f NCHW`` and ``-f NHWC`` write the matrices of two and three dimensions."""
    x = numbered(shape)
    device = slow_fractal_nz(x if x.ndim > 1 else x[np.newaxis], 16, 16)
    np.testing.assert_array_equal(convert(device, "FRACTAL_NZ", target, shape), x, strict=True)


def test_four_dimensions_of_tiles_are_turned() -> None:
    x = numbered((2, 3, 10, 20))
    device = slow_fractal_nz(x, 16, 16)
    np.testing.assert_array_equal(
        convert(device, "FRACTAL_NZ", "NHWC", x.shape), turned(x, "NCHW", "NHWC"), strict=True
    )
    with pytest.raises(FormatError, match="no conversion to NCDHW"):
        convert(device, "FRACTAL_NZ", "NCDHW", x.shape)


@given(st.permutations("NCHW"), st.sampled_from(ORDERS4), st.tuples(SMALL, SMALL, SMALL, SMALL))
def test_plain_layouts_turn_into_one_another(_: list[str], target: str, shape: tuple[int, ...]) -> None:
    x = numbered(shape)
    for source in ORDERS4:
        np.testing.assert_array_equal(convert(x, source, target), turned(x, source, target), strict=True)
        assert np.shares_memory(convert(x, source, target), x)


@pytest.mark.parametrize(
    ("shape", "source", "target", "original"),
    [
        ((4, 4, 16, 16), "FRACTAL_NZ", "ND", (5, 5)),
        ((4, 4, 16, 16), "FRACTAL_NZ", "ND", (64, 48)),
        ((2, 4, 3, 3, 16), "NC1HWC0", "NCHW", (2, 3, 3, 3)),
        ((2, 4, 3, 3, 16), "NC1HWC0", "ND", (2, 48, 3, 3)),
        ((2, 1, 4, 3, 3, 16), "NDC1HWC0", "NCDHW", (2, 3, 1, 3, 3)),
        ((2, 3, 3, 2, 16, 16), "FRACTAL_Z", "NCHW", (32, 16, 3, 3)),
        ((2, 3, 3, 2, 16, 16), "FRACTAL_Z", "NCHW", (16, 32, 3, 3)),
    ],
)
def test_nothing_but_padding_is_cut_off(
    shape: tuple[int, ...], source: str, target: str, original: tuple[int, ...]
) -> None:
    with pytest.raises(FormatError, match=r"does not fit.*true shape"):
        convert(numbered(shape), source, target, original)


def test_what_cannot_be_said_is_refused_in_words() -> None:
    x = np.zeros((2, 2, 3, 3, 16))
    for source, target, shape, said in (
        ("NC1HWC0", "NCHW", (2, 33, 3, 3), "does not fit NC1HWC0"),
        ("NC1HWC0", "NCHW", (2, 20, 3), "does not fit NC1HWC0"),
        ("NC1HWC0", "NCDHW", (2, 20, 3, 3), "no conversion to NCDHW"),
        ("ND", "NCHW", (), "no axes called N, C, H, W"),
        ("NC1HWC1", "NCHW", (), "NC1HWC0"),
        ("NC1HWC0", "NCWH", (), "NCHW"),
        ("FRACTAL_Z", "NCHW", (), "4 or 6 dimensions"),
        ("FRACTAL_NZ", "ND", (1000, 7), "does not fit FRACTAL_NZ"),
    ):
        with pytest.raises(FormatError, match=said):
            convert(x, source, target, shape)
    with pytest.raises(FormatError, match="which is which"):
        convert(np.zeros((6, 1, 16, 16)), "FRACTAL_Z", "NCHW")


@settings(max_examples=300)
@given(
    st.lists(st.integers(0, 4), max_size=8),
    st.sampled_from(["NC1HWC0", "FRACTAL_Z", "FRACTAL_Z_3D", "FRACTAL_NZ", "NDC1HWC0", "NHWC", "ND"]),
    st.sampled_from(["NCHW", "NHWC", "HWCN", "ND", "NCDHW"]),
    st.lists(st.integers(0, 70), max_size=6),
)
def test_any_shapes_at_all(shape: list[int], source: str, target: str, original: list[int]) -> None:
    x = np.zeros(shape, np.int8)
    try:
        found = convert(x, source, target, tuple(original))
    except FormatError:
        return
    assert found.size <= x.size
