"""The files of kernel dumps: bin, npy, layouts and dtypes of the device."""

from __future__ import annotations

from .bin_file import BinFile, Section, open_bin
from .dtypes import Dtype, decode, dtype_of, shaped
from .dump_data import FORMATS, DumpData, Piece, Tensor, parse_dump_data
from .opdebug import is_opdebug, opdebug_json
from .tensor_layouts import TARGETS, convert

__all__ = [
    "FORMATS",
    "TARGETS",
    "BinFile",
    "Dtype",
    "DumpData",
    "Piece",
    "Section",
    "Tensor",
    "convert",
    "decode",
    "dtype_of",
    "is_opdebug",
    "opdebug_json",
    "open_bin",
    "parse_dump_data",
    "shaped",
]
