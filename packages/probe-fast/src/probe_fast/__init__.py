"""Max, min, mean, norm, counts and sketch of a tensor in one read of its memory: a library in C, called by ctypes."""

from .library import KINDS, WAY, Measured, four, numbers

__version__ = "0.1.0"

__all__ = ["KINDS", "WAY", "Measured", "__version__", "four", "numbers"]
