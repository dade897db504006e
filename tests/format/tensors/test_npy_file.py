"""The reader of .npy files: numpy's own, MindSpore's bfloat16, damaged ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp
from probe_format.errors import DamagedError
from probe_format.tensors import load_npy, npy_header

LOOP = Path(__file__).parents[2] / "kernel/data/loop"


def bf16_file(path: Path, values: np.ndarray, shape: tuple[int, ...]) -> None:
    """As MindSpore writes it (see data/loop): '<E2' in the header, two bytes each."""
    header = f"{{'descr': '<E2', 'fortran_order': False, 'shape': {shape!r}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    words = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    path.write_bytes(
        b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + words.tobytes()
    )


def test_mindspores_own_bfloat16_file() -> None:
    path = next((LOOP / "rank_0/Net/0/0").glob("*BFloat16.npy"))
    with pytest.raises(ValueError):
        np.load(path)  # the reason for a reader of our own
    expected = np.array([[1, -2, 3.5], [np.nan, 5, 6]], np.float32)
    np.testing.assert_array_equal(load_npy(path), expected)
    header = npy_header(path)
    assert (header.narrow, header.shape) == ("bfloat16", (2, 3))


@given(hnp.arrays(np.uint16, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0)))
def test_every_bfloat16_comes_back(tmp_path_factory: pytest.TempPathFactory, words: np.ndarray) -> None:
    path = tmp_path_factory.mktemp("bf16") / "x.npy"
    values = (words.reshape(-1).astype(np.uint32) << 16).view(np.float32)
    bf16_file(path, values, words.shape)
    np.testing.assert_array_equal(load_npy(path), values.reshape(words.shape))


@pytest.mark.parametrize(
    ("blob", "why"),
    [
        (b"", "does not begin as one"),
        (b"PK\x03\x04 something", "does not begin as one"),
        (b"\x80\x04.", "does not begin as one"),
        (b"\x93NUMPY\x01\x00\xff\xffshort", "header has 65535 bytes"),
        (b"\x93NUMPY\x01\x00\x05\x00hello", "its header is not one"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\x7fx", "header has 2147483647 bytes"),
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
    with pytest.raises(DamagedError, match="cut short: it has 16 bytes of values, and 8000000000000 belong"):
        load_npy(path)
    np.save(path, np.arange(4))
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(DamagedError, match="more than its header says"):
        load_npy(path)
