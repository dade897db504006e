"""Keep what is known about each tensor once, however many calls took or returned it, in either dump."""

import math
from collections.abc import Mapping
from typing import Any

from attrs import define, field
from probe_format.excerpts import brief, cut
from probe_format.jsonio import number
from probe_format.statistics import NOT_FINITE, WHOLE

from probe_analysis.compare.distance import as_float
from probe_analysis.compare.tolerance import dtype_name
from probe_analysis.nonfinite.first import broken

from .page import Numbering, numbers, whole

#: What only a tensor's file has; tensors that differ in nothing else are described alike.
_FILE = {"data_name", "data_crc32"}
#: Keys that are told by a column, or are not told.
_TOLD = {*WHOLE, *NOT_FINITE, "type", "dtype", "shape", "md5", "requires_grad", *_FILE}

# What a statistic is: two bits for each in the column `marks`.
_NUMBER, _ABSENT, _BOOL, _TEXT = range(4)
_SAVED, _GRAD = 1 << 8, 1 << 9


@define(eq=False)
class Facts:
    """Number the different descriptions of tensors.

    _known: what is in a description -> its number.
    exact: number, statistic, text: whole numbers that float64 does not have.
    """

    texts: Numbering
    _known: Numbering = field(factory=Numbering, repr=False)
    _statistics: tuple[list[float], ...] = field(factory=lambda: ([], [], [], []), repr=False)
    _marks: list[int] = field(factory=list, repr=False)
    _words: dict[str, list[int]] = field(
        factory=lambda: {key: [] for key in ("dtype", "shape", "broken", "md5", "more")}, repr=False
    )
    exact: list[tuple[int, int, str]] = field(factory=list, repr=False)

    def of(self, tensor: Mapping[str, Any]) -> int:
        """Return the number of a tensor's description; a new one gets the next."""
        told = (value for name, value in tensor.items() if name not in _FILE)
        # 1, 1.0 and True are equal in Python, but not in a dump.
        values = [value if type(value) in (float, str) else repr(value) for value in told]
        found = self._known[*values, *tensor]
        if found == len(self._marks):
            self._add(tensor)
        return found

    def _add(self, tensor: Mapping[str, Any]) -> None:
        marks = _SAVED * ("data_name" in tensor) | _GRAD * (tensor.get("requires_grad") is True)
        for i, (name, column) in enumerate(zip(WHOLE, self._statistics, strict=True)):
            mark, value = self._statistic(i, number(tensor.get(name)))
            marks |= mark << 2 * i
            column.append(value)
        self._marks.append(marks)
        checksum = tensor.get("md5")
        sizes = (str(n) if type(n) is int and n < 1 << 63 else brief(n) for n in tensor["shape"])
        for name, text in (
            ("dtype", dtype_name(str(tensor["dtype"]))),
            ("shape", cut("x".join(sizes), 200) or "scalar"),
            ("broken", broken(tensor)),
            ("md5", checksum if isinstance(checksum, str) else ""),
            ("more", _more(tensor)),
        ):
            self._words[name].append(self.texts[text])

    def _statistic(self, which: int, value: Any) -> tuple[int, float]:
        """Return (what it is, the nearest number) of a statistic."""
        if isinstance(value, bool):
            return _BOOL, float(value)
        if isinstance(value, int):
            near = as_float(value) or 0.0
            if near == value:
                return _NUMBER, near
            self.exact.append((len(self._marks), which, brief(value)))
            return _TEXT, near
        return (_NUMBER, value) if isinstance(value, float) else (_ABSENT, math.nan)

    def columns(self) -> dict[str, Any]:
        return {
            **{name: numbers(column) for name, column in zip(WHOLE, self._statistics, strict=True)},
            "marks": whole(self._marks),
            **{name: whole(column) for name, column in self._words.items()},
            "exact": [list(each) for each in self.exact],
        }


def _more(tensor: Mapping[str, Any]) -> str:
    """Return in words what else is said about a tensor: its type where it is no plain tensor, placements, zeros."""
    kind = str(tensor["type"])
    words = [] if kind in ("torch.Tensor", "mindspore.Tensor") else [kind]
    return ", ".join(words + [f"{key} {_text(value)}" for key, value in tensor.items() if key not in _TOLD])


def _text(value: Any) -> str:
    return value if isinstance(value, str) and len(value) < 200 else brief(value)
