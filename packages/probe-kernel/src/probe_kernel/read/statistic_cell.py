"""Parse and format one cell of a statistic.csv: a whole number, a shape, a name, or a value of a statistic."""

from __future__ import annotations

import math
import re

__all__ = ["MOST_DIMENSIONS", "Value", "name_text", "shape_of", "value_of", "value_text", "whole"]

Value = float | int | str | None

_WORDS = {"null": None, "": None}
_DIGITS = re.compile(r"[0-9]{1,30}")
_INTEGER = re.compile(r"[+-]?[0-9]{1,400}")
_FLOAT = re.compile(
    r"[+-]?(?:(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:e[+-]?[0-9]{1,5})?|inf(?:inity)?|nan)"
)
_SHAPE = re.compile(r"\([0-9\s,x]*\)|\[[0-9\s,x]*\]|[0-9\s,x]+")
MOST_DIMENSIONS = 64


def whole(text: str) -> int:
    """Return a whole number from 0 up. Raises ValueError where the cell is something else."""
    # In ASCII digits: int() would take 1_0 and digits of other scripts.
    if not _DIGITS.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a whole number")
    return int(text)


def shape_of(text: str) -> tuple[int, ...] | None:
    """Return a shape such as ``(2,3)``, None where the cell has none. Raises ValueError."""
    if not text or text.lower() == "null":
        return None
    numbers = re.findall(r"[0-9]+", text)
    if not _SHAPE.fullmatch(text) or len(numbers) > MOST_DIMENSIONS:
        raise ValueError(f"{text[:80]!r} is not a shape")
    return tuple(whole(number) for number in numbers)


def value_of(key: str, cell: str) -> Value:
    """Return the value of a statistic: None for null, and the cell itself where it is not a number.

    key: the statistic, by its name in statistic_category.
    """
    low = cell.lower()
    if low in _WORDS:
        return _WORDS[low]
    if key in ("md5", "sha1"):
        return cell
    if low in ("true", "false"):
        return int(low == "true")
    if _INTEGER.fullmatch(cell):
        return int(cell)
    if not _FLOAT.fullmatch(low):
        return cell
    value = float(cell)
    return cell if math.isinf(value) and "inf" not in low else value


def value_text(value: float | int | str) -> str:
    """Return a number as a cell, with every digit of a float64."""
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def name_text(text: str) -> str:
    """Return a name as a cell, in quotation marks where it would be read as several cells, or as a part of one."""
    if text == text.strip() and not re.search(r'[",\r\n\0]|^[(\[]', text):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'
