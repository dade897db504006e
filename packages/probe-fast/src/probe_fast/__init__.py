"""What Probe does in C, each a library called by ctypes: the numbers of a tensor, and the floats in a text."""

from .library import KINDS, WAY, Measured, four, numbers
from .text import take_floats

__version__ = "0.1.0"

__all__ = ["KINDS", "WAY", "Measured", "__version__", "four", "numbers", "take_floats"]
