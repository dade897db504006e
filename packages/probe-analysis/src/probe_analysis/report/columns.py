"""Pack a document with long columns of numbers into bytes that a browser turns into typed arrays without parsing.

The form: four bytes with the length of the JSON text, little-endian; the JSON text, ended with blanks; the columns,
each beginning at a multiple of eight bytes. Where the document has a column, the JSON has ``{"column": [type, begin,
length]}``; ``begin`` counts from the end of the JSON text. assets/columns.js reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from probe_format.jsonio import dumps

Column = npt.NDArray[Any]

_WHOLE = ("u1", "i1", "u2", "i2", "u4", "i4")


def whole(values: Sequence[int]) -> Column:
    """Return whole numbers as a column of the narrowest type that has them all; at most 32 bits."""
    column = np.asarray(values, np.int64)
    least, most = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    kinds = (kind for kind in _WHOLE if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max)
    return column.astype(next(kinds))


def numbers(values: Sequence[float]) -> Column:
    """Return numbers as a column: of float32 where it can hold each of them exactly, else of float64."""
    column = np.asarray(values, np.float64)
    with np.errstate(over="ignore"):
        narrow = column.astype(np.float32)
    exact = np.array_equal(narrow.astype(np.float64), column, equal_nan=True)
    return narrow if exact else column


def pack(document: Any) -> bytes:
    """Return a document of dicts, lists, texts, numbers and columns as bytes."""
    parts: list[bytes] = []
    begin = 0

    def plain(node: Any) -> Any:
        nonlocal begin
        if isinstance(node, np.ndarray):
            raw = node.astype(node.dtype.newbyteorder("<")).tobytes()
            entry = {"column": [f"{node.dtype.kind}{node.dtype.itemsize}", begin, len(node)]}
            parts.append(raw + bytes(-len(raw) % 8))
            begin += len(parts[-1])
            return entry
        if isinstance(node, dict):
            return {key: plain(value) for key, value in node.items()}
        texts = bool(node) and isinstance(node, list | tuple) and isinstance(node[0], str)
        if isinstance(node, list | tuple) and not texts:  # which hold no columns
            return [plain(value) for value in node]
        return node

    text = dumps(plain(document))
    text += b" " * (-(len(text) + 4) % 8)
    return b"".join((len(text).to_bytes(4, "little"), text, *parts))


class Numbering(dict[Any, int]):
    """Give each thing a number, from 0, in the order in which they are first asked for."""

    def __missing__(self, thing: Any) -> int:
        self[thing] = number = len(self)
        return number
