"""The reader of .npy files: numpy's own, MindSpore's bfloat16, damaged ones."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp
from probe_format.errors import DamagedError
from probe_format.tensors import load_npy, map_npy, npy_header

Load = Callable[[Path], Any]
LOOP = Path(__file__).parents[2] / "kernel/data/loop"


def npy(
    descr: str = "'<f4'", shape: str = "(2, 2)", data: bytes = bytes(16), version: int = 1, more: str = ""
) -> bytes:
    """A file with this header."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, {more}}}\n".encode()
    return headed(text, version) + data


def headed(text: bytes, version: int = 1) -> bytes:
    return b"\x93NUMPY" + bytes((version, 0)) + struct.pack("<H" if version == 1 else "<I", len(text)) + text


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
    path.write_bytes(npy("'<E2'", repr(words.shape), words.tobytes()))  # as MindSpore writes it
    np.testing.assert_array_equal(load_npy(path), values.reshape(words.shape))


BEGIN, HEADER, SHAPE, DTYPE = (
    "does not begin as one",
    "header is not one",
    "shape cannot be",
    "no dtype that numpy writes",
)
DAMAGED = {
    "a shape of 10^23": (npy(shape="(100000000000000000000000,)"), SHAPE),
    "a shape of 2^40": (npy(shape="(1099511627776,)"), "it has 16 bytes of values, and 4398046511104 belong"),
    "a shape of no elements": (npy(shape="(100000000000000000000000, 0)", data=b""), SHAPE),
    "a negative shape": (npy(shape="(-2, -2)"), SHAPE),
    "a shape of bools": (npy(shape="(True, True)", data=bytes(4)), SHAPE),
    "a shape that is a number": (npy(shape="3"), "its shape or its order cannot be"),
    "a list of a shape": (npy(shape="[2, 2]"), "its shape or its order cannot be"),
    "hundreds of dimensions": (npy(shape=f"({'1, ' * 300})", data=bytes(4)), "its shape or its order cannot be"),
    "objects": (npy("'|O'"), DTYPE),
    "an odd descriptor": (npy("'<f3'"), "'<f3' not understood"),
    "no descriptor": (npy("'<f0'", data=b""), "'<f0' not understood"),
    "letters": (npy("'zz'"), DTYPE),
    "a descriptor that is a number": (npy("4"), DTYPE),
    "values of no bytes": (npy("'|V0'", "(1000000000000000000,)", b""), "1000000000000000000 values of no bytes"),
    "more than it says": (npy(data=bytes(20)), "more than its header says"),
    "a header that is no object": (headed(b"[1]"), HEADER),
    "a header of one word": (headed(b"hello"), HEADER),
    "a header that is cut short": (b"\x93NUMPY\1\0\5\0hell", "cut short in its header"),
    "a header of 64 KB": (b"\x93NUMPY\1\0\xff\xffshort", "header has 65535 bytes"),
    "a header of 4 GB": (b"\x93NUMPY\2\0\xff\xff\xff\xff" + bytes(100), "header has 4294967295 bytes"),
    "an open header": (headed(b"(" * 3000), HEADER),
    "a deep header": (npy("[" * 4000 + "]" * 4000), HEADER),
    "a header of minus signs": (npy(shape="(" + "-" * 9000 + "1,)"), HEADER),
    "a header of strings": (npy(more="'a': 1"), "other keys"),
    "version 9": (npy(version=9), BEGIN),
    "an npz": (b"PK\3\4" + bytes(40), BEGIN),
    "a pickle": (b"\x80\x04.", BEGIN),
    "nothing": (b"", BEGIN),
}  # fmt: skip


@pytest.mark.parametrize("load", [load_npy, map_npy])
@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_refused_in_words_and_costs_no_memory(
    tmp_path: Path, case: str, load: Load
) -> None:
    path = tmp_path / "x.npy"
    raw, why = DAMAGED[case]
    path.write_bytes(raw)
    with pytest.raises(DamagedError, match=f"{path} is not a whole .npy file: .*{re.escape(why)}"):
        load(path)
