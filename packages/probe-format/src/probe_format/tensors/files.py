"""Write tensor files from their parts, make the parts of a ``.npy`` file, and load ``.pt`` files by torch.

`pt_file` makes the parts of a ``.pt`` file, `npy_file` reads ``.npy`` files (spec/layout.md).
"""

import contextlib
import functools
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from probe_format.checksum import Buffer, crc32
from probe_format.errors import DamagedError, FormatError, ProbeError
from probe_format.safe_files import Folder, naming

from .pack import Place, opened


def write_parts(path: Path | str, parts: Sequence[Buffer], folder: Folder | None = None) -> int:
    """Write the parts as one new file; return the CRC-32 of its bytes. An existing file is replaced.

    path: of the file; its name, where the folder is given.
    folder: the folder that it is in, where that is held.

    Raises OSError when it cannot; then there is no file.
    """
    if folder is None:
        with Folder(Path(path).parent) as held:
            return write_parts(Path(path).name, parts, held)
    name = str(path)
    try:
        fd = folder.new_file(name)
    except FileExistsError:
        folder.remove(name)  # not truncated: other names may be linked to the old content
        fd = folder.new_file(name)
    try:
        try:
            put_parts(fd, parts)
        finally:
            os.close(fd)
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.remove(name)  # half a file is useless, and a full disk needs the space
        with naming(folder.path / name):
            raise error
    return parts_crc32(parts)


def put_parts(fd: int, parts: Sequence[Buffer]) -> None:
    """Write all of the parts to an open file. Raises OSError when it cannot, after a part of them."""
    done = os.writev(fd, parts)
    if done < byte_count(parts):  # over 2 GiB in one call, or a full disk
        for part in parts:
            whole = memoryview(part).cast("B")
            rest, done = whole[done:], max(0, done - len(whole))
            while rest:
                rest = rest[os.write(fd, rest) :]


def parts_crc32(parts: Iterable[Buffer]) -> int:
    """Return the CRC-32 of the parts as one file."""
    crc = 0
    for part in parts:
        crc = crc32(part, crc)
    return crc


def byte_count(parts: Iterable[Buffer]) -> int:
    """Return how many bytes the parts of a file have in all."""
    total = 0
    for part in parts:  # for each tensor file: a generator is a call for each part
        total += memoryview(part).nbytes
    return total


def npy_bytes(array: npt.NDArray[Any]) -> list[Buffer]:
    """Return the parts of a ``.npy`` file (format 1.0 or newer) of a C-contiguous array without objects."""
    if array.dtype.hasobject:
        raise FormatError("An array of Python objects cannot be written to a .npy file.")
    a = np.asarray(array, order="C")  # ascontiguousarray would give a 0-d array one dimension
    if not a.nbytes:
        return [npy_head(a.dtype, a.shape)]
    data: Any = a.reshape(-1).view(np.uint8)
    return [npy_head(a.dtype, a.shape), memoryview(data)]


@functools.lru_cache(maxsize=1024)
def npy_head(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return what comes before the elements in a ``.npy`` file: those of an array in C order."""
    head = io.BytesIO()
    about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, about)
    return head.getvalue()


def load_pt(path: Place) -> Any:
    """Read a ``.pt`` file with torch (``weights_only=True``, onto the CPU).

    Raises ProbeError when torch is not installed, DamagedError when it is not a PyTorch file or not whole, OSError when
    it cannot be opened.
    """
    try:
        import torch
    except ImportError as e:
        raise ProbeError(
            f"{path} is a PyTorch file and torch is not installed here. Install torch (any CPU build), or "
            "use the statistics, which need no framework."
        ) from e
    from .pt_read import read_pt  # not every dump has .pt files

    try:
        read_pt(path)  # torch.load checks no checksum, and trusts the sizes in the file
    except DamagedError:
        raise
    except FormatError:
        pass  # whole, with content that only torch can read; weights_only keeps it from running code
    try:
        with opened(path) as file:
            return torch.load(file, map_location="cpu", weights_only=True)
    except (FileNotFoundError, PermissionError, IsADirectoryError, MemoryError):
        raise
    except Exception as e:
        raise DamagedError(f"{path} cannot be read as a PyTorch file: {e}") from e
