"""What a wrapper reads before it hands a call to the tap: whether there is a tap, and whether this thread is muted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import attrs

__all__ = ["Label", "Switch", "Tap", "is_muted", "muted", "thread"]


@attrs.frozen
class Label:
    """The first two parts of a record's name: Label("Torch", "relu"); `name` is "Torch.relu", good as a
    dict key.

    listed: the name under which the list has the function, where the user registered it under another one.
    """

    prefix: str
    api: str
    composite: bool = attrs.field(default=False, eq=False)
    listed: str = attrs.field(default="", eq=False)
    name: str = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "name", f"{self.prefix}.{self.api}")

    @property
    def kind(self) -> str:
        """What the function is, whatever it is called: "Distributed.all_reduce"."""
        return self.listed or self.name

    def __str__(self) -> str:
        return self.name


# tap(label, original, args, kwargs) -> what the call returns. The tap calls `original` itself, exactly
# once, with arguments of its choice (the given ones, normally) and decides everything else: outermost or
# not, counts, records.
Tap = Callable[[Label, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class Switch:
    """Where the stand-ins of one framework find the tap.

    They outlive Patches, because compiled code may be guarded by their identity; the tap does not. A stand-in
    that user code kept after stop() finds None here and does what the original does.
    """

    tap: Tap | None = None
    holder: object | None = None
    """The Patches that are applied; one at a time."""


class _Thread(threading.local):
    muted = 0


thread = _Thread()
"""`thread.muted` is above 0 within `with muted():`, for stand-ins to read at no cost."""


class muted:
    """Within `with muted():` this thread's calls go straight to the framework; other threads are not touched."""

    __slots__ = ()

    def __enter__(self) -> None:
        thread.muted += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread.muted -= 1


def is_muted() -> bool:
    """Whether this thread is within `with muted():`."""
    return thread.muted > 0
