"""Writing files in parts, and `.npy` files: what is written comes back, what is damaged is told."""

import errno
import os
import sys
import zlib

import numpy as np
import pytest
from full_disk import file_size_limit
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from probe_format.errors import DamagedError, ProbeError
from probe_format.tensors import load_npy, load_pt, npy_bytes, pt_bytes, write_parts


def contents(parts):
    return b"".join(bytes(p) for p in parts)


def test_without_torch_the_word_is_to_install_it(tmp_path, monkeypatch):
    write_parts(tmp_path / "x.pt", pt_bytes("float32", (1,), bytes(4)))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ProbeError, match="Install torch") as error:
        load_pt(tmp_path / "x.pt")
    assert not isinstance(error.value, DamagedError)


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_npy(tmp_path / "none")


NUMBERS = st.sampled_from(["f2", "f4", "f8", "i1", "u8", "?", "c8", "c16", ">f4", "U3", "S2", "M8[s]"])


@given(st.data())
def test_npy_comes_back(tmp_path_factory, data):
    a = data.draw(hnp.arrays(data.draw(NUMBERS), hnp.array_shapes(min_dims=0, min_side=0, max_side=3)))
    a = data.draw(st.sampled_from([a, a.T, a[..., ::2] if a.ndim else a]))
    path = tmp_path_factory.mktemp("npy") / "x.npy"
    assert write_parts(path, npy_bytes(a)) == zlib.crc32(path.read_bytes())
    np.save(path.with_name("y.npy"), a)
    for back in (load_npy(path), np.load(path), load_npy(path.with_name("y.npy"))):
        assert (back.dtype, back.shape) == (a.dtype, a.shape)
        assert back.tobytes() == a.tobytes()


def test_an_existing_file_is_replaced_and_its_other_names_keep_the_old_content(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    assert write_parts(a, [b"old", b"", b"er"]) == zlib.crc32(b"older")
    os.link(a, b)
    assert write_parts(a, [memoryview(b"new")]) == zlib.crc32(b"new")
    assert (a.read_bytes(), b.read_bytes()) == (b"new", b"older")


def test_memory_of_any_item_size_is_written(tmp_path):
    parts = [b"x", memoryview(np.arange(3, dtype="f8")), memoryview(b"")]
    content = b"x" + np.arange(3, dtype="f8").tobytes()
    assert write_parts(tmp_path / "a", parts) == zlib.crc32(content)
    assert (tmp_path / "a").read_bytes() == content


@pytest.mark.parametrize("step", [1, 2, 5, 8, 100])
def test_a_write_that_takes_many_calls_is_whole(tmp_path, monkeypatch, step):
    """As over 2 GiB, where Linux writes a part at a time."""
    real = os.writev
    monkeypatch.setattr(os, "writev", lambda fd, parts: real(fd, [b"".join(bytes(p) for p in parts)[:step]]))
    parts = [b"abc", memoryview(np.arange(3, dtype="<u2")), b"", b"defgh"]
    content = b"abc\0\0\1\0\2\0defgh"
    assert write_parts(tmp_path / "a", parts) == zlib.crc32(content)
    assert (tmp_path / "a").read_bytes() == content


def test_a_full_disk_leaves_no_half_file(tmp_path):
    with file_size_limit(100), pytest.raises(OSError, match="arge") as error:
        write_parts(tmp_path / "a", [b"x" * 60, b"y" * 60])
    assert error.value.errno == errno.EFBIG
    assert list(tmp_path.iterdir()) == []
