"""Wrap a torch function in a plain function that passes each call to the tap while a dump runs."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from probe_runtime.patching import Label, Nested, Switch, muted, stand_in
from probe_runtime.patching import thread as _thread

from probe_torch.compiling import is_compiling

from .callers import is_model_code, verdicts
from .overrides import has_override, truly_named

Wrapper = Callable[..., Any]

switch = Switch()
"""The switch of torch's wrappers."""

_wrappers: weakref.WeakValueDictionary[tuple[Any, ...], Wrapper] = weakref.WeakValueDictionary()
_nested = Nested()


def wrap(label: Label, original: Callable[..., Any], module: str, qualname: str) -> Wrapper:
    """Return the wrapper of `original`, one for all places that have it: compiled code is guarded by its identity.

    module, qualname: the place where the wrapper goes, by which pickle finds it.
    """
    key = (label.name, label.kind, id(original))
    found = _wrappers.get(key)
    if found is None:
        found = _wrappers[key] = stand_in(_build(label, original), original)
        found.__module__, found.__qualname__ = module, qualname
    return found


def _build(label: Label, original: Callable[..., Any]) -> Wrapper:
    # Everything that a call needs is a local of this function: it runs some 100,000 times a step.
    compiling = is_compiling
    tracing_state = torch._C._get_tracing_state
    caller = sys._getframe
    composite = label.composite

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        # First, because Dynamo evaluates this condition while it inlines the wrapper, and so drops the rest.
        if compiling() or tracing_state() is not None:
            return original(*args, **kwargs)
        tap = switch.tap
        if tap is None:
            return original(*args, **kwargs)
        call = original
        if has_override((*args, *kwargs.values()) if kwargs else args):
            call = truly_named(original, args, kwargs)
        if _thread.muted:
            return call(*args, **kwargs)
        try:
            seen = verdicts[caller(1).f_code.co_filename]
        except KeyError:
            seen = is_model_code(caller(1))
        except ValueError:  # called from C with no Python below, where the user passed it (threads)
            seen = True
        if not seen:
            with muted():  # calls that this one makes are not the model's either
                return call(*args, **kwargs)
        if not composite:
            return tap(label, call, args, kwargs)
        # What a composite function calls is recorded too: not a second time the function itself.
        if _nested.is_recorded(label, wrapper):
            return call(*args, **kwargs)
        before, (_nested.what, _nested.by) = (_nested.what, _nested.by), (label, wrapper)
        try:
            return tap(label, call, args, kwargs)
        finally:
            _nested.what, _nested.by = before

    return wrapper
