"""Convert bin files to npy, pt or raw files."""

from .conversion import TYPES, Conversion, ConvertOutcome, bin_files, convert_all, convert_file

__all__ = ["TYPES", "Conversion", "ConvertOutcome", "bin_files", "convert_all", "convert_file"]
