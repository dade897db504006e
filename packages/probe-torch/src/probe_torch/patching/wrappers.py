"""The wrapper of a torch function while a dump runs: a plain function that passes each call to the tap."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from probe_runtime.patching import Label, Own, Switch, Tap, is_muted, muted, remember_original
from probe_runtime.patching import thread as _thread

from probe_torch.compiling import is_compiling

from .callers import is_model_code, verdicts
from .overrides import has_override, truly_named

__all__ = ["Label", "Switch", "Tap", "Wrapper", "is_muted", "muted", "switch", "wrap"]

Wrapper = Callable[..., Any]

switch = Switch()
"""The switch of torch's wrappers."""

_wrappers: dict[tuple[str, str, Callable[..., Any]], Wrapper] = Own()


def wrap(label: Label, original: Callable[..., Any], module: str, qualname: str) -> Wrapper:
    """Return the wrapper of `original`, made once per process: compiled code is guarded by its identity.

    module, qualname: where it will be, so that pickle finds it there by name.
    """
    key = (label.name, label.kind, original)
    found = _wrappers.get(key)
    if found is None:
        found = _wrappers[key] = _build(label, original)
        found.__module__, found.__qualname__ = module, qualname
        remember_original(found, original)
    return found


def _build(label: Label, original: Callable[..., Any]) -> Wrapper:
    # Everything that a call needs is a local of this function: it runs some 100,000 times a step.
    compiling = is_compiling
    tracing_state = torch._C._get_tracing_state
    caller = sys._getframe

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        # First, because Dynamo knows this function: it inlines the next line and sees nothing of the rest.
        if compiling() or tracing_state() is not None:
            return original(*args, **kwargs)
        tap = switch.tap
        if tap is None:
            return original(*args, **kwargs)
        call = original
        if has_override(args) or (kwargs and has_override(tuple(kwargs.values()))):
            call = truly_named(original, args, kwargs)
        if _thread.muted:
            return call(*args, **kwargs)
        try:
            frame = caller(1)
        except ValueError:  # called from C with no Python below (a thread's target): the user handed it over
            return tap(label, call, args, kwargs)
        seen = verdicts.get(frame.f_code.co_filename)
        if seen is None:
            seen = is_model_code(frame)
        if not seen:
            with muted():  # what F.layer_norm calls inside a compiled graph is inside it too
                return call(*args, **kwargs)
        return tap(label, call, args, kwargs)

    return wrapper
