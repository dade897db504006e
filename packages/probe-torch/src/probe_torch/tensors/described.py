"""Put the object of a tensor together, its keys in the order of msprobe."""

from __future__ import annotations

from typing import Any

from attrs import frozen
from probe_format.jsonio import dumps

__all__ = ["Described", "described"]

_HEAD = ("type", "dtype", "shape", "Max", "Min", "Mean", "Norm")
_MESH = ("device_mesh", "placements")


@frozen
class Described:
    """Hold the parts of a tensor object.

    head, mesh, tail: its keys, in this order.
    content: a number that identifies its bytes; 0 where it has no file.
    """

    head: dict[str, Any]
    mesh: dict[str, Any]
    tail: dict[str, Any]
    content: int = 0

    def object(self, requires_grad: bool, file: dict[str, Any]) -> dict[str, Any]:
        """Return the object. file: the keys that it has for its file."""
        return {**self.head, "requires_grad": requires_grad, **self.mesh, **file, **self.tail}

    def json(self, requires_grad: bool) -> tuple[bytes, int]:
        """Return the object without a file as JSON, and where the keys of a file belong, from its end."""
        first = dumps({**self.head, "requires_grad": requires_grad, **self.mesh})[:-1]
        last = b"," + dumps(self.tail)[1:] if self.tail else b"}"
        return first + last, -len(last)


def described(body: dict[str, Any], content: int = 0) -> Described:
    """Return the parts of an object. body: all its keys; content: as in `Described`."""
    head = {k: body.pop(k) for k in _HEAD if k in body}
    mesh = {k: body.pop(k) for k in _MESH if k in body}
    return Described(head, mesh, body, content)
