"""Check a ``.pt`` file without torch, and tell its tensor's dtype, shape, place in the file and checksum.

``torch.load`` checks no checksum and believes the sizes in the file. A file passes here when its zip holds nothing but
what ``torch.save`` writes, member after member, none of it compressed, and every content has its CRC-32. Time and
memory are bounded by the size of the file.
"""

import os
import re
import struct
from typing import IO, Any
from zipfile import BadZipFile, ZipFile, ZipInfo

import numpy as np
import numpy.typing as npt
from attrs import evolve, frozen

from probe_format.checksum import crc32
from probe_format.errors import DamagedError, FormatError

from .pack import Place, mapped, opened
from .pt_file import END, ENTRY, LOCAL, LOCATOR, WIDE_END
from .pt_tensor import PtTensor, tensors_of

_SMALL = 1 << 16
_VERSIONS = range(1, 11)
#: How a file begins that torch.save wrote before torch 1.6: its first pickle is this number.
_BEFORE_ZIP = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
#: A directory of a tensor has seven entries of some 70 bytes; one of a nested tensor a few more.
_MOST_ENTRIES, _MOST_DIRECTORY = 64, 1 << 16
_SIZES_LATER, _UTF8, _U32 = 0x8, 0x800, 0xFFFFFFFF
_NAME = re.compile(
    r"data\.pkl|byteorder|version|\.format_version|\.storage_alignment|\.data/serialization_id|data/[0-9]{1,9}"
)


@frozen
class PtContent:
    """Describe the content of a ``.pt`` file.

    tensors: one, or the parts of a sparse or quantised one.
    crc: of a single tensor's elements in C order; None where there are parts.
    start: where the storage of the first tensor begins in the file, in bytes.
    """

    tensors: tuple[PtTensor, ...]
    crc: int | None
    start: int

    def elements(self, path: Place) -> npt.NDArray[np.void]:
        """Return a single tensor's elements, each of as many bytes as its dtype has, mapped from the file."""
        found = self.tensors[0]
        if not found.count:
            return np.empty(found.shape, (np.void, found.width))
        reach = 1 + sum((n - 1) * step for n, step in zip(found.shape, found.stride, strict=True))
        begin = self.start + found.offset * found.width
        raw: Any = mapped(path, (np.void, found.width), begin, reach)
        stride = [n * found.width for n in found.stride]
        return np.lib.stride_tricks.as_strided(raw, found.shape, stride, writeable=False)


def read_pt(path: Place) -> PtContent:
    """Check a ``.pt`` file, its checksums included, and return its content.

    Raises DamagedError when it is not whole, FormatError when it holds something other than a tensor by torch.save,
    OSError when it cannot be opened.
    """
    with opened(path) as file:
        if file.read(len(_BEFORE_ZIP)) == _BEFORE_ZIP:
            form = "has the form that torch.save wrote before torch 1.6, without checksums"
            raise DamagedError(f"{path} {form}; load it with torch, and save it again.")
        try:
            return _content(file, file.seek(0, os.SEEK_END), path)
        except DamagedError as error:
            raise DamagedError(f"{path} is not a whole PyTorch file: {error}.") from None
        except FormatError as error:
            raise FormatError(f"{path} cannot be checked: {error}.") from None
        except (BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, struct.error) as error:
            raise DamagedError(f"{path} is not a whole PyTorch file: {str(error)[:100]!a}.") from None


def _content(file: IO[bytes], size: int, path: Place) -> PtContent:
    entries, here = _directory(file, size), 0
    starts: dict[str, int] = {}
    with ZipFile(file) as archive:
        members = {_name(info): info for info in archive.infolist()}
        for name, info in members.items():
            starts[name], here = _place(file, info, here)
            with archive.open(info) as content:
                while content.read(1 << 20):  # at the end zipfile compares the CRC-32
                    pass
        if len(members) != entries or here != archive.start_dir:
            raise DamagedError("there is more in it than its directory lists")
        tensors = _tensors(archive, members)
    storage = members[tensors[0].storage]
    found = PtContent(tensors, None, starts[tensors[0].storage])
    if len(tensors) > 1:
        return found
    if tensors[0].contiguous and tensors[0].count * tensors[0].width == storage.file_size:
        return evolve(found, crc=storage.CRC)
    # A view is stored with the whole of its base, and the checksum is that of its elements alone.
    elements = np.ascontiguousarray(found.elements(path))
    return evolve(found, crc=crc32(elements.reshape(-1).view(np.uint8).data) if elements.size else 0)


def _directory(file: IO[bytes], size: int) -> int:
    """Return how many entries the directory has, after checking that it is where the end of the file says.

    zipfile reads a directory of any size, and finds one elsewhere too.
    """
    stop = size - END.size
    if stop < 0:
        raise DamagedError("it is too short for the zip file that torch.save writes")
    mark, disk, first_disk, here, entries, length, start, comment = END.unpack(_read(file, stop, END.size))
    if mark != 0x06054B50 or disk or first_disk or here != entries or comment:
        raise DamagedError("it does not end as the zip file that torch.save writes")
    before = stop - LOCATOR.size - WIDE_END.size
    if before >= 0:
        wide = _wide_end(_read(file, before, WIDE_END.size + LOCATOR.size), before, (entries, length, start))
        if wide is not None:
            entries, length, start = wide
            stop = before
    if start + length != stop:
        raise DamagedError("its directory is not where its end says")
    if length > _MOST_DIRECTORY or entries > _MOST_ENTRIES:
        raise DamagedError(f"its directory has {entries} entries, more than a tensor has")
    directory, at = _read(file, start, length), 0
    while at + ENTRY.size <= length:
        at += ENTRY.size + sum(ENTRY.unpack_from(directory, at)[10:13])  # name, extra field, comment
    if at != length:
        raise DamagedError("its directory is cut short")
    return int(entries)


def _wide_end(raw: bytes, before: int, narrow: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Return number of entries, length and start as the directory's wide end says them; None where there is none.

    raw: the end and its locator; before: where it begins; narrow: the same numbers in the usual end.
    """
    if LOCATOR.unpack_from(raw, WIDE_END.size) != (0x07064B50, 0, before, 1):
        return None
    mark, rest, _, _, disk, first_disk, here, entries, length, start = WIDE_END.unpack_from(raw)
    limits = (0xFFFF, _U32, _U32)
    same = all(n in (w, most) for n, w, most in zip(narrow, (entries, length, start), limits, strict=True))
    if mark != 0x06064B50 or rest != 44 or disk or first_disk or here != entries or not same:
        raise DamagedError("the two ends of its directory differ")
    return entries, length, start


def _name(info: ZipInfo) -> str:
    """Return a member's name in the archive's folder. Raises DamagedError where torch.save writes no such member."""
    name = info.orig_filename.partition("/")[2]
    if _NAME.fullmatch(name) is None:
        raise DamagedError(f"its member {info.orig_filename[:60]!a} is not one that torch.save writes")
    if info.compress_type or info.flag_bits & ~(_UTF8 | _SIZES_LATER):
        raise DamagedError(f"its member {name} is compressed or encrypted, which torch.save never does")
    if info.compress_size != info.file_size or info.volume or info.external_attr or info.comment:
        raise DamagedError(f"its member {name} is not as torch.save writes it")
    return name


def _place(file: IO[bytes], info: ZipInfo, here: int) -> tuple[int, int]:
    """Return where a member's content begins, and where the next member does, after checking what lies around it.

    here: where it should begin.
    """
    _, needed, flags, method, _, _, crc, *sizes, name, extra = LOCAL.unpack(_read(file, here, LOCAL.size))
    later, start = bool(flags & _SIZES_LATER), here + LOCAL.size + name + extra
    right = here == info.header_offset and needed <= 45 and method == 0 and flags == info.flag_bits
    right &= crc == info.CRC or (later and crc == 0)
    right &= all(n == min(info.file_size, _U32) or (later and n in (0, _U32)) for n in sizes)
    form = "<IIII" if info.file_size < _U32 else "<IIQQ"
    after = struct.pack(form, 0x08074B50, info.CRC, info.file_size, info.file_size) if later else b""
    if not right or _read(file, start + info.file_size, len(after)) != after:
        raise DamagedError(
            f"the header of its member {info.orig_filename!a} does not agree with its directory"
        )
    return start, start + info.file_size + len(after)


def _tensors(archive: ZipFile, members: dict[str, ZipInfo]) -> tuple[PtTensor, ...]:
    def small(name: str) -> bytes:
        if name not in members:
            raise DamagedError(f"it lacks its member {name}")
        if members[name].file_size > _SMALL:
            raise FormatError(f"a part of it that describes the tensor has {members[name].file_size} bytes")
        return archive.read(members[name])

    pickle, version = small("data.pkl"), small("version").strip()
    if not version.isdigit() or len(version) > 2 or int(version) not in _VERSIONS:
        raise FormatError(f"it is of version {version[:20].decode('latin-1')!a}, which is not known here")
    if "byteorder" in members and small("byteorder") != b"little":
        raise FormatError("its byte order is not that of this machine")
    sizes = {name: info.file_size for name, info in members.items() if name.startswith("data/")}
    return tensors_of(pickle, sizes)


def _read(file: IO[bytes], start: int, size: int) -> bytes:
    file.seek(start)
    raw = file.read(size)
    if len(raw) != size:
        raise DamagedError("it is cut short")
    return raw
