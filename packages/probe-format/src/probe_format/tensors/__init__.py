"""Compute a tensor's statistics and checksum, and read and write its file, also for floats that numpy lacks."""

from probe_format.checksum import crc32, crc32_hex, file_crc32, xor_hex

from .addresses import array_at, memory_at
from .array_json import array_object, checksum_of, stored
from .files import byte_count, load_npy, load_pt, npy_bytes, npy_head, write_parts
from .narrow_floats import narrow_name, widen
from .npy_file import map_npy, npy_header
from .pt_file import PT_DTYPES, pt_bytes, pt_frame
from .stats import NO_STATS, Stats, blocks, distinct, repeated, stats_json, stats_of
from .stats_fast import CHUNK, combine, numbers_at, numbers_in, quick, quick_stats

__all__ = [
    "CHUNK", "NO_STATS", "PT_DTYPES", "Stats", "array_at", "array_object", "blocks", "byte_count",
    "checksum_of", "combine", "crc32", "crc32_hex", "distinct", "file_crc32", "load_npy", "load_pt",
    "map_npy", "memory_at", "narrow_name", "npy_bytes", "npy_head", "npy_header", "numbers_at",
    "numbers_in", "pt_bytes", "pt_frame", "quick", "quick_stats", "repeated", "stats_json", "stats_of",
    "stored", "widen", "write_parts", "xor_hex",
]  # fmt: skip
