"""Checksums: those of zlib, and exclusive or by the word."""

import zlib

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from probe_format.tensors import checksum_of, xor_hex

DATA = st.binary(max_size=40)


@given(DATA)
@example(b"")
def test_crc32_is_eight_lower_case_digits(data):
    text = checksum_of(data, "md5")
    assert text == f"{zlib.crc32(data):08x}"
    assert len(text) == 8
    assert checksum_of(memoryview(data), "md5") == text


@given(DATA)
@example(b"")
@example(b"\x01")
@example(b"\xff" * 8)
def test_xor_of_the_padded_words(data):
    padded = data + bytes(-len(data) % 8)
    total = 0
    for i in range(0, len(padded), 8):
        total ^= int.from_bytes(padded[i : i + 8], "little")
    assert xor_hex(data) == f"0x{total:016x}"
    assert xor_hex(memoryview(data)) == xor_hex(data)


def test_known_values():
    assert checksum_of(b"", "md5") == "00000000"
    assert checksum_of(b"123456789", "md5") == "cbf43926"
    assert xor_hex(b"") == "0x0000000000000000"
    assert xor_hex(bytes([7])) == "0x0000000000000007"
    assert xor_hex(bytes([7]) + bytes(7) + bytes([1])) == "0x0000000000000006"


@pytest.mark.parametrize("a", [np.arange(6, dtype="<f8").reshape(2, 3), np.array(1.5), np.empty((0, 3))])
def test_memory_of_any_shape(a):
    assert checksum_of(memoryview(a), "md5") == f"{zlib.crc32(a.tobytes()):08x}"
    assert xor_hex(memoryview(a)) == xor_hex(a.tobytes())
