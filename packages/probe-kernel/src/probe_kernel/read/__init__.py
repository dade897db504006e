"""Read kernel dumps: ranks, iterations, kernels and their tensors."""

from __future__ import annotations

from .computed_statistics import NUMBERS, numbers, row, rows
from .dump import Dump, Iteration, Kernel, Layout, LazyGraph, Place, Rank, Slot, open
from .file_name import MOST_SLOTS, FileName, Kind, flat, is_file_name, parse_file_name
from .loaders import READERS, Contents, Part, Reader, contents
from .mapping import MAPPING, Mapping, read_mapping
from .overflow import Overflow, is_overflow, read_overflow
from .statistic_csv import STATISTIC, Row, Table, Value, read_table, table_text

__all__ = [
    "MAPPING",
    "MOST_SLOTS",
    "NUMBERS",
    "READERS",
    "STATISTIC",
    "Contents",
    "Dump",
    "FileName",
    "Iteration",
    "Kernel",
    "Kind",
    "Layout",
    "LazyGraph",
    "Mapping",
    "Overflow",
    "Part",
    "Place",
    "Rank",
    "Reader",
    "Row",
    "Slot",
    "Table",
    "Value",
    "contents",
    "flat",
    "is_file_name",
    "is_overflow",
    "numbers",
    "open",
    "parse_file_name",
    "read_mapping",
    "read_overflow",
    "read_table",
    "row",
    "rows",
    "table_text",
]
