"""Find the operators and kernels that a line of the script became."""

from .find_line import Hit, Line, find, parse_line

__all__ = ["Hit", "Line", "find", "parse_line"]
