"""Walk the opcodes of a ``.pt`` file's pickle without unpickling: nothing is imported and nothing is called.

The walk knows the few opcodes that a tensor needs, and ends at any other.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Container
from typing import Any

from attrs import frozen

from probe_format.errors import DamagedError, FormatError

__all__ = ["Call", "Name", "Stored", "walk"]

_MOST_BYTES = 1 << 16


@frozen
class Name:
    """Stand for what the pickle imports."""

    name: str


@frozen
class Call:
    """Stand for what a call returns."""

    function: Any
    arguments: Any


@frozen
class Stored:
    """Stand for a storage.

    what: what torch.save says of it: kind, member, device and number of elements.
    """

    what: Any


_MARK = object()


def walk(pickle: bytes, names: Container[str]) -> Any:
    """Return what the pickle makes, with a `Name`, `Call` or `Stored` for what unpickling would import or call.

    names: what it may import.
    Raises DamagedError when it is not a pickle by torch.save, FormatError when it needs more than a tensor does; the
    messages have no file name.
    """
    if len(pickle) > _MOST_BYTES:
        raise FormatError(f"its pickle has {len(pickle)} bytes, more than that of a tensor")
    try:
        return _walk(pickle, names)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
        raise DamagedError(f"its pickle is damaged ({str(error)[:100]})") from None


def _walk(pickle: bytes, names: Container[str]) -> Any:
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for op, arg, at in pickletools.genops(pickle):
        step = _STEPS.get(op.name)
        if step is None:
            raise FormatError(f"its pickle has the opcode {op.name}, which no tensor needs")
        if op.name == "GLOBAL" and (name := _dotted(arg)) not in names:
            raise FormatError(f"its pickle names {name[:80]!a}, which no tensor needs")
        if op.name == "STOP":
            if len(stack) != 1 or at != len(pickle) - 1 or stack[0] is _MARK:
                raise ValueError("it does not end where it stops")
            return stack[0]
        step(stack, memo, arg)
    raise ValueError("it does not stop")


def _dotted(arg: Any) -> str:
    return str(arg).replace(" ", ".", 1)


def _push(stack: list[Any], memo: dict[int, Any], arg: Any) -> None:
    stack.append(arg)


def _proto(stack: list[Any], memo: dict[int, Any], arg: Any) -> None:
    if arg != 2:
        raise ValueError(f"it is of protocol {arg}")


def _name(stack: list[Any], memo: dict[int, Any], arg: Any) -> None:
    stack.append(Name(_dotted(arg)))


def _put(stack: list[Any], memo: dict[int, Any], arg: Any) -> None:
    if stack[-1] is _MARK:
        raise ValueError("a mark is remembered")
    memo[arg] = stack[-1]


def _get(stack: list[Any], memo: dict[int, Any], arg: Any) -> None:
    stack.append(memo[arg])


def _tuple(stack: list[Any], memo: dict[int, Any], arg: Any) -> None:
    at = len(stack) - 1
    while stack[at] is not _MARK:
        at -= 1
    items = tuple(stack[at + 1 :])
    del stack[at:]
    stack.append(items)


def _tuple_of(count: int) -> Callable[[list[Any], dict[int, Any], Any], None]:
    def step(stack: list[Any], memo: dict[int, Any], arg: Any) -> None:
        items = tuple(stack[len(stack) - count :]) if count else ()
        if len(items) < count or any(item is _MARK for item in items):
            raise ValueError("a tuple without its items")
        del stack[len(stack) - count :]
        stack.append(items)

    return step


def _persistent(stack: list[Any], memo: dict[int, Any], arg: Any) -> None:
    stack.append(Stored(stack.pop()))


def _reduce(stack: list[Any], memo: dict[int, Any], arg: Any) -> None:
    arguments = stack.pop()
    stack.append(Call(stack.pop(), arguments))


_STEPS: dict[str, Callable[[list[Any], dict[int, Any], Any], None]] = {
    "PROTO": _proto,
    "STOP": _push,
    "GLOBAL": _name,
    "BINPUT": _put,
    "LONG_BINPUT": _put,
    "BINGET": _get,
    "LONG_BINGET": _get,
    "MARK": lambda stack, memo, arg: stack.append(_MARK),
    "TUPLE": _tuple,
    "EMPTY_TUPLE": _tuple_of(0),
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    "BINPERSID": _persistent,
    "REDUCE": _reduce,
    "NEWTRUE": lambda stack, memo, arg: stack.append(True),
    "NEWFALSE": lambda stack, memo, arg: stack.append(False),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE"), _push),
}
