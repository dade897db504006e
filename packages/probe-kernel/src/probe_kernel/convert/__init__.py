"""Convert bin files to npy, pt or raw files."""

from .convert_file import TYPES, Conversion, ConvertOutcome, bin_files, convert_file
from .convert_many import convert_all

__all__ = ["TYPES", "Conversion", "ConvertOutcome", "bin_files", "convert_all", "convert_file"]
