"""Wrap a MindSpore function so that the model's calls of it go to the tap, which records them, while a dump runs."""

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

from probe_runtime.patching import Label, Nested, Switch, muted, stand_in
from probe_runtime.patching import thread as _thread

from .callers import belongs_to_model, dataset_thread, verdicts

Wrapper = Callable[..., Any]

switch = Switch()
"""Where MindSpore's wrappers find the tap: there is one while a dump runs."""

_wrappers: weakref.WeakValueDictionary[tuple[Any, ...], Wrapper] = weakref.WeakValueDictionary()
_nested = Nested()


def wrap(
    label: Label, original: Callable[..., Any], module: str, qualname: str, *, users_only: bool = False
) -> Wrapper:
    """Return the wrapper of `original`. All places that hold it get the same one: compiled bytecode checks that.

    module, qualname: the place where the wrapper goes, by which pickle finds it.
    users_only: whether calls from MindSpore's own files are not recorded.
    """
    key = (label, label.kind, label.composite, users_only, id(original))
    found = _wrappers.get(key)
    if found is None:
        found = _wrappers[key] = stand_in(_build(label, original, users_only), original)
        found.__module__, found.__qualname__ = module, qualname
    return found


def _build(label: Label, original: Callable[..., Any], users_only: bool) -> Wrapper:
    # Everything that a call needs is a local of this function or of its module: it runs often.
    caller = sys._getframe
    known = verdicts[users_only]
    composite = label.composite

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        tap = switch.tap
        if tap is None or _thread.muted or dataset_thread.active:
            return original(*args, **kwargs)
        try:
            frame = caller(1)
        except ValueError:  # called from C++ without any Python frame, where the user passed it
            return tap(label, original, args, kwargs)
        seen = known.get(frame.f_code.co_filename)
        if seen is None:
            seen = belongs_to_model(frame, users_only)
        if seen and composite:
            # What a composite function calls is recorded too: not a second time the function itself.
            if _nested.is_recorded(label, wrapper):
                return original(*args, **kwargs)
            before, (_nested.what, _nested.by) = (_nested.what, _nested.by), (label, wrapper)
            try:
                return tap(label, original, args, kwargs)
            finally:
                _nested.what, _nested.by = before
        if seen:
            return tap(label, original, args, kwargs)
        # MindSpore's own layers use such an alias; of their calls, those by public names are recorded.
        if users_only:
            return original(*args, **kwargs)
        with muted():
            return original(*args, **kwargs)

    return wrapper


def jit_label(fn: Any, args: tuple[Any, ...]) -> Label:
    """Return the label of a jitted call: the function's name, or the class for a Cell's construct."""
    name = getattr(fn, "__name__", "function")
    return Label("Jit", type(args[0]).__name__ if name == "construct" and args else name)


def handed(label: Label, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of `call`, made through the tap if there is one and this thread is not muted."""
    tap = switch.tap
    if tap is None or _thread.muted or dataset_thread.active:
        return call(*args, **kwargs)
    return tap(label, call, args, kwargs)
