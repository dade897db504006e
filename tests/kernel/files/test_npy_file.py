"""Values in files: npy with MindSpore's own dtype, raw bytes, damaged files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from probe_format.errors import DamagedError, FormatError
from probe_kernel.files.dtypes import decode, dtype_of
from probe_kernel.files.npy_file import load_npy, read_header
from probe_kernel.read.file_name import parse_file_name
from probe_kernel.read.loaders import contents

DATA = Path(__file__).parents[1] / "data"


def bf16_file(path: Path, values: np.ndarray, shape: tuple[int, ...]) -> None:
    """As MindSpore writes it (see data/loop): '<E2' in the header, two bytes each."""
    header = f"{{'descr': '<E2', 'fortran_order': False, 'shape': {shape!r}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    words = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    path.write_bytes(
        b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + words.tobytes()
    )


def test_mindspores_own_bfloat16_file() -> None:
    path = next((DATA / "loop/rank_0/Net/0/0").glob("*BFloat16.npy"))
    with pytest.raises(ValueError):
        np.load(path)  # the reason for a reader of our own
    expected = np.array([[1, -2, 3.5], [np.nan, 5, 6]], np.float32)
    np.testing.assert_array_equal(load_npy(path), expected)
    header = read_header(path)
    assert (header.dtype, header.shape) == (np.float32, (2, 3))
    assert header.stored is not None and header.stored.name == "bfloat16"


@given(hnp.arrays(np.uint16, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0)))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_bfloat16_comes_back(tmp_path_factory: pytest.TempPathFactory, words: np.ndarray) -> None:
    path = tmp_path_factory.mktemp("bf16") / "x.npy"
    values = (words.reshape(-1).astype(np.uint32) << 16).view(np.float32)
    bf16_file(path, values, words.shape)
    np.testing.assert_array_equal(load_npy(path), values.reshape(words.shape))


@given(hnp.arrays(hnp.boolean_dtypes() | hnp.integer_dtypes() | hnp.floating_dtypes() | hnp.complex_number_dtypes(),
                  hnp.array_shapes(min_dims=0, max_dims=4, min_side=0)), st.booleans())  # fmt: skip
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_numpys_own_files_as_numpy_reads_them(
    tmp_path_factory: pytest.TempPathFactory, array: np.ndarray, fortran: bool
) -> None:
    path = tmp_path_factory.mktemp("npy") / "x.npy"
    array = np.asfortranarray(array) if fortran else array
    np.save(path, array)
    found = load_npy(path)
    np.testing.assert_array_equal(found, array)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)


@pytest.mark.parametrize(
    ("blob", "why"),
    [
        (b"", "not a .npy file"),
        (b"PK\x03\x04 something", "not a .npy file"),
        (b"\x93NUMPY\x01\x00\xff\xffshort", "cut short in its header"),
        (b"\x93NUMPY\x01\x00\x05\x00hello", "header that is not one"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\x7fx", "cut short in its header"),
    ],
)
def test_damaged_files_are_refused_in_words(tmp_path: Path, blob: bytes, why: str) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(blob)
    with pytest.raises(DamagedError, match=why):
        load_npy(path)


@pytest.mark.parametrize("header", ["{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
                                    "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
                                    "{'descr': '<f4', 'fortran_order': False, 'shape': 3}",
                                    "{'descr': 'zz', 'fortran_order': False, 'shape': (1,)}",
                                    "{'descr': 7, 'fortran_order': False, 'shape': (1,)}",
                                    "[1]", "(" * 3000])  # fmt: skip
def test_headers_that_are_none(tmp_path: Path, header: str) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + b"\0" * 4)
    with pytest.raises(DamagedError):
        load_npy(path)


def test_a_file_that_promises_more_than_it_has_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\0" * 16)
    with pytest.raises(DamagedError, match="cut short: 16 bytes of values, and 8000000000000 belong"):
        load_npy(path)
    np.save(path, np.arange(4))
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(DamagedError, match="more than its header says"):
        load_npy(path)


@pytest.mark.parametrize(
    ("name", "raw", "values"),
    [
        ("Float32", np.array([1.5, -2], "<f4").tobytes(), [1.5, -2]),
        ("bool", b"\x01\x00", [True, False]),
        ("DT_BF16", b"\x80\x3f\x00\xc0", [1.0, -2.0]),
        ("bfloat16", b"\x80\x7f\xc0\x7f", [np.inf, np.nan]),
        ("complex32", np.array([1, 2], "<f2").tobytes(), [1 + 2j]),
        ("float8_e5m2", bytes([0x3C, 0xC0, 0x7C, 0x01]), [1.0, -2.0, np.inf, 2.0**-16]),
        ("float8_e4m3fn", bytes([0x38, 0xC0, 0x7E, 0x01, 0x7F]), [1.0, -2.0, 448.0, 2.0**-9, np.nan]),
        ("int4", bytes([0x7F, 0x80]), [-1, 7, 0, -8]),
        ("uint1", bytes([0b00000101]), [1, 0, 1, 0, 0, 0, 0, 0]),
        ("hifloat8", bytes([1, 2]), [1, 2]),
    ],
)
def test_each_dtype_from_its_bytes(name: str, raw: bytes, values: list[float]) -> None:
    found = decode(np.frombuffer(raw, np.uint8), dtype_of(name))
    np.testing.assert_array_equal(found, np.array(values))


def test_an_unknown_dtype_is_named_with_its_neighbours() -> None:
    with pytest.raises(FormatError, match=r"'flaot32' is not a dtype.*float32"):
        dtype_of("flaot32")


def test_raw_files_are_read_by_the_dtype_in_their_name(tmp_path: Path) -> None:
    path = tmp_path / "Cast.Default_Cast-op1.3.7.16.output.0.ND.bfloat16"
    path.write_bytes(b"\x80\x3f\x00\xc0" * 3)
    (part,) = contents(path, parse_file_name(path.name)).parts
    assert part.shape() is None
    np.testing.assert_array_equal(part.load(None), [1, -2] * 3)
    np.testing.assert_array_equal(part.load((3, 2)), [[1, -2]] * 3)
    with pytest.raises(DamagedError, match=r"12 bytes, which is not bfloat16\[4, 2\]"):
        part.load((4, 2))
    path.write_bytes(b"odd")
    with pytest.raises(DamagedError, match="3 bytes"):
        part.load(None)


def test_a_packed_dtype_loses_its_filling_with_the_shape(tmp_path: Path) -> None:
    path = tmp_path / "Cast.c.3.7.16.output.0.ND.int4"
    path.write_bytes(bytes([0x21, 0x03]))
    (part,) = contents(path, parse_file_name(path.name)).parts
    np.testing.assert_array_equal(part.load((3,)), [1, 2, 3])
    np.testing.assert_array_equal(part.load(None), [1, 2, 3, 0])
