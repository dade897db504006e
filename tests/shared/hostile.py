"""Values of a user's that raise at whatever is asked of them: no record may let that into the run."""

from __future__ import annotations

import dataclasses
import decimal
import sys
from typing import Any

__all__ = ["HOSTILE", "Leaves", "Raises"]


class Raises(Exception):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        raise Raises

    __repr__ = __str__


class Leaves(BaseException):
    """What would end the run, and cannot say what it is."""

    def __str__(self) -> str:
        raise Leaves

    __repr__ = __str__


def _leave(*args: Any, **kwargs: Any) -> Any:
    raise Leaves


def _raise(*args: Any, **kwargs: Any) -> Any:
    raise Raises


class Silent:
    """Cannot say what it is."""

    __repr__ = __str__ = __format__ = _raise


class Everything:
    def __getattribute__(self, name: str) -> Any:
        raise Raises


class Attributes:
    __getattr__ = _raise


class Classless:
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise Raises


class Elements(list[Any]):
    __iter__ = __len__ = __getitem__ = __repr__ = _raise


class Pairs(dict[Any, Any]):
    items = keys = __iter__ = __len__ = __getitem__ = __repr__ = _raise


class Whole(int):
    __int__ = __index__ = __str__ = __repr__ = __lt__ = __gt__ = _raise


class Fraction(float):
    __float__ = __str__ = __repr__ = _raise


class Text(str):
    __str__ = __repr__ = __len__ = _raise


class Deep:
    def __repr__(self) -> str:
        return repr([self])


class Key:
    __str__ = __repr__ = _raise

    def __hash__(self) -> int:
        return 1


@dataclasses.dataclass
class Fields:
    a: int = 1

    def __getattribute__(self, name: str) -> Any:
        if name == "a":
            raise Raises
        return super().__getattribute__(name)


class Leaving(dict[Any, Any]):
    items = keys = __iter__ = __len__ = __getitem__ = __str__ = __repr__ = _leave
    __class__ = property(_leave)  # type: ignore[assignment]


class LeavingKey(Key):
    __str__ = __repr__ = __index__ = _leave


def _endless() -> Any:
    while True:
        yield 1


def _nested(times: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(times):
        inner = [inner]
    return inner


_RING: list[Any] = []
_RING.append(_RING)

HUGE = 10**5000

HOSTILE: dict[str, Any] = {
    "huge": HUGE,
    "huge_negative": -(10**100_000),
    "huge_inside": [1, {"a": (HUGE,)}],
    "huge_key": {HUGE: 1},
    "huge_slice": slice(HUGE, None, Silent()),
    "huge_range": range(HUGE),
    "huge_decimal": decimal.Decimal(10) ** 5000,
    "huge_set": {1, HUGE},
    "silent": Silent(),
    "everything": Everything(),
    "attributes": Attributes(),
    "classless": Classless(),
    "elements": Elements([1]),
    "pairs": Pairs(a=1),
    "whole": Whole(3),
    "fraction": Fraction(1.5),
    "text": Text("x"),
    "key": {Key(): 1},
    "fields": Fields(),
    "leaving": Leaving(a=1),
    "leaving_key": {LeavingKey(): 1},
    "leaving_slice": slice(LeavingKey(), None),
    "exception": Raises(),
    "deep_repr": Deep(),
    "endless": _endless(),
    "nested": _nested(5000),
    "ring": _RING,
    "surrogate": "\ud800",
    "surrogate_key": {"\ud800\0": "\udfff"},
    "bytes": b"\xff" * 10_000,
    "module": sys,
    "type": Raises,
    "memory": memoryview(b"a"),
}
