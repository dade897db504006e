"""Tell when the results of a collective are complete, which come in its arguments and often later (spec/dump.md).

A collective's record has as output all its arguments, after it is complete. One that was started in the
background is complete when its handle has been waited for, so its output is described then. What an argument that
only receives holds before the call is not recorded.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from attrs import define, field, frozen


@define
class PendingWork:
    """The collectives under way, and what to do for each when its last handle has been waited for.

    kind: the class, or classes, of the handles.
    waiting: id of a handle -> (the handle, the ids that its collective still waits for, what to call then).
    lock: held while ``waiting`` changes.
    """

    kind: Any
    waiting: dict[int, tuple[Any, list[int], Callable[[bool], None]]] = field(factory=dict)
    lock: threading.RLock = field(factory=threading.RLock)

    def add(self, out: Any, finish: Callable[[bool], None]) -> bool:
        """Call ``finish(True)`` when the handles in ``out`` have been waited for; return False when it holds none."""
        works = [w for w in (out if isinstance(out, (list, tuple)) else [out]) if isinstance(w, self.kind)]
        if not works:
            return False
        left = [id(w) for w in works]
        with self.lock:
            for w in works:
                self.waiting[id(w)] = (w, left, finish)
        return True

    def waited(self, work: Any) -> None:
        """Note that the handle ``work`` has been waited for."""
        with self.lock:
            found = self.waiting.pop(id(work), None)
            if found is None:
                return
            _, left, finish = found
            left.remove(id(work))
            if left:
                return
        finish(True)

    def give_up(self) -> None:
        """Call ``finish(False)`` for each collective that was not waited for, at the end of the collection."""
        with self.lock:
            waiting, self.waiting = self.waiting, {}
        done: set[int] = set()
        for _, left, finish in waiting.values():
            if id(left) not in done:
                done.add(id(left))
                finish(False)


def _arguments(key: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> list[Any]:
    return [*args, *kwargs.values()]


@frozen
class Collectives:
    """What is special about a framework's collectives.

    receives: name -> (position, name) of the argument that only receives: its content before the call has no meaning.
    works: the collectives under way.
    results: (name, args, kwargs, what it returned) -> the values that a finished call left.
    """

    receives: Mapping[str, tuple[int, str]]
    works: PendingWork
    results: Callable[[str, tuple[Any, ...], dict[str, Any], Any], list[Any]] = _arguments

    def without_buffers(
        self, key: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a collective with None where it only receives."""
        place = self.receives.get(key)
        if place is None:
            return args, kwargs
        position, name = place
        if name in kwargs:
            return args, {**kwargs, name: None}
        return tuple(None if i == position else a for i, a in enumerate(args)), kwargs
