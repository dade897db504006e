"""Large tensors are put in order piece by piece: the files are those of a conversion in one."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from binfiles import made, written
from probe_format.tensors import npy_bytes, npy_head
from probe_kernel.convert.conversion import Conversion, convert_file
from probe_kernel.convert.reordered import LARGE, Reordered
from probe_kernel.files.bin_file import Section
from probe_kernel.files.tensor_layouts import Ordered, convert

RNG = np.random.default_rng(0)


def reordered(view: Any, folder: Path) -> Reordered:
    """A file with the array that the view is one of, to be written in the order of the view."""
    base = view if view.base is None else view.base
    (folder / "source").write_bytes(b"head" + base.tobytes())
    order = Ordered(view, (1,) * view.ndim, view.shape, view.shape)
    return Reordered(npy_head(view.dtype, view.shape), order, base, folder / "source", 4)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((3, 40, 50, 7, 16), (0, 1, 4, 2, 3)),
        ((2, 5, 4000, 33), (0, 3, 1, 2)),
        ((1_500_000, 3), (1, 0)),
        ((3, 1_500_000), (1, 0)),
        ((2, 0, 3), (2, 1, 0)),
        ((5, 1, 1), (2, 0, 1)),
    ],
)
@pytest.mark.parametrize("dtype", [np.uint16, np.float64, np.uint8])
def test_the_bytes_are_those_of_a_copy_of_the_whole(
    tmp_path: Path, shape: tuple[int, ...], axes: tuple[int, ...], dtype: Any
) -> None:
    view = RNG.integers(0, 255, shape).astype(dtype).transpose(axes)
    path = tmp_path / "x.npy"
    path.write_bytes(b"an earlier conversion")
    reordered(view, tmp_path).write(path)
    assert path.read_bytes() == b"".join(npy_bytes(np.ascontiguousarray(view)))


def test_what_cannot_be_written_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full in the middle of the file."""
    real = os.pwrite

    def full(fd: int, raw: Any, offset: int) -> int:
        if offset > 1 << 20:
            raise OSError(28, "No space left on device")
        return real(fd, raw[: 1 << 16], offset)  # and a system that writes less than it is given

    monkeypatch.setattr(os, "pwrite", full)
    view = RNG.integers(0, 255, (64, 1 << 15)).astype(np.uint16).T
    path = tmp_path / "x.npy"
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        reordered(view, tmp_path).write(path)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    path.write_bytes(b"an earlier conversion")
    with pytest.raises(OSError, match="No space left"):
        reordered(view, tmp_path).write(path)
    assert path.read_bytes() == b"an earlier conversion" and len(list(tmp_path.iterdir())) == 2


def test_a_kill_leaves_no_half_file_under_the_name(tmp_path: Path) -> None:
    view = RNG.integers(0, 255, (64, 1 << 17)).astype(np.uint16).T
    content, path = reordered(view, tmp_path), tmp_path / "x.npy"
    child = os.fork()
    if child == 0:
        real = os.pwrite

        def killed(fd: int, raw: Any, offset: int) -> int:
            if offset > 1 << 20:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(fd, raw, offset)

        os.pwrite = killed
        content.write(path)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert not path.exists()


@pytest.mark.parametrize(
    ("layout", "number", "shape", "target", "original"),
    [
        ("FRACTAL_NZ", 29, (86, 200, 16, 16), "ND", ()),
        ("FRACTAL_NZ", 29, (86, 200, 16, 16), "ND", (3190, 1361)),
        ("FRACTAL_NZ", 29, (3, 36, 200, 16, 16), "ND", (3, 3185, 570)),
        ("FRACTAL_NZ", 29, (3, 36, 200, 16, 16), "ND", (1, 3, 3200, 570)),
        ("FRACTAL_NZ", 29, (1 << 19, 1, 1, 16), "ND", ((1 << 23) - 3,)),
        ("NC1HWC0", 3, (2, 8, 130, 128, 16), "ND", (2, 121, 130, 128)),
        ("NC1HWC0", 3, (2, 1, 800, 500, 16), "NHWC", (2, 3, 800, 500)),
        ("NDC1HWC0", 32, (2, 3, 8, 130, 128, 16), "NCDHW", (2, 127, 3, 130, 128)),
        ("NC1HWC0", 3, (2, 8, 130, 128, 16), "NCHW", (2, 128, 130, 128)),
        ("NC1HWC0", 3, (2, 8, 130, 128, 16), "NCHW", (2, 120, 130, 128)),
        ("NC1HWC0", 3, (2, 8, 130, 128, 16), "NHWC", (2, 128, 130, 128)),
        ("NHWC", 1, (3, 100, 130, 128), "NCHW", (3, 100, 130, 128)),
        ("NCHW", 0, (3, 128, 100, 130), "NHWC", (3, 128, 100, 130)),
        ("NCHW", 0, (40000, 16, 3, 5), "NHWC", (40000, 16, 3, 5)),
        ("FRACTAL_Z", 4, (64 * 9, 8, 16, 64), "NCHW", (128, 64 * 64, 3, 3)),
    ],
)
def test_a_large_tensor_is_never_in_memory_as_a_whole(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    layout: str,
    number: int,
    shape: tuple[int, ...],
    target: str,
    original: tuple[int, ...],
) -> None:
    values = RNG.integers(0, 1 << 16, shape).astype(np.uint16).view(np.float16)
    assert values.nbytes >= LARGE
    source = written(tmp_path, made(2, number, shape, values.tobytes(), original))
    expected = np.ascontiguousarray(convert(values, layout, target, original))
    monkeypatch.setattr(Section, "load", lambda _: pytest.fail("it was loaded"))
    outcome = convert_file(source, tmp_path, Conversion(target=target))
    assert not outcome.faults
    (path,) = outcome.written
    assert path.name.endswith(f".{'x'.join(map(str, expected.shape))}.npy")
    assert path.read_bytes() == b"".join(npy_bytes(expected))


def test_a_file_that_ends_while_it_is_read_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = (2, 8, 130, 128, 16)
    source = written(tmp_path, made(2, 3, shape, bytes(2 * int(np.prod(shape))), (2, 128, 130, 128)))
    half, real = source.stat().st_size // 2, os.preadv

    def cut(fd: int, buffers: Any, offset: int) -> int:
        os.truncate(source, half)
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", cut)
    outcome = convert_file(source, tmp_path, Conversion(target="NCHW"))
    assert not outcome.written and "is cut short" in outcome.faults[0]
    assert list(tmp_path.iterdir()) == [source]
