"""Find the operators and kernels of a line of the script."""

from __future__ import annotations

from .find_line import Hit, Line, find, parse_line

__all__ = ["Hit", "Line", "find", "parse_line"]
