"""Tell wrappers whether calls are to be recorded: only while patches are applied, and not in a thread that is muted.

While patches are applied, a framework's `Switch` holds the tap: the function that wrappers hand their calls to, which
records them. `muted` and `quiet` keep what this thread calls out of the records. `Nested` has a call recorded once
where several replacements of Probe's are called for it. `Label` says what a function is called in the records.
"""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import attrs

from .kept import Stray


@attrs.frozen
class Label:
    """The first two parts of a record's name, and what is known of the function.

    prefix: the first part, "Torch".
    api: the second part, "relu".
    composite: whether what the function calls is recorded as well.
    listed: the name that the list has for the function, where the user registered it under another one.
    name: both parts, "Torch.relu", for use as a dict key.
    kind: the name that the list has for the function: "Distributed.all_reduce".
    """

    prefix: str
    api: str
    composite: bool = attrs.field(default=False, eq=False)
    listed: str = attrs.field(default="", eq=False)
    name: str = attrs.field(init=False, eq=False, repr=False)
    kind: str = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "name", f"{self.prefix}.{self.api}")
        object.__setattr__(self, "kind", self.listed or self.name)

    def __str__(self) -> str:
        return self.name


# Takes (label, original, args, kwargs) and returns what the call returns. The tap calls `original` itself, exactly
# once, normally with these arguments, and decides everything else: whether the call is the outermost, counts, records.
Tap = Callable[[Label, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class Switch:
    """The tap of one framework, for its wrappers to find.

    Wrappers outlive Patches, because compiled code may be guarded by their identity; the tap does not. A wrapper that
    user code kept after stop() finds None here and does what the original does.
    """

    tap: Tap | None = None
    holder: object | None = None
    """The Patches that are applied now; None when there are none."""

    def __init__(self) -> None:
        self.strays: list[Stray] = []
        """Wrappers that user code has kept, and still holds where they could not be taken back."""


class _Muting(threading.local):
    muted = 0


thread = _Muting()
"""`thread.muted` is above 0 within `with muted():`. Wrappers read it directly, which costs no call."""


class Nested(threading.local):
    """Know which replacement of Probe's is being called in this thread, so that only the outermost records a call.

    A user's patch may lie between two replacements: each is called then, for one call of the run.

    what: what is called.
    by: the replacement that is being called.
    """

    what: object = None
    by: object = None

    def is_recorded(self, what: object, by: object) -> bool:
        """Return whether another replacement, further out, records this call."""
        return self.what is what and self.by is not by and self.by is not None

    @contextmanager
    def call(self, what: object, by: object) -> Iterator[None]:
        """Note, for the block, that the replacement ``by`` is being called for ``what``."""
        before, (self.what, self.by) = (self.what, self.by), (what, by)
        try:
            yield
        finally:
            self.what, self.by = before


class muted:
    """Send this thread's calls straight to the framework within `with muted():`; other threads are not affected."""

    __slots__ = ()

    def __enter__(self) -> None:
        thread.muted += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread.muted -= 1


def quiet(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `original` such that what it calls is not recorded."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        with muted():
            return original(*args, **kwargs)

    return call


def is_muted() -> bool:
    """Return whether this thread is within `with muted():`."""
    return thread.muted > 0
