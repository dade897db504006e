"""Read the zip around a ``.pt`` file strictly: every byte belongs to something that ``torch.save`` writes.

``torch.load`` reads only the central directory and checks no checksum. A file passes here when the directory, the
local headers and the contents all agree, and nothing is compressed: then what torch finds is what was
written. Time and memory are bounded by the size of the file.
"""

from __future__ import annotations

import re
import struct
from typing import BinaryIO

from attrs import frozen

from probe_format.checksum import crc32
from probe_format.errors import DamagedError

from .pt_file import END, ENTRY, LOCAL, LOCATOR, WIDE_END

_U16, _U32 = 0xFFFF, 0xFFFFFFFF
_SIZES_LATER, _UTF8 = 0x8, 0x800
#: A directory of a tensor has seven entries of some 70 bytes; one of a nested tensor a few more.
_MOST_ENTRIES, _MOST_DIRECTORY = 64, 1 << 16
_CHUNK = 1 << 20
_NAME = re.compile(
    r"data\.pkl|byteorder|version|\.format_version|\.storage_alignment|\.data/serialization_id|data/[0-9]{1,9}"
)


@frozen
class Member:
    """Locate one file in the zip: where its content begins, its size in bytes, and its verified CRC-32."""

    start: int
    size: int
    crc: int


def read_archive(file: BinaryIO, size: int) -> dict[str, Member]:
    """Return the members by name (``data.pkl``, ``data/0``), each checked.

    size: of the file, in bytes.
    Raises DamagedError when torch.save does not write such files; the message has no file name.
    """
    entries, start, stop = _end(file, size)
    if stop - start > _MOST_DIRECTORY or entries > _MOST_ENTRIES:
        raise DamagedError(f"its directory has {entries} entries, more than a tensor has")
    directory = _read(file, start, stop - start)
    members: dict[str, Member] = {}
    at = here = 0
    top = b""
    for _ in range(entries):
        name, flags, member, at = _entry(directory, at)
        top = top or name.partition(b"/")[0] + b"/"
        short = name.removeprefix(top).decode("latin-1")
        if not name.startswith(top) or _NAME.fullmatch(short) is None:
            raise DamagedError(f"its member {_told(name)} is not one that torch.save writes")
        if short in members:
            raise DamagedError(f"its member {short} is there twice")
        if member.start != here:
            raise DamagedError(f"its member {short} is not where the one before it ends")
        members[short], here = _member(file, name, flags, member, start)
    if at != len(directory) or here != start:
        raise DamagedError("there is more in it than its directory lists")
    return members


def _end(file: BinaryIO, size: int) -> tuple[int, int, int]:
    """Return how many entries the directory has, where it begins and where it ends."""
    if size < END.size:
        raise DamagedError("it is too short for the zip file that torch.save writes")
    stop = size - END.size
    mark, disk, first_disk, here, entries, length, start, comment = END.unpack(_read(file, stop, END.size))
    if mark != 0x06054B50 or disk or first_disk or here != entries or comment:
        raise DamagedError("it does not end as the zip file that torch.save writes")
    before = stop - LOCATOR.size - WIDE_END.size
    if before >= 0:
        raw = _read(file, before, WIDE_END.size + LOCATOR.size)
        if LOCATOR.unpack_from(raw, WIDE_END.size) == (0x07064B50, 0, before, 1):
            narrow = (entries, length, start)
            wide = WIDE_END.unpack_from(raw)
            mark, rest, _, _, disk, first_disk, here, entries, length, start = wide
            same = all(a in (b, limit) for a, b, limit in zip(
                narrow, (entries, length, start), (_U16, _U32, _U32), strict=True
            ))  # fmt: skip
            if mark != 0x06064B50 or rest != 44 or disk or first_disk or here != entries or not same:
                raise DamagedError("the two ends of its directory differ")
            stop = before
    if start + length != stop:
        raise DamagedError("its directory is not where its end says")
    return entries, start, stop


def _entry(directory: bytes, at: int) -> tuple[bytes, int, Member, int]:
    """Return one entry of the directory: name, flags, the member (with the start of its header), and its end."""
    if at + ENTRY.size > len(directory):
        raise DamagedError("its directory is cut short")
    fields = ENTRY.unpack_from(directory, at)
    mark, _, needed, flags, method, _, _, crc, packed, size = fields[:10]
    name_length, extra_length, comment, disk, internal, external, start = fields[10:]
    at += ENTRY.size
    name = directory[at : at + name_length]
    extra = directory[at + name_length : at + name_length + extra_length]
    at += name_length + extra_length
    if mark != 0x02014B50 or at > len(directory) or needed > 45 or comment or disk or internal or external:
        raise DamagedError("an entry of its directory is not as torch.save writes it")
    if method or flags & ~(_UTF8 | _SIZES_LATER):
        raise DamagedError(
            f"its member {_told(name)} is compressed or encrypted, which torch.save never does"
        )
    size, packed, start = _wide(extra, [size, packed, start])
    if packed != size:
        raise DamagedError(f"its member {_told(name)} has two sizes")
    return name, flags, Member(start, size, crc), at


def _wide(extra: bytes, values: list[int]) -> list[int]:
    """Return the sizes and the start; values over 32 bits come from the extra field for them."""
    short = [i for i, value in enumerate(values) if value == _U32]
    if not short and not extra:
        return values
    if len(extra) >= 4 and struct.unpack_from("<HH", extra) == (1, len(extra) - 4):
        found = [value for (value,) in struct.iter_unpack("<Q", extra[4 : 4 + (len(extra) - 4) // 8 * 8])]
        if len(found) >= len(short) and len(extra) == 4 + 8 * len(found):
            for i, value in zip(short, found, strict=False):
                values[i] = value
            return values
    raise DamagedError("an entry of its directory has a field that torch.save does not write")


def _member(file: BinaryIO, name: bytes, flags: int, entry: Member, limit: int) -> tuple[Member, int]:
    """Return the member whose local header is at ``entry.start``, after checking its content, and where it ends."""
    if entry.start + LOCAL.size > limit:
        raise DamagedError(f"its member {_told(name)} begins where nothing is")
    fields = LOCAL.unpack(_read(file, entry.start, LOCAL.size))
    mark, needed, own_flags, method, _, _, crc, packed, size, name_length, extra_length = fields
    start = entry.start + LOCAL.size + name_length + extra_length
    stop = start + entry.size
    later = bool(flags & _SIZES_LATER)
    after = (16 if entry.size < _U32 else 24) if later else 0
    right = (
        mark == 0x04034B50
        and needed <= 45
        and method == 0
        and own_flags == flags
        and name_length == len(name)
        and stop + after <= limit
        and (crc == entry.crc or (later and crc == 0))
        and all(n == min(entry.size, _U32) or (later and n in (0, _U32)) for n in (packed, size))
        and _read(file, entry.start + LOCAL.size, name_length) == name
    )
    if not right:
        raise DamagedError(f"the header of its member {_told(name)} does not agree with its directory")
    if _crc(file, start, entry.size) != entry.crc:
        raise DamagedError(f"the CRC-32 of its member {_told(name)} differs")
    if later:
        form = "<IIII" if after == 16 else "<IIQQ"
        expected = (0x08074B50, entry.crc, entry.size, entry.size)
        if struct.unpack(form, _read(file, stop, after)) != expected:
            raise DamagedError(f"what follows its member {_told(name)} does not agree with its directory")
    return Member(start, entry.size, entry.crc), stop + after


def _crc(file: BinaryIO, start: int, size: int) -> int:
    file.seek(start)
    crc = 0
    while size:
        chunk = file.read(min(size, _CHUNK))
        if not chunk:
            raise DamagedError("it became shorter while it was read")
        crc = crc32(chunk, crc)
        size -= len(chunk)
    return crc


def _read(file: BinaryIO, start: int, size: int) -> bytes:
    file.seek(start)
    raw = file.read(size)
    if len(raw) != size:
        raise DamagedError("it is cut short")
    return raw


def _told(name: bytes) -> str:
    return ascii(name[:60].decode("latin-1"))
