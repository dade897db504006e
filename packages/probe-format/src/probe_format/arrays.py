"""Tensor files: ``.npy`` and ``.pt``, written with one system call and read back (spec/layout.md).

What a ``.pt`` file consists of is in `ptfile`.
"""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import DamagedError, FormatError, ProbeError
from .ptfile import PT_DTYPES, Buffer, pt_bytes, pt_frame

__all__ = ["PT_DTYPES", "load_npy", "load_pt", "npy_bytes", "pt_bytes", "write_parts", "write_pt"]


def write_parts(path: Path | str, parts: Sequence[Buffer]) -> int:
    """Write the parts as one new file; returns its size. An existing file is replaced.

    Raises OSError; then there is no file.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o644)
    except FileExistsError:
        os.unlink(path)  # not truncated: other names may be linked to the old content
        fd = os.open(path, flags, 0o644)
    try:
        total = sum(len(p) if isinstance(p, bytes) else p.nbytes for p in parts)
        done = os.writev(fd, parts)
        if done < total:  # over 2 GiB in one call, or a full disk
            rest = [memoryview(p).cast("B") for p in parts]
            while done < total:
                skip, todo = done, []
                for r in rest:
                    todo.extend([r[skip:]] if skip < len(r) else [])
                    skip = max(0, skip - len(r))
                done += os.writev(fd, todo)
        return total
    except OSError:
        os.unlink(path)  # half a file helps nobody, and a full disk has a use for the space
        raise
    finally:
        os.close(fd)


def write_pt(path: Path | str, dtype: str, shape: Sequence[int], data: memoryview) -> int:
    """Write `pt_bytes` as one new file; the checksum of a large tensor is taken while it is being written.

    Raises OSError; then there is no file.
    """
    if data.nbytes < _LARGE:
        return write_parts(path, pt_bytes(dtype, shape, data))
    later = _checksums(os.getpid()).submit(zlib.crc32, data)
    head, tail = pt_frame(dtype, shape, data.nbytes, 0)
    size = write_parts(path, [head, data, tail])
    head, tail = pt_frame(dtype, shape, data.nbytes, later.result())
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(fd, head, 0)
        os.pwrite(fd, tail, size - len(tail))
    finally:
        os.close(fd)
    return size


#: Bytes from which a second thread pays.
_LARGE = 1 << 18


@lru_cache(maxsize=1)
def _checksums(pid: int) -> ThreadPoolExecutor:
    """One thread for this process (a fork()ed child has none of its parent's)."""
    return ThreadPoolExecutor(1, thread_name_prefix="probe-crc")


def npy_bytes(array: npt.NDArray[Any]) -> list[Buffer]:
    """The parts of a ``.npy`` file (format 1.0 or newer) of a C-contiguous array without objects."""
    if array.dtype.hasobject:
        raise FormatError("An array of Python objects cannot be written to a .npy file.")
    a = np.asarray(array, order="C")  # ascontiguousarray would make one dimension of none
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(a))
    if not a.nbytes:
        return [head.getvalue()]
    data: Any = a.reshape(-1).view(np.uint8)
    return [head.getvalue(), memoryview(data)]


def load_npy(path: Path | str) -> npt.NDArray[Any]:
    """Read a ``.npy`` file, never unpickling.

    Raises DamagedError when it is cut short or no .npy file, OSError when it cannot be opened.
    """
    with open(path, "rb") as file:
        try:
            array: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
            more = file.read(1)
        except Exception as e:  # numpy's reader raises many kinds on a header that is not one
            raise DamagedError(f"{path} is not a whole .npy file: {e}") from e
    if more:
        raise DamagedError(
            f"{path} is not a whole .npy file: there is more in it than an array of {array.shape}."
        )
    return array


def _check_members(path: Path | str) -> None:
    """Raise BadZipFile where a member's bytes do not have its checksum: torch.load does not look."""
    if zipfile.is_zipfile(path):  # else it is of an old torch, or nothing that torch reads
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
        if bad is not None:
            raise zipfile.BadZipFile(f"the checksum of {bad} differs")


def load_pt(path: Path | str) -> Any:
    """Read a ``.pt`` file with torch (``weights_only=True``, onto the CPU).

    Raises ProbeError without torch, DamagedError when it is no PyTorch file, OSError when it cannot open it.
    """
    try:
        import torch
    except ImportError as e:
        raise ProbeError(
            f"{path} is a PyTorch file and torch is not installed here. Install torch (any CPU build), or "
            "use the statistics, which need no framework."
        ) from e
    try:
        _check_members(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except Exception as e:
        raise DamagedError(f"{path} cannot be read as a PyTorch file: {e}") from e
