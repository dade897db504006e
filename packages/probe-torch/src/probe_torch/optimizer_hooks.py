"""Put hooks into torch's tables of optimizer hooks and take them out again, also while other threads train.

torch goes through such a table during an update, which fails if the table gains or loses a hook meanwhile. So a hook
that is taken out while another thread trains is replaced by one that does nothing, until its key is used for another
hook, or no other thread trains any more.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .training_threads import others_train

Table = dict[int, Any]  # an OrderedDict
#: The keys of our hooks: torch numbers others from 0 up.
KEYS = iter(range(-1, -(1 << 62), -1))
#: Id of a table -> the table, and the keys in it whose hook does nothing, so that they can be used again.
_free: dict[int, tuple[weakref.ref[Any], list[int]]] = {}


@contextmanager
def hooked(table: Table, hook: Callable[..., Any]) -> Iterator[None]:
    """Have a hook in a table, while this is open."""
    _clear()
    keys = _free_keys(table)
    table[key := keys.pop() if keys else next(KEYS)] = hook
    try:
        yield
    finally:
        take_out(table, key)


def take_out(table: Table, key: int) -> None:
    """Take a hook out of a table, if it is there."""
    if key in table:
        table[key] = _nothing
        _free_keys(table).append(key)
        _clear()


def _free_keys(table: Table) -> list[int]:
    known, keys = _free.get(id(table), (None, []))
    if known is None or known() is not table:  # the id was another table's
        known, keys = _free[id(table)] = weakref.ref(table), []
    return keys


def _clear() -> None:
    """Remove the hooks that do nothing, unless another thread trains."""
    if _free and not others_train():
        while _free:
            _, (known, keys) = _free.popitem()
            if (table := known()) is not None:
                for key in keys:
                    table.pop(key, None)


def _nothing(*args: Any) -> None:
    """Do nothing."""
