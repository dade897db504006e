"""The ``.pt`` files that we put together: torch reads them, zipfile finds them whole, damage is told."""

import io
import math
import mmap
import os
import struct
import zipfile
import zlib

import numpy as np
import pytest
from probe_format.errors import DamagedError, FormatError
from probe_format.tensors import PT_DTYPES, load_npy, load_pt, npy_bytes, pt_bytes, pt_file, write_parts

torch = pytest.importorskip("torch")
SHAPES = [(), (1,), (7,), (2, 3), (0,), (2, 0, 3), (1, 1, 1, 2), (3, 2, 2)]


def width(dtype):
    return getattr(torch, dtype).itemsize


def sample(dtype, shape):
    """A tensor of the dtype with all kinds of bits, and its bytes."""
    count = math.prod(shape)
    raw = bytes((i * 37 + 11) % (2 if dtype == "bool" else 256) for i in range(count * width(dtype)))
    return raw


def contents(parts):
    return b"".join(bytes(p) for p in parts)


def same_bytes(t, raw):
    flat = t.contiguous().reshape(-1)
    assert (bytes(flat.view(torch.uint8).numpy()) if flat.numel() else b"") == raw


@pytest.mark.parametrize("dtype", sorted(PT_DTYPES))
def test_torch_loads_every_dtype_and_shape(dtype, tmp_path):
    if not hasattr(torch, dtype):
        pytest.skip(f"this torch has no {dtype}")
    for i, shape in enumerate(SHAPES):
        raw = sample(dtype, shape)
        path = tmp_path / f"{i}.pt"
        crc = write_parts(path, pt_bytes(dtype, shape, raw))
        assert crc == zlib.crc32(path.read_bytes())
        t = torch.load(path, weights_only=True)
        assert (t.dtype, tuple(t.shape), t.requires_grad) == (getattr(torch, dtype), shape, False)
        assert t.stride() == torch.empty(shape).stride()
        same_bytes(t, raw)
        same_bytes(load_pt(path), raw)
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            assert archive.read("archive/data/0") == raw
            assert {m.compress_type for m in archive.infolist()} == {zipfile.ZIP_STORED}


def test_the_file_has_what_torch_save_puts_in_it():
    t = torch.arange(6.0).reshape(2, 3)
    theirs = io.BytesIO()
    torch.save(t, theirs)
    ours = io.BytesIO(contents(pt_bytes("float32", (2, 3), t.numpy().tobytes())))
    names = lambda f: {m.filename.split("/", 1)[1]: m for m in zipfile.ZipFile(f).infolist()}  # noqa: E731
    assert set(names(ours)) <= set(names(theirs))
    start = names(ours)["data/0"].header_offset
    raw = ours.getvalue()
    name_length, extra_length = struct.unpack_from("<HH", raw, start + 26)
    assert (start + 30 + name_length + extra_length) % 64 == 0  # as torch aligns it, so that mmap works
    ours.seek(0)
    assert torch.equal(torch.load(ours, weights_only=True), t)


def test_a_dtype_without_a_template_is_named():
    with pytest.raises(FormatError, match="'float4'"):
        pt_bytes("float4", (1,), b"\0")


def test_frames_of_the_same_tensor_differ_in_the_checksum_only():
    one, two = pt_file.pt_frame("float32", (2,), 8, 1), pt_file.pt_frame("float32", (2,), 8, 2)
    assert [len(x) for x in one] == [len(x) for x in two]
    different = [sum(a != b for a, b in zip(x, y, strict=True)) for x, y in zip(one, two, strict=True)]
    assert different == [1, 1]


@pytest.mark.parametrize("nbytes", [(1 << 32) - 1024, (1 << 32) - 4, 1 << 32, (5 << 30) + 4])
def test_files_over_4_gib_have_the_wide_fields(tmp_path, nbytes):
    """Written with a hole in place of the data: nothing of that size is written or read."""
    head, tail = pt_file.pt_frame("float32", (nbytes // 4,), nbytes, 0)
    path = tmp_path / "big.pt"
    with path.open("wb") as f:
        f.write(head)
        f.seek(nbytes, os.SEEK_CUR)
        f.write(tail)
    with zipfile.ZipFile(path) as archive:
        (data,) = [m for m in archive.infolist() if m.filename == "archive/data/0"]
        assert (data.file_size, data.compress_size) == (nbytes, nbytes)
        assert archive.open(data).read(8) == bytes(8)  # the local header agrees with the directory
        assert archive.read("archive/version") == b"3\n"
    # Readers that stream look at the local header alone.
    start = data.header_offset
    short, _, name_length, extra_length = struct.unpack_from("<IIHH", head, start + 18)
    extra = head[start + 30 + name_length :]
    assert len(extra) == extra_length
    if nbytes >= 0xFFFFFFFF:
        assert short == 0xFFFFFFFF
        assert struct.unpack_from("<HHQQ", extra) == (1, 16, nbytes, nbytes)
    else:
        assert short == nbytes
    t = torch.load(path, weights_only=True, mmap=True)
    assert (t.numel(), t.untyped_storage().nbytes()) == (nbytes // 4, nbytes)
    assert (float(t[0]), float(t[-1])) == (0.0, 0.0)


def test_big_numbers_of_elements_are_spelled_out():
    head, _ = pt_file.pt_frame("uint8", (1 << 31, 3), 3 << 31, 0)
    assert (3 << 31).to_bytes(9, "little") in head
    assert (1 << 31).to_bytes(9, "little") in head


class Evil:
    def __reduce__(self):
        return os.mkdir, (str(Evil.folder),)


def test_loading_runs_no_code(tmp_path):
    Evil.folder = tmp_path / "made"
    torch.save(Evil(), tmp_path / "x.pt")
    with pytest.raises(DamagedError):
        load_pt(tmp_path / "x.pt")
    with pytest.raises(FormatError):
        npy_bytes(np.array([Evil()]))
    np.save(tmp_path / "x.npy", np.array([Evil()]))
    with pytest.raises(DamagedError):
        load_npy(tmp_path / "x.npy")
    assert not Evil.folder.exists()


def test_the_checksum_is_of_memory_that_is_not_copied():
    memory = mmap.mmap(-1, 1 << 16)
    head, data, tail = pt_bytes("uint8", (1 << 16,), memoryview(memory))
    assert isinstance(data, memoryview)
    crc = struct.pack("<I", zlib.crc32(bytes(1 << 16)))
    assert crc in head
    assert crc in tail
    data.release()


def test_a_file_from_before_torch_1_6_is_refused_by_name(tmp_path):
    path = tmp_path / "x.pt"
    torch.save(torch.arange(3.0), path, _use_new_zipfile_serialization=False)
    with pytest.raises(DamagedError, match=r"x\.pt has the form that torch.save wrote before torch 1\.6"):
        load_pt(path)
    torch.save(torch.load(path, weights_only=True), path)  # the way out that README.md gives
    assert torch.equal(load_pt(path), torch.arange(3.0))


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_pt(tmp_path / "none")
