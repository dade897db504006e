"""Build the bytes of a ``.pt`` file as ``torch.save`` writes a contiguous CPU tensor: a zip of stored members.

They are put together from a prepared header and tail, because ``torch.save`` spends ten times longer on
bookkeeping than on the bytes. Files over 4 GiB get the zip64 fields that they need.
"""

import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache

from probe_format.checksum import Buffer, crc32
from probe_format.errors import FormatError

#: The records of a zip file: before each member, for each in the directory, and three at the end.
LOCAL, ENTRY = struct.Struct("<IHHHHHIIIHH"), struct.Struct("<IHHHHHHIIIHHHHHII")
WIDE_END, LOCATOR, END = struct.Struct("<IQHHIIQQQQ"), struct.Struct("<IIQI"), struct.Struct("<IHHHHIIH")

#: dtype -> its storage in torch, and the bytes of an element.
STORAGES = {
    "float32": ("FloatStorage", 4),
    "float64": ("DoubleStorage", 8),
    "float16": ("HalfStorage", 2),
    "bfloat16": ("BFloat16Storage", 2),
    "int64": ("LongStorage", 8),
    "int32": ("IntStorage", 4),
    "int16": ("ShortStorage", 2),
    "int8": ("CharStorage", 1),
    "uint8": ("ByteStorage", 1),
    "bool": ("BoolStorage", 1),
    "complex64": ("ComplexFloatStorage", 8),
    "complex128": ("ComplexDoubleStorage", 16),
}
#: Dtypes that have no storage of their own -> the bytes of an element.
UNTYPED = {
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    **dict.fromkeys(
        ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"), 1
    ),
}
#: The same of quantised dtypes, which torch saves in a special way, and `pt_bytes` cannot write.
QUANTISED = {"qint8": ("QInt8Storage", 1), "quint8": ("QUInt8Storage", 1), "qint32": ("QInt32Storage", 4)}
#: dtype -> the bytes of an element.
WIDTHS = {"complex32": 4, **UNTYPED, **{name: width for name, (_, width) in (STORAGES | QUANTISED).items()}}
#: torch dtype names (without ``torch.``) that `pt_bytes` can write.
PT_DTYPES = frozenset(STORAGES) | frozenset(UNTYPED)


def pt_bytes(dtype: str, shape: Sequence[int], data: Buffer) -> list[Buffer]:
    """Return the parts of a ``.pt`` file that ``torch.load`` reads as a contiguous CPU tensor.

    dtype: torch's name without ``torch.``, one of `PT_DTYPES`.
    data: its contiguous bytes.
    """
    head, tail = pt_frame(dtype, shape, memoryview(data).nbytes, crc32(data))
    return [head, data, tail]


def pt_frame(dtype: str, shape: Sequence[int], nbytes: int, crc: int) -> tuple[bytes, bytes]:
    """Return the bytes before and after the data.

    nbytes: the data's length.
    crc: the data's CRC-32.
    """
    first, second, third, last = _template(dtype, tuple(shape), nbytes)
    stamp = crc.to_bytes(4, "little")
    return first + stamp + second, third + stamp + last


@lru_cache(maxsize=1024)
def _template(dtype: str, shape: tuple[int, ...], nbytes: int) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the bytes around the data, in four parts: two before the data, and two after.

    The CRC-32 of the data belongs between the first two, and again between the last two.
    """
    head, directory = bytearray(), bytearray()
    pickle = _pickle(dtype, shape, nbytes)
    for name, content in (("data.pkl", pickle), ("byteorder", b"little"), ("version", b"3\n")):
        local, entry = _member(name, zlib.crc32(content), len(content), len(head))
        head += local + content
        directory += entry
    at, start = len(directory) + 16, len(head)
    local, entry = _member("data/0", 0, nbytes, start)
    head += local
    directory += entry
    tail = bytes(directory) + _end(4, len(directory), len(head) + nbytes)
    return bytes(head[: start + 14]), bytes(head[start + 18 :]), tail[:at], tail[at + 4 :]


_U32 = 0xFFFFFFFF


def _member(name: str, crc: int, size: int, offset: int) -> tuple[bytes, bytes]:
    """Return a member's local header, and its entry in the directory.

    The header is padded as torch does, so that the content starts at a multiple of 64 bytes.
    """
    full = f"archive/{name}".encode()
    wide = struct.pack("<HHQQ", 1, 16, size, size) if size >= _U32 else b""
    version, short = 45 if wide else 0, min(size, _U32)
    base = offset + LOCAL.size + len(full) + len(wide) + 4
    extra = wide + b"FB" + struct.pack("<H", -base % 64) + b"Z" * (-base % 64)
    both = 0, 0, 0, 0x21, crc, short, short, len(full)
    local = LOCAL.pack(0x04034B50, version, *both, len(extra)) + full + extra
    entry = ENTRY.pack(0x02014B50, version, version, *both, len(wide), 0, 0, 0, 0, offset) + full + wide
    return local, entry


def _end(entries: int, size: int, offset: int) -> bytes:
    wide = b""
    if offset >= _U32:
        record = WIDE_END.pack(0x06064B50, 44, 45, 45, 0, 0, entries, entries, size, offset)
        wide = record + LOCATOR.pack(0x07064B50, 0, offset + size, 1)
    return wide + END.pack(0x06054B50, 0, 0, entries, entries, size, min(offset, _U32), 0)


def _pickle(dtype: str, shape: tuple[int, ...], nbytes: int) -> bytes:
    """Return the pickle (protocol 2) of a tensor, as torch.save makes it, spelled out in opcodes."""
    strides: list[int] = []
    step = 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= max(n, 1)
    if dtype in STORAGES:
        storage, width = STORAGES[dtype]
        rebuild, extra = b"_rebuild_tensor_v2", b""
        count = nbytes // width
    elif dtype in UNTYPED:
        storage, count = "UntypedStorage", nbytes
        rebuild, extra = b"_rebuild_tensor_v3", b"ctorch\n" + dtype.encode() + b"\n"
    else:
        raise FormatError(f"No .pt template for dtype {dtype!r}; one of {sorted(PT_DTYPES)} is expected.")
    module = b"ctorch.storage\n" if storage == "UntypedStorage" else b"ctorch\n"
    kept = _str("storage") + module + storage.encode() + b"\n" + _str("0") + _str("cpu") + _int(count)
    form = _int(0) + _ints(shape) + _ints(strides) + b"\x89ccollections\nOrderedDict\n)R" + extra
    return b"\x80\x02ctorch._utils\n" + rebuild + b"\n((" + kept + b"tQ" + form + b"tR."


def _str(text: str) -> bytes:
    raw = text.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def _int(n: int) -> bytes:
    return b"J" + struct.pack("<i", n) if n < 1 << 31 else b"\x8a\x09" + n.to_bytes(9, "little")


def _ints(values: Sequence[int]) -> bytes:
    return b"(" + b"".join(_int(v) for v in values) + b"t"
