"""Find and number the stack of the user's code that a call is made from, in the form that msprobe writes."""

from __future__ import annotations

import linecache
import os
import sys
import threading
from collections.abc import Sequence
from operator import is_
from types import CodeType, FrameType

from probe_format.own_code import OWN_MODULES, is_own

__all__ = ["FrameTable", "frames"]

Key = tuple[tuple[int, ...], tuple[CodeType, ...]]
"""Identity of a stack: the instruction and the code of every frame, innermost first."""

_getframe = sys._getframe
# (id of a code object, instruction) -> (the code, its text). The code is kept so that no other code gets its id.
_texts: dict[tuple[int, int], tuple[CodeType, str]] = {}
# A program that makes code without end (exec in a loop) must not fill the memory: beyond these, start anew.
_MOST_TEXTS = 200_000
_MOST_STACKS = 100_000


def frames(skip_modules: Sequence[str] = OWN_MODULES) -> tuple[Key, tuple[str, ...]]:
    """Return the caller's stack, innermost first, as strings like ``"File /a.py, line 3, in f, \\n x = g(x)"``.

    skip_modules: packages whose frames are left out. The key is equal for equal stacks.
    """
    frame = _getframe(1)
    lastis, codes = _walk(frame)
    return (tuple(lastis), tuple(codes)), _describe(frame, tuple(skip_modules))


def _walk(start: FrameType | None) -> tuple[list[int], list[CodeType]]:
    lastis: list[int] = []
    codes: list[CodeType] = []
    while start is not None:
        lastis.append(start.f_lasti)
        codes.append(start.f_code)
        start = start.f_back
    return lastis, codes


def _describe(start: FrameType | None, skip: tuple[str, ...]) -> tuple[str, ...]:
    found = []
    while start is not None:
        if not is_own(start.f_globals.get("__name__"), skip):
            found.append(_text(start))
        start = start.f_back
    return tuple(found)


def _text(frame: FrameType) -> str:
    code = frame.f_code
    key = (id(code), frame.f_lasti)
    known = _texts.get(key)
    if known is not None:
        return known[1]
    if len(_texts) > _MOST_TEXTS:
        _texts.clear()
    line = frame.f_lineno or code.co_firstlineno
    name = code.co_filename
    # <string>, <stdin> and <frozen runpy> are not files.
    path = name if name.startswith("<") else os.path.abspath(name)
    try:
        source = linecache.getline(name, line, frame.f_globals).strip()
    except Exception:  # the user's __loader__ may be broken; the stack is still recorded
        source = ""
    text = f"File {path}, line {line}, in {code.co_name}, \n {source}"
    _texts[key] = (code, text)
    return text


class FrameTable:
    """Number stacks: the same stack of the user's code gets the same id. Safe to use from many threads."""

    def __init__(self, skip_modules: Sequence[str] = OWN_MODULES) -> None:
        self._skip = tuple(skip_modules)
        self._lock = threading.Lock()
        # By instructions alone, as hashing a code object is slow; the codes are compared by identity (two
        # equal code objects can come from different files).
        self._known: dict[tuple[int, ...], list[tuple[list[CodeType], int, tuple[str, ...]]]] = {}
        self._count = 0
        self._ids: dict[tuple[str, ...], int] = {}

    def intern(self) -> tuple[int, bool, tuple[str, ...]]:
        """Return (id from 0, whether it is new, frames) of the caller's stack. Takes about 3 us for a known one."""
        start: FrameType | None = _getframe(1)
        frame = start
        lastis: list[int] = []
        codes: list[CodeType] = []
        while frame is not None:  # as _walk does, without the cost of a call
            lastis.append(frame.f_lasti)
            codes.append(frame.f_code)
            frame = frame.f_back
        key = tuple(lastis)
        for known, number, described in self._known.get(key, ()):
            if len(known) == len(codes) and all(map(is_, known, codes)):
                return number, False, described
        return self._add(key, codes, _describe(start, self._skip))

    def _add(
        self, key: tuple[int, ...], codes: list[CodeType], described: tuple[str, ...]
    ) -> tuple[int, bool, tuple[str, ...]]:
        with self._lock:
            if self._count >= _MOST_STACKS:
                self._known, self._count = {}, 0
            self._count += 1
            # Stacks that differ in Probe's own frames alone are the same to the user.
            new = described not in self._ids
            number = self._ids.setdefault(described, len(self._ids))
            self._known.setdefault(key, []).append((codes, number, described))
            return number, new, described
