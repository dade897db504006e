"""Tell the user something in the middle of the run, by a warning or in the log. Neither ever raises into the run."""

import contextlib
import logging
import sys
import warnings
from types import FrameType

from probe_format.excerpts import unsignalled
from probe_format.own_code import FRAMEWORKS, is_own
from probe_format.terminal import printable, tell

_BETWEEN = frozenset({*FRAMEWORKS, "contextlib", "functools", "threading", "importlib", "atexit"})
_logged: set[str] = set()


def notice(text: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warn from the user's innermost line: not one of Probe's, a framework's or contextlib's.

    A filter that turns warnings into errors only shows it, as the filter "default" would; other filters are obeyed.
    """
    text = printable(text)
    frame = user_frame(sys._getframe(1))
    file, line = printable(frame.f_code.co_filename), frame.f_lineno or 1
    try:
        registry = frame.f_globals.setdefault("__warningregistry__", {})  # as `warnings.warn` does
        try:
            warnings.warn_explicit(text, category, file, line, _module(frame) or "__main__", registry)
        except category:
            registry[text, category, line] = 1  # shown once, from each line
            warnings.showwarning(category(text), category, file, line)
    except unsignalled(Exception):  # the user's own way to show warnings fails
        with contextlib.suppress(Exception):  # stderr is closed
            tell(*text.split("\n"))


class Notices:
    """What one part of Probe tells the user: each thing once."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self, text: str, what: str = "") -> bool:
        """Tell the user a text, unless it was told before; return whether it is told now.

        what: the key by which it counts as told before; empty for the text itself.
        """
        is_new = (what or text) not in self._told
        if is_new:
            self._told.add(what or text)
            notice(f"Probe: {text}")
        return is_new


def log(package: str, text: str, level: int = logging.INFO) -> None:
    """Log in the name of a package. What a handler of the user's raises is caught: nothing of it reaches the run."""
    try:
        if (logger := logging.getLogger(package)).isEnabledFor(level):
            logger.log(level, "%s", printable(text), stacklevel=2)
    except unsignalled(Exception):  # there is nobody left to tell
        pass


def log_once(package: str, text: str) -> None:
    """Log a warning once in this process."""
    if text not in _logged:
        _logged.add(text)
        log(package, text, logging.WARNING)


def user_frame(start: FrameType) -> FrameType:
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
