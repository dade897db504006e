"""Compute a tensor's statistics and checksum, and read and write its file, also for floats that numpy lacks."""

from probe_format.checksum import crc32, file_crc32, xor_hex

from .array_object import array_object, checksum_of, stored
from .denormals import flushed, with_denormals
from .files import byte_count, load_pt, npy_bytes, npy_head, parts_crc32, put_parts, write_parts
from .narrow_floats import narrow_name, widen
from .native import array_at, memory_at, numbers_at, stats_at, stats_in
from .npy_file import load_npy, map_npy, npy_header
from .pack import Entry, Place, entries, entry_head, opened
from .pt_file import PT_DTYPES, pt_bytes, pt_frame
from .sketch import rounded, sketch_of
from .stats import NO_STATS, Stats, blocks, distinct, not_finite, repeated, stats_json, stats_of

__all__ = [
    "NO_STATS", "PT_DTYPES", "Entry", "Place", "Stats", "array_at", "array_object", "blocks", "byte_count",
    "checksum_of", "crc32", "distinct", "entries", "entry_head", "file_crc32", "flushed", "load_npy",
    "load_pt", "map_npy", "memory_at", "narrow_name", "not_finite", "npy_bytes", "npy_head", "npy_header",
    "numbers_at", "opened", "parts_crc32", "pt_bytes", "pt_frame", "put_parts", "repeated", "rounded",
    "sketch_of", "stats_at", "stats_in", "stats_json", "stats_of", "stored", "widen", "with_denormals",
    "write_parts", "xor_hex",
]  # fmt: skip
