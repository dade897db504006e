"""Convert bin files to npy, pt or raw files."""

from __future__ import annotations

from .convert_file import TYPES, Conversion, Outcome, Sources, bin_files, convert_file
from .convert_many import convert_all
from .destination import Destination, short_name

__all__ = [
    "TYPES",
    "Conversion",
    "Destination",
    "Outcome",
    "Sources",
    "bin_files",
    "convert_all",
    "convert_file",
    "short_name",
]
