"""Make a record's empty slots, and read and set them by their paths: keys and indexes into nested lists and dicts.

A file may be damaged: a small one cannot ask for so many slots that they fill the memory.
"""

from collections.abc import Sequence
from typing import Any

from attrs import define

from probe_format.excerpts import brief

#: Writers nest arguments at most 24 levels deep, below a few levels of the record itself, and its name.
_DEEPEST = 101


@define
class Room:
    """Limit how many slots a file may ask for: a small file must not fill the memory."""

    left: int

    def take(self, count: int) -> None:
        """Count ``count`` new slots. Raises ValueError when that is too many."""
        self.left -= count
        if self.left < 0:
            raise ValueError("it asks for more slots than its size allows")

    def check(self, path: Any) -> None:
        flat = isinstance(path, list | tuple) and len(path) <= _DEEPEST
        if not flat or not all((type(key) is int and key >= 0) or isinstance(key, str) for key in path):
            raise ValueError(f"{brief(path)} is no path to a slot")


def blank_slots(shape: Any, room: Room | None = None) -> list[Any]:
    """Return empty slots.

    shape: a number of slots, or nested JSON of nulls.
    room: how many slots may still be made, where the shape comes from a file.
    """
    if isinstance(shape, int):
        if room is not None:
            room.take(shape)
        return [None] * shape
    return [blank(s, room) for s in shape] if isinstance(shape, list) else []


def blank(shape: Any, room: Room | None = None) -> Any:
    """Return a value of this shape with null for each leaf."""
    if room is not None:
        room.take(1)
    if isinstance(shape, list):
        return [blank(s, room) for s in shape]
    if isinstance(shape, dict):
        return {k: blank(v, room) for k, v in shape.items()}
    return None


def get(value: Any, path: Sequence[int | str]) -> Any:
    """Return the value at ``path``, None where the path does not exist."""
    for key in path:
        if isinstance(value, list) and isinstance(key, int) and key < len(value):
            value = value[key]
        elif isinstance(value, dict):
            value = value.get(str(key))
        else:
            return None
    return value


def put(slots: Any, path: Sequence[int | str], value: Any, room: Room | None = None) -> None:
    """Set ``slots[path[0]][path[1]]... = value``, growing lists and making containers where needed.

    room: how many slots may still be made, where the path comes from a file.
    Raises ValueError when it is not a path, or asks for too many slots.
    """
    if room is not None:
        room.check(path)
    here: Any = slots
    for i, key in enumerate(path):
        last = i == len(path) - 1
        if isinstance(here, list):
            if not isinstance(key, int):
                return
            missing = key + 1 - len(here)
            if missing > 0:
                if room is not None:
                    room.take(missing)
                here.extend([None] * missing)
        elif isinstance(here, dict):
            key = str(key)
            here.setdefault(key, None)
        if last:
            here[key] = value
            return
        if not isinstance(here[key], (list, dict)):
            here[key] = [] if isinstance(path[i + 1], int) else {}
        here = here[key]
