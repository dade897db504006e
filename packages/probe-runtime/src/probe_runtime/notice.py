"""Warn with the user's line, also from deep inside Probe or a framework."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from probe_format.own_code import FRAMEWORKS, is_own

__all__ = ["notice"]

_BETWEEN = frozenset({*FRAMEWORKS, "contextlib", "functools", "threading", "importlib", "atexit"})


def notice(text: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warn from the user's innermost line: not one of Probe's, a framework's or contextlib's."""
    frame = _user_frame(sys._getframe(1))
    warnings.warn_explicit(
        text,
        category,
        frame.f_code.co_filename,
        frame.f_lineno or 1,
        module=_module(frame) or "__main__",
        registry=frame.f_globals.setdefault("__warningregistry__", {}),  # as `warnings.warn` does
    )


def _user_frame(start: FrameType) -> FrameType:
    """Return the user's innermost frame; the outermost frame where the user has none (at exit)."""
    frame = start
    while (
        is_own(_module(frame)) or _module(frame).partition(".")[0] in _BETWEEN
    ) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _module(frame: FrameType) -> str:
    name = frame.f_globals.get("__name__")
    return name if isinstance(name, str) else ""
