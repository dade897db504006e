"""Write a number of bytes as people read it."""

from __future__ import annotations


def size_text(count: int) -> str:
    """Return bytes in the unit that fits, with three digits and powers of 1000: ``7.83 GB``."""
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{count} bytes" if unit == "bytes" else f"{_digits(size)} {unit}"
        size /= 1000
    return f"{_digits(size)} TB"


def _digits(size: float) -> str:
    return f"{size:#.3g}".rstrip(".")
