"""Read the files of kernel dumps: bin files, npy files, and the layouts of the device."""

from .bin_file import BinFile, Section, open_bin
from .dump_data import Tensor
from .tensor_layouts import TARGETS, convert

__all__ = ["TARGETS", "BinFile", "Section", "Tensor", "convert", "open_bin"]
