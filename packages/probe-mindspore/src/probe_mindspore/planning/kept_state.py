"""Keep what a step may change, and put it back: tensors, and what Cells and other objects hold."""

import contextlib
import random
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any

import mindspore as ms
import numpy as np
import numpy.typing as npt
from mindspore import Tensor, nn
from probe_format.errors import UsageError
from probe_format.tensors import widen

from probe_mindspore.tensors.tensor_view import DENSE, view_of

Undo = Callable[[], object]
Change = Callable[..., object]

#: How many bytes of tensors are kept in memory; with more, all go to a temporary file.
IN_MEMORY = 16 << 20
_PIECE = 4 << 20


@contextlib.contextmanager
def unchanged(*values: Any) -> Iterator[None]:
    """Put everything that can be reached from these values back when the block is left, as it was before.

    Tensors get their numbers, Cells and objects of the user's own classes their attributes, lists, dicts and sets what
    was in them. Raises UsageError when there is no room to keep the numbers.
    """
    with tempfile.SpooledTemporaryFile(IN_MEMORY, prefix="probe-plan-") as file:
        kept = _Kept(file)
        try:
            kept.keep(values)
        except OSError as e:
            raise UsageError(
                f"A plan makes a step of the net and puts it back as it was. Meanwhile its numbers are kept in a "
                f"temporary file, and that cannot be written in {tempfile.gettempdir()} ({e.strerror}). Set TMPDIR to "
                "a folder with room for all parameters."
            ) from e
        try:
            yield
        finally:
            kept.put_back()


class _Kept:
    """Keep values, and what they hold, each once."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._known: dict[int, Any] = {}  # id -> object, which is held so that no other gets its id
        self._undo: list[Undo] = []

    def keep(self, value: Any) -> None:
        waiting = [value]
        while waiting:
            value = waiting.pop()
            if id(value) not in self._known:
                self._known[id(value)] = value
                waiting += self._keep(value)

    def put_back(self) -> None:
        for undo in self._undo:
            undo()

    def _keep(self, value: Any) -> Iterable[Any]:
        """Keep one value; return what it holds."""
        if isinstance(value, DENSE):
            self._undo += _tensor(value, self._file)
        elif isinstance(value, np.ndarray):
            self._undo.append(_array(value))
        elif isinstance(value, _GENERATORS):
            self._undo.append(_generator(value))
        elif isinstance(value, dict):
            self._undo.append(_dict(value))
            return [*value.values()]
        elif isinstance(value, (list, deque, set)):
            self._undo.append(_items(value))
            return [*value]
        elif isinstance(value, (tuple, frozenset)):
            return value
        elif isinstance(value, nn.Cell):
            self._undo.append(_dict(vars(value), _passed()))
            return [held for name, held in vars(value).items() if name not in _passed()]
        elif _is_users(type(value)):
            self._undo.append(_slots(value))
            return [getattr(value, "__dict__", None), *(held for _, held in _slots_of(value))]
        return ()


_GENERATORS = (random.Random, np.random.RandomState, np.random.Generator, ms.Generator)


def _generator(value: Any) -> Undo:
    if isinstance(value, np.random.Generator):
        return partial(setattr, value.bit_generator, "state", value.bit_generator.state)
    if isinstance(value, random.Random):
        return partial(value.setstate, value.getstate())
    return partial(value.set_state, value.get_state())


def _tensor(t: Any, file: Any) -> Iterator[Undo]:
    view = view_of(t)
    if view.data is None or not view.data.size:
        return
    at, raw = file.tell(), view.data.reshape(-1).view(np.uint8)
    for start in range(0, raw.size, _PIECE):
        file.write(raw[start : start + _PIECE].data)
    size, dtype, shape, narrow = raw.size, view.data.dtype, view.data.shape, view.narrow

    def undo() -> None:
        now = view_of(t).data
        if now is not None and now.shape == shape and _holds(file, at, now.reshape(-1).view(np.uint8)):
            return
        file.seek(at)
        numbers = np.frombuffer(file.read(size), np.uint8).view(dtype).reshape(shape)
        new = Tensor(numbers if narrow is None else widen(numbers, narrow), t.dtype)
        if now is not None and now.shape == shape:
            t.copy_(new)
        else:
            t.assign_value(new)

    yield undo


def _holds(file: Any, at: int, raw: npt.NDArray[np.uint8]) -> bool:
    """Return whether the file has these bytes, without reading them all at once."""
    file.seek(at)
    pieces = (raw[start : start + _PIECE] for start in range(0, raw.size, _PIECE))
    return all(np.array_equal(np.frombuffer(file.read(piece.size), np.uint8), piece) for piece in pieces)


def _array(a: npt.NDArray[Any]) -> Undo:
    before = a.copy()

    def undo() -> None:
        if a.flags.writeable:
            a[...] = before

    return undo


def _table(read: Callable[[], dict[Any, Any]], drop: Change, put: Change) -> Undo:
    """Keep what a table of names holds, and its order.

    read: returns the table as a dict.
    drop, put: take a name out of the table, and set a name in it.
    """
    before = read()

    def undo() -> None:
        now = read()
        same = list(map(id, now)) == list(map(id, before))
        for key in () if same else now:
            drop(key)
        for key, held in before.items():
            if not same or now[key] is not held:
                put(key, held)

    return undo


def _dict(value: dict[Any, Any], passed: frozenset[str] = frozenset()) -> Undo:
    """Keep what is in a dict. passed: keys that are left as they are."""
    return _table(
        lambda: {key: held for key, held in value.items() if key not in passed},
        value.__delitem__,
        value.__setitem__,
    )


def _items(value: Any) -> Undo:
    before = [*value]

    def undo() -> None:
        if list(map(id, value)) != list(map(id, before)):
            value.clear()
            (value.update if isinstance(value, set) else value.extend)(before)

    return undo


def _slots(value: Any) -> Undo:
    """Keep the attributes of an object that are not in its ``__dict__``."""
    drop, put = partial(object.__delattr__, value), partial(object.__setattr__, value)
    return _table(lambda: dict(_slots_of(value)), drop, put)


def _slots_of(value: Any) -> Iterator[tuple[str, Any]]:
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name, getattr(value, name)


def _is_users(cls: type) -> bool:
    """Return whether objects of this class may hold a net's state: those of the user's code, and of mixed precision."""
    top = cls.__module__.partition(".")[0]
    if top == "mindspore":
        return cls.__module__ == "mindspore.amp"
    return not (issubclass(cls, type) or top in sys.stdlib_module_names or top in ("builtins", "numpy"))


@cache
def _passed() -> frozenset[str]:
    """Return the attributes of a Cell that MindSpore keeps for itself: what is compiled, and how it is named."""
    # Where attributes of the user's go.
    held = ("_params", "_cells", "_buffers", "_primitives", "_params_list")
    return frozenset(name for name in vars(nn.Cell()) if name.startswith("_") and name not in held)
