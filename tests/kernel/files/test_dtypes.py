"""Values from raw bytes, by the dtype that the dump names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from probe_format.errors import DamagedError, FormatError
from probe_kernel.files.dtypes import decode, dtype_of
from probe_kernel.read.file_name import parse_file_name
from probe_kernel.read.loaders import contents


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
    (part,) = contents(path, parse_file_name(path.name))[0]
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
    (part,) = contents(path, parse_file_name(path.name))[0]
    np.testing.assert_array_equal(part.load((3,)), [1, 2, 3])
    np.testing.assert_array_equal(part.load(None), [1, 2, 3, 0])
