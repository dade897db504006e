"""What stands in for a torch function while a dump runs: a plain function that hands each call to the tap."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import attrs
import torch

from probe_torch.callers import is_model_code, verdicts
from probe_torch.originals import remember
from probe_torch.overrides import has_override, truly_named

__all__ = ["Label", "Switch", "Tap", "Wrapper", "is_muted", "muted", "switch", "wrap"]

Function = Callable[..., Any]
Wrapper = Callable[..., Any]


@attrs.frozen
class Label:
    """The first two parts of a record's name: Label("Torch", "relu"); `name` is "Torch.relu", good as a
    dict key."""

    prefix: str
    api: str
    composite: bool = attrs.field(default=False, eq=False)
    name: str = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "name", f"{self.prefix}.{self.api}")

    def __str__(self) -> str:
        return self.name


# tap(label, original, args, kwargs) -> what the call returns. The tap calls `original` itself, exactly
# once, with arguments of its choice (the given ones, normally) and decides everything else: outermost or
# not, counts, records.
Tap = Callable[[Label, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class Switch:
    """Where the wrappers find the tap.

    They outlive Patches, because torch.compile guards on their identity; the tap does not. A wrapper that
    somebody kept after stop() finds None here and does what the original does.
    """

    tap: Tap | None = None


class _Thread(threading.local):
    muted = 0


switch = Switch()
_thread = _Thread()


class muted:
    """Within `with muted():` this thread's calls go straight to torch; other threads are not touched."""

    __slots__ = ()

    def __enter__(self) -> None:
        _thread.muted += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _thread.muted -= 1


def is_muted() -> bool:
    """Whether this thread is within `with muted():`."""
    return _thread.muted > 0


_wrappers: dict[tuple[str, Callable[..., Any]], Wrapper] = {}


def wrap(label: Label, original: Callable[..., Any], module: str, qualname: str) -> Wrapper:
    """The wrapper of `original`, made once per process: compiled code is guarded by its identity.

    `module` and `qualname` are where it will stand, so that pickle finds it there by name while it does.
    """
    key = (label.name, original)
    found = _wrappers.get(key)
    if found is None:
        found = _wrappers[key] = _build(label, original)
        found.__module__, found.__qualname__ = module, qualname
        remember(found, original)
    return found


def _build(label: Label, original: Callable[..., Any]) -> Wrapper:
    # Everything that a call needs is a local of this function: it runs some 100,000 times a step.
    is_compiling = torch.compiler.is_compiling
    tracing_state = torch._C._get_tracing_state
    caller = sys._getframe

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        # First, because Dynamo knows this function: it inlines the next line and sees nothing of the rest.
        if is_compiling() or tracing_state() is not None:
            return original(*args, **kwargs)
        tap = switch.tap
        if tap is None:
            return original(*args, **kwargs)
        call = original
        if has_override(args) or (kwargs and has_override(tuple(kwargs.values()))):
            call = truly_named(original, args, kwargs)
        if _thread.muted:
            return call(*args, **kwargs)
        frame = caller(1)
        seen = verdicts.get(frame.f_code.co_filename)
        if seen is None:
            seen = is_model_code(frame)
        if not seen:
            with muted():  # what F.layer_norm calls inside a compiled graph is inside it too
                return call(*args, **kwargs)
        return tap(label, call, args, kwargs)

    return wrapper
